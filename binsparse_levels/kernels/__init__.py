"""Numba kernels: loops over arrays, without Python objects and without checks of their arguments.

A submodule is imported on first use, so a program that only reads and writes never loads numba.

All kernels follow these conventions. Inputs are contiguous, read-only views. The caller allocates the outputs, which
come last. Coordinates and positions are unsigned, so a negative number is too large. Hot loops count in uint64, because
a signed counter costs a test for negative indices at every access.
"""

import contextlib
import importlib
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..log import DEBUG, LOG
from ..system import LOCKS
from ..thresholds import THRESHOLDS

Array: TypeAlias = npt.NDArray[Any]

_MODULES = "check", "dense", "emission", "fibers", "placing", "sorting"
_handled = 0
_loaded = False
_thread: threading.Thread | None = None
_importing = threading.RLock()
LOCKS.append(_importing)


def pays_off(count: int, cost: int = 1) -> bool:
    """Return True if kernels handle `count` entries.

    Numpy handles few entries, and the first entries of a process: most programs end before kernels save the time to
    load them. A thread loads them after half of these entries, and numpy goes on until it is done, so no call waits. A
    call with more than all of these entries loads them itself. Results are the same.

    cost: the time of an entry without kernels, in units of about 40 ns.
    """
    global _handled
    if count * cost <= THRESHOLDS.numpy_entries:
        if LOG.isEnabledFor(DEBUG):
            LOG.debug("kernels: not used for %d entries, because they are few", count)
        return False
    _handled += count * cost
    used = _loaded or count * cost > THRESHOLDS.first_entries
    LOG.debug("kernels: %sused for %d entries, %d in this process", "" if used else "not ", count, _handled)
    if not used and _handled > THRESHOLDS.first_entries // 2:
        _load_in_thread()
    return used


def _load_in_thread() -> None:
    """Start the thread that loads kernels, once. The interpreter waits at its end, since numba cannot be stopped."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_load, name="binsparse_levels kernels")
        with contextlib.suppress(RuntimeError):  # no thread starts at the end of the interpreter
            _thread.start()


def _load() -> None:
    global _loaded
    try:
        with _importing:  # a fork waits: a child could never import what this thread imports at that time
            for name in _MODULES:
                if not threading.main_thread().is_alive():
                    return
                importlib.import_module(f"{__name__}.{name}")
            # numba completes its own loading when it loads the first kernel.
            module: Any = importlib.import_module(f"{__name__}.fibers")
            item, pointers = np.zeros(1, np.uint64), np.arange(2, dtype=np.uint64)
            module.fan_out(readable(item), readable(pointers), item.copy())
    except Exception:
        pass  # the call that uses kernels next raises it
    _loaded = True


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        with _importing:
            return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error


def readable(array: Array, dtype: npt.DTypeLike | None = None) -> Array:
    """A contiguous, native, read-only view of an array, for input of kernels; a copy only if necessary.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> readable(np.arange(6, dtype=">i4")[::2])
    array([0, 2, 4], dtype=int32)
    """
    view = np.ascontiguousarray(array, dtype=dtype if dtype is not None else array.dtype.newbyteorder("=")).view()
    view.flags.writeable = False
    return view


def common_type(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """`readable` arrays of one type, so that kernels are compiled for few types. Different types become int64.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.dtype.name for x in common_type([np.zeros(1, np.int8), np.zeros(1, np.int16)])]
    ['int64', 'int64']
    """
    dtype = None if len({array.dtype for array in arrays}) == 1 else np.int64
    return tuple(readable(array, dtype) for array in arrays)
