"""--backend cupy without a GPU: on a stand-in with CuPy's names and manners, fake_cupy.py."""

import inspect
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import gpt2
import main
from lib.backend import fused
from lib.backend.arrays import get_backend, gpu_errors_in_one_line
from benchmarks import gpu
from tools.export_hf import config, write_weights
from lib.checkpoints.weights import cut_params, n_params
from speculative import complete
from tests import bundled, fake_cupy
from tests.checkpoints import write_converted
from tests.small import write_heads
from tools import cupy_names
from variants import DECODERS, Models, build
from variants.shared.long_context import windowed
from variants.registry import build_autoregressive
from variants.tree import Tree
from variants.shared.tree_gpt2 import TreeGPT2

ROOT = Path(main.__file__).parent
TARGET = dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=2)
DRAFT = TARGET | dict(n_layer=1)
X, N = [3, 1, 4, 1, 5], 14
needs_compiler = pytest.mark.skipif(not fake_cupy.COMPILER, reason="needs a C++ compiler")


@pytest.fixture
def cupy():
    with fake_cupy.installed() as cupy:
        yield cupy


@contextmanager
def one_kernel_each():
    """gpt2.py's formulas with their kernels, for a while."""
    try:
        yield fused.install(gpt2)
    finally:
        fused.remove(gpt2)


def flat_weights(hparams, seed, dtype):
    """Random weights as loaded: one array. Large enough for attention and GELU to matter."""
    return np.random.default_rng(seed).normal(0, 0.3, n_params(hparams)).astype(dtype)


def model(backend, hparams=TARGET, seed=2, dtype=np.float64):
    """A model whose weights are NumPy's or the stand-in's."""
    flat = get_backend(backend).asarray(flat_weights(hparams, seed, dtype))
    return TreeGPT2(cut_params(flat, hparams), hparams["n_head"])


def text(backend, decoder, heads, flags=(), temperature=0.0, window=False, dtype=np.float64):
    """What a decoder writes."""
    models = Models(model(backend, DRAFT, 1, dtype), model(backend, dtype=dtype),
                    {"temperature": temperature}, heads)
    step = build(decoder, models, flags) if decoder else build_autoregressive(models)
    if window:
        step = windowed(step, len(X), TARGET["n_ctx"])
    return complete(X, step, N * (1 + window), np.random.default_rng(0))


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    return write_heads(tmp_path_factory.mktemp("heads"), TARGET["n_embd"])


# ---- the same texts

def temperatures(name):
    return (0.0,) if name and DECODERS[name].greedy else (0.0, 1.0)


@pytest.mark.parametrize("name", [None, *DECODERS])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_decoder_writes_numpys_text(cupy, heads, name, dtype):
    """In float32 too: on the stand-in sums are much alike, on a GPU they need not be."""
    for temperature in temperatures(name) if dtype == np.float64 else (0.0,):
        got, expected = (text(backend, name, heads, temperature=temperature, dtype=dtype)
                         for backend in ("cupy", "numpy"))
        assert got == expected and len(got) == len(X) + N


@pytest.mark.parametrize("name, flags", [
    ("kseq", {}), ("tree", {"siblings": "top"}), ("tree", {"siblings": "independent"}),
    ("medusa", {"sparse": ((0,), (1,), (0, 0))}), ("medusa", {"acceptance": "typical"})])
def test_trees_and_heads_of_all_kinds_do_too(cupy, heads, name, flags):
    texts = [text(backend, name, heads, flags, 1.0) for backend in ("cupy", "numpy")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["speculative", "tree", "medusa"])
def test_beyond_the_context_too(cupy, heads, name):
    texts = [text(backend, name, heads, window=True) for backend in ("cupy", "numpy")]
    assert texts[0] == texts[1] and len(texts[0]) > TARGET["n_ctx"]


