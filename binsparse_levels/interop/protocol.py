"""Objects of any library that implements the draft Binsparse protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..containers.memory import reading
from ..errors import OptionError, within_memory
from ..io.file_tensors import Loading, loaded_tensor
from ..limits import DEFAULT_LIMITS
from ..tensors.foreign import qualified
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_array


@within_memory
def from_binsparse(other: Any, *, copy: bool = True) -> Tensor:
    """Make a Tensor from an object that implements the protocol. The protocol is a draft and may change.

    Parameters
    ----------
    other : object
        An object with the methods `__binsparse_descriptor__` and `__binsparse__`. Its arrays are checked in full.
    copy : bool, default True
        False shares the arrays that the types allow. Read-only arrays are never copied.

    Returns
    -------
    Tensor
        Tensor.

    Raises
    ------
    OptionError
        `other` does not implement the protocol.
    BinsparseError
        See `read`.

    See Also
    --------
    as_tensor : Convert an object of another library to a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.from_binsparse(bl.pack([[0, 2]], [1.5, 2.5], 3, "CVEC")).values.tolist()
    [1.5, 2.5]
    """
    if not hasattr(other, "__binsparse_descriptor__") or not hasattr(other, "__binsparse__"):
        raise OptionError(f"{qualified(other)} has no __binsparse_descriptor__ and __binsparse__; pack its entries")
    descriptor, arrays = other.__binsparse_descriptor__(), other.__binsparse__()
    if not isinstance(descriptor, Mapping) or not isinstance(arrays, Mapping):
        raise OptionError(f"{qualified(other)} does not implement the protocol: both methods must return mappings")
    header = dict(descriptor) if "binsparse" in descriptor else {"binsparse": dict(descriptor)}
    mapping = {
        name: array if isinstance(array, np.ndarray) else checked_array(array, name) for name, array in arrays.items()
    }
    if not copy and "values" in mapping:
        mapping["values"] = mapping["values"].view()
        mapping["values"].flags.writeable = False
    with reading({**mapping, "binsparse": header}, None, DEFAULT_LIMITS) as reader:
        return loaded_tensor(Loading(reader, DEFAULT_LIMITS).source(), DEFAULT_LIMITS)
