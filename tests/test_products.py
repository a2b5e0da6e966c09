"""Products of few rows are the matrix product for every backend, with the same bits per row."""

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import attention, mask_of
from lib.backend import products
from lib.backend.int8 import int8, rounded_rows
from tests.pages import ROOT

needs_numba = pytest.mark.skipif(products.product_compiler() is None, reason="needs Numba")


def arrays(n_rows, n_in, n_out, dtype, transposed=True, seed=0):
    """Return rows, and weights in the models' order in memory or else a checkpoint's."""
    rng = np.random.default_rng(seed)
    x, w = (rng.normal(size=shape).astype(dtype) for shape in ((n_rows, n_in), (n_out, n_in)))
    return x, w.T if transposed else np.ascontiguousarray(w.T)


sizes = st.sampled_from([1, 3, 8, 17, 64, 96, 200])


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-3), (np.float64, 1e-10)])
@given(st.integers(1, 40), sizes, sizes, st.booleans(), st.integers(0, 99))
@settings(max_examples=40)
def test_matmul_is_the_matrix_product_for_all_shapes(
        dtype, tolerance, n_rows, n_in, n_out, transposed, seed):
    x, w = arrays(n_rows, n_in, n_out, dtype, transposed, seed)
    for name in ("numpy", "numba"):
        products.set_backend(name)
        got = products.matmul(x, w)
        assert got.dtype == dtype and got.shape == (n_rows, n_out)
        np.testing.assert_allclose(got, np.einsum("ri,io->ro", x, w), rtol=0, atol=tolerance)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_int8_sums_are_whole_numbers_without_overflow(dtype):
    """Even the largest ones of the longest row: 12,288 numbers, all of the same sign."""
    for n_in in (32, 1536, 12_288):
        x = np.stack([np.ones(n_in), np.linspace(-1, 2, n_in), np.zeros(n_in)]).astype(dtype)
        w = int8(np.ones((3, n_in), dtype))
        numbers, scale = rounded_rows(x)
        assert numbers.dtype == np.int16 and (numbers[0] == numbers.max()).all()
        assert (abs(numbers * scale - x) <= scale * 0.501).all()
        sums = numbers.astype(object) @ w.numbers.T.astype(object)
        assert 0 < abs(sums).max() < 2**31
        assert (x @ w.mT == sums.astype(dtype) * w.scale * scale).all()


def test_int8_multiplies_rows_of_any_width_and_layout(backend):
    """Each number of a row is rounded by less than 2^-15 of the row's largest number."""
    for n_in in (8, 16, 17, 24):  # 16 numbers of int16 fill a vector
        x, w = arrays(3, n_in, 5, np.float32)
        w = int8(w.T)
        rounding = n_in * abs(x).max() * abs(w[:]).max() / 2**15
        for rows in (x, np.asfortranarray(x)):
            np.testing.assert_allclose(rows @ w.mT, x @ w[:].T, rtol=0, atol=rounding)


@needs_numba
def test_int8_keeps_what_is_no_number():
    x = np.ones((3, 64), np.float32)
    x[0, 5], x[2, 7] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        y = x @ int8(np.eye(64, dtype=np.float32)).mT
    assert np.isfinite(y[1]).all() and not np.isfinite(y[[0, 2]]).any()


@needs_numba
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-3), (np.float64, 1e-10)])
@pytest.mark.parametrize("shape", [(192, 577), (768, 1), (1024, 1100)])
@pytest.mark.parametrize("is_int8", [False, True])
def test_a_rows_product_has_the_same_bits_for_any_number_of_rows(
        dtype, tolerance, shape, is_int8):
    """At any position, by one thread or several; int8 also beyond MAX_ROWS."""
    x, w = arrays(products.MAX_ROWS + 8 * is_int8, *shape, dtype)
    factor = int8(w.T).mT if is_int8 else w
    alone = np.concatenate([products.matmul(row[None], factor) for row in x])
    rows, rounded = x, w
    if is_int8:
        numbers, scale = rounded_rows(x)
        rows, rounded = numbers * scale, int8(w.T)[:].T
    np.testing.assert_allclose(alone, rows.astype(np.float64) @ rounded, rtol=0, atol=tolerance)
    assert alone.dtype == dtype and alone.shape == (len(x), shape[1])
    for n_rows in range(1, len(x) + 1):
        assert (products.matmul(x[:n_rows], factor) == alone[:n_rows]).all()
        assert (products.matmul(x[-n_rows:], factor) == alone[-n_rows:]).all()
    for least in (0, 2**60):
        with mock.patch.object(products, "SHARED", least):
            assert (products.matmul(x, factor) == alone).all()


