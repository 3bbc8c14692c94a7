"""Any library with the draft protocol of Binsparse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..containers.memory import reading
from ..errors import within_memory
from ..io.decoding import Loading
from ..limits import DEFAULT_LIMITS
from ..tensors.mapped import AnyTensor, as_written
from ..tensors.validation import checked_array


@within_memory
def from_binsparse(other: Any) -> AnyTensor:
    """The tensor of an object with the methods `__binsparse_descriptor__` and `__binsparse__`, checked in full.

    Provisional: the protocol is a draft. Arrays are shared with the object. Raises TypeError for another object, and
    what `read` raises.
    """
    if not hasattr(other, "__binsparse_descriptor__") or not hasattr(other, "__binsparse__"):
        raise TypeError(f"{type(other).__name__} has no __binsparse_descriptor__ and __binsparse__")
    descriptor, arrays = other.__binsparse_descriptor__(), other.__binsparse__()
    if not isinstance(descriptor, Mapping) or not isinstance(arrays, Mapping):
        raise TypeError(f"{type(other).__name__} gives no dictionaries")
    header = dict(descriptor) if "binsparse" in descriptor else {"binsparse": dict(descriptor)}
    mapping = {
        name: array if isinstance(array, np.ndarray) else checked_array(array, name) for name, array in arrays.items()
    }
    with reading({**mapping, "binsparse": header}, None, DEFAULT_LIMITS) as reader:
        return as_written(Loading(reader, DEFAULT_LIMITS, False).tensor("full"))
