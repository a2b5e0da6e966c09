"""Draw theorem1.svg: both distributions at one position of a recorded round, token by token.

    accepted    min(p_draft, p_target), the part that both models give: green
    rejected    p_draft - accepted, the draft's surplus: red
    resampled   p_target - accepted, the target's surplus: blue

Green and red are the draft, green and blue the target: that is Theorem 1 (docs/proof.md).
"""

import numpy as np

from docs.pictures.palette import colour


def columns(row):
    """Return [(name, accepted, resampled, rejected)]; the last row is all other tokens."""
    draft, target, both = row["others"]
    shown = []
    for _, name, p_draft, p_target, *_ in row["top"]:
        shown.append((name.strip(), min(p_draft, p_target), max(p_target - p_draft, 0),
                      max(p_draft - p_target, 0)))
    return [*shown, ("all others", both, target - both, draft - both)]


def draw(figure, data):
    """Draw the row at which a recorded round rejected a guess."""
    accepted_text = [token["text"] for token in data["ids"] if token["origin"] == "accepted"]
    axes = figure.subplots()
    shown = columns(data["rows"][len(accepted_text)])
    accepted, resampled, rejected = np.array([parts for _, *parts in shown]).T
    xs = np.arange(len(shown))
    half = np.where(resampled * rejected > 0, 0.3, 0.6)  # two surpluses stand side by side
    axes.bar(xs, accepted, 0.6, color=colour("green_bar"),
             label=f"accepted, {accepted.sum():.0%}\nthe part that both models give")
    axes.bar(xs + 0.3 - half, rejected, half, accepted, align="edge", hatch="///",
             color=colour("red_bar"), edgecolor=colour("panel"), linewidth=0,
             label=f"rejected, {rejected.sum():.0%}\nwhere the draft gives too much")
    axes.bar(xs - 0.3, resampled, half, accepted, align="edge", color=colour("blue_bar"),
             label=f"resampled, {resampled.sum():.0%}\ninstead, where it gives too little")
    labels = [f"{name}\n\n{green + red:.2f}\n{green + blue:.2f}"
              for name, green, blue, red in shown]
    axes.set_xticks([-0.75, *xs], ["\n\ndraft\ntarget", *labels])
    axes.tick_params(axis="x", length=0)
    axes.set(xlim=(-1.1, len(shown) - 0.5), ylabel="probability",
             title=f"The next token after \u201c\u2026{''.join(accepted_text)}\u201d")
    axes.grid(axis="x", visible=False)
    note = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False,
                       labelspacing=0.9, title="Draw a token from the draft:", alignment="left")
    note.get_title().set_fontweight("bold")
    axes.annotate("green + red = the draft\ngreen + blue = the target, exactly.\n\n"
                  "All others: a sum over tokens,\nsome of them red, some blue.", (1.03, -0.12),
                  xycoords="axes fraction", linespacing=1.5)
