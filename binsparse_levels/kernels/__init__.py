"""Numba kernels: loops over arrays, without Python objects and without checks of their arguments.

A submodule is imported when it is first used, so that a program which only reads and writes never loads numba.

Conventions, for all kernels: inputs are contiguous, read-only views; outputs come last and are allocated by the
caller; coordinates and positions are unsigned (a negative number shows as one that is too large); hot loops count in
uint64, because a signed counter costs a test for negative indices at every access.
"""

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    return importlib.import_module(f"{__name__}.{name}")


def readable(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """`array` as kernels take their inputs: contiguous, native, read-only; a copy only where it has to be."""
    view = np.ascontiguousarray(array, dtype=dtype if dtype is not None else array.dtype.newbyteorder("=")).view()
    view.flags.writeable = False
    return view
