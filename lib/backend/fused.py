"""GELU, softmax and layer norm as one kernel each on a GPU, in place of 9, 5 and 11.

A pass over a few tokens waits for kernels to be launched, not for what they compute. CuPy launches
one for every operation of a formula. gpt2.py's formulas stay as they are: `install(gpt2)` puts a
function around each of the three that gives NumPy's arrays to the formula, CuPy's to the kernel.

Each kernel is compared with its formula when it is installed, on the GPU at hand; one that cannot
be compiled there or gives other numbers is left out, with a warning.

    real    the type of the numbers: float or double
    n       numbers in a row; one warp, 32 threads, works on each row
"""

import functools
import inspect
import warnings

import numpy as np

SOURCE = """
__device__ real sum_of_warp(real part) {
    for (int step = 16; step > 0; step /= 2) part += __shfl_xor_sync(0xffffffff, part, step);
    return part;
}

__device__ real max_of_warp(real part) {
    for (int step = 16; step > 0; step /= 2)
        part = max(part, __shfl_xor_sync(0xffffffff, part, step));
    return part;
}

extern "C" __global__ void gelu(const real* x, real* y, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        real v = x[i], inner = real(0.7978845608028654) * (v + real(0.044715) * v * v * v);
        y[i] = real(0.5) * v * (1 + tanh(inner));
    }
}

extern "C" __global__ void softmax(const real* x, real* y, int n) {
    x += (long long)blockIdx.x * n;
    y += (long long)blockIdx.x * n;
    real largest = x[0], total = 0;
    for (int i = threadIdx.x; i < n; i += 32) largest = max(largest, x[i]);
    largest = max_of_warp(largest);
    for (int i = threadIdx.x; i < n; i += 32) total += y[i] = exp(x[i] - largest);
    total = sum_of_warp(total);
    for (int i = threadIdx.x; i < n; i += 32) y[i] /= total;
}

extern "C" __global__ void layer_norm(const real* x, const real* g, const real* b, real* y,
                                      int n, real eps) {
    x += (long long)blockIdx.x * n;
    y += (long long)blockIdx.x * n;
    real mean = 0, variance = 0;
    for (int i = threadIdx.x; i < n; i += 32) mean += x[i];
    mean = sum_of_warp(mean) / n;
    for (int i = threadIdx.x; i < n; i += 32) variance += (x[i] - mean) * (x[i] - mean);
    real deviation = sqrt(sum_of_warp(variance) / n + eps);
    for (int i = threadIdx.x; i < n; i += 32) y[i] = (x[i] - mean) / deviation * g[i] + b[i];
}
"""
WARP, BLOCK = 32, 128  # threads for a row, and for numbers that do not depend on each other
REALS = {"float32": "float", "float64": "double"}


@functools.cache
def kernel(name, dtype):
    """The compiled function; compiled once for each type."""
    import cupy  # here, for only this backend needs it

    code = f"typedef {REALS[dtype.name]} real;\n{SOURCE}"
    return cupy.RawModule(code=code).get_function(name)


# ---- one function for each formula, with its arguments

def gelu(x):
    x, y = with_room(x)
    n_blocks = -(-x.size // BLOCK)
    kernel("gelu", x.dtype)((n_blocks,), (BLOCK,), (x, y, np.int32(x.size)))
    return y


def softmax(x):
    x, y = with_room(x)
    n = x.shape[-1]
    kernel("softmax", x.dtype)((x.size // n,), (WARP,), (x, y, np.int32(n)))
    return y


def layer_norm(x, g, b, eps=1e-5):
    x, y = with_room(x)
    n = x.shape[-1]
    arguments = (x, g, b, y, np.int32(n), x.dtype.type(eps))
    kernel("layer_norm", x.dtype)((x.size // n,), (WARP,), arguments)
    return y


def with_room(x):
    """x, its rows one after another in memory, and room for as many numbers."""
    return np.ascontiguousarray(x, like=x), np.empty(x.shape, x.dtype, like=x)


# ---- in their places

FUSED = {"gelu": gelu, "softmax": softmax, "layer_norm": layer_norm}


def install(formulas):
    """Give three formulas of a module, gpt2.py, their kernels; the names of those that work."""
    installed = []
    for name, fused in FUSED.items():
        formula = inspect.unwrap(getattr(formulas, name))
        try:
            check(name, fused, formula)
        except Exception as error:  # the compiler's, the driver's, or other numbers
            warnings.warn(f"{name} runs as several kernels, its own failed: {error}", stacklevel=2)
        else:
            setattr(formulas, name, by_type(formula, fused))
            installed.append(name)
    return installed


def remove(formulas):
    """Put the formulas back."""
    for name in FUSED:
        setattr(formulas, name, inspect.unwrap(getattr(formulas, name)))


def by_type(formula, fused):
    """The formula for NumPy's arrays, the kernel for others."""
    @functools.wraps(formula)
    def function(x, **weights):
        return (formula if isinstance(x, np.ndarray) else fused)(x, **weights)

    return function


def check(name, fused, formula):
    """Raise ValueError unless a kernel gives its formula's numbers, of either type."""
    import cupy

    rng = np.random.default_rng(0)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-12)):
        x, g, b = (cupy.asarray(rng.normal(size=shape).astype(dtype))
                   for shape in ((3, 70), 70, 70))
        weights = {"g": g, "b": b} if name == "layer_norm" else {}
        y, expected = fused(x, **weights).get(), formula(x, **weights).get()
        if y.dtype != dtype or not np.allclose(y, expected, rtol=0, atol=tolerance):
            raise ValueError(f"need {expected[0, :3]} in {y.dtype}, got {y[0, :3]}")
