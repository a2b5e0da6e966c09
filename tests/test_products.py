"""Test products of few rows: with every backend the matrix product, bit by bit the same."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.backend import products
from lib.backend.int8 import int8

ROOT = Path(products.__file__).parents[2]
HAS_NUMBA = products.compiled_product() is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="needs Numba")
BACKENDS = ["numpy", pytest.param("numba", marks=needs_numba)]


@pytest.fixture(params=BACKENDS)
def backend(request):
    products.set_backend(request.param)
    yield request.param
    products.set_backend("numba")


def arrays(n_rows, n_in, n_out, dtype, transposed=True, seed=0):
    """Return random rows, and weights transposed in memory, as models have them, or not."""
    rng = np.random.default_rng(seed)
    x, w = (rng.normal(size=shape).astype(dtype) for shape in ((n_rows, n_in), (n_out, n_in)))
    return x, w.T if transposed else np.ascontiguousarray(w.T)


sizes = st.sampled_from([1, 3, 8, 17, 64, 96, 200])


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-3), (np.float64, 1e-10)])
@given(st.integers(1, 40), sizes, sizes, st.booleans(), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_it_is_the_matrix_product_for_all_shapes(dtype, tolerance, n_rows, n_in, n_out, transposed,
                                                 seed):
    x, w = arrays(n_rows, n_in, n_out, dtype, transposed, seed)
    for name in ("numpy", "numba"):
        products.set_backend(name)
        got = products.matmul(x, w)
        assert got.dtype == dtype and got.shape == (n_rows, n_out)
        np.testing.assert_allclose(got, np.einsum("ri,io->ro", x, w), rtol=0, atol=tolerance)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(192, 768), (192, 577), (768, 1), (1024, 1100)])
def test_a_rows_product_has_the_same_bits_whatever_is_multiplied_beside_it(dtype, shape):
    """Any number of rows, any place among them, one thread or several."""
    x, w = arrays(products.MAX_ROWS, *shape, dtype)
    alone = np.concatenate([products.matmul(row[None], w) for row in x])
    for n_rows in range(1, products.MAX_ROWS + 1):
        assert (products.matmul(x[:n_rows], w) == alone[:n_rows]).all()
        assert (products.matmul(x[-n_rows:], w) == alone[-n_rows:]).all()
    with mock.patch.object(products, "SHARED", 2**60):
        assert (products.matmul(x, w) == alone).all()


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(192, 768), (768, 1), (3072, 2100)])
def test_the_product_of_int8_is_that_of_the_rounded_weights_with_one_rows_bits(dtype, shape):
    x, w = arrays(products.MAX_ROWS + 8, *shape, dtype)
    w = int8(w.T)
    alone = np.concatenate([products.matmul(row[None], w.mT) for row in x])
    tolerance = dict(rtol=0, atol=1e-3 if dtype == np.float32 else 1e-10)
    np.testing.assert_allclose(alone, x.astype(np.float64) @ w[:].T, **tolerance)
    assert alone.dtype == dtype and alone.shape == (len(x), shape[1])
    for n_rows in range(1, len(x) + 1):
        assert (products.matmul(x[:n_rows], w.mT) == alone[:n_rows]).all()
    with mock.patch.object(products, "SHARED", 0):
        assert (products.matmul(x, w.mT) == alone).all()


@needs_numba
@pytest.mark.parametrize("registers", [4, 16, 32])
@pytest.mark.parametrize("n_bytes", [32, 64])
@pytest.mark.parametrize("is_int8", [False, True])
def test_bits_do_not_depend_on_how_many_outputs_are_summed_at_a_time(registers, n_bytes,
                                                                     is_int8):
    from lib.backend import compiled

    x, w = arrays(5, 64, 10, np.float32)
    given = (int8(w.T).numbers, int8(w.T).scale) if is_int8 else (w.T, None)
    results = []
    for count in (registers, 8):
        with mock.patch.multiple(compiled, REGISTERS=count, BYTES=n_bytes, INT8_BYTES=n_bytes):
            y = np.empty((5, 10), np.float32)
            compiled.product.__wrapped__(5, x.dtype, is_int8)(x, *given, y, 0, 10)
            results.append(y)
    assert (results[0] == results[1]).all()
    np.testing.assert_allclose(y, x @ (int8(w.T)[:].T if is_int8 else w), atol=1e-4)


def test_odd_arrays_are_multiplied_too(backend):
    x, w = arrays(5, 64, 96, np.float32)
    expected = x @ w
    for odd_x, odd_w in [(x[::-1][::-1], w), (np.asfortranarray(x), w), (x, w[:, ::-1][:, ::-1]),
                         (x.astype(np.float64), w), (x[:0], w)]:
        got = products.matmul(odd_x, odd_w)
        assert got.dtype == np.result_type(odd_x, odd_w)
        np.testing.assert_allclose(got, expected[: len(odd_x)], atol=1e-4)
    w.flags.writeable = False
    np.testing.assert_allclose(products.matmul(x, w), expected, atol=1e-4)


# ---- threads

def test_a_large_product_wakes_each_thread_once_a_small_one_none_and_late_ones_hold_up_nobody(
        backend):
    """What a pass costs beside a busy process is what it hands over: counted, not timed."""
    for n_rows in (1, 5, 16, 40):
        for shape, n_woken in ((192, 4096), 0), ((768, 3072), products.N_THREADS - 1):
            x, w = arrays(n_rows, *shape, np.float64)
            with mock.patch.object(products, "job_queue") as queue:  # from which nobody takes
                np.testing.assert_allclose(products.matmul(x, w), x @ w, atol=1e-9)
            assert queue.return_value.put.call_count == n_woken


def test_threads_that_blas_may_have_get_no_company():
    """Without threadpoolctl BLAS keeps its own threads, so ours do not share its products."""
    x, w = arrays(1 + products.MAX_ROWS, 768, 3072, np.float64)
    with mock.patch.object(products, "job_queue") as queue, \
            mock.patch.object(products, "blas_libraries", list):
        np.testing.assert_allclose(products.matmul(x, w), x @ w, atol=1e-9)
    assert queue.return_value.put.call_count == 0


def test_blas_has_one_thread_inside_a_pass_and_its_own_afterwards():
    """Blocks may overlap, as those of two threads do."""
    blas = mock.Mock(n=7)
    blas.get_num_threads = lambda: blas.n
    blas.set_num_threads = lambda n: setattr(blas, "n", n)
    with mock.patch.object(products, "blas_libraries", lambda: [blas]):
        first = products.one_blas_thread()
        second = products.one_blas_thread()
        for enter in (first.__enter__, second.__enter__):
            enter()
            assert blas.n == 1
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    assert blas.n == 7


def test_several_callers_at_once_get_their_own_products(backend):
    jobs = 5 * [arrays(n_rows, 1024, 1100, np.float64) for n_rows in (1, 2, 5, 16, 33, 40)]
    with ThreadPoolExecutor(6) as callers:
        for (x, w), got in zip(jobs, callers.map(products.matmul, *zip(*jobs))):
            np.testing.assert_allclose(got, x @ w, atol=1e-9)


def test_an_error_in_a_part_reaches_the_caller():
    def work(first, last):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        products.in_parallel(work, 2048, size=products.SHARED)


def test_the_library_is_that_of_the_backend(backend):
    assert products.library_name().lower().startswith(backend)


@needs_numba
def test_after_a_warm_up_nothing_is_left_to_compile():
    from lib.backend import compiled

    compiled.product.cache_clear()
    products.warm_up(np.float32)
    before = compiled.product.cache_info().misses
    for n_rows in range(1, products.MAX_ROWS + 1):
        products.matmul(*arrays(n_rows, 64, 8, np.float32))
    assert compiled.product.cache_info().misses == before


# ---- no Numba, a broken one, no place for its cache

PROGRAM = """
import sys
import numpy as np
{before}
from lib.backend import products
for n_out in (96, 2**15):
    x, w = np.ones((5, 64), np.float32), np.ones((n_out, 64), np.float32).T
    assert (products.matmul(x, w) == 64).all()
