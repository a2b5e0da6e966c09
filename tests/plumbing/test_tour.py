"""The notebook of docs/: run again it says the same, and it can be read as it lies there."""

import json
import re

import pytest

from tests.test_docs import LINK, MACHINE, fault
from tools import tour

CELLS = json.loads(tour.TOUR.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
PROSE = [cell for cell in CELLS if cell["cell_type"] == "markdown"]


def is_picture(output):
    return "image/png" in output.get("data", {})


# ---- as it lies there

def test_cells_are_short_and_few():
    assert len(CELLS) <= 28 and len(CODE) >= 10
    for cell in CODE:
        assert len(cell["source"]) <= 13 and max(map(len, cell["source"])) <= 101  # with its \n


def test_every_picture_is_told_by_the_text_before_it():
    said = ""
    for cell in CELLS:
        if cell["cell_type"] == "markdown":
            said = "".join(cell["source"])
        pictures = sum(map(is_picture, cell.get("outputs", [])))
        assert pictures == 0 or "The picture" in said
    assert sum(is_picture(output) for cell in CODE for output in cell["outputs"]) >= 6


def test_every_link_leads_somewhere():
    found = [link for cell in PROSE for match in LINK.findall("".join(cell["source"]))
             if not re.match(r"\w+:", link := "".join(match))]
    assert len(found) > 8 and not list(filter(None, (fault(tour.TOUR, link) for link in found)))


def test_it_holds_nothing_of_a_run_but_its_outputs():
    text = tour.TOUR.read_text(encoding="utf-8")
    assert json.loads(text)["metadata"] == tour.METADATA and len(text) < 500_000
    for cell in CODE:
        assert cell["execution_count"] is None and cell["metadata"].keys() <= {"tags"}
        for output in cell["outputs"]:
            shown = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
            assert not MACHINE.search(shown) and " at 0x" not in shown
            assert output["output_type"] != "error" and output.get("name") != "stderr"


def test_cells_with_times_are_marked():
    timed = re.compile(r"benchmarks\.clock|passes_times|will_it_pay|perf_counter")
    assert all(tour.is_measured(cell) == bool(timed.search("".join(cell["source"])))
               for cell in CODE)


# ---- run again

def notebook(*cells):
    """A notebook of these sources, the measured ones with a `# measured` in them."""
    from nbformat import v4  # optional: requirements/tour.txt

    tags = lambda source: {"tags": ["measured"]} if "# measured" in source else {}
    return v4.new_notebook(cells=[v4.new_code_cell(source, metadata=tags(source))
                                  for source in cells])


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """What a kernel needs, and nothing written beside the user's files."""
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason="needs requirements/tour.txt")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


@pytest.mark.filterwarnings("ignore")  # those of the packages that run a notebook
def test_run_again_it_says_the_same(kernel):
    assert not tour.differences(tour.read(), tour.execute(tour.read()))


@pytest.mark.filterwarnings("ignore")
def test_a_cell_that_says_something_else_is_seen_unless_it_is_measured(kernel):
    pair = [tour.execute(notebook(f"print({n})\nprint(7)", f"{n}  # measured", "'same'"))
            for n in (1, 2)]
    assert tour.differences(*pair) == [("print(1)", "1\n7\n", "2\n7\n")]
    assert not tour.differences(pair[0], pair[0])
