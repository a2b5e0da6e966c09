"""Sums in vectors of 32 bytes, for Numba: eight float32 or four float64 side by side.

    os = spread(o, step, most, n)   outputs that are summed at a time: o + min(k step, most), k < n
    sums = zeros(w, n)              a tuple of n vectors of zeros, of the array's type
    sums = add(sums, x, w, os, i)   sums of x[m, i : i + 8] * w[o, i : i + 8], for all m and os
    store(y, os, sums)              y[m, o] = the sum of the numbers in its vector, in order
    fetch(w, os, i)                 asks memory for w[o, i], which will be needed soon

Numba's own loops leave to the compiler how many partial sums a sum is made of. Here it is written
down, so a sum has the same bits whatever else is computed beside it.
"""

import itertools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

BYTES = 32


class Vector(types.Type):
    """The type of a vector of these numbers."""

    def __init__(self, number):
        self.number, self.lanes = number, 8 * BYTES // number.bitwidth
        super().__init__(f"Vector({number})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """How LLVM sees it."""

    def __init__(self, manager, kind):
        number = manager.lookup(kind.number).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.lanes))


def place(context, builder, kind, array, row, i):
    """The address of array[row, i]; i may lie beyond the end."""
    view = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, view, [row, i], wraparound=False)


def call(builder, name, result, *args):
    """One of LLVM's own functions, of vectors where {} is in its name."""
    vector = next((arg.type for arg in args if isinstance(arg.type, ir.VectorType)), None)
    if vector:
        name = name.format(f"v{vector.count}f{64 if vector.element == ir.DoubleType() else 32}")
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@intrinsic(prefer_literal=True)
def zeros(typing_context, array, n):
    """A tuple of n vectors of zeros; n is a constant of the function that is compiled."""
    def emit(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return types.UniTuple(Vector(array.dtype), n.literal_value)(array, n), emit


@intrinsic(prefer_literal=True)
def spread(typing_context, o, step, most, n):
    """The tuple of o + min(k * step, most) for k = 0 .. n - 1; n is such a constant too."""
    def emit(context, builder, signature, args):
        o_, step_, most_, _ = args
        os = context.get_constant_undef(signature.return_type)
        for k in range(n.literal_value):
            skip = builder.mul(step_, ir.Constant(step_.type, k))
            skip = builder.select(builder.icmp_signed("<", skip, most_), skip, most_)
            os = builder.insert_value(os, builder.add(o_, skip), k)
        return os

    number = types.intp
    return types.UniTuple(number, n.literal_value)(number, number, number, n), emit


@intrinsic
def add(typing_context, sums, x, w, os, i):
    """Each sum + x[m, i : i + 8] * w[o, i : i + 8], rounded once where the processor can."""
    def emit(context, builder, signature, args):
        kind, (sums_, x_, w_, os_, i_) = context.get_value_type(sums.dtype), args

        def load(array, numbers, row):
            pointer = place(context, builder, array, numbers, row, i_)
            pointer = builder.bitcast(pointer, kind.as_pointer())
            return builder.load(pointer, align=array.dtype.bitwidth // 8)

        weights = [load(w, w_, builder.extract_value(os_, k)) for k in range(os.count)]
        rows = [load(x, x_, ir.Constant(i_.type, m)) for m in range(sums.count // os.count)]
        for n, (row, weight) in enumerate(itertools.product(rows, weights)):
            former = builder.extract_value(sums_, n)
            new = call(builder, "llvm.fmuladd.{}", kind, row, weight, former)
            sums_ = builder.insert_value(sums_, new, n)
        return sums_

    return sums(sums, x, w, os, types.intp), emit


@intrinsic
def store(typing_context, y, os, sums):
    """y[m, o] = the sum of the numbers in its vector, in order."""
    def emit(context, builder, signature, args):
        y_, os_, sums_ = args
        for n in range(sums.count):
            m, k = divmod(n, os.count)
            vector, o = builder.extract_value(sums_, n), builder.extract_value(os_, k)
            number = vector.type.element
            total = call(builder, "llvm.vector.reduce.fadd.{}", number,
                         ir.Constant(number, -0.0), vector)
            builder.store(total, place(context, builder, y, y_, ir.Constant(o.type, m), o))
        return context.get_dummy_value()

    return types.none(y, os, sums), emit


@intrinsic
def fetch(typing_context, array, os, i):
    """Ask memory for array[o, i]; nothing is computed, and nothing can fail."""
    def emit(context, builder, signature, args):
        numbers, os_, i_ = args
        to_read, into_l2, data = (ir.Constant(ir.IntType(32), n) for n in (0, 2, 1))
        for k in range(os.count):
            row = builder.extract_value(os_, k)
            pointer = place(context, builder, array, numbers, row, i_)
            pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
            call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, to_read, into_l2, data)
        return context.get_dummy_value()

    return types.none(array, os, types.intp), emit
