"""Draw timeline.svg: the time of eight tokens, by plain and by speculative decoding.

The costs C and M are about those of the bundled pair (benchmarks/RESULTS.md). All times are in
target passes over one row.
"""

from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, WIDTH, picture
from lib.svg import line, rect, text

HEIGHT = 324
K = 4  # guesses per round
C = 0.1  # time of a draft step
M = 1.3  # time of a target pass over K + 1 rows
WRITTEN = [3, 2, 3]  # the tokens of each round
N_TOKENS = sum(WRITTEN)
UNIT = (WIDTH - 2 * EDGE) / N_TOKENS  # the length of one pass
PLAIN = 76  # top of the upper bars
SPECULATIVE = 156  # top of the lower bars
AXIS = 206  # y of the axis
BAR = 34  # height of a bar
GAP = 1.6  # the space between two bars


def span(start, length, top, class_, words=""):
    """Yield the bar of one step, with words in its middle."""
    x = EDGE + UNIT * start
    width = UNIT * length - GAP  # the gap is at the right of a bar
    yield rect(x, top, width, BAR, class_, rx=2)
    if words:
        yield text(x + width / 2, top + 23, words, text_anchor="middle")


def round_bars():
    """Yield the bars of each round: K draft steps, then a pass of the target."""
    start = 0.0  # in target passes over one row
    for n_tokens in WRITTEN:
        for _ in range(K):
            yield from span(start, C, SPECULATIVE, "block")
            start += C
        # The pass begins when the draft has made all guesses.
        yield from span(start, M, SPECULATIVE, "blue_bar", f"+{n_tokens}")
        start += M


def axis():
    """Yield the axis, with a tick for each pass."""
    yield line(EDGE, AXIS, WIDTH - EDGE, AXIS, "edge")
    for n in range(N_TOKENS + 1):
        x = EDGE + UNIT * n
        yield line(x, AXIS, x, AXIS + 5, "edge")
        # The first and the last number stay within the axis.
        anchor = {0: "start", N_TOKENS: "end"}.get(n, "middle")
        yield text(x, AXIS + 22, str(n), "small", text_anchor=anchor)


def draw(data):
    """Return the picture; `data` is not needed."""
    cost = K * C + M  # of a round
    sum_of_costs = f"A round takes K c + m = {K} \u00d7 {C} + {M} = {cost:.1f}."
    total = len(WRITTEN) * cost
    plain_bars = []
    for n in range(N_TOKENS):
        plain_bars += span(n, 1, PLAIN, "blue_bar", "+1")
    parts = [text(EDGE, 34, "Eight tokens, in the time of target passes", "bold"),
             text(EDGE, PLAIN - 10, "plain: a pass for every token"),
             *plain_bars,
             text(EDGE, SPECULATIVE - 10, "speculative:"),
             text(EDGE + 106, SPECULATIVE - 10, "4 draft steps (grey), then one pass", "muted"),
             *round_bars(), *axis(),
             text(EDGE, AXIS + 56, sum_of_costs, "small"),
             text(EDGE, AXIS + 78, f"{len(WRITTEN)} rounds take {total:.1f} "
                                   f"instead of {N_TOKENS}:",
                  "small"),
             text(EDGE, AXIS + 98, f"{N_TOKENS / total:.1f} times the speed of plain decoding.",
                  "small")]
    style = f".edge{{fill:none;stroke:{colour('grey')}}}"
    written = ", ".join(str(n) for n in WRITTEN)
    title = (f"Time lines over an axis from 0 to {N_TOKENS} target passes. Plain decoding: "
             f"{N_TOKENS} bars of "
             f"equal length, one target pass per token. Speculative decoding: {len(WRITTEN)} "
             f"rounds of {K} narrow bars, the draft's steps, and one wide bar, a target pass; "
             f"they add {written} tokens and end at {total:.1f}.")
    return picture(HEIGHT, title, parts, style)
