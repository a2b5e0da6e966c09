"""Draw roofline.svg: the time of a pass against its rows, both on logarithmic axes.

The pass has 7 billion weights in 16 bits; the device is an A100 (2 TB/s, 312 TFLOP/s). Reading
the weights takes the same time for any number of rows, the arithmetic grows with them, and the
longer of the two is the time of the pass: theory/hardware.py.
"""

import math

from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, WIDTH, picture
from lib.svg import element, line, text
from theory.hardware import crossover_batch, pass_latency

HEIGHT = 330
WEIGHTS = 7e9
N_BYTES = 2  # of a weight
BANDWIDTH = 2e12  # bytes per second
FLOP_RATE = 312e12  # operations per second
# The ends of the axes.
LEFT = 84
RIGHT = WIDTH - EDGE
TOP = 62
BOTTOM = 262
MOST_ROWS = 1024  # at RIGHT
LOW = 0.03  # milliseconds at BOTTOM
HIGH = 60  # milliseconds at TOP


def x_of(rows):
    """Return the x of a number of rows."""
    # One row is at LEFT, because log(1) is 0.
    return LEFT + (RIGHT - LEFT) * math.log(rows) / math.log(MOST_ROWS)


def y_of(ms):
    """Return the y of a time in milliseconds."""
    # In SVG y grows downwards: LOW is at BOTTOM, HIGH at TOP.
    return BOTTOM - (BOTTOM - TOP) * math.log(ms / LOW) / math.log(HIGH / LOW)


def axes():
    """Yield both axes with their ticks."""
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")
    yield line(LEFT, TOP, LEFT, BOTTOM, "axis")
    for rows in (1, 4, 16, 64, 256, MOST_ROWS):
        yield line(x_of(rows), BOTTOM, x_of(rows), BOTTOM + 5, "axis")
        anchor = "end" if rows == MOST_ROWS else "middle"  # the last label stays in the frame
        yield text(x_of(rows), BOTTOM + 22, str(rows), "small", text_anchor=anchor)
    yield text((LEFT + RIGHT) / 2, BOTTOM + 46, "rows in one pass", "small muted",
               text_anchor="middle")
    for ms, label in ((0.1, "0.1 ms"), (1, "1 ms"), (10, "10 ms")):
        yield line(LEFT - 5, y_of(ms), LEFT, y_of(ms), "axis")
        yield text(LEFT - 10, y_of(ms) + 5, label, "small", text_anchor="end")


def draw(data):
    """Return the picture; `data` is not needed."""
    # Milliseconds to read the weights, and to compute one row.
    memory, per_row = (1e3 * seconds for seconds in
                       pass_latency(WEIGHTS, N_BYTES, BANDWIDTH, FLOP_RATE))
    # The number of rows with which both take the same time.
    crossing = crossover_batch(N_BYTES, BANDWIDTH, FLOP_RATE)
    # The roof is level up to the corner, then rises with the arithmetic.
    start = (LEFT, y_of(memory))
    corner = (x_of(crossing), y_of(memory))
    end = (RIGHT, y_of(per_row * MOST_ROWS))
    roof = [start, corner, end]
    # Dashed lines show the lower of the two times. The words are placed by rows and times.
    parts = [text(EDGE, 34, "Time of a pass: 7 billion weights on an A100", "bold"), *axes(),
             line(*corner, RIGHT, y_of(memory), "memory"),
             line(LEFT, y_of(per_row), *corner, "arithmetic"),
             element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in roof),
                     class_="roof"),
             text(x_of(30), y_of(0.52), "arithmetic:", "small orange"),
             text(x_of(30), y_of(0.25), f"{per_row:.3f} ms per row", "small orange"),
             text(LEFT + 8, y_of(2.1), "reading all", "small blue"),
             text(LEFT + 8, y_of(1.0), f"weights: {memory:.0f} ms", "small blue")]
    # A dot on the roof for plain decoding, for K = 4, and for the crossing.
    for rows, words, anchor, dx in ((1, "1: plain", "start", 6), (5, "5: K = 4", "start", -6),
                                    (crossing, f"{crossing:.0f}: equal", "end", 0)):
        x = x_of(rows)
        parts.append(element("circle", cx=x, cy=y_of(memory), r=5, class_="dot"))
        parts.append(text(x + dx, y_of(memory) - 14, words, "small", text_anchor=anchor))
    style = (f".memory{{stroke:{colour('blue')};stroke-width:2;stroke-dasharray:6 4}}"
             f".arithmetic{{stroke:{colour('orange')};stroke-width:2;stroke-dasharray:6 4}}"
             f".roof{{fill:none;stroke:{colour('ink')};stroke-width:3.5}}"
             f".axis{{stroke:{colour('muted')}}}.dot{{fill:{colour('ink')}}}")
    title = ("The time of a pass against its rows, both on logarithmic axes. Reading the "
             f"weights takes {memory:.0f} ms for any number of rows. The arithmetic takes "
             f"{per_row:.3f} ms per row and is equal to that at {crossing:.0f} rows. A thick "
             f"line, the time of a pass, is the longer of both: {memory:.0f} ms for one row "
             f"and for five, more only beyond {crossing:.0f} rows.")
    return picture(HEIGHT, title, parts, style)
