"""Round weights to int8: a product of few rows takes less time, because it reads fewer bytes.

    w          [n_out, n_in]    weights, here rounded to scale * numbers
    numbers    [n_out, n_in]    whole numbers, -127 .. 127
    scale      [n_out]          of each output: its largest |w| / 127
    x          [n_rows, n_in]   is rounded too, to int16, so that the sums are whole numbers: a
                                processor multiplies and adds them without widening to floats

gpt2.py's formulas use an `Int8` as they use an array: they index its rows and compute x @ w.mT.
"""

import numpy as np

from lib.backend.products import few_rows, has_whole_vectors, in_parallel, product_compiler

LARGEST = 127  # the largest whole number; -128 is not used, so that the numbers are symmetric


def int8(w):  # [n_out, n_in] -> [n_out, n_in]
    """Return weights as an Int8, or rounded floats if the compiled product cannot be used."""
    is_compiled = isinstance(w, np.ndarray) and product_compiler()
    if not is_compiled or not has_whole_vectors(w.shape[1], np.dtype(np.int16)):
        scale = scale_of(w)
        return np.rint(w / scale) * scale  # floats with the values that an Int8 would have
    numbers = np.empty(w.shape, np.int8)
    scale = np.empty(len(w), w.dtype)

    # Threads call this function for parts of the outputs.
    def round_outputs(first, last):
        weights = w[first:last]
        scales = scale_of(weights)  # [n, 1]
        numbers[first:last] = np.rint(weights / scales)
        scale[first:last] = scales[:, 0]

    in_parallel(round_outputs, len(w), w.size)
    return Int8(numbers, scale)


def scale_of(w):  # [n_out, n_in] -> [n_out, 1]
    """Return each output's scale, which is above 0 even if all its weights are 0."""
    # The scale of a row of zeros would be 0, and 0 / 0 is NaN. So the smallest scale is `tiny`,
    # the smallest normal number.
    return np.maximum(abs(w).max(axis=-1, keepdims=True) / LARGEST, np.finfo(w.dtype).tiny)


class Int8:
    """Hold a matrix [n_out, n_in] in int8 with a scale for each row."""

    def __init__(self, numbers, scale):
        self.numbers = numbers
        self.scale = scale
        self.shape = numbers.shape

    def __getitem__(self, rows):  # -> [.., n_in]
        """Return rows as floats, such as the embeddings of tokens."""
        # [.., n_in] * [.., 1]: each row times its scale
        return self.numbers[rows] * self.scale[rows, None]

    @property
    def mT(self):
        """Return the right side of x @ w.mT."""
        return Transposed(self)


class Transposed:
    """Hold an Int8 with its axes exchanged: the right side of x @ w.mT."""

    __array_ufunc__ = None  # tells NumPy to leave x @ self to __rmatmul__

    def __init__(self, w):
        self.mT = w

    def __rmatmul__(self, x):  # [n_rows, n_in] -> [n_rows, n_out]
        """Multiply any number of rows, by the compiled product if there is one."""
        if not product_compiler():  # a model was loaded for a different backend since
            return x @ self.mT[:].T
        numbers, scale = rounded_rows(x)
        y = few_rows(numbers, self.mT.numbers, self.mT.scale)
        y *= scale
        return y


def rounded_rows(x):  # [n_rows, n_in] -> [n_rows, n_in], [n_rows, 1]
    """Return whole numbers in int16 and a scale for each row: scale * numbers is nearly x.

    A product's sum of n_in terms must fit in int32: the numbers have 13 bits for n_in = 1536.
    """
    from lib.backend.compiled import compile_rounding  # imported here: Numba is optional

    largest = min(2**15, 2**31 // (LARGEST * x.shape[1])) - 1
    numbers = np.empty(x.shape, np.int16)
    scale = np.empty((len(x), 1), x.dtype)
    round_rows = compile_rounding(x.dtype)
    round_rows(np.ascontiguousarray(x), largest, np.finfo(x.dtype).tiny, numbers, scale)
    return numbers, scale
