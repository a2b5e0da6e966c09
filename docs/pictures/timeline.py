"""Draw timeline.svg: the time of plain and of speculative decoding, with the bundled pair's costs.

    C, M    a draft step and a target pass over five rows, in target passes over one row: about
            those of the bundled pair (benchmarks/RESULTS.md, "Will it pay?", temperature 0)
"""

from docs.pictures.svg import picture, rect, text

WIDTH, HEIGHT, LEFT, UNIT = 840, 236, 120, 82
C, M, K = 0.1, 1.3, 4
TOKENS = [3, 2, 3]  # per round


def lane(y, bars):
    """Yield bars (length in passes, class, label) one after another."""
    x = LEFT
    for length, class_, label in bars:
        yield rect(x, y, UNIT * length - 2, 34, class_, rx=2)
        yield text(x + UNIT * length / 2 - 1, y + 22, label, "small", text_anchor="middle")
        x += UNIT * length


def draw(data, colour):
    """Return the picture: two lanes of bars, in the same unit of time."""
    rounds = [bar for n in TOKENS for bar in [*[(C, "block", "")] * K,
                                              (M, "blue_bar", f"target: +{n} tokens")]]
    n_tokens, time = sum(TOKENS), len(TOKENS) * (K * C + M)
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, f"{n_tokens} tokens, twice", "bold"),
             text(24, 84, "plain", "bold"), text(24, 154, "speculative", "bold"),
             *lane(62, [(1, "blue_bar", "target: +1")] * n_tokens), *lane(132, rounds),
             text(LEFT, 190, f"K c = {K} x {C} for the draft (grey), then m = {M}: a round takes "
                  f"{K * C + M:.1f} passes over one row", "small muted"),
             text(LEFT, 212, f"{len(TOKENS)} rounds: {time:.1f} in place of {n_tokens} such "
                  f"passes, {n_tokens / time:.1f} times the speed", "small muted")]
    title = (f"Time lines. Plain decoding: {n_tokens} bars of equal length, one target pass per "
             f"token. Speculative decoding: {len(TOKENS)} rounds of four narrow bars, the draft's "
             f"steps, and one wide bar, a target pass that adds two or three tokens; they end "
             f"after {time / n_tokens:.0%} of the time.")
    return picture(WIDTH, HEIGHT, title, parts, colour)
