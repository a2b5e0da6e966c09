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
    # The parts of all tokens that are not shown: accepted, resampled and rejected.
    _, green, blue, red = others
    # zip turns the rows of `shown` into columns.
    names, *probabilities = zip(*shown)
    accepted, resampled, rejected = np.array(probabilities)  # [n_shown] each
    xs = range(len(shown))
    axes.bar(xs, accepted, 0.6, color=colour("green_bar"),
             label=f"accepted, {accepted.sum() + green:.0%}: what both models give")
    # Both surpluses stand on the accepted part. A token has only one of them: the other is 0.
    axes.bar(xs, rejected, 0.6, accepted, hatch="///", color=colour("red_bar"),
             edgecolor=colour("panel"), linewidth=0,
             label=f"rejected, {rejected.sum() + red:.0%}: the draft gives too much")
    axes.bar(xs, resampled, 0.6, accepted, color=colour("blue_bar"),
             label=f"resampled, {resampled.sum() + blue:.0%}: the draft gives too little")
    labels = [f"{name}\n{draft:.2f}\n{target:.2f}" for name, draft, target
              in zip(names, accepted + rejected, accepted + resampled)]
    # A label without a bar, at the left, names the two lines of figures.
    axes.set_xticks([-0.8, *xs], ["\ndraft\ntarget", *labels])
    axes.tick_params(axis="x", length=0)
    axes.set(xlim=(-1.1, len(shown) - 0.5), ylabel="probability",
             title=f"The next token after \u201c\u2026{''.join(accepted_text)}\u201d")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower left", frameon=False, title=(
        "green + red = the draft\ngreen + blue = the target, exactly\n"
        f"(all other tokens: draft {green + red:.2f}, target {green + blue:.2f})"),
        alignment="left")