print(products.library_name().split()[0])
"""


@pytest.mark.parametrize("before, library", [
    ("sys.modules['numba'] = None", "NumPy"), ("sys.modules['llvmlite'] = None", "NumPy"),
    ("import types; sys.modules['numba'] = types.ModuleType('numba')", "NumPy"),
    ("sys.modules['numba'] = sys.modules['threadpoolctl'] = None", "NumPy"),
    pytest.param("from numba.core import caching; caching.CacheImpl._locator_classes = []", "Numba",
                 marks=needs_numba)],
    ids=["absent", "without its compiler", "broken", "threadpoolctl absent too", "no cache"])
def test_without_a_numba_that_works_NumPy_multiplies_and_without_a_cache_Numba(before, library):
    program = PROGRAM.format(before=before)
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=ROOT, capture_output=True,
                          text=True, env={"PATH": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, library + "\n", "")


FIRST_RUN = """
import sys
import main
from demo import compare
from numba.core import event

def counted(task, *args):
    with event.install_recorder("numba:compiler_lock") as recorder:  # held to compile and to load
        run = decoded_run(task, *args)
    if task.n_new > 2:  # not the warm-up
        print(f"compiled: {len(recorder.buffer)} for {len(run.ids)} tokens")
    return run

decoded_run = compare.decoded_run
compare.decoded_run = counted
main.main(sys.argv[1:])
"""


@needs_numba
@pytest.mark.skipif(sys.platform == "win32", reason="no terminals to be had")
@pytest.mark.parametrize("decoder, kinds", [("suffix", ["matrix"]),
                                            ("quantized", ["int8 matrix", "matrix"])])
def test_a_first_run_compiles_before_it_measures_and_says_so_on_a_terminal(tmp_path, decoder,
                                                                           kinds):
    """With an empty cache, then with a full one; the prompt has rows for every product."""
    import pty

    said = []
    for _ in range(2):
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [sys.executable, "-B", "-c", FIRST_RUN, "--n_tokens_to_generate", "12", "--dtype",
             "float64", "--decoder", decoder, "--prompt",
             "There was once an old fisherman who was afraid of the dark, and so he"],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=theirs,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
        assert done.stdout.count("compiled: 0 for 12 tokens") == 2
        os.write(theirs, b"end")
        said.append(b"")
        while not said[-1].endswith(b"end"):
            said[-1] += os.read(ours, 1000)
        os.close(ours), os.close(theirs)
    lines = [f"Compiling {kind} products (once per machine) ...\r\n" for kind in kinds]
    assert said == ["".join([*lines, "end"]).encode(), b"end"]