def test_main_runs_on_it(cupy, tmp_path, capsys):
    for size, seed in (("draft", 1), ("target", 2)):
        write_converted(tmp_path / size, seed=seed)
    texts = []
    for backend in ("cupy", "numpy"):
        flags = ["--models_dir", tmp_path, "--draft_model_size", "draft", "--target_model_size",
                 "target", "--prompt", "ab", "--n_tokens_to_generate", 8, "--json", "--backend",
                 backend, "--dtype", "float64"]
        with mock.patch.object(fused, "install"):  # the kernels have tests of their own
            assert main.main([*map(str, flags)]) == 0
        texts.append(json.loads(capsys.readouterr().out)["speculative"]["text"])
    assert texts[0] == texts[1]


# ---- what crosses the bus, and what is launched

def test_logits_cross_to_the_host_once_a_pass(cupy):
    tree = Tree()
    root = tree.add(-1, 5, None)
    tree.add(root, 7, None)
    target = model("cupy")
    for ids, n_last in ((X, 1), (X + [9, 2], 3), (X + tree, 3), (X + [5, 7, 1], 1)):
        with fake_cupy.counted() as counts:
            rows = target(ids, n_last)
        assert type(rows) is np.ndarray and counts.to_host == 1
        assert counts.to_device <= 3  # tokens, and for a tree its positions and its mask


def launches(n_layer, n_rows):
    """Kernels of one pass over some rows."""
    target = model("cupy", TARGET | dict(n_layer=n_layer))
    target(X)
    with fake_cupy.counted() as counts:
        target(X + [1] * n_rows, n_rows)
    return counts.launches


def launches_a_layer(n_rows):
    return launches(2, n_rows) - launches(1, n_rows)


def test_a_layer_launches_52_kernels_and_copies(cupy):
    """Copies: of what CuPy's batched product wants in order, and of the heads side by side."""
    assert launches_a_layer(1) == 51 + 2  # keys, values
    assert launches_a_layer(5) == 52 + 3  # and queries


@needs_compiler
def test_with_its_kernels_it_launches_20_and_copies(cupy):
    with one_kernel_each():
        assert launches_a_layer(1) == 19 + 2
        assert launches_a_layer(5) == 20 + 3


# ---- one kernel for a formula

@needs_compiler
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(1, 1), (2, 31), (3, 32), (1, 100), (2, 3, 40)])
def test_a_kernel_is_its_formula(cupy, dtype, tolerance, shape):
    rng = np.random.default_rng(0)
    x, g, b = (rng.normal(0, 3, size).astype(dtype) for size in (shape, shape[-1], shape[-1]))
    x[..., 1:][rng.random(x[..., 1:].shape) < 0.2] = -30
    for name, weights in (("gelu", {}), ("softmax", {}), ("layer_norm", {"g": g, "b": b})):
        got = fused.FUSED[name](cupy.asarray(x), **{k: cupy.asarray(w) for k, w in weights.items()})
        expected = getattr(gpt2, name)(x, **weights)
        assert got.dtype == dtype and got.shape == shape
        np.testing.assert_allclose(got.get(), expected, rtol=0, atol=tolerance)


@needs_compiler
def test_a_kernel_sees_no_token_that_the_mask_hides(cupy):
    x = cupy.asarray(np.array([[0.0, 1.0, -np.inf], [2.0, -np.inf, -np.inf]]))
    np.testing.assert_allclose(fused.softmax(x).get(), gpt2.softmax(x.get()), atol=1e-15)


@needs_compiler
def test_with_its_kernels_a_model_gives_the_same_logits(cupy):
    target, expected = model("cupy"), model("numpy")(X, 3)
    with one_kernel_each() as names:
        assert names == ["gelu", "softmax", "layer_norm"]
        np.testing.assert_allclose(target(X, 3), expected, rtol=0, atol=1e-12)
        assert (model("numpy")(X, 3) == expected).all()  # NumPy's arrays get the formula
    assert gpt2.gelu is inspect.unwrap(gpt2.gelu)


