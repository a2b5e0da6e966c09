"""Execute docs/tour.ipynb in place: python -m tools.tour, with requirements/tour.txt.

Cells tagged "measured" show times; tests do not compare their outputs. All seeds are in the cells.
The file keeps no execution counts and no versions.
"""

import os
from pathlib import Path

TOUR = Path(__file__).parent.parent / "docs" / "tour.ipynb"


def execute(path=TOUR):
    """Return the notebook in a file with the outputs of a fresh run."""
    import nbformat  # optional, as nbclient
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, coalesce_streams=True,
                            resources={"metadata": {"path": str(TOUR.parent)}})
    client.execute(env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python",
                                        "name": "python3"}}
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata.tags} if "tags" in cell.metadata else {}
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
    return notebook


def text_of(cell):
    """Return what a cell shows as text."""
    return "".join(output.text if output.output_type == "stream" else
                   output.data.get("text/plain", "") for output in cell.outputs)


if __name__ == "__main__":
    import nbformat

    nbformat.write(execute(), TOUR)
