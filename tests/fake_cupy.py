"""A stand-in for CuPy: its names and its manners, NumPy behind it, nothing on a GPU.

    with fake_cupy.installed() as cupy:       `import cupy` gives the stand-in
        with fake_cupy.counted() as counts:   counts.launches, .to_host, .to_device

What it has of CuPy's, beside the numbers:

    names       those of the real package and no others, read off its wheel (tools/cupy_names.py);
                what this file does not need raises NotImplementedError
    dispatch    NumPy's functions reach it by __array_ufunc__ and __array_function__
    refusals    a NumPy array beside one of its own, and turning one of its own into NumPy's
                without get(), are a TypeError; a function has out, dtype, axis, keepdims at most
    launches    one for whatever is no view, as CuPy launches a kernel then; products of more than
                two axes, and odd ones of two, copy what does not lie in order (cupy/_core/
                _routines_linalg.pyx)
    memory      with `installed(n_bytes)` an allocation above them fails as CuPy's does

RawModule compiles CUDA C for the processor, the threads of a block as threads, where there is a C++
compiler; so lib/backend/fused.py's kernels run as they are written.
"""

import ctypes
import functools
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.backend import fused

KEPT = json.loads((Path(__file__).parent / "data" / "cupy-names.json").read_text("utf-8"))
NAMES = {part: set(names) for part, names in KEPT["names"].items()}
NO_KERNEL = ("empty", "zeros")  # memory, and a fill by the driver
TAKES_HOST_ARRAYS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
KEYWORDS = {"axis", "out", "keepdims", "dtype", "order", "copy", "ord", "k", "offset", "axes"}


@dataclass
class Counts:
    """What would have crossed the bus, and the kernels that would have been launched."""

    launches: int = 0
    to_host: int = 0
    to_device: int = 0


COUNTS = Counts()
LIMIT = {"bytes": math.inf}  # the largest allocation


@contextmanager
def counted():
    """A Counts that starts at zero, and is filled until the end of the block."""
    global COUNTS
    before, COUNTS = COUNTS, Counts()
    try:
        yield COUNTS
    finally:
        COUNTS = before


class CUDARuntimeError(RuntimeError):
    """As CuPy's, where there is no driver."""

    __module__ = "cupy_backends.cuda.api.runtime"


class OutOfMemoryError(MemoryError):
    """As CuPy's."""

    __module__ = "cupy.cuda.memory"


# ---- arrays

def to_host(value, name=""):
    """The NumPy array behind a value, in a list too; what CuPy refuses is refused."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray) and name not in TAKES_HOST_ARRAYS:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(to_host(part, name) for part in value)
    return value


def to_device(host, launches=0):
    """An array of the stand-in's, with this NumPy array behind it."""
    COUNTS.launches += launches
    array = object.__new__(ndarray)
    array._host = np.asarray(host)
    if array._host.nbytes > LIMIT["bytes"]:
        raise OutOfMemoryError(f"Out of memory allocating {array._host.nbytes:,} bytes "
                               "(allocated so far: 0 bytes).")
    return array


def call(function, name, args, kwargs):
    """A function of NumPy's on what is behind the arguments; a launch if it made new numbers."""
    if set(kwargs) - KEYWORDS:
        raise TypeError(f"{name}() got an unexpected keyword argument {set(kwargs) - KEYWORDS}")
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"{name} with out")
    hosts = to_host(args, name)
    result = function(*hosts, **kwargs)
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    sources = [host for host in hosts if isinstance(host, np.ndarray)]
    is_view = any(np.may_share_memory(result, source) for source in sources)
    return to_device(result, launches=not is_view and name not in NO_KERNEL)


def copies(a, b):
    """How many operands CuPy copies before it multiplies them."""
    def in_order(x):
        return x.flags.c_contiguous or x.ndim == 2 and a.ndim == 2 and x.flags.f_contiguous

    return (not in_order(a)) + (not in_order(b)) if max(a.ndim, b.ndim) >= 2 else 0


def multiply_matrices(a, b):
    a, b = to_host((a, b))
    return to_device(a @ b, launches=1 + copies(a, b))


