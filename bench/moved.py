"""The bytes that an operation has to move, whatever it does: its input, read once, and its new output, written once.

A copy of so many bytes in half of them is the limit that a row is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from binsparse_levels import Tensor

from .data import Data


def moved(data: Any, result: Any) -> int | None:
    """Bytes of the input and of the output that is not shared with it; None for an input of another kind."""
    if not isinstance(data, Data | Tensor | np.ndarray):
        return None
    given = {_start(x): x.nbytes for x in _arrays(data)}
    made = {_start(x): x.nbytes for x in _arrays(result) if _start(x) not in given}
    return sum(given.values()) + sum(made.values())


def _arrays(held: Any) -> Iterator[Any]:
    """The arrays of what an operation takes or returns. Of a broadcast value there is one."""
    if isinstance(held, np.ndarray):
        yield held[:1] if held.strides == (0,) else held
    elif isinstance(held, Tensor):
        yield from _arrays([*held.arrays.values(), held.values])
    elif isinstance(held, list | tuple):
        for part in held:
            yield from _arrays(part)


def _start(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
