"""Run --backend cupy without a GPU, on a stand-in with CuPy's names and refusals: fake_cupy.py."""

import sys
from unittest import mock

import numpy as np
import pytest

import main
from benchmarks import gpu
from lib.backend.arrays import get_backend, gpu_errors_in_one_line
from speculative import complete
from tests import fake_cupy
from variants import build
from variants.shared.batch_gpt2 import BatchGPT2
from variants.tree import Tree

X = [3, 1, 4, 1, 5]


@pytest.fixture
def cupy():
    with fake_cupy.installed() as cupy:
        yield cupy


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name, flags", [
    ("speculative", {}), ("tree", {"widths": (2, 1)}), ("medusa", {}),
    ("eagle", {"widths": "dynamic"})])
def test_four_decoders_write_numpys_texts(cupy, name, flags, dtype):
    for temperature in (0.0, 1.0) if dtype == np.float64 else (0.0,):
        texts = []
        for backend in ("numpy", "cupy"):
            x, models = gpu.load(backend, dtype, temperature)
            assert isinstance(models.target.cache, np.ndarray) == (backend == "numpy")
            texts.append(complete(x, build(name, models, flags), 8, np.random.default_rng(0)))
        assert texts[0] == texts[1] and len(texts[0]) == len(x) + 8


def test_logits_cross_to_the_host_once_a_pass(cupy):
    tree = Tree()
    tree.add(tree.add(-1, 5, None), 7, None)
    target = gpu.load("cupy", np.float32)[1].target
    batch, names = BatchGPT2(target.params, target.n_head), [mock.Mock(), mock.Mock()]
    for read in (lambda: target(X), lambda: target(X + [9, 2], 3), lambda: target(X + tree, 3),
                 lambda: target(X + [5, 7, 1]), lambda: batch([(name, X, 2) for name in names])[0]):
        with fake_cupy.counted() as counts:
            rows = read()
        assert type(rows) is np.ndarray and counts.to_host == 1
        assert counts.to_device <= 3  # tokens, and for a tree its positions and its mask


def test_the_gpu_benchmark_runs(cupy, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "ROWS", (1, 2))
    monkeypatch.setattr(gpu, "GUESSES", (1,))
    gpu.main(["--json", str(tmp_path / "gpu.json"), "--repeats", "1", "--tokens", "4",
              "--decoders", "speculative"])
    assert "| speculative | equal |" in capsys.readouterr().out and (tmp_path / "gpu.json").exists()


# ---- what goes wrong, in one line

def message_of_main(capsys):
    """Return the one line of errors of a run that fails."""
    assert main.main(["--backend", "cupy"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("main.py: need ")
    return err


def test_a_missing_or_old_cupy_or_driver_is_one_line(capsys, monkeypatch):
    with fake_cupy.installed() as cupy:
        error = fake_cupy.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is\n"
                                           "insufficient for CUDA runtime version")
        with mock.patch.object(cupy, "ones", side_effect=error, create=True):
            assert "a GPU, its driver" in (err := message_of_main(capsys)) and "Insuff" in err
        with mock.patch.object(cupy, "__version__", "13.6.0"):
            assert "CuPy >= 14" in (err := message_of_main(capsys)) and "13.6.0" in err
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy >= 14 for backend cupy (pip install" in message_of_main(capsys)


@pytest.mark.parametrize("error, kind, words", [
    (fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress:\nan illegal address"), OSError,
     "need a GPU that works, got: CUDARuntimeError: cudaErrorIllegalAddress: an"),
    (fake_cupy.OutOfMemoryError("Out of memory\nallocating"), MemoryError, "more free memory"),
    (ZeroDivisionError(), ZeroDivisionError, None), (KeyboardInterrupt(), KeyboardInterrupt, None)])
def test_an_error_in_a_pass_is_one_line_and_others_are_not_touched(error, kind, words):
    with pytest.raises(kind, match=words), gpu_errors_in_one_line():
        raise error


# ---- the stand-in itself

def test_the_names_kept_are_those_of_the_installed_cupy():
    """NumPy's functions reach it without a GPU too: they end in an error of CuPy's own."""
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    installed = fake_cupy.read_names()
    assert installed == fake_cupy.KEPT or installed["version"] != fake_cupy.KEPT["version"]
    x = cupy.ndarray((2, 3), np.float32, cupy.cuda.MemoryPointer(
        cupy.cuda.UnownedMemory(4096, 1024, None, 0), 0))  # never looked at
    assert type(x.mT) is type(x[:, 1:]) is type(x.reshape(3, 2)) is cupy.ndarray
    if not cupy.is_available():
        for reached in (lambda: np.zeros(3, like=x), lambda: np.asarray([1], like=x),
                        lambda: np.exp(x, out=x), lambda: np.concatenate([x, x]), lambda: 2 * x):
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
                reached()


def test_it_offers_no_name_that_cupy_has_not(cupy):
    for module in (cupy, cupy.cuda, cupy.cuda.runtime):
        own = {name for name in vars(module) if not name.startswith("__")}
        assert own <= fake_cupy.NAMES[module.__name__]
    own = {name for name in vars(fake_cupy.ndarray) if name not in vars(object)}
    assert own - {"__dict__", "__weakref__", "__getattr__"} <= fake_cupy.NAMES["cupy.ndarray"]
    assert not hasattr(cupy, "no_such_name") and not hasattr(cupy.ones(2), "__array_interface__")


def test_it_refuses_what_cupy_refuses_and_takes_part_in_numpys_dispatch(cupy):
    x, host = cupy.ones((2, 3)), np.ones((2, 3))
    for refused in (lambda: x + host, lambda: host + x, lambda: x @ host.T, lambda: np.add(x, host),
                    lambda: np.asarray(x), lambda: np.concatenate([x, host]), lambda: host[x],
                    lambda: np.exp(x, where=True), lambda: x.max(initial=0)):
        with pytest.raises((TypeError, IndexError)):
            refused()
    with pytest.raises(ValueError):
        x[:] = host
    for y in (np.exp(x), np.zeros(3, like=x), np.asarray([1], like=x), np.concatenate([x, x]),
              2 * x, np.float64(2) * x, x[[0]], x.mT, get_backend("cupy").ones(2)):
        assert type(y) is cupy.ndarray
