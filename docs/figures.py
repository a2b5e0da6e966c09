"""Bind each figure on a page to the table cell that it quotes.

A marker is above a paragraph, a list or a table of a page. It names the cells whose numbers are
the figures below it, in their order:

    <!-- figures: variants, temperature 0 | jacobi | tokens/pass -->

    <!-- figures:
      speed-124M | 5; 8 | relative
      given 0.8 -->

A cell is TABLE | ROW | COLUMN. `TABLE, WORDS` is the table of that name (docs/tables.py) with
these words in its head or in the paragraph above it. `5; 8` are two rows, `*` is every row or
column. `speed-up` quotes the first number of the column `speed-up (slowest - fastest)`; the
whole head, or `*`, quotes all numbers of a cell. `given` is followed by figures that no program
computes: settings, versions, numbers of an example.

A figure is a number with a decimal point, a percentage, or a number that fills a cell of a
table, outside code, links and quoted output. `python -m docs readme FILES --code` renews them.
In a table of a page, a figure must also be in the right row. If the row's label is the label of
a row of the quoted table, the cell must be in that row. If it is not, the marker must contain
all numbers of the label.
"""

import re
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from docs.tables import every_table

# Every figure of these pages is bound.
PAGES = ("README.md", "docs/speed.md", "docs/methods.md", "docs/learn.md",
         "docs/low_acceptance.md", "docs/any_model.md", "docs/engines.md", "docs/patterns.md",
         "models/README.md", "models/smollm2/README.md", "benchmarks/RESULTS.md")
MARKER = re.compile(r"<!-- figures:\s(?P<cells>.*?)\s*-->", re.DOTALL)
# Parts of a page without figures to bind: code, quoted output, links, heads and labels, numbers
# of sections.
NOT_PROSE = re.compile("|".join([
    r"^ *```.*?^ *```",  # code between fences
    r"^    [^\n]*$",  # an indented line of code
    r"`(?:[^`\n]|\n(?!\n))+`",  # code in a sentence, not across an empty line
    # output of programs (docs/readme.py)
    r"<!-- (?:table|rules|methods|which)\b[^\n]*-->.*?<!-- end -->",
    r"<!--.*?-->",
    r"\]\([^)]*\)",  # the target of a link in a sentence
    r"^\[[^\]]+\]: [^\n]*",  # the target of a link below the text
    r"^\|[^\n]*\n\|[ :|-]+$",  # the head of a table, with its rule
    r"^\|[^\n|]*(?=\|)",  # the label of a row
    r"(?:Sec\.|Theorem|App\.) [\d.]+\d"]), re.DOTALL | re.MULTILINE)
FIGURE = re.compile("|".join([
    # With a decimal point: 1,234.5 or .98. No version such as 1.2.3, and no 1.5x.
    r"(?<![\w.,])(\d[\d,]*)?\.\d+(?![\d.]*\w)",
    r"(?<![\w.])\d+(?= %| percent)",  # a percentage
    # A whole cell: | 12 | or | + 3 ms |. "sign" is all between | and the number.
    r"(?<=\|)(?P<sign> (\+ )?)\d[\d,]*(?=( [a-zA-Z]+)? \|)"]))
PARAGRAPH_END = re.compile(r"\n\n|\Z")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
SETTING = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")  # in a label: no 124M, no GPT-2


class Unbound(ValueError):
    """A figure without a cell, or a cell that is not in any table."""


class Cell(NamedTuple):
    """Hold a number of a cell, and what the label of its row on a page must agree with."""

    number: float
    row: str
    rows: tuple  # the labels of all rows of the table
    words: str  # the table, the row and the column, as in a marker


def named_labels(wanted, labels):
    """Return the labels that a marker names; KeyError if a table has no such label."""
    if wanted == "*":
        return [*labels]
    # {name: label}: "speed-up (slowest - fastest)" may be named in full, or as "speed-up".
    label_of = {label.partition(" (")[0]: label for label in labels}
    label_of |= {label: label for label in labels}
    return [label_of[name.strip()] for name in wanted.split(";")]


