"""docs/reading.md quotes the code as it is, and every erratum from where it is noted."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READING = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
QUOTE = re.compile(r"^\|.*\| `([\w/]+\.py) (\w+)` \| `(.+)` \|$", re.MULTILINE)
ERRATUM = re.compile(r'^\|.*\| `([\w/]+\.\w+)` \| "(.+)" \|$', re.MULTILINE)
QUOTES, ERRATA = QUOTE.findall(READING), ERRATUM.findall(READING)


def body(file, function):
    """The lines of a function or method, without its docstring."""
    text = (ROOT / file).read_text(encoding="utf-8")
    (node,) = (node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == function)
    statements = node.body[ast.get_docstring(node) is not None :]
    return text.split("\n")[statements[0].lineno - 1 : node.end_lineno]


def section(title):
    return READING.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("file, function, code", QUOTES)
def test_a_quoted_line_stands_once_in_the_function_named(file, function, code):
    assert sum(code in line for line in body(file, function)) == 1


def test_every_table_row_is_checked():
    """A row that the patterns above miss would rot unseen."""
    rows = [line for line in READING.split("\n") if line.startswith("|") and "---" not in line]
    heads = [line for line in rows if "function |" in line or "noted in" in line]
    words = [line for line in rows if line in section("Notation") or line.endswith("| here | |")]
    assert len(rows) - len(heads) - len(words) == len(QUOTES) + len(ERRATA)
    assert len(QUOTES) > 40 and len(ERRATA) > 12


@pytest.mark.parametrize("algorithm", ["Chen et al. (2023) Algorithm 2",
                                       "Leviathan et al. (2023) Algorithm 1"])
def test_each_algorithm_is_quoted_with_all_numbered_lines_of_the_code(algorithm):
    quoted = {code for _, _, code in QUOTE.findall(section(algorithm))}
    source = (ROOT / "speculative.py").read_text(encoding="utf-8")
    numbered = [line.strip() for line in source.split("\n") if re.search(r"# \[\d\]$", line)]
    assert len(numbered) == 5 and quoted.issuperset(numbered)


@pytest.mark.parametrize("algorithm", ["Chen et al. (2023) Algorithm 2",
                                       "Leviathan et al. (2023) Algorithm 1"])
def test_a_row_has_the_number_that_its_line_has(algorithm):
    for line in section(algorithm).split("\n"):
        number = re.search(r"# (\[\d\])` \|$", line)
        assert number is None or line.startswith(f"| {number[1]} |"), line


@pytest.mark.parametrize("file, words", ERRATA)
def test_an_erratum_is_noted_where_it_is_said_to_be(file, words):
    assert words in " ".join((ROOT / file).read_text(encoding="utf-8").split())


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", READING)
    assert named
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")
