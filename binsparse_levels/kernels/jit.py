"""The decorator of all kernels, and numba internals with fallbacks."""

import contextlib
import functools

import numba
import numpy as np
from numba import config
from numba.core import errors
from numba.core.compiler_lock import global_compiler_lock

from ..errors import warn
from ..system import LOCKS
from .waiting import report_compiling

i8 = np.int64
u4 = np.uint32
u8 = np.uint64


if not config.DISABLE_JIT:
    report_compiling()
    LOCKS.append(global_compiler_lock)


def kernel(function, cache=True, **options):
    """Compile `function` on first use, without the GIL, by default cached on disk.

    Kernels are not called from C, so they have no wrapper for that (15 ms each).

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
    """Warn if the cache cannot be written, such as on a full disk: the compiled kernel needs no file."""
    try:
        yield
    except OSError:
        _warn_of_no_cache()


@functools.cache  # one warning for all kernels
def _warn_of_no_cache():
    what = "numba cannot write to the folder of its cache, so that every process compiles the kernels again"
    warn(f"{what}; make room, or set NUMBA_CACHE_DIR to a writable folder", RuntimeWarning)


FAULTS = (errors.NumbaError,)  # raised by numba for functions and arguments that it cannot compile


def is_compiled(function):
    """Return True if a kernel may call the function."""
    return callable(function) and (config.DISABLE_JIT or hasattr(function, "py_func"))


def cache_folder():
    """The configured folder of numba's cache, or an empty string."""
    return config.CACHE_DIR


def inlined(function):
    """Inline a function into kernels, which takes a third less compilation than a called one."""
    return kernel(function, inline="always")


def called(function):
    """Compile a function for calls by kernels only: without the Python wrapper it takes a fifth less compilation."""
    return kernel(function, no_cpython_wrapper=True)


def lowest_bit(word):
    """The number of the lowest set bit of a word. Precondition: a bit is set."""
    return (int(word) & -int(word)).bit_length() - 1


def bit_length(word):
    """The number of bits of a word up to the highest set bit. Precondition: a bit is set."""
    return int(word).bit_length()


def bit_count(word):
    """The number of set bits of a word."""
    return int(word).bit_count()


def gathered(word, mask, moves):
    """The bits of a word at the places of a mask, pushed together at its low end.

    moves: those that go down by 1, by 2, by 4 and so on, at the places that they have before that step.
    """
    word = word & mask
    for k, move in enumerate(moves):
        there = word & move
        word = (word ^ there) | (there >> u8(1 << k))
    return word


if config.DISABLE_JIT:

    def prefetch(array, i):
        """Prefetch the cache line of array[i], which a loop reads soon. `i` may be outside the array."""

    def prefetch_for_write(array, i):
        """Prefetch the cache line of array[i], which a loop writes soon. `i` may be outside the array.

        A processor predicts the next lines of about 64 streams of writes. With more, each new line costs a full read.
        """

else:
    # numba has no public functions to prefetch, and to count and gather bits, in a kernel.
    from llvmlite import ir
    from numba.extending import intrinsic, overload

    def _prefetching(for_write):
        @intrinsic
        def request(_, array, i):
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

        return request

    prefetch, prefetch_for_write = _prefetching(0), _prefetching(1)

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

    @intrinsic
    def _gather(_, word, mask, moves):
        def code(context, builder, signature, args):
            word, mask, moves = args
            _, processor, features = context.codegen().magic_tuple()  # of machine code that is kept, too
            if "+bmi2" in features.split(",") and processor not in _SLOW:
                one = ir.FunctionType(word.type, [word.type] * 2)
                return builder.call(builder.module.declare_intrinsic("llvm.x86.bmi.pext.64", fnty=one), [word, mask])
            word = builder.and_(word, mask)
            for k in range(signature.args[2].count):
                there = builder.and_(word, builder.extract_value(moves, k))
                word = builder.or_(builder.xor(word, there), builder.lshr(there, ir.Constant(word.type, 1 << k)))
            return word

        return numba.types.uint64(numba.types.uint64, numba.types.uint64, moves), code

    _SLOW = ("bdver4", "znver1", "znver2")  # their one instruction takes longer than the steps

    @overload(gathered, inline="always")
    def _gathered(word, mask, moves):
        return lambda word, mask, moves: _gather(np.uint64(word), np.uint64(mask), moves)
