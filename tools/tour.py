"""Execute docs/tour.ipynb in place, so that it shows what the code gives now.

    python -m tools.tour             # needs requirements/tour.txt
    python -m tools.tour --check     # change nothing; name the cells that read differently now

A cell tagged "measured" shows times: it is executed, but nobody compares what it says. All seeds
stand in the cells, so the text of the others stays the same from run to run. What does not is left
out of the file: the numbers of the executions, the versions of kernel and Python.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "docs" / "tour.ipynb"
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1",
               "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}
EMPTY = {"execution_count": None, "metadata": {}}


def read(path=TOUR):
    """The notebook in a file."""
    import nbformat  # optional, as nbclient: requirements/tour.txt

    return nbformat.read(path, as_version=4)


def execute(notebook, folder=TOUR.parent):
    """The notebook with the outputs of a run in a kernel of its own, started in that folder."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as profile:  # not the user's, whose settings would count
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", coalesce_streams=True,
                                extra_arguments=["--log-level=ERROR"],
                                resources={"metadata": {"path": str(folder)}})
        client.execute(env=os.environ | ENVIRONMENT | {"IPYTHONDIR": profile})
    return clean(notebook)


def clean(notebook):
    """The notebook without what changes from run to run and says nothing."""
    notebook.metadata = METADATA
    for cell in code_cells(notebook):
        cell.execution_count = None
        cell.metadata = {"tags": cell.metadata.tags} if "tags" in cell.metadata else {}
        for output in cell.outputs:
            output.update({name: empty for name, empty in EMPTY.items() if name in output})
    return notebook


def code_cells(notebook):
    """Those that are executed."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_measured(cell):
    """Do its outputs depend on the machine?"""
    return "measured" in cell["metadata"].get("tags", [])


def text_of(cell):
    """What a cell shows, as text; a picture is its size."""
    return "".join(output.text if output.output_type == "stream" else
                   output.data.get("text/plain", "") for output in cell.outputs)


def differences(stored, fresh):
    """(first line of the source, stored text, fresh text) of every cell that reads differently."""
    return [(old.source.split("\n")[0], text_of(old), text_of(new))
            for old, new in zip(code_cells(stored), code_cells(fresh), strict=True)
            if not is_measured(old) and text_of(old) != text_of(new)]


def main(argv=None):
    """Returns the exit status: 1 if a cell reads differently with --check."""
    parser = argparse.ArgumentParser("python -m tools.tour", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    args = parser.parse_args(argv)
    fresh = execute(read())
    if args.check:
        found = differences(read(), fresh)
        for line, old, new in found:
            print(f"{line}\n--- stored\n{old}\n--- now\n{new}")
        return bool(found)
    import nbformat

    nbformat.write(fresh, TOUR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
