"""Execute docs/tour.ipynb in place, with requirements/tour.txt.

Cells tagged "measured" show times; tests do not compare their outputs. All seeds are in the
cells. The file keeps no execution counts and no versions.
"""

import os
from pathlib import Path

TOUR = Path(__file__).with_name("tour.ipynb")


def execute():
    """Return the notebook with the outputs of a fresh run."""
    import nbformat  # nbformat and nbclient are optional
    from nbclient import NotebookClient

    notebook = nbformat.read(TOUR, as_version=4)
    client = NotebookClient(notebook, timeout=600, coalesce_streams=True, record_timing=False,
                            resources={"metadata": {"path": str(TOUR.parent)}})
    # With one thread, sums do not depend on the number of cores.
    client.execute(env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    # It has the version of Python, which would change the file.
    del notebook.metadata["language_info"]
    for cell in notebook.cells:
        # A cell of code has an execution count, and so have some of its outputs.
        for part in (cell, *cell.get("outputs", ())):
            if "execution_count" in part:
                part.execution_count = None
    return notebook


def write_tour():
    """Write the notebook with the outputs of a fresh run."""
    import nbformat

    nbformat.write(execute(), TOUR)
