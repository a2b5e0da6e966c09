"""Give BLAS one thread, as main.py does; compile all products; report what was enumerated."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads


def pytest_configure(config):
    """Name a file that is not there: with pytest-xdist pytest says only that no tests ran."""
    for word in config.args:
        if not Path(word.split("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {word}")


@pytest.fixture(scope="session", autouse=True)
def products_compiled():
    """Before any test, for Numba names its files by chance, which an enumeration forbids."""
    import numpy as np

    from lib.backend import products

    for dtype in (np.float32, np.float64):
        products.warm_up(dtype)
    products.warm_up(np.float64, is_int8=True)


@pytest.fixture(autouse=True)
def compared(request):
    """Attach the enumerated comparisons of a test to its report, which pytest-xdist sends home."""
    from tests import distributions

    distributions.COMPARED = []
    request.node.user_properties.append(("compared", distributions.COMPARED))


def pytest_terminal_summary(terminalreporter):
    """Print the largest deviation of each test that compared enumerated distributions."""
    rows = {}  # test: deviations, numbers of outcomes
    for report in terminalreporter.stats.get("passed", []):
        for deviation, outcomes in dict(report.user_properties).get("compared", []):
            found = rows.setdefault(report.nodeid.split("[")[0], ([], []))
            found[0].append(deviation)
            found[1].append(outcomes)
    if rows:
        terminalreporter.section("enumerated distributions against the target's")
        terminalreporter.line("| test | comparisons | outcomes | largest deviation |")
        terminalreporter.line("|---|---|---|---|")
    for test, (deviations, outcomes) in sorted(rows.items(), key=lambda row: -sum(row[1][1])):
        terminalreporter.line(f"| {test} | {len(outcomes)} | {sum(outcomes):,} | "
                              f"{max(deviations):.0e} |".replace("0e+00", "0"))
