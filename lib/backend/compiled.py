"""Compile the product of few rows, by Numba; imported only where it is used (products.py).

    x, w, y    [n_rows, n_in], [n_out, n_in], [n_rows, n_out]
    scale      [n_out] if w is in int8, which is widened to the type of x; else None
    vector     numbers side by side in one register: eight float32 or four float64 in 32 bytes

The loop is written in LLVM's own operations, because Numba lets the compiler choose how many
partial sums a sum has. Here each number of y is the sum of one vector's numbers, half added to
half, so its bits do not depend on the number of rows or outputs.
"""

import functools
import itertools

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

HAS_AVX512 = bool(get_host_cpu_features().get("avx512vl"))
REGISTERS = 32 if HAS_AVX512 else 16  # each holds a vector
BYTES = 32  # of a vector
INT8_BYTES = 64 if HAS_AVX512 else 32  # with int8: converting, not reading, takes the time
AHEAD = 4096  # bytes: how far ahead weights are requested from memory


@functools.cache
def product(n_rows, dtype, is_int8=False):
    """Compile y[:, first:last] = x @ w.T[:, first:last] for exactly n_rows rows of one dtype.

    With `is_int8` w is in int8, and the output o is multiplied by scale[o] when it is stored.

    Subtle: several outputs are summed at a time, as many as fit in the registers, because that
    keeps a processor busier than one output. They lie far apart, one in each stretch of the
    range, because weights side by side in memory are fetched more slowly.
    """
    n_outputs = max(1, min(4, (REGISTERS - 1) // (n_rows + 1)))  # sums, weights and a row
    lanes = (INT8_BYTES if is_int8 else BYTES) // np.dtype(dtype).itemsize

    def product(x, w, scale, y, first, last):
        multiply(x, w, scale, y, first, last, n_rows, n_outputs, lanes)

    # With a signature Numba compiles at once, for all arrays, read-only ones too.
    number = from_dtype(np.dtype(dtype))
    read_only = functools.partial(types.Array, layout="C", readonly=True, aligned=False)
    weights = read_only(types.int8 if is_int8 else number, 2)
    scale = read_only(number, 1) if is_int8 else types.none
    signature = types.void(read_only(number, 2), weights, scale, types.Array(number, 2, "C"),
                           types.intp, types.intp)
    compiled = functools.partial(njit, signature, nogil=True)
    try:
        return compiled(cache=True)(product)
    except (RuntimeError, OSError):  # no writable folder: compiled in every process
        return compiled()(product)


@intrinsic(prefer_literal=True)
def multiply(typing_context, x, w, scale, y, first, last, n_rows, n_outputs, lanes):
    """Write the loop over the weights; each is multiplied by every row while in a register.

    `n_rows`, `n_outputs` and `lanes` are constants of the function that is compiled.
    """
    def emit(context, builder, signature, args):
        vector = ir.VectorType(context.get_value_type(x.dtype), lanes.literal_value)
        arrays = [None if kind is types.none else Array(context, builder, kind, value, vector)
                  for kind, value in zip((x, w, scale, y), args)]
        write_loop(builder, *arrays, *args[4:6], n_rows.literal_value, n_outputs.literal_value)
        return context.get_dummy_value()

    return types.none(x, w, scale, y, first, last, n_rows, n_outputs, lanes), emit


def write_loop(builder, x, w, scale, y, first, last, n_rows, n_outputs):
    """Write the loop over the inputs within the loop over the outputs of one stretch."""
    whole = first.type
    n = builder.sub(last, first)
    stretch = builder.udiv(builder.add(n, whole(n_outputs - 1)), whole(n_outputs))
    most = builder.sub(n, stretch)
    skips = []
    for k in range(n_outputs):
        skip = builder.mul(stretch, whole(k))
        skips.append(builder.select(builder.icmp_signed("<", skip, most), skip, most))
    sums = [cgutils.alloca_once(builder, w.vector) for _ in range(n_rows * n_outputs)]
    with cgutils.for_range(builder, builder.add(first, stretch), first) as loop:
        os = [builder.add(loop.index, skip) for skip in skips]
        for total in sums:
            builder.store(w.vector(None), total)
        with cgutils.for_range_slice(builder, whole(0), w.n_columns, whole(w.lanes)) as (i, _):
            weights = [w.load(o, i) for o in os]
            rows = [x.load(whole(m), i) for m in range(n_rows)]
            for total, (row, weight) in zip(sums, itertools.product(rows, weights)):
                former = builder.load(total)
                builder.store(w.call("llvm.fmuladd.{}", w.vector, row, weight, former), total)
            if n_rows > 2 or scale:  # else the processor fetches far enough ahead by itself
                for o in os:
                    w.fetch(o, i)
        for total, (m, o) in zip(sums, itertools.product(range(n_rows), os)):
            number = y.total(builder.load(total))
            y.store(builder.fmul(number, scale.number(o)) if scale else number, whole(m), o)


class Array:
    """An array of the compiled function: its operations write code.

    `vector` is the type computed with; whole numbers are converted when they are loaded.
    """

    def __init__(self, context, builder, kind, value, vector):
        self.context = context
        self.builder = builder
        self.kind = kind
        self.vector = vector
        self.view = context.make_array(kind)(context, builder, value)
        self.n_columns = cgutils.unpack_tuple(builder, self.view.shape)[-1]
        self.stored = context.get_value_type(kind.dtype)
        self.n_bytes = kind.dtype.bitwidth // 8  # of a number
        self.lanes = vector.count

    def pointer(self, index, to):
        """Return the address of a number, which may lie beyond the end."""
        place = cgutils.get_item_pointer(
            self.context, self.builder, self.kind, self.view, index)
        return self.builder.bitcast(place, to.as_pointer())

    def call(self, name, result, *args):
        """Call one of LLVM's own functions, of vectors where {} is in its name."""
        name = name.format(f"v{self.lanes}{self.vector.element.intrinsic_name}")
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(self.builder.module.declare_intrinsic(name, (), kind), args)

    def load(self, row, i):
        """Return the vector of numbers from i on."""
        stored = ir.VectorType(self.stored, self.lanes)
        numbers = self.builder.load(self.pointer([row, i], stored), align=self.n_bytes)
        return numbers if stored == self.vector else self.builder.sitofp(numbers, self.vector)

    def number(self, i):
        """Return number i of an array of one dimension."""
        return self.builder.load(self.pointer([i], self.stored))

    def fetch(self, row, i):
        """Request the numbers AHEAD of i from memory; nothing is computed or can fail."""
        i = self.builder.add(i, i.type(AHEAD // self.n_bytes))
        to_read, into_l2, data = (ir.IntType(32)(n) for n in (0, 2, 1))
        place = self.pointer([row, i], ir.IntType(8))
        self.call("llvm.prefetch.p0", ir.VoidType(), place, to_read, into_l2, data)

    def total(self, vector):
        """Return the sum of a vector's numbers: half is added to half until one is left."""
        index = ir.IntType(32)
        n = self.lanes
        while n > 1:
            n //= 2
            low, high = (ir.Constant(ir.VectorType(index, n), list(range(first, first + n)))
                         for first in (0, n))
            vector = self.builder.fadd(self.builder.shuffle_vector(vector, vector, low),
                                       self.builder.shuffle_vector(vector, vector, high))
        return self.builder.extract_element(vector, index(0))

    def store(self, number, row, i):
        """Store a number."""
        self.builder.store(number, self.pointer([row, i], self.stored))
