"""The decorator of all kernels, and the internals of numba that they need, with fallbacks."""

import functools

import numba
import numpy as np
from numba import config

i8 = np.int64
u4 = np.uint32
u8 = np.uint64


def kernel(function, cache=True, **options):
    """Compile `function` on first use, without the GIL, by default cached on disk.

    With NUMBA_DISABLE_JIT=1 the kernel runs as plain Python and gives the same results: integers wrap silently.
    """
    if config.DISABLE_JIT:

        @functools.wraps(function)
        def interpreted(*args):
            with np.errstate(all="ignore"):
                return function(*args)

        return interpreted
    try:
        return numba.njit(nogil=True, cache=cache, **options)(function)
    except RuntimeError:  # numba finds no writable folder for its cache
        return numba.njit(nogil=True, **options)(function)


def is_compiled(function):
    """Whether a kernel may call the function."""
    return callable(function) and (config.DISABLE_JIT or hasattr(function, "py_func"))


def cache_folder():
    """The folder that numba is told to keep its cache in, or an empty string."""
    return config.CACHE_DIR


def inlined(function):
    """A piece that is inlined into other kernels: a third less to compile than a function that they call."""
    return kernel(function, inline="always")


if config.DISABLE_JIT:

    def put_in_tuple(items, at, item):
        """`items` with `item` at index `at`. In a compiled kernel the tuple dissolves into registers."""
        return (*items[:at], item, *items[at + 1 :])

else:
    from numba.cpython.unsafe.tuple import tuple_setitem as put_in_tuple  # noqa: F401 (for the kernels)
