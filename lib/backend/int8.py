"""Round weights to int8: a product of few rows takes less time, because it reads fewer bytes.

    w          [n_out, n_in]    weights, here rounded to scale * numbers
    numbers    [n_out, n_in]    whole numbers, -127 .. 127
    scale      [n_out]          of each output: its largest |w| / 127
    x          [n_rows, n_in]   is rounded too, to int16, so that the sums are whole numbers: a
                                processor multiplies and adds them without widening to floats

gpt2.py's formulas use an `Int8` as they use an array: they index its rows and compute x @ w.mT.
"""

import numpy as np

from lib.backend.products import few_rows, has_whole_vectors, product_compiler

TABLES = ("wte", "lm_head")
MATRICES = (*TABLES, "/w")  # the ends of the names of a model's matrices
LARGEST = 127  # the largest whole number; -128 is not used, so that the numbers are symmetric


def int8(w):  # [n_out, n_in] -> [n_out, n_in]
    """Return weights as an Int8, or rounded floats if the compiled product cannot be used."""
    # The scale of a row of zeros would be 0, and 0 / 0 is NaN. So the smallest scale is `tiny`,
    # the smallest normal number.
    scale = np.maximum(abs(w).max(axis=-1, keepdims=True) / LARGEST, np.finfo(w.dtype).tiny)
    numbers = np.rint(w / scale)
    is_compiled = isinstance(w, np.ndarray) and product_compiler()
    if is_compiled and has_whole_vectors(w.shape[1], np.dtype(np.int16)):
        return Int8(numbers.astype(np.int8, order="C"), scale[:, 0])
    return numbers * scale  # floats with the values that an Int8 would have


def with_int8(weights, name=None):
    """Return a subtree of a model's weights, its matrices in int8, all other arrays shared."""
    if isinstance(weights, dict):
        return {key: with_int8(value, key) for key, value in weights.items()}
    if isinstance(weights, list):  # of blocks
        return [with_int8(block) for block in weights]
    if name in TABLES:  # [n_vocab, n_embd]: a row for each output of unembed
        return int8(weights)
    if name == "w":  # stored as [n_in, n_out], while int8 wants a row for each output
        return int8(weights.mT).mT
    return weights


class Int8:
    """Hold a matrix [n_out, n_in] in int8 with a scale for each row."""

    def __init__(self, numbers, scale):
        self.numbers = numbers
        self.scale = scale
        self.shape = numbers.shape
        self.nbytes = numbers.nbytes

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
        self.shape = w.shape[::-1]
        self.nbytes = w.nbytes

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
