"""Draw theorem1.svg: both distributions at one position of a recorded round, token by token.

    accepted    green: min(p_draft, p_target), the probability that both models give
    rejected    red: p_draft - accepted, the draft's surplus
    resampled   blue: p_target - accepted, the target's surplus

Green and red together are the draft's distribution, green and blue the target's: Theorem 1
(docs/proof.md).
"""

import numpy as np

from docs.pictures.palette import colour


def columns(row):
    """Return [(name, accepted, resampled, rejected)] of the top tokens, then of all others."""
    tokens = []  # (name, p_draft, p_target, accepted)
    for _, name, p_draft, p_target, *_ in row["top"]:
        tokens.append((name.strip(), p_draft, p_target, min(p_draft, p_target)))
    tokens.append(("others", *row["others"]))  # the sums of p_draft, p_target and accepted
    return [(name, accepted, p_target - accepted, p_draft - accepted)
            for name, p_draft, p_target, accepted in tokens]


def draw(figure, data):
    """Draw the row at which a recorded round rejected a guess."""
    accepted_text = [token["text"] for token in data["ids"] if token["origin"] == "accepted"]
    row = data["rows"][len(accepted_text)]  # the row after the accepted tokens
    axes = figure.subplots()
    *shown, others = columns(row)
    _, green, blue, red = others  # accepted, resampled and rejected, of all tokens not shown
    names, *probabilities = zip(*shown)
    accepted, resampled, rejected = np.array(probabilities)
    xs = range(len(shown))
    axes.bar(xs, accepted, 0.6, color=colour("green_bar"),
             label=f"accepted, {accepted.sum() + green:.0%}\nthe part that both models give")
    # Both surpluses stand on the accepted part. A token has only one of them: the other is 0.
    axes.bar(xs, rejected, 0.6, accepted, hatch="///", color=colour("red_bar"),
             edgecolor=colour("panel"), linewidth=0,
             label=f"rejected, {rejected.sum() + red:.0%}\nwhere the draft gives too much")
    axes.bar(xs, resampled, 0.6, accepted, color=colour("blue_bar"),
             label=f"resampled, {resampled.sum() + blue:.0%}\n"
             "instead, where it gives too little")
    labels = [f"{name}\n\n{draft:.2f}\n{target:.2f}" for name, draft, target
              in zip(names, accepted + rejected, accepted + resampled)]
    # A label without a bar, at the left, names the two lines of figures.
    axes.set_xticks([-0.75, *xs], ["\n\ndraft\ntarget", *labels])
    axes.tick_params(axis="x", length=0)
    axes.set(xlim=(-1.1, len(shown) - 0.5), ylabel="probability",
             title=f"The next token after \u201c\u2026{''.join(accepted_text)}\u201d")
    axes.grid(axis="x", visible=False)
    note = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False,
                       labelspacing=0.9, title="Draw a token from the draft:", alignment="left")
    note.get_title().set_fontweight("bold")
    axes.annotate("green + red = the draft\ngreen + blue = the target, exactly.\n\n"
                  "Not shown, but counted: all other\ntokens, "
                  f"draft {green + red:.2f}, target {green + blue:.2f}.", (1.03, -0.12),
                  xycoords="axes fraction", linespacing=1.5)
