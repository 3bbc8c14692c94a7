"""The decorator of all kernels, and the internals of numba that they need, with fallbacks."""

import contextlib
import functools
import sys
import warnings

import numba
import numpy as np
from numba import config
from numba.core import errors

from .waiting import tell_who_waits

i8 = np.int64
u4 = np.uint32
u8 = np.uint64


if not config.DISABLE_JIT:
    tell_who_waits()


def kernel(function, cache=True, **options):
    """Compile `function` on first use, without the GIL, by default cached on disk.

    Nothing calls kernels from C, so there is no wrapper for that (15 ms each).

    With NUMBA_DISABLE_JIT=1 the kernel runs as plain Python and gives the same results: integers wrap silently.
    """
    if config.DISABLE_JIT:

        @functools.wraps(function)
        def interpreted(*args):
            with np.errstate(all="ignore"):
                return function(*args)

        return interpreted
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    try:
        made = numba.njit(cache=cache, **options)(function)
    except RuntimeError:  # numba finds no writable folder for its cache
        _warn_of_no_cache()
        return numba.njit(**options)(function)
    if hasattr(made._cache, "_guard_against_spurious_io_errors"):
        made._cache._guard_against_spurious_io_errors = _cached_where_possible
    return made


@contextlib.contextmanager
def _cached_where_possible():
    """A full disk would stop a call that has compiled its kernel, and needs no file."""
    try:
        yield
    except OSError:
        _warn_of_no_cache()


@functools.cache  # one warning for all kernels
def _warn_of_no_cache():
    what = "numba cannot write to the folder of its cache, so that every process compiles the kernels again"
    warnings.warn(f"{what}; make room, or set NUMBA_CACHE_DIR to a writable folder", RuntimeWarning, stacklevel=2)


FAULTS = (errors.NumbaError,)  # what numba raises for functions and arguments that it does not compile


def is_compiled(function):
    """Whether a kernel may call the function."""
    return callable(function) and (config.DISABLE_JIT or hasattr(function, "py_func"))


def cache_folder():
    """The folder that numba is told to keep its cache in, or an empty string."""
    return config.CACHE_DIR


def inlined(function):
    """A piece that is inlined into other kernels: a third less to compile than a function that they call."""
    return kernel(function, inline="always")


def called(function):
    """A piece that only other kernels call: without the wrapper for Python, a fifth less to compile."""
    return kernel(function, no_cpython_wrapper=True)


def lowest_bit(word):
    """The place of the lowest bit that is set in a word. Precondition: there is one."""
    return (int(word) & -int(word)).bit_length() - 1


def bit_length(word):
    """The number of bits of a word up to the highest that is set. Precondition: there is one."""
    return int(word).bit_length()


def bit_count(word):
    """The number of bits of a word that are set."""
    return int(word).bit_count()


def eight_bytes(octets, at):
    """Eight bytes as a word, the lowest first. Precondition: the array has them."""
    word = u8(0)
    for b in range(8):
        word |= u8(octets[at + u8(b)]) << (u8(b) << u8(3))
    return word


def word_at(words, byte):
    """The word that begins at any byte of words, the lowest byte first. Precondition: a word follows that of the byte.

    A processor loads it at once, where two words and their shifts take five instructions more.
    """
    k, shift = byte >> u8(3), (byte & u8(7)) << u8(3)
    return (u8(words[k]) >> shift) | ((u8(words[k + u8(1)]) << u8(1)) << (u8(63) - shift))


def larger(a, b):
    """The larger of two real numbers of one type; NaN where one is NaN. A loop of these runs in vectors."""
    return b if b > a or b != b else a


def smaller(a, b):
    """The smaller of two real numbers of one type; NaN where one is NaN. A loop of these runs in vectors."""
    return b if b < a or b != b else a


def if_there(there, number):
    """A number where `there` is not 0, else what changes no sum. No branch: a sum of these runs in vectors."""
    return number if there else -type(number)(0)


def either(chosen, a, b):
    """`a` if `chosen`, else `b`, without a branch, which LLVM makes of floats where a processor has no masks."""
    return a if chosen else b


def not_unrolled(counter):
    """The counter of a loop that LLVM then runs as it stands, because it cannot tell how often.

    Of a short fiber, eight iterations at once and a loop for the rest are two branches that are hardly foreseen (sparse
    matrix times vector, 10 M in rows of 10: 20.9 ms → 16.9).
    """
    return counter


if config.DISABLE_JIT:

    def prefetch(array, i):
        """Ask for the cache line where array[i] begins, which a loop reads soon. `i` may lie outside the array."""

    def prefetch_for_write(array, i):
        """Ask for the cache line of array[i], which a loop writes soon. `i` may lie outside the array.

        A processor foresees the next line of about 64 streams of writes. Beyond, each new line costs a full read.
        """

