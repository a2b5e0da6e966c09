"""The product of few rows, compiled by Numba; imported only where it is used (products.py).

    x, w, y    [n_rows, n_in], [n_out, n_in], [n_rows, n_out]
    vector     32 bytes of numbers side by side: eight float32 or four float64

The loop is written in LLVM's own operations, because Numba's loops leave to the compiler how many
partial sums a sum is made of. Here each number of y is the sum of one vector's numbers, in order,
so it has the same bits whatever else is computed beside it.
"""

import functools
import itertools

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BYTES = 32  # of a vector
AHEAD = 4096  # bytes: how early memory is asked for weights
REGISTERS = 32 if get_host_cpu_features().get("avx512vl") else 16  # each holds a vector


@functools.cache
def product(n_rows, dtype):
    """Compile y[:, first:last] = x @ w.T[:, first:last] for exactly n_rows rows of one dtype.

    Subtle: several outputs are summed at a time, as many as the registers hold sums of, because
    this keeps a processor busier than one; and they lie far apart, a stretch of the range each,
    because weights that are side by side in memory are fetched more slowly.
    """
    n_outputs = max(1, min(4, (REGISTERS - 1) // (n_rows + 1)))  # sums, weights and a row

    def product(x, w, y, first, last):
        multiply(x, w, y, first, last, n_rows, n_outputs)

    # With a signature Numba compiles at once, for all arrays, read-only ones too.
    array = functools.partial(types.Array, from_dtype(np.dtype(dtype)), 2, "C")
    rows = weights = array(readonly=True, aligned=False)
    compiled = functools.partial(
        njit, types.void(rows, weights, array(), types.intp, types.intp), nogil=True)
    try:
        return compiled(cache=True)(product)
    except (RuntimeError, OSError):  # no folder that can be written: compiled in every process
        return compiled()(product)


@intrinsic(prefer_literal=True)
def multiply(typing_context, x, w, y, first, last, n_rows, n_outputs):
    """Write the loop over the weights; each is multiplied by every row while it is in a register.

    `n_rows` and `n_outputs` are constants of the function that is compiled.
    """
    def emit(context, builder, signature, args):
        arrays = [Array(context, builder, *pair) for pair in zip((x, w, y), args)]
        write_loop(builder, *arrays, *args[3:5], n_rows.literal_value, n_outputs.literal_value)
        return context.get_dummy_value()

    return types.none(x, w, y, first, last, n_rows, n_outputs), emit


def write_loop(builder, x, w, y, first, last, n_rows, n_outputs):
    """Write the loop over the inputs within the loop over the outputs of one stretch."""
    whole = first.type
    n = builder.sub(last, first)
    stretch = builder.udiv(builder.add(n, whole(n_outputs - 1)), whole(n_outputs))
    most, skips = builder.sub(n, stretch), []
    for k in range(n_outputs):
        skip = builder.mul(stretch, whole(k))
        skips.append(builder.select(builder.icmp_signed("<", skip, most), skip, most))
    sums = [cgutils.alloca_once(builder, w.vector) for _ in range(n_rows * n_outputs)]
    with cgutils.for_range(builder, builder.add(first, stretch), first) as loop:
        os = [builder.add(loop.index, skip) for skip in skips]
        for total in sums:
            builder.store(w.vector(None), total)
        with cgutils.for_range_slice(builder, whole(0), w.n_columns, whole(w.lanes)) as (i, _):
            weights, rows = [w.load(o, i) for o in os], [x.load(whole(m), i) for m in range(n_rows)]
            for total, (row, weight) in zip(sums, itertools.product(rows, weights)):
                former = builder.load(total)
                builder.store(w.call("llvm.fmuladd.{}", w.vector, row, weight, former), total)
            if n_rows > 2:  # else the processor fetches far enough ahead by itself
                for o in os:
                    w.fetch(o, i)
        for total, (m, o) in zip(sums, itertools.product(range(n_rows), os)):
            y.store(builder.load(total), whole(m), o)


class Array:
    """An array of the function that is compiled: its operations write code."""

    def __init__(self, context, builder, kind, value):
        self.context, self.builder, self.kind = context, builder, kind
        self.view = context.make_array(kind)(context, builder, value)
        self.n_columns = cgutils.unpack_tuple(builder, self.view.shape)[1]
        self.number = context.get_value_type(kind.dtype)
        self.lanes = 8 * BYTES // kind.dtype.bitwidth
        self.vector = ir.VectorType(self.number, self.lanes)

    def pointer(self, row, i, to):
        """Return the address of a number, which may lie beyond the end."""
        place = cgutils.get_item_pointer(self.context, self.builder, self.kind, self.view, [row, i])
        return self.builder.bitcast(place, to.as_pointer())

    def call(self, name, result, *args):
        """Call one of LLVM's own functions, of vectors where {} is in its name."""
        name = name.format(f"v{self.lanes}f{8 * BYTES // self.lanes}")
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(self.builder.module.declare_intrinsic(name, (), kind), args)

    def load(self, row, i):
        """Return the vector of numbers from i on."""
        align = BYTES // self.lanes
        return self.builder.load(self.pointer(row, i, self.vector), align=align)

    def fetch(self, row, i):
        """Ask memory for the numbers AHEAD of i; nothing is computed, and nothing can fail."""
        i = self.builder.add(i, i.type(AHEAD * self.lanes // BYTES))
        to_read, into_l2, data = (ir.IntType(32)(n) for n in (0, 2, 1))
        self.call("llvm.prefetch.p0", ir.VoidType(), self.pointer(row, i, ir.IntType(8)), to_read,
                  into_l2, data)

    def store(self, vector, row, i):
        """Store the sum of a vector's numbers, in order."""
        total = self.call("llvm.vector.reduce.fadd.{}", self.number, self.number(-0.0), vector)
        self.builder.store(total, self.pointer(row, i, self.number))
