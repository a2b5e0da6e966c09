"""Rooms: each folder says what its files are, and CONTRIBUTING what stands on which floor."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_imports import FLOORS

ROOT = Path(__file__).parents[1]
SAID = ["demo", "lib", "lib/backend", "lib/checkpoints", "tools", "benchmarks", "docs/pictures",
        "models/training", "variants/shared", "wrappers"]


@pytest.mark.parametrize("folder", SAID)
def test_a_folder_opens_with_one_sentence_and_a_line_for_each_of_its_files(folder):
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8")))
    sentence, blank, *lines = text.split("\n")
    here = [path.name.removesuffix(".py") for path in (ROOT / folder).iterdir()
            if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sentence.endswith(".") and blank == ""
    assert sorted(line.split()[0] for line in lines) == sorted(
        name for name in here if not name.startswith("__"))


def test_the_table_of_floors_is_the_one_that_imports_are_held_to():
    page = (ROOT / ".github/CONTRIBUTING.md").read_text("utf-8")
    table = re.search(r"\| floor \| .*?\n\n", page, re.DOTALL)[0]
    rows = [set(re.findall(r"\]\(\.\./(\w+)(?:\.py)?\)", row.split("|")[1]))
            for row in table.splitlines()[2:] if row]
    assert rows == FLOORS[::-1]
