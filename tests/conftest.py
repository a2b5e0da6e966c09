"""Give BLAS one thread, as main.py does; compile all products; read the bundled pair once.

With --may_skip a test that is skipped for any other reason fails the run.
"""

import gc
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads
os.environ.pop("PYTHONUNBUFFERED", None)  # so that a command that must flush is seen
settings.register_profile("tests", parent=settings(), deadline=None)  # machines are busy
settings.load_profile("tests")


def pytest_configure(config):
    """Name a file that is not there: with pytest-xdist pytest says only that no tests ran."""
    for word in config.args:
        if not Path(word.split("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {word}")


FIRST = [  # files that share a slow import or a memo: PyTorch, the enumerated rules
    ["test_hub", "test_huggingface", "test_checkpoints", "test_train_pair", "test_train_smollm2",
     "test_eagle", "test_intersection", "test_llama_files", "test_hostile_files",
     "test_chat_tokens", "test_other_models", "test_transformers_model",
     "test_transformers_tokenizer"],
    ["test_rules", "test_oracle", "test_engines", "test_judge"]]
PLACE = {file: i for i, files in enumerate(FIRST) for file in files}


def pytest_collection_modifyitems(items):
    """Put files side by side that share something: a process of pytest-xdist gets neighbours."""
    # not --dist loadgroup: xdist 3.8 sets item._nodeid, which pytest 9.2 does not read
    items.sort(key=lambda item: PLACE.get(item.path.stem, len(FIRST)))
    gc.freeze()  # the tests and PyTorch stay: to scan them again and again takes 5 % of all time


def pytest_addoption(parser):
    parser.addoption("--may_skip", metavar="REGEX",
                     help="fail the run if a test is skipped for a reason without this pattern")


def pytest_sessionfinish(session):
    """Let a run fail that skipped what it should not; workers leave this to their main process."""
    expected = session.config.getoption("may_skip")
    if expected is None or hasattr(session.config, "workerinput"):
        return
    reports = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    for reason in sorted({report.longrepr[2] for report in reports}):
        if not re.search(expected, reason):
            print(f"\nSkipped in spite of --may_skip: {reason}")
            session.exitstatus = session.exitstatus or 1


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

    results = {}

    def once(read):
        """Return the function `read(folder, sizes, ..)`, with a memo for models/."""
        def read_once(folder, sizes, *others):
            if folder.resolve().parent != utils.MODELS_DIR:
                return read(folder, sizes, *others)
            key = (read, folder.name, str(others))  # a folder of models/ has one size
            if key not in results:
                results[key] = read(folder, sizes, *others)
            return results[key]
        return read_once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "read_encoder", once(utils.read_encoder))
        patch.setattr(huggingface, "load_all_weights", once(huggingface.load_all_weights))
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


@pytest.fixture
def own_path(monkeypatch):
    """Give a test its own sys.path, which a file's imports change."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(scope="session")
def heads(tmp_path_factory):
    """Return a function: a folder with random heads for a target of these weights."""
    from tests.small import write_heads

    return lambda params, **keep: write_heads(tmp_path_factory.mktemp("heads"), params, **keep)


@pytest.fixture(scope="module")
def browser():
    """Yield a tab of a headless Chromium, for all tests of a file."""
    from tests.chromium import chromium

    with chromium() as tab:
        yield tab