@needs_numba
@pytest.mark.parametrize("registers, n_bytes", [(4, 64), (16, 32), (32, 64)])
@pytest.mark.parametrize("is_int8", [False, True])
def test_bits_do_not_depend_on_how_many_outputs_are_summed_at_a_time(
        registers, n_bytes, is_int8):
    from lib.backend import compiled

    x, w = arrays(5, 64, 10, np.float32)
    expected = x @ w
    weights = (w.T, None)
    if is_int8:
        x, scale = rounded_rows(x)
        weights = (int8(w.T).numbers, int8(w.T).scale)
        expected = x @ int8(w.T)[:].T
    results = []
    for n in (registers, 8):
        with mock.patch.multiple(compiled, REGISTERS=n, BYTES=n_bytes):
            y = np.empty((5, 10), np.float32)
            compiled.compile_product.__wrapped__(5, y.dtype, is_int8)(x, *weights, y, 0, 10)
            results.append(y)
    assert (results[0] == results[1]).all()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def test_arrays_of_any_layout_are_multiplied(backend):
    x, w = arrays(5, 64, 96, np.float32)
    expected = x @ w
    for odd_x, odd_w in [(x[::-1][::-1], w), (np.asfortranarray(x), w),
                         (x, w[:, ::-1][:, ::-1]), (x.astype(np.float64), w), (x[:0], w)]:
        got = products.matmul(odd_x, odd_w)
        assert got.dtype == np.result_type(odd_x, odd_w)
        np.testing.assert_allclose(got, expected[: len(odd_x)], atol=1e-4)
    w.flags.writeable = False
    np.testing.assert_allclose(products.matmul(x, w), expected, atol=1e-4)


# ---- threads

def test_a_large_product_wakes_each_thread_once_a_small_one_none_and_neither_waits(
        backend):
    """A busy process slows down the parts that a pass hands over: counted, not timed."""
    for shape, n_woken in ((192, 96), 0), ((1536, 3072), products.N_THREADS - 1):
        every_row, w = arrays(40, *shape, np.float64)
        for x in (every_row[:n] for n in (1, 5, 16, 40)):
            with mock.patch.object(products, "job_queue") as queue:  # no thread reads it
                np.testing.assert_allclose(products.matmul(x, w), x @ w, atol=1e-9)
            assert queue.return_value.put.call_count == n_woken


def test_threads_that_blas_may_have_get_no_company():
    """Without threadpoolctl BLAS keeps its own threads, so ours do not share its products."""
    x, w = arrays(1 + products.MAX_ROWS, 768, 3072, np.float64)
    with mock.patch.object(products, "job_queue") as queue, \
            mock.patch.object(products, "blas_libraries", list):
        np.testing.assert_allclose(products.matmul(x, w), x @ w, atol=1e-9)
    assert queue.return_value.put.call_count == 0


def test_blas_has_one_thread_during_a_pass_and_its_former_number_afterwards():
    """The blocks of two threads may overlap."""
    blas = mock.Mock(n=7)
    blas.get_num_threads = lambda: blas.n
    blas.set_num_threads = lambda n: setattr(blas, "n", n)
    with mock.patch.object(products, "blas_libraries", lambda: [blas]):
        blocks = [products.one_blas_thread() for _ in range(2)]
        for block in blocks:
            block.__enter__()
            assert blas.n == 1
        for block in blocks:
            block.__exit__(None, None, None)
    assert blas.n == 7


def test_several_callers_at_once_get_their_own_products(backend):
    jobs = 5 * [arrays(n_rows, 1024, 1100, np.float64) for n_rows in (1, 2, 5, 16, 33, 40)]
    with ThreadPoolExecutor(6) as callers:
        for (x, w), got in zip(jobs, callers.map(products.matmul, *zip(*jobs))):
            np.testing.assert_allclose(got, x @ w, atol=1e-9)


@given(st.integers(33, 60), st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 3]),
       st.integers(0, 99))
