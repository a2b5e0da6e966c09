"""Draw the pictures of an answer's page as SVG, one function for each picture of a temperature.

The page's style sheet (demo/pay.html) has the colours, light and dark. A picture is PLOT_WIDTH
units wide. On a telephone, 358 pixels wide, a unit is about a pixel, so the letters have 12
pixels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

from demo.trace import printable
from lib.svg import element, line, rect, text

PLOT_WIDTH = 340
# The edges of the area in which points are drawn; in SVG y grows downwards.
LEFT = 37
RIGHT = 330
TOP = 12
BOTTOM = 180  # in pictures with numbers at both axes
# SVG places a text by its baseline. A number whose baseline is LOWER below y has its middle at
# y.
LOWER = 4.5
ROW = 40  # height of a decoder's row
BAR = 12  # height of the bar in it
LONGEST = 22  # letters of a decoder's name
MOST_TICKS = 5
STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100)  # from one tick to the next


class Axis(NamedTuple):
    """Map values low .. high to positions start .. end."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value; a value beyond an end is drawn at this end."""
        value = min(max(value, self.low), self.high)
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return the multiples of a round step that the axis holds."""
        step = round_step(self.low, self.high)
        # 1e-9 keeps a tick at an end of the axis, which rounding might put just outside.
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


def round_step(low: float, high: float) -> float:
    """Return the smallest round step that divides low .. high into few parts.

    >>> round_step(0, 1), round_step(0.7, 2.1)
    (0.25, 0.5)
    """
    for step in STEPS:
        if (high - low) / step < MOST_TICKS:
            return step
    # Even the largest step is too small: one part.
    return high - low


def axis_of(values: Iterable[float], start: float, end: float) -> Axis:
    """Return an axis that holds the values and 1, with some space at both ends."""
    numbers = [1.0, *values]
    smallest = min(numbers)
    largest = max(numbers)
    space = 0.06 * (largest - smallest) + 0.02
    return Axis(max(0.0, smallest - space), largest + space, start, end)


def speedups_shown(rows: Iterable[Mapping]) -> Iterator[float]:
    """Yield speed-ups and the ends of their intervals; a very wide interval is cut off."""
    rows = list(rows)
    largest = max(row["speedup"] for row in rows)
    for row in rows:
        yield row["speedup"]
        # The axis reaches no further than twice the largest speed-up.
        for end in ends_of(row):
            yield min(end, 2 * largest)


def ends_of(row: Mapping) -> list[float]:
    """Return the ends of an interval: none if there was only one prompt."""
    return [] if row["low"] is None else [row["low"], row["high"]]


# ---- parts of pictures

def svg(height: float, title: str, parts: Iterable[str]) -> str:
    """Return a picture; `title` describes it to readers who do not see it."""
    return element("svg", "\n".join(parts), viewBox=f"0 0 {PLOT_WIDTH} {height}", role="img",
                   aria_label=title)


def numbered_axes(across: Axis, up: Axis, Ks: Sequence[int], form: str) -> Iterator[str]:
    """Yield the grid with its numbers: values of the upward axis, and K below."""
    for value in up.ticks():
        y = up.at(value)
        yield line(LEFT, y, RIGHT, y, "grid")
        yield text(LEFT - 6, y + LOWER, form.format(value), "soft", text_anchor="end")
    for K in Ks:
        yield text(across.at(K), BOTTOM + 18, str(K), text_anchor="middle")


def upright_interval(x: float, row: Mapping, up: Axis) -> Iterator[str]:
    """Yield the line of an interval."""
    if ends := ends_of(row):
        yield line(x, up.at(ends[0]), x, up.at(ends[1]), "whisker")


def point(x: float, y: float) -> str:
    """Return a dot."""
    return element("circle", cx=x, cy=y, r=4.5, class_="point")


def short_name(name: str) -> str:
    """Return a decoder's name for a picture: without --decoder, and of a long one the end.

    >>> short_name("--decoder tree --widths auto")
    'tree --widths auto'
    >>> short_name("--decoder my/folder/of/rules/a.py")
    '…y/folder/of/rules/a.py'
    """
    name = printable(name.removeprefix("--decoder "))
    return name if len(name) <= LONGEST else f"…{name[-LONGEST:]}"


def kind_of(row: Mapping) -> str:
    """Return the class of an interval: above 1, below 1, or neither."""
    ends = ends_of(row)
    if ends and ends[0] > 1:
        return "pays"
    if ends and ends[1] < 1:
        return "does-not-pay"
    return "not-known"


# ---- the pictures

def speedup_plot(case: Mapping) -> str:
    """Return the speed-up against K: the prediction with its band, and what was measured."""
    # The entry of position K holds the prediction for rounds of K guesses. Few K were raced.
    predicted = {K: place["predicted"] for K, place in enumerate(case["positions"], start=1)}
    raced = {K: case["rows"][f"--K {K}"] for K in predicted if f"--K {K}" in case["rows"]}
    across = Axis(1, len(predicted), LEFT + 14, RIGHT - 8)
    values = speedups_shown([*predicted.values(), *raced.values()])
    up = axis_of(values, BOTTOM, TOP)  # the smallest value is at the bottom
    parts = [*numbered_axes(across, up, [*predicted], "{:.2f}"),
             text((LEFT + RIGHT) / 2, BOTTOM + 38, "K, guesses per round", "soft",
                  text_anchor="middle"),
             line(LEFT, up.at(1), RIGHT, up.at(1), "one")]
    # The band goes along the upper ends, and back along the lower ends.
    upper = [(across.at(K), up.at(place["high"])) for K, place in predicted.items()]
    lower = [(across.at(K), up.at(place["low"])) for K, place in predicted.items()]
    middle = [(across.at(K), up.at(place["speedup"])) for K, place in predicted.items()]
    parts += [element("polygon", points=corners([*upper, *reversed(lower)]), class_="band"),
              element("polyline", points=corners(middle), class_="curve")]
    # The points come last, so they are drawn over the band and the curve.
    for K, row in raced.items():
        parts += [*upright_interval(across.at(K), row, up),
                  point(across.at(K), up.at(row["speedup"]))]
    title = "Speed-up over plain decoding against K, predicted and measured"
    return svg(BOTTOM + 46, title, parts)


def corners(points: Iterable[tuple[float, float]]) -> str:
    """Return the points of a polygon.

    >>> corners([(1, 2), (3.25, 4)])
    '1.00,2.00 3.25,4.00'
    """
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def acceptance_plot(case: Mapping) -> str:
    """Return the acceptance against the position in the round, with intervals and counts."""
    positions = case["positions"]
    across = Axis(1, len(positions), LEFT + 14, RIGHT - 8)
    up = Axis(0, 1, BOTTOM, TOP)
    parts = [*numbered_axes(across, up, range(1, len(positions) + 1), "{:.2f}"),
             text((LEFT + RIGHT) / 2, BOTTOM + 56, "position, and how many guesses were tested",
                  "soft", text_anchor="middle")]
    for t, place in enumerate(positions, start=1):
        parts.append(text(across.at(t), BOTTOM + 36, short_count(place["tested"]), "soft",
                          text_anchor="middle"))
        # A position without tested guesses has no acceptance.
        if place["tested"]:
            parts += [*upright_interval(across.at(t), place, up),
                      point(across.at(t), up.at(place["acceptance"]))]
    return svg(BOTTOM + 64, "Acceptance against the position in the round", parts)


def short_count(n: int) -> str:
    """Return a count in at most four letters.

    >>> short_count(999), short_count(12345)
    ('999', '12k')
    """
    return str(n) if n < 10_000 else f"{n / 1000:.0f}k"


def decoders_plot(case: Mapping) -> str:
    """Return the measured speed-up of each decoder with its interval."""
    rows = case["rows"]
    across = axis_of(speedups_shown(rows.values()), 20, PLOT_WIDTH - 20)
    bottom = ROW * len(rows) + 6  # below the last decoder's row
    parts = []
    for value in across.ticks():
        x = across.at(value)
        parts += [line(x, TOP - 8, x, bottom, "grid"),
                  text(x, bottom + 18, f"{value:.2f}", "soft", text_anchor="middle")]
    parts.append(line(across.at(1), TOP - 8, across.at(1), bottom, "one"))
    for i, (name, row) in enumerate(rows.items()):
        # The name is written at y, and the interval is drawn below it.
        y = ROW * i + 16
        interval = "".join(interval_across(across, row, y + 13))
        parts += [*name_and_value(y, name, f"{row['speedup']:.2f}{interval_in_words(row)}"),
                  element("g", interval, class_=kind_of(row))]
    return svg(bottom + 26, "Measured speed-up of each decoder", parts)


def interval_across(across: Axis, row: Mapping, y: float) -> Iterator[str]:
    """Yield the line of an interval, and the point in it."""
    if ends := ends_of(row):
        yield line(across.at(ends[0]), y, across.at(ends[1]), y, "whisker")
    yield point(across.at(row["speedup"]), y)


def interval_in_words(row: Mapping) -> str:
    """Return " (low - high)"; nothing if there was only one prompt."""
    ends = ends_of(row)
    if not ends:
        return ""
    low, high = ends
    return f" ({low:.2f} - {high:.2f})"


def name_and_value(y: float, name: str, value: str) -> list[str]:
    """Return the line of text above a decoder's bar or interval."""
    return [text(0, y, short_name(name)), text(PLOT_WIDTH, y, value, "soft", text_anchor="end")]


def time_plot(case: Mapping) -> str:
    """Return the time per token of each decoder: in the draft, the target, and the rest."""
    times = {"plain decoding": case["plain"]["time"],
             **{name: row["time"] for name, row in case["rows"].items()}}
    slowest = max(sum(seconds.values()) for seconds in times.values())
    across = Axis(0, slowest, 0, PLOT_WIDTH)
    parts = []
    for i, (name, seconds) in enumerate(times.items()):
        # The name is written at y, and the bar is drawn below it.
        y = ROW * i + 14
        parts += name_and_value(y, name, f"{1e3 * sum(seconds.values()):.2f} ms")
        drawn_s = 0.0  # seconds of the parts that are drawn already
        for kind, duration in seconds.items():
            left = across.at(drawn_s)
            drawn_s += duration
            right = across.at(drawn_s)
            parts.append(rect(left, y + 6, right - left, BAR, kind))
    return svg(ROW * len(times), "Time per token of each decoder", parts)
