"""Show what tools/will_it_pay.py measured: in sentences, tables and a picture."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

from lib.markdown import markdown_table, shown
from measure.answer import FEWEST_TOKENS, conditions
from measure.command import ranged
from variants.registry import Costs

INCHES = 3.58  # width of the picture: 358 pixels at 100 per inch, as wide as a telephone
SUFFIXES = (".png", ".svg")


# ---- sentences and tables

def paragraphs(figures: dict, args: Namespace | None = None) -> Iterator[str]:
    """Yield the paragraphs and tables of the report."""
    yield (f"Target {figures['target']}, draft {figures['draft'] or 'none'}. "
           f"{figures['measured']}")
    if figures["vocabularies"]:
        yield f"Vocabularies differ: {figures['vocabularies']}."
    yield from figures.get("notes", ())  # files of an earlier version have none
    for case in figures["cases"]:
        yield from case_paragraphs(case, figures)
    if figures["draft"] and any("positions" in case for case in figures["cases"]):
        yield "If the acceptance is lower than you expect, see docs/low_acceptance.md."


def case_paragraphs(case: dict, figures: dict) -> Iterator[str]:
    """Yield the paragraphs and tables of one temperature."""
    name = case["name"]
    costs = Costs(**case["costs"])
    yield costs_table(f"positions in one pass, {name.lower()}", costs, figures["draft"])
    if case["disturbed"]:
        yield (f"The costs at {name.lower()} are disturbed: {case['disturbed']}. No speed-up "
               "is predicted from them, only from the race's own times.")
    if "positions" in case:
        yield (f"{name}, {figures['texts']}: {case['acceptance']:.2f} of the tested "
               "guesses were accepted.")
        yield positions_table(case["positions"], case["disturbed"])
    yield case_table(case)
    words = f"{name}: {case['answer']['words']}"
    # Short texts have no reliable acceptance, and from disturbed costs nothing follows.
    if "positions" in case and case["N"] >= FEWEST_TOKENS and not case["disturbed"]:
        words += f" {conditions(costs, case['acceptance'])}"
    yield words


def costs_table(title: str, costs: Costs, draft: str | None) -> str:
    """Return the times of passes and of a draft pass, also in units of one target row."""
    # passes[i] is the time of i + 1 rows, in seconds.
    head = [title, *range(1, len(costs.passes) + 1)]
    times = costs.passes
    if draft:
        head = [*head, "a draft pass"]
        times = [*times, costs.draft]
    return markdown_table(head, [["ms", *(shown(1e3 * time) for time in times)],
                                 ["relative", *(shown(time / times[0]) for time in times)]])


def positions_table(positions: list[dict], disturbed: str) -> str:
    """Return the table of acceptance by position in the round, with 90 % intervals.

    The last column of line K is the speed-up of rounds of K guesses, as predicted from the
    acceptance at the positions 1 .. K.
    """
    head = ["guess", "tested", "accepted, if the guesses before it were (90 % interval)",
            "predicted speed-up with this many guesses (90 % interval)"]
    rows = []
    for K, place in enumerate(positions, start=1):
        predicted = place["predicted"]
        cell = "-" if disturbed else ranged(predicted, figure="speedup")
        rows.append([K, place["tested"], ranged(place, figure="acceptance"), cell])
    return markdown_table(head, rows)


def case_table(case: dict) -> str:
    """Return the table of each decoder: speed-ups, tokens per pass, and where its time goes."""
    # Plain decoding is the unit of speed-ups, and has one token per pass.
    rows = [["plain decoding", "-", "1.00", "1.00", "1.00",
             *shares_of_time(case["plain"]["time"])]]
    for name, row in case["rows"].items():
        rows.append([name, shown(row.get("predicted")), ranged(row, figure="speedup"),
                     shown(row.get("speedup_with_prompt")), shown(row["tokens_per_pass"]),
                     *shares_of_time(row["time"])])
    return markdown_table(["decoder", "predicted", "measured (interval)", "with the prompt",
                           "tokens/pass",
                           *(f"time: {name}" for name in case["plain"]["time"])], rows)


def shares_of_time(seconds: Mapping[str, float]) -> list[str]:
    """Return what percentage of the time each part takes.

    >>> shares_of_time({"draft": 1, "target": 2, "rest": 1})
    ['25 %', '50 %', '25 %']
    """
    total = sum(seconds.values())
    if total == 0:  # no text was longer than one round
        return ["-"] * len(seconds)
    return [f"{100 * part / total:.0f} %" for part in seconds.values()]


# ---- the picture

def picture_path(text: str) -> Path:
    """Return the path of --plot; ValueError unless matplotlib writes such a file here."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"need a name that ends in {' or '.join(SUFFIXES)}, got {text}")
    return path


def draw_answer(figures: Mapping, path: Path) -> None:
    """Draw a point and its interval for each decoder, in a plot for each temperature."""
    import matplotlib  # optional: requirements/plots.txt
    from matplotlib.figure import Figure

    cases = figures["cases"]
    n_rows = [len(case["rows"]) for case in cases]
    # Names of models may have dollar signs, which are not formulas here.
    with matplotlib.rc_context({"font.size": 8, "text.parse_math": False}):
        figure = Figure(figsize=(INCHES, 0.9 * len(cases) + 0.24 * sum(n_rows)),
                        layout="constrained")
        plots = figure.subplots(len(cases), squeeze=False, sharex=True,
                                gridspec_kw={"height_ratios": n_rows})
        for axes, case in zip(plots[:, 0], cases):
            draw_case(axes, case)
        plots[-1, 0].set_xlabel("speed-up over plain decoding, with interval")
        figure.savefig(path, dpi=200, facecolor="white")


def draw_case(axes, case: Mapping) -> None:
    """Draw the decoders of one temperature, the first one at the top."""
    for y, row in enumerate(case["rows"].values()):
        # One prompt has no interval.
        ends = [row["speedup"] if row[end] is None else row[end] for end in ("low", "high")]
        axes.plot(ends, [y, y], color="C0", linewidth=1.5)
        axes.plot(row["speedup"], y, color="C0", marker="o")
    axes.axvline(1, color="black", linewidth=0.8)  # the speed of plain decoding
    names = [name.removeprefix("--decoder ") for name in case["rows"]]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_title(f"{case['name']}: {case['answer']['answer']}", fontsize=8)
