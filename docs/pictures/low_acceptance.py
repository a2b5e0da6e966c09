"""Draw low_acceptance.svg: acceptance by position with each planted fault, and without one.

A plot for each fault of benchmarks/low_acceptance.py, two in a row. A plot has a curve for each
temperature, with 90 % intervals; the dashed curves are those of the draft without a fault.
"""

from benchmarks.low_acceptance import EAGLE, GUESSED, exact_cell
from demo.hazards import counts_from_lists, position_figures
from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, WIDTH, picture
from lib.svg import element, line, rect, text

HEALTHY = "none"
INKS = {"0": "blue", "1": "orange"}  # by temperature
LABELS = {  # names that fit over a plot
    "cache cut one token too late": "cache cut 1 too late",
    "cache cut two tokens too late": "cache cut 2 too late",
    "cache cut one token too early": "cache cut 1 too early",
    "cache cut two tokens too early": "cache cut 2 too early",
    "positions from 128 on untrained": "positions past 127",
    "draft at temperature 0.3": "draft's temperature .3",
    "draft at temperature 2": "draft's temperature 2",
    "zero-filled from guess 3 on": "zeros from guess 3 on"}
TOP = 92  # y of the first plot's name
ROW = 150  # from one row of plots to the next
PLOT_WIDTH = 180
PLOT_HEIGHT = 92
COLUMNS = (EDGE + 18, WIDTH // 2 + 22)  # x of the left ends of the plots
STEP = PLOT_WIDTH / GUESSED  # between two positions


def points(case, x, y):
    """Return (x, y, y of both interval ends) of each tested position, in a plot at x, y."""
    places = position_figures(counts_from_lists(case["by_position"]))
    drawn = []
    for t, place in enumerate(places):
        if place["tested"]:
            # y grows downwards, so acceptance 1 is at y, acceptance 0 at y + PLOT_HEIGHT.
            ys = [y + PLOT_HEIGHT * (1 - place[key]) for key in ("acceptance", "low", "high")]
            drawn.append((x + (t + 0.5) * STEP, *ys))  # in the middle of its step
    return drawn


def curve(case, x, y, ink, is_dashed):
    """Yield the elements of one curve; a dashed one has no points and no intervals."""
    places = points(case, x, y)
    # The curve joins the points; their intervals (the last two entries) are not needed here.
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, *_ in places)
    dashed = " dashed" if is_dashed else ""
    yield element("polyline", points=path, class_=f"{ink}_curve{dashed}")
    if not is_dashed:
        for px, py, low, high in places:
            yield line(px, low, px, high, f"{ink}_curve thin")
            yield element("circle", cx=px, cy=py, r=3.5, class_=ink)


def plot(name, row, healthy, x, y):
    """Yield the plot of one fault; y is its upper edge."""
    yield text(x, y - 12, LABELS.get(name, name), "small bold")
    # Three lines across, at acceptance 1, 0.5 and 0.
    for share in (0, 0.5, 1):
        yield line(x, y + PLOT_HEIGHT * share, x + PLOT_WIDTH, y + PLOT_HEIGHT * share)
    yield text(x - 7, y + 5, "1", "small muted", text_anchor="end")
    yield text(x - 7, y + PLOT_HEIGHT + 5, "0", "small muted", text_anchor="end")
    # The healthy curve comes first, so the fault's curve is drawn over it.
    for temperature, ink in INKS.items():
        yield from curve(healthy["temperatures"][temperature], x, y, ink, is_dashed=True)
        yield from curve(row["temperatures"][temperature], x, y, ink, is_dashed=False)


def key_of_lines(y):
    """Yield the two lines that explain the curves."""
    yield text(EDGE, y, "Acceptance of guesses 1 to 5 of a round", "small bold")
    # A square with a radius of half its side is a dot.
    yield rect(EDGE, y + 14, 12, 12, "blue", rx=6)
    yield text(EDGE + 18, y + 25, "temperature 0", "small blue")
    yield rect(EDGE + 152, y + 14, 12, 12, "orange", rx=6)
    yield text(EDGE + 170, y + 25, "temperature 1", "small orange")
    yield text(EDGE + 304, y + 25, "dashed: no fault", "small muted")


def draw(data):
    """Return the picture of all faults."""
    rows = dict(data["rows"])
    healthy = rows.pop(HEALTHY)
    rows.pop(EAGLE)  # is not a fault
    parts = [*key_of_lines(30)]
    for i, (name, row) in enumerate(rows.items()):
        # Two plots in a row.
        x = COLUMNS[i % 2]
        y = TOP + 14 + ROW * (i // 2)  # the name is above the plot, about at TOP
        parts += plot(name, row, healthy, x, y)
    n_rows_of_plots = (len(rows) + 1) // 2  # rounded up
    end = TOP + ROW * n_rows_of_plots
    n_prompts = len(healthy["temperatures"]["0"]["by_position"]["tested"])
    n_exact = sum(exact_cell(row, n_prompts) == "yes" for row in rows.values())
    parts.append(text(EDGE, end, f"The text is exact with {n_exact} of the {len(rows)} faults.",
                      "small"))
    curves = "".join(f".{ink}_curve{{stroke:{colour(ink)};fill:none;stroke-width:2}}"
                     for ink in INKS.values())
    style = f"{curves}.thin{{stroke-width:1.2}}.dashed{{stroke-dasharray:3 4;stroke-width:1.5}}"
    title = ("Acceptance by position in the round with each of several faults in the draft, "
             f"over the acceptance without a fault: {', '.join(rows)}.")
    return picture(end + 24, title, parts, style)
