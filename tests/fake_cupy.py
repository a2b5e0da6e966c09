"""Stand in for CuPy without a GPU: its names, refusals and transfers, NumPy's arithmetic.

    CUPY        the stand-in
    COUNTS      transfers: COUNTS["to_host"], COUNTS["to_device"]

    names       the names of the real package and no others (tests/data/cupy-names.json has what
                dir() lists of it); a name that no test needs raises NotImplementedError
    dispatch    NumPy's functions reach it by __array_ufunc__ and __array_function__
    refusals    mixing its arrays with NumPy's, and turning one into NumPy's without get(), are
                TypeErrors
"""

import functools
import json
import types
from collections import Counter

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.pages import file_text

RECORDED = json.loads(file_text("tests/data/cupy-names.json"))
NAMES = {part: set(names.split()) for part, names in RECORDED["names"].items()}
TAKES_HOST_ARRAYS = ("array", "asarray", "ascontiguousarray", "asfortranarray")
COUNTS = Counter()
CUDARuntimeError = type("CUDARuntimeError", (RuntimeError,),
                        {"__module__": "cupy_backends.cuda.api.runtime"})  # without a driver
OutOfMemoryError = type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})


# ---- arrays

def to_host(value, name=""):
    """Return a value's NumPy array, in a list too; TypeError where CuPy raises it."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray) and name not in TAKES_HOST_ARRAYS:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(to_host(part, name) for part in value)
    return value


def to_device(host):
    """Return an array of the stand-in that holds this NumPy array."""
    array = object.__new__(ndarray)
    array._host = np.asarray(host)
    return array


def call(function, name, *args, **kwargs):
    """Call a function of NumPy's on the arguments' NumPy arrays."""
    if args and isinstance(args[0], np.ndarray | list) and name in TAKES_HOST_ARRAYS:
        COUNTS["to_device"] += 1
        return to_device(function(*args, **kwargs))
    result = function(*to_host(args, name), **kwargs)
    return to_device(result) if isinstance(result, (np.ndarray, np.generic)) else result


class ndarray(NDArrayOperatorsMixin):
    """Stand in for cupy.ndarray."""

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
        return functools.partial(call, getattr(np.ndarray, name), name, self)

    def get(self):
        COUNTS["to_host"] += 1
        return self._host.copy()

    def __array__(self, dtype=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use "
                        "`.get()` to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **kwargs):
        if method != "__call__" or ufunc.__name__ not in NAMES["cupy"]:
            return NotImplemented
        return getattr(CUPY, ufunc.__name__)(*inputs, *out, **kwargs)

    def __array_function__(self, function, kinds, args, kwargs):
        if function.__module__ != "numpy" or function.__name__ not in NAMES["cupy"]:
            return NotImplemented
        return getattr(CUPY, function.__name__)(*args, **kwargs)

    def __len__(self):
        return len(self._host)

    def __getitem__(self, key):
        return to_device(self._host[index(key)])

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._host[index(key)] = to_host(value)


def index(key):
    """Return an index for NumPy's arrays; CuPy copies its lists and arrays to the device."""
    parts = key if isinstance(key, tuple) else (key,)
    COUNTS["to_device"] += sum(isinstance(part, (list, np.ndarray)) for part in parts)
    return tuple(part._host if isinstance(part, ndarray) else part for part in parts)


# ---- modules

class Module(types.ModuleType):
    """Offer the names of a real module: its own, else NumPy's function of that name."""

    def __getattr__(self, name):
        if name not in NAMES[self.__name__] or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        function = getattr(np, name, None)
        if not callable(function) or self.__name__ != "cupy":
            raise NotImplementedError(f"the stand-in has no {self.__name__}.{name}")
        if isinstance(function, type):
            return function
        return functools.partial(call, function, name)


# the module cupy, with cupy.cuda.runtime for what a benchmark reports
CUPY, cuda, runtime = map(Module, ("cupy", "cupy.cuda", "cupy.cuda.runtime"))
CUPY.__version__ = RECORDED["version"]
CUPY.ndarray = ndarray
CUPY.cuda = cuda
cuda.runtime = runtime
runtime.CUDARuntimeError = CUDARuntimeError
runtime.getDeviceProperties = lambda device: {"name": b"a stand-in, no GPU"}