def cell_numbers(rows, row, column):
    """Return [(number, label, head)] of the named cells of a table, row by row."""
    # "*" and a head in full, which ends with ")", quote all numbers of a cell: "1.2 (1.1 -
    # 1.3)" has three. Any other name quotes the first number only.
    quotes_all = any(name == "*" or name.endswith(")") for name in (row, column))
    numbers = []
    for label in named_labels(row, rows):
        for head in named_labels(column, rows[label]):
            in_cell = NUMBER.findall(str(rows[label][head]))
            for number in in_cell if quotes_all else in_cell[:1]:
                numbers.append((float(number.replace(",", "")), label, head))
    return numbers


@cache
def line_cells(line):
    """Return the cells that a line of a marker names."""
    if line.startswith("given "):
        numbers = line.removeprefix("given ").split(";")
        return [Cell(float(number), "", (), "") for number in numbers]
    table, row, column = (part.strip() for part in line.split(" | "))
    name, *words = table.split(", ")
    # A word matches as a whole: "temperature 0" is not in "temperature 0.7", nor "1" in "16".
    # So digits must not follow the word, nor a point and digits.
    patterns = [re.compile(rf"(?<!\w){re.escape(word)}(?![.\d]*\d)", re.I) for word in words]
    cells_of_tables = []  # for each table that has them
    for candidate in every_table():
        has_words = all(pattern.search(candidate.caption) for pattern in patterns)
        if candidate.name == name and has_words:
            # Several tables may have this name, and one of them this row and column.
            with suppress(KeyError):
                cells_of_tables.append([
                    Cell(number, label, tuple(candidate.rows), f"{table} | {label} | {head}")
                    for number, label, head in cell_numbers(candidate.rows, row, column)])
    if len(cells_of_tables) != 1:
        raise Unbound(f"need one table with this cell, got {len(cells_of_tables)}: {line}")
    return cells_of_tables[0]


def check_label(line, cell):
    """Raise `Unbound` if a figure's line on a page is a row of a table with a wrong label."""
    if not line.startswith("|") or not cell.rows:  # a sentence, or a given number
        return
    label = line.split("|")[1].strip()
    if label in cell.rows:
        is_right = label == cell.row
    else:
        is_right = set(SETTING.findall(label)) <= set(SETTING.findall(cell.words))
    if not is_right:
        raise Unbound(f"need the label of a row for {cell.words}, got: {label}")


def as_written(number, figure, is_percentage):
    """Return a number in the form of the figure that it replaces on a page."""
    if is_percentage:
        return f"{100 * number:.0f}"
    comma = "," if "," in figure else ""
    _, _, decimals = figure.partition(".")
    # For the figure "1,234.56" this is {number:,.2f}.
    text = f"{number:{comma}.{len(decimals)}f}"
    # A figure such as .98 has no 0 before its point.
    return text.removeprefix("0") if figure.startswith(".") else text


def renewed_page(text):
    """Return a page with the figures that its markers name; raise `Unbound`."""
    # Offsets are the same in text and in prose, but only text still has the markers.
    prose = NOT_PROSE.sub(lambda match: " " * len(match[0]), text)
    places = [*MARKER.finditer(text), *FIGURE.finditer(prose), *PARAGRAPH_END.finditer(prose)]
    pieces = []  # of the new page
    end = 0  # of the previous figure
    cells = []  # of the previous marker, without those whose figures were found
    for place in sorted(places, key=lambda match: match.start()):
        if place.re is FIGURE:
            # In a cell such as | + 3 ms | the space and the + before the number stay.
            start = place.end("sign") if place["sign"] is not None else place.start()
            line = line_at(text, start)
            figure = text[start : place.end()]
            if not cells:
                raise Unbound(f"need a cell for the figure {figure} in: {line}")
            cell = cells.pop(0)
            check_label(line, cell)
            is_percentage = re.match(" %| percent", prose[place.end() :]) is not None
            pieces += [text[end:start], as_written(cell.number, figure, is_percentage)]
            end = place.end()
        elif cells:
            raise Unbound(f"need a figure for the cell with {cells[0].number:g} before: "
                          f"{line_at(text, place.start())}")
        elif place.re is MARKER:
            lines = place["cells"].split("\n")
            cells = [cell for line in lines for cell in line_cells(line.strip())]
    return "".join([*pieces, text[end:]])


def line_at(text, offset):
    """Return the line of a page at an offset."""
    return text[text.rfind("\n", 0, offset) + 1 :].partition("\n")[0]
