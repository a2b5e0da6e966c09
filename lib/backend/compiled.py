"""Compile the product of few rows, by Numba; imported only where it is used (products.py).

    x, w, y    [n_rows, n_in], [n_out, n_in], [n_rows, n_out]
    scale      [n_out] if w is in int8 and x in int16; None if both are floats
    vector     numbers side by side in one register: eight float32, four float64 or sixteen
               int16 in 32 bytes
    lanes      how many numbers a vector of x has
    n_outputs  how many outputs are summed at a time
    stretch    neighbouring outputs: first .. last - 1 are cut into n_outputs stretches of one
               length, and one output of each stretch is summed at a time

The loop is written in LLVM's own operations, because Numba lets the compiler choose how many
partial sums a sum has. Here each number of y has one vector of `lanes` partial sums. At the end
the second half of the vector is added to the first half until one number remains. So the bits
of y do not depend on the number of rows or outputs. In Python the loop would be

    for n in range(length_of_a_stretch):
        # output n of each stretch
        outputs = [start + n for start in starts_of_the_stretches]
        sums = {(row, output): vector of zeros for row in range(n_rows) for output in outputs}
        for i in range(0, n_in, lanes):
            for row, output in sums:  # of two neighbouring int16 the sum of their products
                sums[row, output] += x[row, i : i + lanes] * w[output, i : i + lanes]
        for row, output in sums:
            y[row, output] = sum(sums[row, output]) * scale[output]

From `multiply` on, the code does not compute: it writes operations of the compiled function.
A variable such as `i` there stands for a number that only the compiled function will know.
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
AHEAD = 4096  # bytes: how far ahead weights are requested from memory


@functools.cache
def compile_product(n_rows, dtype, is_int8=False):
    """Compile y[:, first:last] = x @ w.T[:, first:last] for exactly n_rows rows of one dtype.

    With `is_int8` w is in int8, x in int16, and only y is of the dtype: the sums are whole
    numbers (int8.py: they fit in int32), and output o is multiplied by scale[o] at the end.

    Subtle: several outputs are summed at a time, as many as fit in the registers, because that
    keeps a processor busier than one output. They lie far apart, one in each stretch of the
    range, because weights side by side in memory are fetched more slowly.
    """
    # Registers in use: n_outputs for weights, n_rows * n_outputs for sums, and one for numbers
    # of a row. Together (n_rows + 1) * n_outputs + 1, which must not be above REGISTERS.
    n_outputs = max(1, min(4, (REGISTERS - 1) // (n_rows + 1)))
    number = from_dtype(np.dtype(dtype))
    of_rows, of_weights = (types.int16, types.int8) if is_int8 else (number, number)
    lanes = BYTES * 8 // of_rows.bitwidth

    def product(x, w, scale, y, first, last):
        multiply(x, w, scale, y, first, last, n_rows, n_outputs, lanes)

    scale = read_only(number, 1) if is_int8 else types.none
    return compiled(product, read_only(of_rows, 2), read_only(of_weights, 2), scale,
                    types.Array(number, 2, "C"), types.intp, types.intp)


@functools.cache
def compile_rounding(dtype):
    """Compile the rounding of rows to int16 (int8.py), for which NumPy needs seven calls."""
    def round_rows(x, largest, smallest, numbers, scale):
        for row in range(len(x)):
            # In a variable, because scale[row, 0] would be read again for every number.
            step = scale[row, 0] = max(np.abs(x[row]).max() / largest, smallest)
            for i in range(x.shape[1]):
                numbers[row, i] = np.rint(x[row, i] / step)

    number = from_dtype(np.dtype(dtype))
    return compiled(round_rows, read_only(number, 2), number, number,
                    types.Array(types.int16, 2, "C"), types.Array(number, 2, "C"))


# Numba's type of arrays that may also be read-only, and need not be aligned.
read_only = functools.partial(types.Array, layout="C", readonly=True, aligned=False)


def compiled(function, *argument_types):
    """Compile a function that returns nothing, now; its code is kept on disk if possible."""
    compile_now = functools.partial(njit, types.void(*argument_types), nogil=True)
    try:
        return compile_now(cache=True)(function)
    except (RuntimeError, OSError):  # no writable folder: compiled in every process
        return compile_now()(function)


@intrinsic(prefer_literal=True)
def multiply(typing_context, x, w, scale, y, first, last, n_rows, n_outputs, lanes):
    """Write the loop over the weights; each is multiplied by every row while in a register.

    Numba calls this function with the types of the arguments, and calls `emit`, which is
    returned here, with their values. `n_rows`, `n_outputs` and `lanes` are constants of the
    function that is compiled.
    """
    def emit(context, builder, signature, args):
        # `args` has the values of x, w, scale, y, of first and last, and of the three
        # constants.
        array_values = args[:4]
        first_output, end = args[4:6]
        vector = ir.VectorType(context.get_value_type(x.dtype), lanes.literal_value)

        def as_array(kind, value):
            if kind is types.none:  # weights without a scale
                return None
            return Array(context, builder, kind, value, vector)

        arrays = map(as_array, (x, w, scale, y), array_values)
        write_loop(builder, *arrays, first_output, end, n_rows.literal_value,
                   n_outputs.literal_value)
        return context.get_dummy_value()

    return types.none(x, w, scale, y, first, last, n_rows, n_outputs, lanes), emit


def write_loop(builder, x, w, scale, y, first, last, n_rows, n_outputs):
    """Write the whole loop: see the head of this file."""
    length, skips = write_stretches(builder, first, last, n_outputs)
    # The index runs through the first stretch; the output of stretch k is skips[k] later.
    end = builder.add(first, length)  # of the first stretch
    with cgutils.for_range(builder, end, start=first) as loop:
        outputs = [builder.add(loop.index, skip) for skip in skips]
        write_sums(builder, x, w, scale, y, n_rows, outputs)


def write_sums(builder, x, w, scale, y, n_rows, outputs):
    """Write y[:, outputs] = x @ w[outputs].T."""
    integer = outputs[0].type  # integer(3) is the constant 3 of the compiled function
    # A place in memory for the sum of each row and output, in the order of product(rows,
    # outputs). The compiler keeps these places in registers.
    sums = [cgutils.alloca_once(builder, w.sums) for _ in range(n_rows * len(outputs))]
    for place in sums:
        builder.store(w.sums(None), place)  # zeros
    inputs = integer(0), w.n_columns, integer(w.lanes)  # as the arguments of Python's range
    with cgutils.for_range_slice(builder, *inputs) as (i, _):
        write_products(builder, x, w, sums, n_rows, outputs, i)
        # With one or two rows of floats the processor fetches far enough ahead by itself.
        if n_rows > 2 or scale:
            for output in outputs:
                w.prefetch(output, i)
    for place, (row, output) in zip(sums, itertools.product(range(n_rows), outputs)):
        number = w.sum_of_lanes(builder.load(place))
        if scale:
            number = builder.sitofp(number, y.stored)
            number = builder.fmul(number, builder.load(scale.address([output], scale.stored)))
        builder.store(number, y.address([integer(row), output], y.stored))


def write_stretches(builder, first, last, n_outputs):
    """Write the length of a stretch, and the start of each stretch, counted from `first`.

    For 10 outputs in 4 stretches the length is 3, and the stretches start at 0, 3, 6 and 7.
    """
    integer = first.type
    n = builder.sub(last, first)
    # length = n / n_outputs, rounded up
    length = builder.udiv(builder.add(n, integer(n_outputs - 1)), integer(n_outputs))
    # No stretch may pass `last`, so the last stretches may start earlier and share outputs with
    # others. Such an output is computed twice, with equal bits.
    latest = builder.sub(n, length)
    skips = []
    for k in range(n_outputs):
        # skip = min(length * k, latest)
        skip = builder.mul(length, integer(k))
        is_early_enough = builder.icmp_signed("<", skip, latest)
        skips.append(builder.select(is_early_enough, skip, latest))
    return length, skips


def write_products(builder, x, w, sums, n_rows, outputs, i):
    """Write sums += x * w for inputs i .. i + lanes - 1 of all rows and outputs."""
    weights = [w.load_vector(output, i) for output in outputs]
    numbers = [x.load_vector(i.type(row), i) for row in range(n_rows)]
    for place, (x_i, w_i) in zip(sums, itertools.product(numbers, weights)):
        builder.store(w.add_products(x_i, w_i, builder.load(place)), place)


class Array:
    """An array of the compiled function: its operations write code."""

    def __init__(self, context, builder, kind, value, vector):
        self.context = context
        self.builder = builder
        self.kind = kind  # Numba's type of the array
        self.vector = vector  # the type of x's vectors, to which int8 numbers are widened
        self.view = context.make_array(kind)(context, builder, value)
        self.n_columns = cgutils.unpack_tuple(builder, self.view.shape)[-1]
        self.stored = context.get_value_type(kind.dtype)  # LLVM's type of a number in memory
        self.n_bytes = kind.dtype.bitwidth // 8  # of a number in memory
        self.lanes = vector.count
        self.is_whole = isinstance(vector.element, ir.IntType)  # the numbers computed with
        # A sum of int16 has a lane of int32 for each two of their products.
        self.sums = ir.VectorType(ir.IntType(32), self.lanes // 2) if self.is_whole else vector

    def address(self, index, kind):
        """Return a number's address, as a pointer to a `kind`; it may lie beyond the end."""
        address = cgutils.get_item_pointer(
            self.context, self.builder, self.kind, self.view, index)
        return self.builder.bitcast(address, kind.as_pointer())

    def call(self, name, result, *args):
        """Call one of LLVM's own functions; {} in its name stands for the type of a vector."""
        name = name.format(f"v{self.lanes}{self.vector.element.intrinsic_name}")  # "v8f32"
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(self.builder.module.declare_intrinsic(name, (), kind), args)

    def load_vector(self, row, i):
        """Return the numbers i .. i + lanes - 1 of a row, as a vector."""
        stored = ir.VectorType(self.stored, self.lanes)
        numbers = self.builder.load(self.address([row, i], stored), align=self.n_bytes)
        if stored == self.vector:
            return numbers
        return self.builder.sext(numbers, self.vector)  # widens int8

    def add_products(self, row, weight, former):
        """Return row * weight + former, for vectors."""
        if not self.is_whole:
            return self.call("llvm.fmuladd.{}", self.vector, row, weight, former)
        # The compiler makes one operation (pmaddwd) of all but the last addition.
        builder = self.builder
        wide = ir.VectorType(ir.IntType(32), self.lanes)
        products = builder.mul(builder.sext(row, wide), builder.sext(weight, wide))
        even = shuffle(builder, products, range(0, self.lanes, 2))
        odd = shuffle(builder, products, range(1, self.lanes, 2))
        return builder.add(builder.add(even, odd), former)

    def prefetch(self, row, i):
        """Request the numbers AHEAD bytes later from memory; beyond the end it does no harm."""
        later = self.builder.add(i, i.type(AHEAD // self.n_bytes))
        address = self.address([row, later], ir.IntType(8))
        integer = ir.IntType(32)
        to_read = integer(0)
        into_l2 = integer(2)
        data = integer(1)  # not instructions
        self.call("llvm.prefetch.p0", ir.VoidType(), address, to_read, into_l2, data)

    def sum_of_lanes(self, vector):
        """Return the sum of a vector's numbers: its halves are added until one is left."""
        builder = self.builder
        add = builder.add if self.is_whole else builder.fadd
        n = vector.type.count
        while n > 1:
            n //= 2
            first_half = shuffle(builder, vector, range(n))
            second_half = shuffle(builder, vector, range(n, 2 * n))
            vector = add(first_half, second_half)
        return builder.extract_element(vector, ir.IntType(32)(0))


def shuffle(builder, vector, positions):
    """Return the numbers at these positions of a vector, as a shorter vector."""
    kind = ir.VectorType(ir.IntType(32), len(positions))
    return builder.shuffle_vector(vector, vector, ir.Constant(kind, list(positions)))
