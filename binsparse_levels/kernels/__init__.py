"""Numba kernels: loops over arrays, without Python objects and without checks of their arguments.

A submodule is imported when it is first used, so that a program which only reads and writes never loads numba.

Conventions, for all kernels: inputs are contiguous, read-only views; outputs come last and are allocated by the
caller; coordinates and positions are unsigned (a negative number shows as one that is too large); hot loops count in
uint64, because a signed counter costs a test for negative indices at every access.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_FEW = 256  # entries that numpy packs in half the time that calling the kernels takes
_WORTH_LOADING = 2_000_000  # entries that numpy packs in the half second that loading compiler and kernels takes
_spent = 0


def worth(count: int) -> bool:
    """Whether kernels are worth it for so many entries, where numpy has a way too: not for few, and not until loading
    the compiler is; what has been left to numpy adds up.
    """
    global _spent
    if count > _FEW:
        if "numba" in sys.modules or _spent + count > _WORTH_LOADING:
            return True
        _spent += count
    return False


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    return importlib.import_module(f"{__name__}.{name}")


def readable(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """`array` as kernels take their inputs: contiguous, native, read-only; a copy only where it has to be."""
    view = np.ascontiguousarray(array, dtype=dtype if dtype is not None else array.dtype.newbyteorder("=")).view()
    view.flags.writeable = False
    return view