else:
    # A public way to prefetch and to count bits in a kernel would do instead.
    from llvmlite import ir
    from numba.extending import intrinsic, overload

    def _prefetching(for_write):
        @intrinsic
        def ask(_, array, i):
            def code(context, builder, signature, args):
                made = context.make_array(signature.args[0])(context, builder, args[0])
                byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
                kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
                name = "llvm.prefetch.p0"
                found = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
                if array.ndim == 1 and array.layout == "C":
                    here = builder.bitcast(builder.gep(made.data, [args[1]]), byte)
                else:
                    row = builder.mul(args[1], builder.extract_value(made.strides, 0))
                    here = builder.gep(builder.bitcast(made.data, byte), [row])
                builder.call(found, [here, word(for_write), word(3), word(1)])  # 3: into all caches; 1: data
                return context.get_dummy_value()

            return numba.types.void(array, i), code

        return ask

    prefetch, prefetch_for_write = _prefetching(0), _prefetching(1)

    @intrinsic
    def _or_nothing(_, there, number):
        def nothing(kind):
            if isinstance(kind, ir.LiteralStructType):  # a complex number
                return ir.Constant(kind, [nothing(x) for x in kind.elements])
            return ir.Constant(kind, 0 if isinstance(kind, ir.IntType) else -0.0)

        def code(context, builder, signature, args):
            cell, number = args
            return builder.select(builder.icmp_unsigned("!=", cell, cell.type(0)), number, nothing(number.type))

        kind = numba.types.unliteral(number)
        return kind(there, kind), code

    @overload(if_there, inline="always")
    def _if_there(there, number):
        return lambda there, number: _or_nothing(there, number)

    @intrinsic
    def _either(typing, chosen, a, b):
        kind = typing.unify_types(a, b)

        def code(context, builder, signature, args):
            chosen, x, y = args
            if not isinstance(kind, numba.types.Float):
                return builder.select(chosen, x, y)
            word = ir.IntType(kind.bitwidth)
            opaque = ir.InlineAsm(ir.FunctionType(word, [word]), "", "=r,0")  # no code, and LLVM sees through none
            x, y = builder.call(opaque, [builder.bitcast(x, word)]), builder.bitcast(y, word)
            return builder.bitcast(builder.call(opaque, [builder.select(chosen, x, y)]), args[1].type)

        return kind(numba.types.boolean, kind, kind), code

    @overload(either, inline="always")
    def _chosen(chosen, a, b):
        return lambda chosen, a, b: _either(chosen, a, b)

    @intrinsic
    def _opaque(_, word):
        def code(context, builder, signature, args):
            kind = args[0].type
            return builder.call(ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=r,0"), args)

        return word(word), code

    @overload(not_unrolled, inline="always")
    def _not_unrolled(counter):
        return lambda counter: _opaque(counter)

    def _counting(name, *more):
        @intrinsic
        def count(_, word):
            def code(context, builder, signature, args):
                return getattr(builder, name)(args[0], *more)

            return numba.types.uint64(numba.types.uint64), code

        return count

    _yes = ir.Constant(ir.IntType(1), 1)  # no word is 0
    _trailing, _leading, _ones = _counting("cttz", _yes), _counting("ctlz", _yes), _counting("ctpop")

    @overload(lowest_bit, inline="always")
    def _lowest_bit(word):
        return lambda word: _trailing(np.uint64(word))

    @overload(bit_length, inline="always")
    def _bit_length(word):
        return lambda word: u8(64) - _leading(np.uint64(word))

    @overload(bit_count, inline="always")
    def _bit_count(word):
        return lambda word: _ones(np.uint64(word))

    def _extreme(name):
        @intrinsic
        def extreme(_, a, b):
            def code(context, builder, signature, args):
                kind = args[0].type
                return builder.call(
                    builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind] * 2)), args
                )

            return a(a, b), code

        return extreme

    _maximum, _minimum = _extreme("llvm.maximum"), _extreme("llvm.minimum")

    @overload(larger, inline="always")
    def _larger(a, b):
        return (
            (lambda a, b: _maximum(a, b)) if isinstance(a, numba.types.Float) else (lambda a, b: _either(b > a, b, a))
        )

    @overload(smaller, inline="always")
    def _smaller(a, b):
        return (
            (lambda a, b: _minimum(a, b)) if isinstance(a, numba.types.Float) else (lambda a, b: _either(b < a, b, a))
        )

    if sys.byteorder == "little" and not config.BOUNDSCHECK:

        @intrinsic
        def _load(_, array, byte):
            def code(context, builder, signature, args):
                data = context.make_array(signature.args[0])(context, builder, args[0]).data
                begin = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
                found = builder.load(builder.bitcast(begin, ir.IntType(64).as_pointer()))
                found.align = 1
                return found

            return numba.types.uint64(array, byte), code

        overload(word_at, inline="always")(lambda words, byte: lambda words, byte: _load(words, byte))
        overload(eight_bytes, inline="always")(lambda octets, at: lambda octets, at: _load(octets, at))

    else:
        overload(word_at, inline="always")(lambda words, byte: word_at)
        overload(eight_bytes, inline="always")(lambda octets, at: eight_bytes)


if config.DISABLE_JIT or config.BOUNDSCHECK:

    @inlined
    def stream(array, i, item):
        """array[i] = item, past the caches: the line is not read first. For items that are written once, in order."""
        array[i] = item

else:

    @intrinsic
    def stream(_, array, i, item):
        def code(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            kind = signature.args[0].dtype
            value = context.cast(builder, args[2], signature.args[2], kind)
            store = builder.store(context.get_value_as_data(builder, kind, value), builder.gep(data, [args[1]]))
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
            return context.get_dummy_value()

        return numba.types.void(array, i, item), code