def test_a_kernel_that_fails_is_left_out_with_a_warning(cupy):
    def broken(x, **weights):
        return x + 1

    with mock.patch.dict(fused.FUSED, gelu=broken, softmax=None, layer_norm=broken):
        with pytest.warns(UserWarning, match="as several kernels"):
            assert fused.install(gpt2) == []
    assert gpt2.gelu is inspect.unwrap(gpt2.gelu)


# ---- what goes wrong, in one line

def said_by_main(capsys, *flags):
    """The one line of errors of a run that fails."""
    assert main.main(["--backend", "cupy", *map(str, flags)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("main.py: need ")
    return err


def test_no_cupy(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy >= 14 for backend cupy (pip install" in said_by_main(capsys)


def test_an_old_cupy(cupy, capsys):
    with mock.patch.object(cupy, "__version__", "13.6.0"):
        assert "CuPy >= 14" in (line := said_by_main(capsys)) and "13.6.0" in line


def test_no_driver(cupy, capsys):
    error = fake_cupy.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is\n"
                                       "insufficient for CUDA runtime version")
    with mock.patch.object(cupy, "ones", side_effect=error, create=True):
        assert "a GPU, its driver" in (line := said_by_main(capsys)) and "Insufficient" in line


def test_too_little_memory_on_the_gpu(capsys):
    with fake_cupy.installed(n_bytes=10**6):
        assert "more free memory on the GPU" in said_by_main(capsys)


def test_an_error_in_a_pass_is_one_line_and_others_are_not_touched():
    with pytest.raises(OSError, match="need a GPU that works, got: CUDARuntimeError: cudaError"):
        with gpu_errors_in_one_line():
            raise fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress:\nan illegal address")
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            with gpu_errors_in_one_line():
                raise error


# ---- the stand-in itself

def test_the_names_kept_are_those_of_the_installed_cupy():
    """In any version from 14 on; where another one is installed, no kept name may be missing."""
    pytest.importorskip("cupy", exc_type=ImportError)
    installed, kept = cupy_names.read(), fake_cupy.KEPT
    if installed["version"] == kept["version"]:
        assert installed == kept
    else:
        used = {"mT", "get", "__array_ufunc__", "__array_function__"}
        assert used <= set(installed["names"]["cupy.ndarray"])


def test_numpys_functions_reach_the_installed_cupy():
    """Without a GPU too: they end in an error of CuPy's own, not in one of NumPy's."""
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    memory = cupy.cuda.UnownedMemory(4096, 1024, None, 0)  # never looked at
    x = cupy.ndarray((2, 3), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    assert type(x.mT) is type(x[:, 1:]) is type(x.reshape(3, 2)) is cupy.ndarray
    if not cupy.is_available():
        for reached in (lambda: np.zeros(3, like=x), lambda: np.asarray([1], like=x),
                        lambda: np.asarray(np.ones(2), like=x), lambda: np.empty(3, like=x),
                        lambda: np.tanh(x), lambda: np.concatenate([x, x]), lambda: 2 * x):
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
                reached()


def test_it_offers_no_name_that_cupy_has_not(cupy):
    for module in (cupy, cupy.cuda, cupy.cuda.runtime):
        own = {name for name in vars(module) if not name.startswith("__")}
        assert own <= fake_cupy.NAMES[module.__name__]
    own = {name for name in vars(fake_cupy.ndarray) if name not in vars(object)}
    assert own - {"__dict__", "__weakref__", "__getattr__"} <= fake_cupy.NAMES["cupy.ndarray"]
    for name in ("__array_namespace__", "__array_interface__", "no_such_name"):
        assert not hasattr(cupy.ones(2), name)
    assert not hasattr(cupy, "no_such_name") and not hasattr(cupy, "matvec")


def test_it_refuses_what_cupy_refuses(cupy):
    x, host = cupy.ones((2, 3)), np.ones((2, 3))
    for refused in (lambda: x + host, lambda: host + x, lambda: x @ host.T, lambda: np.add(x, host),
                    lambda: np.asarray(x), lambda: host @ x.T, lambda: np.concatenate([x, host]),
                    lambda: np.exp(x, where=True), lambda: x.max(initial=0), lambda: host[x]):
        with pytest.raises((TypeError, IndexError)):
            refused()
    with pytest.raises(ValueError):
        x[:] = host
    with pytest.raises(NotImplementedError):
        _ = cupy.fuse


def test_it_takes_part_in_numpys_dispatch(cupy):
    x = cupy.asarray([[1.0, 2.0]])
    for y in (np.exp(x), np.zeros(3, like=x), np.asarray([1], like=x), np.concatenate([x, x]),
              2 * x, np.float64(2) * x, x[[0]], x.mT, x[np.array([0])]):
        assert type(y) is cupy.ndarray
    assert (np.concatenate([x, x]).get() == [[1, 2], [1, 2]]).all()


# ---- the command for a machine with a GPU

@pytest.fixture
def small(monkeypatch, tmp_path):
    """benchmarks.gpu with toys in place of the models."""
    for name, hparams in (("tales-small", DRAFT), ("tales-large", TARGET | {"n_ctx": 64})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config(hparams, None, "float32")))
        write_weights(tmp_path / name, cut_params(flat_weights(hparams, 1, np.float32), hparams),
                      np.float32)
    write_heads(tmp_path / "tales-large", TARGET["n_embd"])
    monkeypatch.setattr(gpu, "MODELS", tmp_path)
    monkeypatch.setattr(gpu, "PROMPT", X)
    monkeypatch.setattr(gpu, "ROWS", (1, 2, 3, 5))
    monkeypatch.setattr(gpu, "GUESSES", (1, 2))
    monkeypatch.setattr(gpu, "TREES", ((2, 1),))
    monkeypatch.setattr(fused, "install", lambda formulas: [])
    args = gpu.parse_args(["--json", str(tmp_path / "gpu.json"), "--repeats", "1", "--runs", "1",
                           "--tokens", "6"])
    args.sizes, args.known_sizes = ["124M"], {"124M": TARGET}
    return args


def test_the_gpu_benchmark_measures_all_parts(cupy, small):
    figures = gpu.measure(small)
    assert figures["not_done"] == {} and set(gpu.PARTS) | {"predicted"} <= set(figures)
    assert all(same is not False for row in figures["texts"].values() for same in row)
    assert figures["logits"]["cupy float64"] < 1e-9 and figures["launches"]["formulas"]["124M"] > 99
    assert all(row["plain_text"] for row in figures["speed"].values())
    assert json.loads(small.json.read_text())["gpu"] == "a stand-in, no GPU"
    told = "\n".join(gpu.tell(figures))
    assert "Best: K = " in told and "124M: predicted" in told and "differs" not in told


def test_the_gpu_benchmark_says_what_it_could_not_do(cupy, small, monkeypatch):
    monkeypatch.setitem(gpu.PARTS, "texts", mock.Mock(side_effect=MemoryError("too\nlarge")))
    small.seconds = 0
    figures = gpu.measure(small)
    assert "not done: texts: TimeoutError: need more than 0" in "\n".join(gpu.tell(figures))
    small.seconds = 60
    for part in ("logits", "launches", "passes", "speed"):
        monkeypatch.delitem(gpu.PARTS, part)
    assert gpu.measure(small)["not_done"] == {"texts": "MemoryError: too large"}


def test_the_gpu_benchmark_continues_main_pys_prompt():
    args = main.parse_args([])
    assert bundled.encoder().encode(args.prompt) == gpu.PROMPT


def test_the_gpu_benchmark_needs_numpy_and_cupy_only():
    program = ("import sys\nfor name in ('threadpoolctl', 'numba', 'tqdm', 'requests', 'regex', "
               "'safetensors', 'filelock', 'pytest', 'hypothesis'): sys.modules[name] = None\n"
               "import benchmarks.gpu")
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
