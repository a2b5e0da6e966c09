"""Draw theorem1.svg: both distributions at one position of a recorded round, one column per token.

    accepted    min(p_draft, p_target), the part that both models give: green
    rejected    p_draft - accepted, the draft's surplus: red
    resampled   p_target - accepted, the target's surplus: blue

Green and red are the draft, green and blue the target: that is Theorem 1 (docs/proof.md).
"""

from docs.pictures.figures import colour


def columns(position):
    """Return [(name, accepted, resampled, rejected)]; the last is the sum of all other tokens."""
    shown = [(name.strip(), min(draft, target), max(target - draft, 0), max(draft - target, 0))
             for name, draft, target in position["tokens"]]
    others = position["others"]
    return shown + [("all others", others["accepted"], others["resampled"], others["rejected"])]


def draw(figure, data):
    """Draw the position at which a recorded round rejected a guess."""
    axes, shown = figure.subplots(), columns(data["position"])
    for x, (_, accepted, resampled, rejected) in enumerate(shown):
        half = 0.3 if resampled > 0 and rejected > 0 else 0.6  # of the others: side by side
        axes.bar(x, accepted, 0.6, color=colour("green_bar"))
        axes.bar(x - 0.3, resampled, half, accepted, align="edge", color=colour("blue_bar"))
        axes.bar(x + 0.3 - half, rejected, half, accepted, align="edge", hatch="///",
                 color=colour("red_bar"), edgecolor=colour("panel"), linewidth=0)
    labels = [f"{name}\n\n{green + red:.2f}\n{green + blue:.2f}"
              for name, green, blue, red in shown]
    axes.set_xticks([-0.75, *range(len(shown))], ["\n\ndraft\ntarget", *labels])
    axes.tick_params(axis="x", length=0)
    kept = "".join(token["text"] for token in data["ids"] if token["origin"] == "kept")
    axes.set(xlim=(-1.1, len(shown) - 0.5), ylabel="probability", title="The next token after "
             f"\u201c\u2026{kept.rstrip()}\u201d")
    axes.grid(axis="x", visible=False)
    legend(axes, *(sum(parts) for parts in list(zip(*shown))[1:]))


def legend(axes, accepted, resampled, rejected):
    """Explain the colours, and the proof, at the right."""
    from matplotlib.patches import Patch

    rows = [("green_bar", f"accepted, {accepted:.0%}", "the part that both models give", None),
            ("red_bar", f"rejected, {rejected:.0%}", "where the draft gives too much", "////"),
            ("blue_bar", f"resampled, {resampled:.0%}", "instead, where it gives too little", None)]
    handles = [Patch(facecolor=colour(name), hatch=hatch, edgecolor=colour("panel"), linewidth=0,
                     label=f"{what}\n{why}") for name, what, why, hatch in rows]
    note = axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False,
                       labelspacing=0.9, title="Draw a token from the draft:", alignment="left")
    note.get_title().set_fontweight("bold")
    axes.annotate("green + red = the draft\ngreen + blue = the target, exactly.\n\n"
                  "All others: a sum over tokens,\nsome of them red, some blue.", (1.03, -0.12),
                  xycoords="axes fraction", linespacing=1.5)
