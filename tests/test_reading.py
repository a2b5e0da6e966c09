"""docs/reading.md quotes the code as it is, docs/errata.md what the code notes of an erratum."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READING = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
QUOTE = re.compile(r"^\|.*\| \[([\w/]+\.py)\] `(\w+)` \| `(.+)` \|$", re.MULTILINE)
NOTE = re.compile(r'^\|.*\| \[([\w/]+\.\w+)\]: "(.+)" \|$', re.MULTILINE)
QUOTES, NOTES = QUOTE.findall(READING), NOTE.findall(ERRATA)
STEP = re.compile(r"# (\[\d\](?: \[\d\])*)")  # what a numbered line of code ends in


def body(file, function):
    """The lines of a function or method, without its docstring."""
    text = (ROOT / file).read_text(encoding="utf-8")
    (node,) = (node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == function)
    statements = node.body[ast.get_docstring(node) is not None :]
    return text.split("\n")[statements[0].lineno - 1 : node.end_lineno]


def section(title):
    return READING.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text):
    """The rows of a page's tables, without heads and rules."""
    lines = text.split("\n")
    return [line for i, line in enumerate(lines) if line.startswith("|") and "---" not in line
            and not lines[i + 1].startswith("|---")]


@pytest.mark.parametrize("file, function, code", QUOTES)
def test_a_quoted_line_stands_once_in_the_function_named(file, function, code):
    assert sum(code in line for line in body(file, function)) == 1


def test_every_table_row_is_checked():
    """A row that the patterns above miss would rot unseen."""
    assert len(rows(READING)) - len(rows(section("Notation"))) == len(QUOTES) > 40
    silent = [row for row in rows(ERRATA) if row.endswith("| - |")]
    assert len(rows(ERRATA)) - len(silent) == len(NOTES) >= 10


@pytest.mark.parametrize("algorithm", ["Chen et al. (2023) Algorithm 2",
                                       "Leviathan et al. (2023) Algorithm 1"])
def test_each_algorithm_is_quoted_with_all_numbered_lines_of_the_code(algorithm):
    quoted = {code for _, _, code in QUOTE.findall(section(algorithm))}
    source = (ROOT / "speculative.py").read_text(encoding="utf-8")
    numbered = [line.strip() for line in source.split("\n") if STEP.search(line)]
    assert len(numbered) == 6 and quoted.issuperset(numbered)


@pytest.mark.parametrize("algorithm", ["Chen et al. (2023) Algorithm 2",
                                       "Leviathan et al. (2023) Algorithm 1"])
def test_a_row_has_the_numbers_that_its_line_has(algorithm):
    for row in rows(section(algorithm)):
        numbers = STEP.search(row)
        assert numbers is None or row.startswith(f"| {numbers[1]} |"), row


@pytest.mark.parametrize("file, words", NOTES)
def test_an_erratum_is_noted_where_it_is_said_to_be(file, words):
    assert words in " ".join((ROOT / file).read_text(encoding="utf-8").split())


def test_every_erratum_that_the_code_notes_is_on_the_page():
    """No file marks an erratum that the page does not know of."""
    marked = [path.relative_to(ROOT).as_posix() for folder in (".", "theory", "variants", "lib/demo")
              for path in (ROOT / folder).glob("*.py")
              if re.search(r"\bErrat(um|a):", path.read_text(encoding="utf-8"))]
    assert set(marked) <= {file for file, _ in NOTES}


def test_every_test_that_is_named_exists():
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/\w+\.py)\)", READING)
    assert named
    for function, file in named:
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")
