"""Numba kernels: loops over arrays, without Python objects and without checks of their arguments.

A submodule is imported on first use, so a program that only reads and writes never loads numba.

All kernels follow these conventions. Inputs are contiguous, read-only views. The caller allocates the outputs, which
come last. Coordinates and positions are unsigned, so a negative number is too large. Hot loops count in uint64, because
a signed counter costs a test for negative indices at every access.
"""

import importlib
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..system import LOCKS

Array: TypeAlias = npt.NDArray[Any]

NUMPY_ENTRIES = 2**13  # that numpy handles within a millisecond
FIRST_ENTRIES = 2**22  # that numpy handles in half of the time that loading numba takes; compilation takes seconds more
_handled = 0
_importing = threading.RLock()
LOCKS.append(_importing)


def pays_off(count: int, cost: int = 1) -> bool:
    """Return True if kernels handle `count` entries.

    Numpy handles few entries, and the first entries of a process: most programs end before kernels save the time to
    compile or load them. Results are the same.

    cost: the time of an entry without kernels, in units of about 40 ns.
    """
    global _handled
    if count * cost <= NUMPY_ENTRIES:
        return False
    _handled += count * cost
    return _handled > FIRST_ENTRIES


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    with _importing:
        return importlib.import_module(f"{__name__}.{name}")


def readable(array: Array, dtype: npt.DTypeLike | None = None) -> Array:
    """A contiguous, native, read-only view of an array, for input of kernels; a copy only if necessary.

    >>> readable(np.arange(6, dtype=">i4")[::2])
    array([0, 2, 4], dtype=int32)
    """
    view = np.ascontiguousarray(array, dtype=dtype if dtype is not None else array.dtype.newbyteorder("=")).view()
    view.flags.writeable = False
    return view


def common_type(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """`readable` arrays of one type, so that kernels are compiled for few types. Different types become int64.

    >>> [x.dtype.name for x in common_type([np.zeros(1, np.int8), np.zeros(1, np.int16)])]
    ['int64', 'int64']
    """
    dtype = None if len({array.dtype for array in arrays}) == 1 else np.int64
    return tuple(readable(array, dtype) for array in arrays)
