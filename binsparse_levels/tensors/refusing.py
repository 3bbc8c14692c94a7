"""What a tensor refuses, and what to call instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..levels.positions import Array

# Names of other libraries, and what to use here.
_ELSEWHERE = {
    "asformat": "convert(format)",
    "attrs": "attributes",
    "close": "the tensor of open() in a with block",
    "compute": "load()",
    "coords": "unpack()",
    "copy": "the tensor itself, which is immutable",
    "data": "values",
    "dot": "tensor @ array, or einsum",
    "indices": "arrays['indices_1'], and so on for each level",
    "indptr": "arrays['pointers_to_1'], and so on for each level",
    "item": "tensor[()] of a scalar",
    "nonzero": "unpack()",
    "nse": "number_of_stored_values",
    "numpy": "to_dense()",
    "reshape": "to_sparse(tensor).reshape(shape), or convert(format, map=…)",
    "save": "write(path, tensor)",
    "swapaxes": "permute(axes)",
    "toarray": "to_dense()",
    "tocoo": "to_scipy(tensor, 'coo')",
    "tocsc": "to_scipy(tensor, 'csc')",
    "tocsr": "to_scipy(tensor, 'csr')",
    "todense": "to_dense()",
    "tolist": "to_dense().tolist()",
    "transpose": "permute(axes), or T",
    **{
        how: f"reduce(tensor, axis, {how!r})"
        for how in ("all", "any", "max", "mean", "min", "prod", "std", "sum", "var")
    },
}
_FUNCTIONS = ("advise", "einsum", "foreach", "levels_of", "reduce", "statistics", "sweep", "write")


class Refusals:
    """What types of other libraries do and a tensor does not."""

    __slots__ = ()
    __array_priority__ = 1000.0  # an array of numpy asks the tensor first, as in array @ tensor

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no truth value; ask for tensor.nnz, or reduce it by any or all")

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Tensor is not made dense implicitly; call to_dense()")

    def __array_function__(self, function: Callable[..., Any], *_: Any) -> Any:
        """Raise TypeError. Dask asks for this method, and then leaves a tensor as it is."""
        raise TypeError(f"numpy.{function.__name__} takes no Tensor; call reduce, einsum or to_dense()")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for names that other libraries use, say what to call."""
        function = f"the function {name}(tensor)" if name.startswith("to_") or name in _FUNCTIONS else ""
        hint = f"; use {use}" if (use := _ELSEWHERE.get(name, function)) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: call `equals`. Sets and dictionaries hold tensors by identity, as `is` tells it."""
        raise TypeError("tensors are not compared by ==; call equals(), or compare what to_scipy or to_dense returns")

    __hash__ = object.__hash__

    def _calculate(self, *_: object) -> Any:
        """Raise TypeError: there is no arithmetic."""
        what = "a tensor has no arithmetic; scale it by einsum, or call to_scipy, to_sparse, to_graphblas or to_dense"
        raise TypeError(what)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _calculate
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _calculate
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