@settings(max_examples=30)
def test_attention_of_many_rows_in_parts_is_that_of_all_rows(n_new, n_nodes, n_past, group, seed):
    """Also in a mask with columns of nodes that were read before the new rows."""
    rng = np.random.default_rng(seed)
    n_seq = n_past + n_nodes + n_new
    k, v = rng.normal(size=(2, 2, n_seq, 4))
    q = rng.normal(size=(n_new, 2 * group, 4)).swapaxes(0, 1)
    sees = np.tri(n_new, n_nodes + n_new, n_nodes, dtype=bool)  # at most its own column
    sees[:, : n_nodes + n_new // 2] &= rng.random((n_new, n_nodes + n_new // 2)) < 0.5
    sees[np.arange(n_new), n_nodes + np.arange(n_new)] = True
    mask = mask_of(sees, like=q)
    parts = []

    def attention_of_part(q, *others):
        parts.append(q.shape[1])
        return attention(q, *others)

    with mock.patch.object(products, "PART_WEIGHTS", n_seq), \
            mock.patch.object(products, "SHARED", 1):
        got = products.by_rows(attention_of_part, q, k, v, mask)
    assert len(parts) > 1 and sum(parts) == n_new
    np.testing.assert_allclose(got, attention(q, k, v, mask), rtol=0, atol=1e-12)


def test_an_error_in_a_part_reaches_the_caller():
    def work(first, last):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        products.in_parallel(work, 2048, size=products.SHARED)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # a process with threads should not fork
def test_a_forked_child_starts_its_own_threads(monkeypatch):
    monkeypatch.setattr(products, "N_THREADS", 3)
    products.job_queue.cache_clear()
    products.job_queue()
    child = os.fork()
    if child == 0:
        products.job_queue()
        os._exit(threading.active_count())  # the caller is one of them
    _, status = os.waitpid(child, 0)
    products.job_queue.cache_clear()
    assert os.waitstatus_to_exitcode(status) == 3


# ---- no Numba, a broken one, no folder for its cache

@pytest.mark.parametrize("broken", [
    {"llvmlite": None}, {"numba": ModuleType("numba")}, {"numba": None, "threadpoolctl": None}],
    ids=["without its compiler", "broken", "absent, and threadpoolctl"])
def test_NumPy_multiplies_without_a_working_Numba(broken):
    with mock.patch.dict(sys.modules, broken):
        sys.modules.pop("lib.backend.compiled", None)  # it is imported again
        products.set_backend("numba")  # which forgets its compiler
        products.blas_libraries.cache_clear()
        for n_out in (96, 2**15):
            x, w = np.ones((5, 64), np.float32), np.ones((n_out, 64), np.float32).T
            assert (products.matmul(x, w) == 64).all()
        assert products.library_name().startswith("NumPy")
    products.set_backend("numba")
    products.blas_libraries.cache_clear()


@needs_numba
def test_without_a_folder_for_its_cache_Numba_compiles_in_every_process():
    from numba.core import caching

    from lib.backend import compiled

    with mock.patch.object(caching.CacheImpl, "_locator_classes", []):
        multiply = compiled.compile_product.__wrapped__(1, np.dtype(np.float32))
    y = np.empty((1, 3), np.float32)
    multiply(np.ones((1, 64), np.float32), np.ones((3, 64), np.float32), None, y, 0, 3)
    assert (y == 64).all() and not multiply.stats.cache_path
    assert products.library_name().startswith("Numba")


FIRST_RUN = """
import sys
import main
from numba.core import event

def counted(task, *args, **settings):
    with event.install_recorder("numba:compiler_lock") as recorder:  # to compile and to load
        run = decode(task, *args, **settings)
    if task.n_new > 2:  # not the warm-up
        print(f"compiled: {len(recorder.buffer)} for {len(run.ids)} tokens")
    return run

decode = main.decode
main.decode = counted
main.main(sys.argv[1:])
"""


FLAGS = ["--n_tokens_to_generate", "12",  # and a prompt that is long enough for every product
         "--prompt", "There was an old fisherman who was afraid of the dark, and he asked"]
FIRST_RUNS = [("suffix", ["matrix"]), ("quantized", ["int8 matrix"]), ("quantized", [])]


@needs_numba
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
@pytest.mark.parametrize("runs", [FIRST_RUNS[:1], pytest.param(FIRST_RUNS,
                                                               marks=pytest.mark.weekly)])
def test_a_first_run_compiles_before_it_measures_and_announces_it_on_a_terminal(runs, tmp_path):
    """The cache is empty, then has the products of matrices, then of int8 matrices too."""
    import pty
    import termios

    for decoder, kinds in runs:
        reading, writing = pty.openpty()
        termios.tcsetwinsize(writing, (24, 80))  # so that progress bars are drawn too
        done = subprocess.run(
            [sys.executable, "-B", "-c", FIRST_RUN, *FLAGS, "--decoder", decoder], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=writing, text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
        assert done.stdout.count("compiled: 0 for 12 tokens") == 2
        os.write(writing, b"end")
        message = b""
        while not message.endswith(b"end"):
            message += os.read(reading, 1000)
        lines = [f"Compiling {kind} products (once per machine) ...\r\n" for kind in kinds]
        assert re.findall(r"Compiling.*\r\n", message.decode()) == lines
        assert message.decode().startswith("".join(lines) + "\r")  # then the bars
        os.close(reading)
        os.close(writing)
