"""Figures that pages quote are in a table of benchmarks/RESULTS.md, in the row they speak of."""

import re
from pathlib import Path

from tests.test_docs import FENCE, SPAN, TEXTS, stored, table

ROOT = Path(__file__).parent.parent
RESULTS, README, SPEED, DECODERS = (
    TEXTS[ROOT / name] for name in ("benchmarks/RESULTS.md", "README.md", "docs/speed.md",
                                    "docs/decoders.md"))
TARGET = re.compile(r"\]\([^)]*\)")  # of a link
FIGURE = re.compile(r"(?<![\w.])(?<!Sec\. )\d+\.\d+(?![\d.]*\w)")
ROW = re.compile(r"^\| .*\|$", re.MULTILINE)


def figures(text):
    """Return the numbers with a decimal point in a page, without code and links."""
    return set(FIGURE.findall(TARGET.sub("", SPAN.sub("", FENCE.sub("", text)))))


def section(anchor):
    """Return the section of RESULTS.md with this anchor."""
    sections = {re.sub(r"[^\w\- ]", "", part.partition("\n")[0].lower()).replace(" ", "-"): part
                for part in RESULTS.split("\n## ")}
    return sections[anchor]


def decoder_rows(name):
    """Return the lines of a decoder, with any flags, in the table of every decoder."""
    return "\n".join(row for row in ROW.findall(section("every-decoder"))
                     if row[2:].split()[0] == name)


def test_a_figure_of_a_decoder_is_in_its_row_or_in_the_table_that_is_linked():
    n_checked = 0
    for part in re.split(r"\n(?=\*\*|#)", DECODERS):
        name = re.match(r"\*\*\[(\w+)\]\(\.\./variants/\1\.py\)", part)
        if name:
            known = decoder_rows(name[1]) + decoder_rows("speculative")
            for anchor in re.findall(r"RESULTS\.md#([\w-]+)", part):
                known += section(anchor)
            found = figures(part)
            assert found <= rounded(figures(known)), name[1]
            n_checked += len(found)
    assert n_checked > 20


def rounded(numbers):
    """Return the numbers with one decimal place, and with two."""
    return {form.format(float(number)) for number in numbers for form in ("{:.1f}", "{:.2f}")}


def test_every_figure_of_the_front_page_and_of_speed_md_is_in_a_table():
    costs = {relative_cost("speed-pair"), relative_cost("speed-124M")}
    for page in (README.split("\n## How fast?")[1], SPEED):
        prose = re.sub(r"^    .*$", "", page, flags=re.MULTILINE)
        assert figures(prose) <= rounded(figures(RESULTS)) | costs


def relative_cost(name):
    """Return the cost of a draft step, in target rows, of a file of benchmarks.speed."""
    passes = stored(name)["passes"]
    return f"{passes['draft_ms']['median'] / passes['rows_ms']['1']['median']:.2f}"


def test_the_speed_ups_of_the_front_page_are_those_of_the_decoders():
    tables = stored("variants")["tables"]
    by_temperature = [{row["decoder"]: row for row in rows} for rows in tables.values()]
    quoted = by_column(README, "speed-up over plain")
    for name, cells in quoted.items():
        decoder = re.match(r"`(.*?)`", name)[1]
        assert [*cells.values()] == [found[decoder]["speed-up (slowest - fastest)"]
                                     for found in by_temperature]
    assert len(quoted) == 3


def by_column(text, first):
    """Return {first cell of a row: {head of a column: cell}} of a table."""
    (_, *head), _, *rows = table(text, first)
    return {name: dict(zip(head, cells)) for name, *cells in rows}


def test_the_speed_ups_of_speed_md_are_those_of_RESULTS_md():
    known = by_column(RESULTS, "6 prompts of 100 new tokens each | plain | K = 1 |")
    kinds = [f"temperature {T}: {kind}" for T in (0, 1) for kind in ("speed-up", "predicted")]
    quoted = by_column(SPEED, "speed-up over plain")
    for kind, cells in zip(kinds, quoted.values(), strict=True):
        assert cells == {K: known[kind][K] for K in cells} and len(cells) == 7


def test_the_batches_of_speed_md_are_those_of_RESULTS_md():
    known = by_column(RESULTS, " | plain | K = 1 |")
    quoted = by_column(SPEED, "tokens per second of all")
    for texts, cells in quoted.items():
        row = known[f"{texts.split()[0]} at once: tokens per second (quartiles)"]
        assert cells == {K: row[K].split()[0] for K in cells}
    assert len(quoted) == 5


def test_the_tokens_per_pass_of_engines_md_are_those_of_RESULTS_md():
    rows = stored("engines")["rows"]
    at_1 = {name: f"{row['tokens/pass at 1']:.2f}" for name, row in rows.items()}
    words = " ".join(TEXTS[ROOT / "docs/engines.md"].split())
    assert f"test and has {at_1['transformers']}; " in words
    assert f"[speculative.py](../speculative.py) has {at_1['here']}. " in words
    assert f"by match and has {at_1['llama.cpp']}; `--decoder match` has {at_1['here, match']}." \
        in words
    assert f"wrote {rows['llama.cpp']['tokens/pass at 0']:.2f} tokens" in words


def test_the_memory_of_a_draft_is_that_of_its_sizes():
    """A layer has 12 n_embd^2 weights with 9 n_embd outputs, and 13 n_embd other numbers."""
    def counts(n_layer, n_embd, n_vocab=50257, n_ctx=1024):
        """Return the numbers in matrices, their outputs, and all other numbers."""
        matrices = 12 * n_layer * n_embd**2 + n_vocab * n_embd
        return matrices, 9 * n_layer * n_embd + n_vocab, (13 * n_layer + 2 + n_ctx) * n_embd

    (large, outputs, others), (small, _, small_others) = counts(48, 1600), counts(12, 768)
    rows = [(4 * (large + others), 2 * 48 * 1600 * 4),
            (large + 4 * outputs, 2 * 48 * 1600 * 4),  # int8, and a scale per output
            (4 * (small + small_others), 2 * 12 * 768 * 4)]
    quoted = by_column(SPEED, "| weights | cache per token")
    assert [*map(list, (cells.values() for cells in quoted.values()))] == [
        [f"{'+ ' * (i > 0)}{weights / 1e6:,.0f} MB", f"{'+ ' * (i > 0)}{cache / 1e3:.0f} kB"]
        for i, (weights, cache) in enumerate(rows)]
