"""The figures of benchmarks.speed as Markdown: one function a part, each yielding paragraphs."""

import numpy as np

ROWS = [  # of a race: name, value of a decoder's figures, its form
    ("tokens per second", lambda row: row["tokens_per_s"]["median"], "{:.1f}"),
    ("speed-up", lambda row: row["speedup"], "{:.2f}"),
    ("predicted", lambda row: row.get("predicted"), "{:.2f}"),
    ("measured / predicted", lambda row: over(row, "predicted"), "{:.2f}"),
    ("measured / counted", lambda row: over(row, "counted"), "{:.2f}"),
    ("acceptance", lambda row: row["acceptance"], "{:.2f}"),
    ("tokens per pass", lambda row: row["tokens_per_pass"], "{:.2f}"),
]


def over(row, key):
    """The speed-up over what was predicted of it; None where nothing was."""
    return row["speedup"] / row[key] if key in row else None


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def ranged(values, form="{:.2f}"):
    """Median (low - high)."""
    low, median, high = (number(values[key], form) for key in ("low", "median", "high"))
    return f"{median} ({low} - {high})"


def tell_startup(part):
    allowed = 1.1 * part["weights_MB"] + 200
    yield table(["to the first token", "seconds (quartiles)"],
                [[name, ranged(values)] for name, values in part["first_token_s"].items()])
    yield (f"Peak {part['peak_MB']:.0f} MB for {part['weights_MB']:.0f} MB of weights "
           f"(1.1 times them + 200 MB: {allowed:.0f}).\n")


def tell_passes(part):
    yield (f"{part['bandwidth_GB_per_s']:.1f} GB/s, so a floor of {part['floor_ms']:.2f} ms per "
           f"token; one row, from cold caches, takes {part['row_over_floor']:.2f} of it. A draft "
           f"step takes {ranged(part['draft_ms'])} ms.\n")
    columns = [column(part["rows_ms"])]
    if "numpy_rows_ms" in part:
        columns.append(column(part["numpy_rows_ms"]))
    heads = ["ms (quartiles)", "relative", "NumPy alone: ms", "relative"][: 2 * len(columns)]
    yield table(["rows in one pass", *heads],
                [[n, *sum(cells, [])] for n, *cells in zip(part["rows_ms"], *columns)])
    yield table(["tokens in the context", "ms (quartiles)", "relative"],
                [[n, *cells] for n, cells in zip(part["context_ms"], column(part["context_ms"]))])


def column(times):
    """Cells of one kind of pass: its time, and how many times the first one's that is."""
    first = next(iter(times.values()))["median"]
    return [[ranged(ms), number(ms["median"] / first)] for ms in times.values()]


def tell_neighbours(part):
    counts = list(next(iter(part.values())))
    yield table(["times slower than alone, beside busy processes", *counts],
                [[name, *(number(row[n]["times"]) for n in counts)] for name, row in part.items()])


def race_rows(race, prefix):
    """The rows of one race that say anything: a column for plain decoding, every K and auto."""
    for name, value, form in ROWS:
        if any(map(value, race.values())):
            yield [prefix + name, *(number(value(row), form) for row in race.values())]


def races(title, part, prefix="{}: "):
    """One table of {name: race}, and how far apart the runs lay."""
    heads = [{"0": "plain", "auto": "auto"}.get(K, f"K = {K}") for K in next(iter(part.values()))]
    yield table([title, *heads], [row for name, race in part.items()
                                  for row in race_rows(race, prefix.format(name))])
    speeds = [row["tokens_per_s"] for race in part.values() for row in race.values()]
    widths = [100 * (speed["high"] - speed["low"]) / speed["median"] for speed in speeds]
    yield (f"Quartiles of the tokens per second lie {np.median(widths):.0f} % of the median apart, "
           f"at most {max(widths):.0f} %.\n")


def tell_simulated(part):
    yield from races("guesses kept with chance", part)


def tell_own(part):
    yield from races("own text at temperature", part)
    for temperature, race in part.items():
        best = max(row["speedup"] for K, row in race.items() if K != "auto")
        yield (f"Temperature {temperature}: K auto reaches {race['auto']['speedup'] / best:.2f} of "
               f"the best fixed K, after {race['auto']['measuring_s']:.2f} s of measuring.\n")


def tell_useless(part):
    yield from races("useless draft", {"": part}, prefix="")


def tell_peers(part):
    yield table([f"{part['tokens']} tokens, K = {part['K']}", "tokens per second (quartiles)"],
                [[name, ranged(speed, "{:.1f}")] for name, speed in part["tokens_per_s"].items()])
    yield table(["times faster", "median"],
                [[name, number(ratio)] for name, ratio in part["ratios"].items()])


PARTS = {"startup": tell_startup, "passes": tell_passes, "simulated": tell_simulated,
         "own": tell_own, "useless": tell_useless, "neighbours": tell_neighbours,
         "peers": tell_peers}


def tell(figures):
    """The paragraphs of all parts that there are."""
    product = f"few rows by {figures['product']}, " if "product" in figures else ""
    yield (f"{figures['size']}: {figures['cores']} cores, {product}NumPy {figures['numpy']}, BLAS "
           f"kernels for {figures['blas_kernels']}\n")
    for name, tell_part in PARTS.items():
        if name in figures:
            yield from tell_part(figures[name])
