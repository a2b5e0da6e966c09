"""The notebook of docs/ says the same when it is run again, and can be read as it is."""

import ast
import importlib
import json
import re

import pytest

from docs import tour
from tests.test_docs import LINK, MACHINE, leads

CELLS = json.loads(tour.TOUR.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_every_link_leads_somewhere():
    found = [link for cell in CELLS for match in LINK.findall("".join(cell["source"]))
             if not re.match(r"\w+:", link := "".join(match))]
    assert len(found) > 8 and all(leads(tour.TOUR, link) for link in found)


def test_every_name_that_a_cell_imports_from_the_project_exists():
    for cell in CODE:
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.ImportFrom) and node.module not in ("pathlib", "matplotlib"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), node.module


def test_it_holds_nothing_of_a_run_but_its_outputs():
    text = tour.TOUR.read_text(encoding="utf-8")
    assert len(text) < 500_000 and not MACHINE.search(re.sub(r'"image/png": ".*"', "", text))
    assert all(cell["execution_count"] is None for cell in CODE)
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert not any(o["output_type"] == "error" or o.get("name") == "stderr" for o in outputs)


@pytest.mark.filterwarnings("ignore")  # those of the packages that run a notebook
def test_run_again_it_says_the_same(monkeypatch, tmp_path):
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason="needs requirements/tour.txt")
    import nbformat

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    stored, fresh = nbformat.read(tour.TOUR, as_version=4), tour.execute()
    for old, new in zip(stored.cells, fresh.cells, strict=True):
        if old.cell_type == "code" and "measured" not in old.metadata.get("tags", []):
            assert len(new.outputs) == len(old.outputs)
            for output in (*new.outputs, *old.outputs):
                output.get("data", {}).pop("image/png", None)
            assert new.outputs == old.outputs
