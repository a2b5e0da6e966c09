"""Give BLAS one thread, as main.py does; compile all products; report what was enumerated."""

import os
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

from tests.skips import pytest_addoption, pytest_sessionfinish  # noqa: F401  hooks of pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads
settings.register_profile("tests", parent=settings(), deadline=None)  # machines are busy
settings.load_profile("tests")


def pytest_configure(config):
    """Name a file that is not there: with pytest-xdist pytest says only that no tests ran."""
    for word in config.args:
        if not Path(word.split("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {word}")


@pytest.fixture(scope="session", autouse=True)
def products_compiled():
    """Compile before any test: Numba's compiler draws random names, which a test refuses."""
    import numpy as np

    from lib.backend import products

    for dtype in (np.float32, np.float64):
        products.warm_up(dtype)
    products.warm_up(np.float64, is_int8=True)


@pytest.fixture(scope="session", autouse=True)
def bundled_pair_read_once():
    """Read each file of models/ once in a process: hundreds of tests run a command on the pair.

    The tests of a process share these weights, so no test may write to them.
    """
    import utils
    from lib.checkpoints import huggingface

    read_encoder, load_all_weights = utils.read_encoder, huggingface.load_all_weights
    read = {}

    def once(function, folder, hparams_or_n_vocab, setting):
        if folder.resolve().parent != utils.MODELS_DIR:
            return function(folder, hparams_or_n_vocab, setting)
        key = (function, folder.name, str(setting))
        if key not in read:
            read[key] = function(folder, hparams_or_n_vocab, setting)
        return read[key]

    with mock.patch.object(utils, "read_encoder", partial(once, read_encoder)), \
            mock.patch.object(huggingface, "load_all_weights", partial(once, load_all_weights)):
        yield


@pytest.fixture(params=["numpy", "numba"])
def backend(request):
    """Run a test with NumPy's products and with Numba's, where it is installed."""
    from lib.backend import products

    if request.param == "numba" and products.product_compiler() is None:
        pytest.skip("needs Numba")
    products.set_backend(request.param)
    yield request.param
    products.set_backend("numba")


@pytest.fixture(scope="session")
def heads(tmp_path_factory):
    """Return a function: the folder with random heads for a model of these sizes."""
    from tests.small import write_heads

    @cache
    def folder_of(n_embd, n_vocab):
        return write_heads(tmp_path_factory.mktemp("heads"), n_embd, n_vocab=n_vocab)

    return folder_of


@pytest.fixture(scope="module")
def browser():
    """Yield a tab of a headless Chromium, for all tests of a file."""
    from tests.chromium import chromium

    with chromium() as tab:
        yield tab


@pytest.fixture(autouse=True)
def compared(request):
    """Attach a test's enumerated comparisons to its report, which pytest-xdist collects."""
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
