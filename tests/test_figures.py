"""Every figure of a page is the one of the table that the page's marker names."""

import re

import pytest

from docs import figures
from docs.tables import Table, printed_tables
from tests.pages import ROOT, file_text, on_one_line
from tools import will_it_pay

TEXTS = {page: file_text(page) for page in figures.PAGES}


@pytest.mark.parametrize("page", figures.PAGES)
def test_every_figure_is_that_of_the_table_its_marker_names(page):
    assert figures.renewed_page(TEXTS[page]) == TEXTS[page]


# ---- the markers, on a page and tables of a few lines

PAGE = """
<!-- figures: speeds, greedy | fast | speed-up -->
It runs at 1.50 times the speed (`--K 0.7`, [a link](x-1.7.md), Sec. 3.5).
"""
SPEEDS = Table("speeds", "Temperature 0, greedy:\n| decoder |", {
    "fast": {"tokens": "3.00", "speed-up (slowest - fastest)": "1.50 (1.40 - 1.60)"},
    "slow (no cache)": {"tokens": "1.25", "speed-up (slowest - fastest)": "0.90 (0.80 - 0.95)"}})
SAMPLED = Table("speeds", "Temperature 0.7:\n| decoder |", SPEEDS.rows | {
    "fast": {"tokens": "1,024", "speed-up (slowest - fastest)": "1.10 (1.00 - 1.20)"}})


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setattr(figures, "every_table", lambda: [SPEEDS, SAMPLED])
    figures.line_cells.cache_clear()
    yield
    figures.line_cells.cache_clear()


@pytest.mark.parametrize("line, numbers", [
    ("speeds, greedy | fast | speed-up", [1.5]),
    ("speeds, greedy | fast | speed-up (slowest - fastest)", [1.5, 1.4, 1.6]),
    ("speeds, greedy | slow; fast | tokens", [1.25, 3]),
    ("speeds, greedy | fast | tokens; speed-up", [3, 1.5]),
    ("speeds, temperature 0 | * | *", [3, 1.5, 1.4, 1.6, 1.25, 0.9, 0.8, 0.95]),
    ("speeds, temperature 0.7 | fast | tokens", [1024]),
    ("given 0.8; .5", [0.8, 0.5]),
])
def test_a_line_of_a_marker_names_the_numbers_of_cells(tables, line, numbers):
    assert [cell.number for cell in figures.line_cells(line)] == numbers


@pytest.mark.parametrize("line, n_found", [
    ("speeds | fast | tokens", 2), ("speeds, greedy | none | tokens", 0),
    ("speeds, greedy | fast | none", 0), ("nothing | fast | tokens", 0)])
def test_a_line_that_names_no_table_or_two_is_refused(tables, line, n_found):
    with pytest.raises(figures.Unbound, match=rf"got {n_found}: {re.escape(line)}"):
        figures.line_cells(line)


@pytest.mark.parametrize("old, new, message", [
    ("<!-- figures: speeds, greedy | fast | speed-up -->\n", "", "for the figure 1.50 in: It runs"),
    ("1.50 times", "1.50 to 1.60 times", "need a cell for the figure 1.60 in: It runs"),
    ("1.50 times", "several times", "need a figure for the cell with 1.5"),
])
def test_a_figure_without_a_cell_and_a_cell_without_a_figure_are_refused(tables, old, new, message):
    assert figures.renewed_page(PAGE) == PAGE and old in PAGE
    with pytest.raises(figures.Unbound, match=message):
        figures.renewed_page(PAGE.replace(old, new))


@pytest.mark.parametrize("marker, text, renewed", [
    ("greedy | fast | speed-up", "1.51 times, `--K 0.7`, [a](x-1.7.md), Sec. 3.5",
     "1.50 times, `--K 0.7`, [a](x-1.7.md), Sec. 3.5"),
    ("greedy | fast | speed-up", "at 1.3", "at 1.5"),
    ("greedy | fast | speed-up", "149 % of", "150 % of"),
    ("greedy | fast | speed-up", "149 percent", "150 percent"),
    *(("temperature 0.7 | fast | tokens", f"| a | b |\n|---|---|\n| x | {old} |",
       f"| a | b |\n|---|---|\n| x | {new} |")
      for old, new in (("1,000", "1,024"), ("1000", "1024"), ("+ 1,000 MB", "+ 1,024 MB")))])
def test_a_figure_is_renewed_in_the_form_that_it_has(tables, marker, text, renewed):
    marker = f"<!-- figures: speeds, {marker} -->\n"
    assert figures.renewed_page(marker + text) == marker + renewed


@pytest.mark.parametrize("label, is_right", [
    ("fast", True), ("slow (no cache)", False),  # a row of the quoted table
    ("ours, temperature 0.7", True), ("ours, temperature 0", False),  # numbers of the marker
    ("GPT-2 124M", True)])  # names, not settings
def test_a_row_of_a_table_has_the_label_of_the_row_that_it_quotes(tables, label, is_right):
    page = ("<!-- figures: speeds, temperature 0.7 | fast | tokens -->\n| a | b |\n|---|---|\n"
            f"| {label} | 1,024 |\n")
    if is_right:
        assert figures.renewed_page(page) == page
    else:
        with pytest.raises(figures.Unbound, match=re.escape(f"| fast | tokens, got: {label}")):
            figures.renewed_page(page)


def test_the_second_of_two_equal_heads_has_a_name():
    text = ("Times:\n\n| rows | ms | relative | NumPy: ms | relative |\n"
            "| --- | --- | --- | --- | --- |\n| 1 | 2.0 | 1.0 | 3.0 | 1.1 |\n")
    (table,) = printed_tables("times", text)
    assert table.name == "times" and table.caption.startswith("Times:\n| rows |")
    assert table.rows == {"1": {"ms": "2.0", "relative": "1.0", "NumPy: ms": "3.0",
                                "relative, second": "1.1"}}


def test_the_answers_of_will_it_pay_that_a_page_quotes_are_the_stored_ones(capsys):
    quoted = re.findall(r"^    Temperature \d: it .*(?:\n    .*)*", TEXTS["docs/speed.md"], re.M)
    assert will_it_pay.main(["--show", str(ROOT / "benchmarks/results/will_it_pay.json")]) == 0
    printed = on_one_line(capsys.readouterr().out)
    assert quoted and all(on_one_line(answer) in printed for answer in quoted)
