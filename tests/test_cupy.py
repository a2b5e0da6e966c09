"""--backend cupy on a stand-in with CuPy's names and refusals, fake_cupy.py, and on a GPU.

Tests with the fixture `cupy` run twice: again with the installed CuPy, if it has a GPU.
"""

import sys
from unittest import mock

import numpy as np
import pytest

import main
from benchmarks import speed, variants
from benchmarks.__main__ import main as measure
from lib.backend import products
from lib.backend.arrays import get_backend
from lib.checkpoints.weights import cut_params, n_params
from lib.terminal import command
from speculative import complete
from tests import fake_cupy
from tests.commands import outcome, refusal
from tests.llamas import FORMS, llama_params
from theory.hardware import GPT2_SIZES
from utils import load_pair
from variants import DECODERS, Costs, Models, build
from variants.shared.tree_gpt2 import TreeGPT2, TreeLlama
from variants.tree import Tree
from wrappers.batch_gpt2 import BatchGPT2

X = [3, 1, 4, 1, 5]
COSTS = Costs(0.1, [1.0, 1.1, 1.2, 1.3, 1.4])
SHORT = "--N 3 --repeats 1"
HPARAMS = dict(n_vocab=12, n_ctx=160, n_embd=8, n_head=2, n_layer=2)


@pytest.fixture(autouse=True)
def backend_restored():
    yield
    products.set_backend("numba")


@pytest.fixture
def stand_in(monkeypatch):
    """Return the stand-in, which `import cupy` loads."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.CUPY)
    return fake_cupy.CUPY


@pytest.fixture(params=["stand-in", "GPU"])
def cupy(request):
    """Return the stand-in, then the installed CuPy."""
    if request.param == "stand-in":
        return request.getfixturevalue("stand_in")
    try:
        return get_backend("cupy")
    except ValueError as error:
        pytest.skip(str(error))


def random_models(arrays, folder, temperature):
    """Return a random target, and its first layer as the draft, over numpy or a cupy."""
    backend = "numpy" if arrays is np else "cupy"
    products.set_backend(backend)
    flat = 0.5 * np.random.default_rng(0).normal(size=n_params(HPARAMS))  # lively: rows are uneven
    params = cut_params(get_backend(backend).asarray(flat), HPARAMS)
    draft = params | {"blocks": params["blocks"][:1]}
    pair = (TreeGPT2(each, HPARAMS["n_head"]) for each in (draft, params))
    return Models(*pair, {"temperature": temperature}, folder, COSTS)


@pytest.mark.parametrize("name, flags", [
    *((name, {}) for name in DECODERS), ("tree", {"widths": "auto"}),
    ("eagle", {"widths": "dynamic"})])
def test_every_decoder_writes_numpys_text(cupy, heads, name, flags):
    folder = heads(random_models(np, None, 0).target.params)
    for temperature in (0.0,) if DECODERS[name].greedy else (0.0, 1.0):
        texts = []
        for arrays in (np, cupy):
            models = random_models(arrays, folder, temperature)
            assert isinstance(models.target.cache, np.ndarray) == (arrays is np)
            texts.append(complete(X, build(name, models, flags), 12, np.random.default_rng(0)))
        assert texts[0] == texts[1] and len(texts[0]) == len(X) + 12


@pytest.mark.parametrize("form", FORMS)
def test_a_llama_computes_numpys_rows(cupy, form):
    """Of texts that grow and shrink, and of a tree."""
    ours, theirs = (TreeLlama(llama_params(**FORMS[form], asarray=arrays.asarray), 4)
                    for arrays in (np, cupy))
    for ids, n_last in ((X, 5), ([*X, 9], 1), (X[:3], 2), (X + Tree([5, 7], [-1, 0]), 3)):
        fake_cupy.COUNTS.clear()
        rows = theirs(ids, n_last)
        assert fake_cupy.COUNTS["to_host"] <= 1
        np.testing.assert_allclose(rows, ours(ids, n_last), rtol=0, atol=1e-9)
    assert not isinstance(theirs.cache, np.ndarray)


def test_logits_cross_to_the_host_once_a_pass(stand_in):
    tree = Tree([5, 7], [-1, 0])
    _, _, bundled = load_pair("tales-small", "tales-large", backend="cupy")
    target = TreeGPT2(bundled.params, bundled.n_head)
    batch = BatchGPT2(target.params, target.n_head)
    calls = [(mock.Mock(), X, 2) for _ in range(2)]
    for run_pass in (lambda: target(X), lambda: target(X + [9, 2], 3),
                     lambda: target(X + tree, 3), lambda: target(X + [5, 7, 1]),
                     lambda: batch(calls)[0]):
        fake_cupy.COUNTS.clear()
        assert type(run_pass()) is np.ndarray and fake_cupy.COUNTS["to_host"] == 1
        assert fake_cupy.COUNTS["to_device"] <= 3  # tokens; a tree's positions and mask
    np.testing.assert_allclose(batch(calls)[1], target(X, 2), rtol=0, atol=1e-4)


@pytest.mark.parametrize("module, words", [
    (speed, "speed --alpha .8"), (speed, "speed --size 124M --alpha .8"),
    (variants, "variants --rows stopping")])
def test_benchmarks_measure_with_cupy(cupy, module, words, monkeypatch):
    for name, value in {"ROWS": {"cupy": [1, 64]}, "BLOCK": {"cupy": 2**20}, "KS": [1],
                        "RUNS": 1, "OPENINGS": ["A fox"]}.items():
        monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setitem(GPT2_SIZES, "124M", HPARAMS)
    monkeypatch.setattr(products, "many_rows", None)  # so that no product may run on the host
    status, out, _ = outcome(measure, *f"{words} {SHORT} --backend cupy".split())
    assert status == 0 and f"matrix products by CuPy {cupy.__version__} on " in out
    assert "1.00" in out and "NumPy alone" not in out


# ---- what goes wrong, in one line

NO_DRIVER = fake_cupy.CUDARuntimeError(
    "cudaErrorInsufficientDriver: CUDA driver version is\ninsufficient")


@pytest.mark.parametrize("name, value, words", [
    ("ones", mock.Mock(side_effect=NO_DRIVER), "is insufficient"),
    ("__version__", "13.6.0", "got: ImportError: CuPy 13.6.0")])
def test_an_old_cupy_or_driver_is_named_in_one_line(stand_in, monkeypatch, name, value, words):
    monkeypatch.setattr(stand_in, name, value, raising=False)
    why = refusal(main.main, "--backend", "cupy")
    assert why.startswith("main.py: backend cupy needs CuPy >= 14 with CUDA's libraries (pip i")
    assert words in why


@pytest.mark.parametrize("error, words", [
    (fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress:\nan illegal address"),
     "need a working GPU, got: CUDARuntimeError: cudaErrorIllegalAddress: an"),
    (fake_cupy.OutOfMemoryError("Out of memory\nallocating"), "more free memory"),
    (fake_cupy.CUDARuntimeError("cudaErrorMemoryAllocation: out"), "more free memory")])
def test_a_gpus_error_is_one_line_of_any_command(error, words):
    assert words in refusal(command("main.py")(mock.Mock(side_effect=error)))


def test_a_fault_of_the_program_is_no_line_but_a_traceback():
    with pytest.raises(ZeroDivisionError):
        command("main.py")(lambda argv: 1 / 0)([])
