"""Draw theorem1.svg: both distributions at one position of a recorded round, token by token.

    accepted    green: min(p_draft, p_target), the probability that both models give
    rejected    red: p_draft - accepted, the draft's surplus
    resampled   blue: p_target - accepted, the target's surplus

Green and red together are the draft's distribution, green and blue the target's: Theorem 1
(docs/proof.md).
"""

import numpy as np

from docs.pictures.palette import colour
from docs.tables import first_round

N_SHOWN = 5  # tokens with a bar


def parts(row):
    """Return the names of the tokens with a bar, and their accepted, rejected, resampled parts.

    Each part is an array [N_SHOWN + 1]; its last number is the sum over all other tokens.
    """
    tokens = [(name.strip(), p_draft, p_target)
              for _, name, p_draft, p_target, *_ in row["top"]]
    tokens.sort(key=lambda token: -max(token[1:]))  # the most probable tokens first
    names, *p = zip(*tokens)
    p_draft, p_target = np.array(p)
    accepted = np.minimum(p_draft, p_target)
    # row["others"] has the three sums over the tokens that are not in row["top"].
    columns = np.vstack([p_draft, p_target, accepted]).T
    others = columns[N_SHOWN:].sum(axis=0) + row["others"]
    p_draft, p_target, accepted = np.vstack([columns[:N_SHOWN], others]).T
    return names[:N_SHOWN], accepted, p_draft - accepted, p_target - accepted


def draw(figure):
    """Draw the row at which a recorded round rejected a guess."""
    data = first_round()
    accepted_text = [token["text"] for token in data["ids"] if token["origin"] == "accepted"]
    names, accepted, rejected, resampled = parts(data["rows"][len(accepted_text)])
    axes = figure.subplots()
    xs = range(N_SHOWN)
    axes.bar(xs, accepted[:-1], 0.6, color=colour("green_bar"),
             label=f"accepted, {accepted.sum():.0%}: what both models give")
    # Both surpluses stand on the accepted part. A token has only one of them: the other is 0.
    axes.bar(xs, rejected[:-1], 0.6, accepted[:-1], hatch="///", color=colour("red_bar"),
             edgecolor=colour("panel"), linewidth=0,
             label=f"rejected, {rejected.sum():.0%}: the draft gives too much")
    axes.bar(xs, resampled[:-1], 0.6, accepted[:-1], color=colour("blue_bar"),
             label=f"resampled, {resampled.sum():.0%}: the draft gives too little")
    p_draft = accepted + rejected
    p_target = accepted + resampled
    labels = [f"{name}\n{draft:.2f}\n{target:.2f}"
              for name, draft, target in zip(names, p_draft, p_target)]
    # A label without a bar, at the left, names the two lines of figures.
    axes.set_xticks([-0.8, *xs], ["\ndraft\ntarget", *labels])
    axes.tick_params(axis="x", length=0)
    axes.set(xlim=(-1.1, N_SHOWN - 0.5), ylabel="probability",
             title=f"The next token after \u201c\u2026{''.join(accepted_text)}\u201d")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower left", frameon=False, title=(
        "green + red = the draft\ngreen + blue = the target, exactly\n"
        f"(all other tokens: draft {p_draft[-1]:.2f}, target {p_target[-1]:.2f})"),
        alignment="left")
