"""Operations that a tensor refuses, and what to call instead."""

from __future__ import annotations

from typing import Any

from ..levels.positions import Array
from .late_imports import functions

# The call in this package, and its names in other libraries.
_NAMES = {
    "arrays['indices_1'], arrays['pointers_to_1'], and so on for each level": "indices indptr",
    "attributes": "attrs",
    "convert(format)": "asformat",
    "load()": "compute persist",
    "number_of_stored_values": "nse",
    "permute(axes)": "transpose swapaxes moveaxis",
    "tensor @ other, or einsum": "dot matmul",
    "the tensor itself, which is immutable": "copy",
    "the tensor of open() in a with block": "close",
    "to_dense()": "toarray todense numpy tolist item",
    "to_scipy(tensor, format)": "tocoo tocsc tocsr tobsr",
    "to_sparse(tensor).reshape(shape), or convert(format, map=…)": "reshape",
    "to_table(tensor), which polars takes": "to_polars to_frame",
    "tensor[:5]": "head",
    "unpack()": "coords nonzero",
    "values": "data",
    "write(path, tensor)": "save",
}
_REPLACEMENTS = {name: use for use, names in _NAMES.items() for name in names.split()}


class Refusals:
    """Operations that types of other libraries support and a tensor refuses."""

    __slots__ = ()
    __array_priority__ = 1000.0  # numpy calls the tensor first, as in array @ tensor

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no truth value; use tensor.nnz, or reduce it by any or all")

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Tensor is not made dense implicitly; call to_dense()")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError. For names of other libraries, the message says what to call."""
        call = f"{name}(tensor)" if name.startswith("to_") else f"binsparse_levels.{name}"
        public = f"the function {call}" if name in functions() else ""
        hint = f"; use {use}" if (use := _REPLACEMENTS.get(name, public)) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: call `equals`. Sets and dictionaries compare tensors by identity."""
        raise TypeError("tensors are not compared by ==; call equals(), or numpy.equal for a tensor of booleans")

    __ne__ = __eq__

    __hash__ = object.__hash__
