"""Numba kernels: loops over arrays, without Python objects and without checks of their arguments.

A submodule is imported on first use, so that a program which only reads and writes never loads numba.

All kernels follow these conventions. Inputs are contiguous, read-only views. The caller allocates the outputs, which
come last. Coordinates and positions are unsigned, so a negative number appears too large. Hot loops count in uint64:
a signed counter costs a test for negative indices at every access.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_FEW = 256  # numpy packs so many entries in half the time of a call of the kernels
_WORTH_LOADING = 2_000_000  # numpy packs so many entries in the half second that loading numba takes
_spent = 0


def worth(count: int) -> bool:
    """Whether kernels beat numpy for `count` entries.

    They do not for few entries, nor before the time to load numba has been spent: the entries left to numpy add up.
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
    """A contiguous, native, read-only view of `array`, as kernels take their inputs; a copy only where necessary."""
    view = np.ascontiguousarray(array, dtype=dtype if dtype is not None else array.dtype.newbyteorder("=")).view()
    view.flags.writeable = False
    return view
