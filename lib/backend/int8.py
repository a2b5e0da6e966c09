"""Round weights to int8: with a quarter of the bytes a product of few rows takes less time.

    w          [n_out, n_in]    weights, here rounded to scale * numbers
    numbers    [n_out, n_in]    whole numbers, -127 .. 127
    scale      [n_out]          of each output: its largest |w| / 127
    x          [n_rows, n_in]   stays in floating point

gpt2.py's formulas use an `Int8` like an array: they index its rows and compute x @ w.mT.
"""

import numpy as np

from lib.backend.products import compiled_product, few_rows, in_parallel

LARGEST = 127
VECTOR = 64  # bytes of the compiled product's longest vector; rows must be whole vectors


def int8(w):  # [n_out, n_in] -> as w
    """Return weights in int8, or rounded floats if the compiled product cannot be used."""
    is_compiled = isinstance(w, np.ndarray) and compiled_product()
    if not is_compiled or w.shape[1] * w.itemsize % VECTOR:
        scale = scale_of(w)
        return np.rint(w / scale) * scale
    numbers = np.empty(w.shape, np.int8)
    scale = np.empty(len(w), w.dtype)

    def work(first, last):
        part = scale_of(w[first:last])
        numbers[first:last] = np.rint(w[first:last] / part)
        scale[first:last] = part[:, 0]

    in_parallel(work, len(w), w.size)
    return Int8(numbers, scale)


def scale_of(w):  # [n_out, n_in] -> [n_out, 1]
    """Return each output's scale, which is above 0 even if all its weights are 0."""
    return np.maximum(abs(w).max(axis=-1, keepdims=True) / LARGEST, np.finfo(w.dtype).tiny)


class Int8:
    """Hold a matrix [n_out, n_in] in int8 with a scale for each row."""

    def __init__(self, numbers, scale):
        self.numbers = numbers
        self.scale = scale
        self.shape = numbers.shape

    def __getitem__(self, rows):  # -> [.., n_in]
        """Return rows as floats, such as the embeddings of tokens."""
        return self.numbers[rows] * self.scale[rows, None]

    @property
    def mT(self):
        """Return the right side of x @ w.mT."""
        return Transposed(self)


class Transposed:
    """Hold an Int8 with its axes exchanged: the right side of a product."""

    __array_ufunc__ = None  # NumPy then leaves x @ self to __rmatmul__

    def __init__(self, w):
        self.mT = w

    def __rmatmul__(self, x):  # [n_rows, n_in] -> [n_rows, n_out]
        """Multiply any number of rows by the compiled product."""
        return few_rows(x, self.mT.numbers, self.mT.scale)