class ndarray:
    """cupy.ndarray."""

    __module__ = "cupy"
    __hash__ = None

    def __getattr__(self, name):
        if name not in NAMES["cupy.ndarray"]:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        value = getattr(self._host, name, None)
        if value is None or name.startswith("__"):
            raise NotImplementedError(f"the stand-in has no cupy.ndarray.{name}")
        if isinstance(value, np.ndarray):
            return to_device(value)
        if not callable(value) or isinstance(value, np.dtype):
            return value
        method = getattr(np.ndarray, name)
        return lambda *args, **kwargs: call(method, name, (self, *args), kwargs)

    def get(self):
        COUNTS.to_host += 1
        return self._host.copy()

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    __bool__ = lambda self: bool(self.get())
    __int__ = lambda self: int(self.get())
    __float__ = lambda self: float(self.get())
    __repr__ = lambda self: repr(self.get())

    def __array__(self, dtype=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` "
                        "to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__" or ufunc.__name__ not in NAMES["cupy"]:
            return NotImplemented
        return getattr(CUPY, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, function, kinds, args, kwargs):
        if function.__module__ != "numpy" or function.__name__ not in NAMES["cupy"]:
            return NotImplemented
        return getattr(CUPY, function.__name__)(*args, **kwargs)

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        hosts, uploads = index(key)
        COUNTS.to_device += uploads
        part = self._host[hosts]
        return to_device(part, launches=not np.may_share_memory(part, self._host))

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        hosts, uploads = index(key)
        COUNTS.to_device += uploads
        COUNTS.launches += 1
        self._host[hosts] = to_host(value)

    __matmul__ = multiply_matrices


def index(key):
    """An index in NumPy's arrays, and how many of them CuPy copies to the device for it."""
    parts = key if isinstance(key, tuple) else (key,)
    hosts = tuple(part._host if isinstance(part, ndarray) else part for part in parts)
    return hosts, sum(isinstance(part, (list, np.ndarray)) for part in parts)


def operator(name, ufunc, swapped=False):
    """A method for an operator: numbers and its own arrays, a TypeError for a NumPy array."""
    def method(self, other):
        if not isinstance(other, (ndarray, np.ndarray, np.generic, int, float, bool)):
            return NotImplemented
        return call(ufunc, name, (other, self) if swapped else (self, other), {})

    return method


for _name, _ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                      ("truediv", np.true_divide), ("pow", np.power)):
    setattr(ndarray, f"__{_name}__", operator(_name, _ufunc))
    setattr(ndarray, f"__r{_name}__", operator(_name, _ufunc, swapped=True))
for _name, _ufunc in (("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
                      ("ge", np.greater_equal), ("eq", np.equal), ("ne", np.not_equal)):
    setattr(ndarray, f"__{_name}__", operator(_name, _ufunc))
ndarray.__neg__ = lambda self: call(np.negative, "negative", (self,), {})


# ---- modules

class Module(types.ModuleType):
    """A module with the names of the real one: its own, else NumPy's function of that name."""

    def __getattr__(self, name):
        if name not in NAMES[self.__name__] or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        function = getattr(np, name, None)
        if function is None or self.__name__ != "cupy":
            raise NotImplementedError(f"the stand-in has no {self.__name__}.{name}")
        if not callable(function) or isinstance(function, type):
            return function
        if name == "matmul":
            return multiply_matrices
        return functools.partial(self.call, function, name)

    @staticmethod
    def call(function, name, *args, **kwargs):
        if args and isinstance(args[0], np.ndarray | list) and name in TAKES_HOST_ARRAYS:
            COUNTS.to_device += 1
            return to_device(function(*args, **kwargs))
        return call(function, name, args, kwargs)


class Event:
    """cupy.cuda.Event, by the processor's clock."""

    __module__ = "cupy.cuda"

    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass


class Pool:
    """The memory pool."""

    def free_all_blocks(self):
        pass

    def used_bytes(self):
        return 0


def make_cupy():
    """The modules cupy, cupy.cuda and cupy.cuda.runtime."""
    cupy, cuda, runtime = (Module(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.runtime"))
    cupy.__version__, cupy.ndarray, cupy.cuda, cupy.RawModule = (KEPT["version"], ndarray, cuda,
                                                                 RawModule)
    cupy.get_default_memory_pool = Pool
    cuda.Event, cuda.runtime = Event, runtime
    cuda.get_elapsed_time = lambda start, end: 1e3 * (end.time - start.time)
    runtime.CUDARuntimeError = CUDARuntimeError
    runtime.getDeviceProperties = lambda device: {"name": b"a stand-in, no GPU"}
    runtime.runtimeGetVersion = runtime.driverGetVersion = lambda: 0
    return cupy


@contextmanager
def installed(n_bytes=math.inf):
    """Within the block `import cupy` gives the stand-in, with so much memory for one array."""
    before, sys.modules["cupy"], LIMIT["bytes"] = sys.modules.get("cupy"), CUPY, n_bytes
    fused.kernel.cache_clear()  # compiled by another CuPy
    try:
        yield CUPY
    finally:
        LIMIT["bytes"] = math.inf
        fused.kernel.cache_clear()
        sys.modules["cupy"] = before
        if before is None:
            del sys.modules["cupy"]


# ---- kernels in CUDA C

SHIM = """
#include <math.h>
#include <pthread.h>
using std::tanh, std::exp, std::sqrt;
#define __device__
#define __global__
template <class T> T max(T a, T b) { return a < b ? b : a; }
struct Place { unsigned x; };
thread_local Place threadIdx, blockIdx, blockDim;
pthread_barrier_t all_lanes;
double lanes[1024];
template <class T> T __shfl_xor_sync(unsigned, T value, int step) {
    lanes[threadIdx.x] = value;
    pthread_barrier_wait(&all_lanes);
    T other = lanes[threadIdx.x ^ step];
    pthread_barrier_wait(&all_lanes);
    return other;
}
template <class F> struct Task { F* body; unsigned grid, block, lane; };
template <class F> void* work(void* pointer) {
    Task<F>* task = (Task<F>*)pointer;
    threadIdx.x = task->lane, blockDim.x = task->block;
    for (blockIdx.x = 0; blockIdx.x < task->grid; blockIdx.x++) (*task->body)();
    return 0;
}
template <class F> void launch(unsigned grid, unsigned block, F body) {
    pthread_t threads[1024];
    Task<F> tasks[1024];
    pthread_barrier_init(&all_lanes, 0, block);
    for (unsigned i = 0; i < block; i++) {
        tasks[i] = Task<F>{&body, grid, block, i};
        pthread_create(&threads[i], 0, work<F>, &tasks[i]);
    }
    for (unsigned i = 0; i < block; i++) pthread_join(threads[i], 0);
}
"""
KERNEL = re.compile(r"__global__ void (\w+)\((.*?)\)", re.S)
COMPILER = shutil.which("c++") or shutil.which("g++")


def launcher(name, parameters):
    """C++ that runs a kernel for every block and thread."""
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
    return (f'extern "C" void run_{name}(unsigned grid, unsigned block, {parameters}) '
            f"{{ launch(grid, block, [=] {{ {name}({names}); }}); }}\n")


@functools.cache
def compiled(code):
    """A shared library with a run_NAME for every kernel."""
    if not COMPILER:
        raise NotImplementedError("the stand-in needs a C++ compiler for kernels")
    launchers = "".join(launcher(*found) for found in KERNEL.findall(code))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(SHIM + code + launchers)
        flags = ["-std=c++17", "-shared", "-fPIC", "-pthread", "-o", library]
        subprocess.run([COMPILER, *flags, source], check=True, capture_output=True)
        return ctypes.CDLL(str(library))


class RawModule:
    """cupy.RawModule."""

    __module__ = "cupy"

    def __init__(self, *, code):
        self.library = compiled(code)

    def get_function(self, name):
        run = self.library[f"run_{name}"]

        def kernel(grid, block, args):
            COUNTS.launches += 1
            run(*grid, *block, *map(as_c, args))

        return kernel


def as_c(argument):
    """An argument as CuPy hands it over: an array's address, a NumPy number of its own type."""
    if isinstance(argument, ndarray):
        return ctypes.c_void_p(argument._host.ctypes.data)
    return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())


CUPY = make_cupy()
