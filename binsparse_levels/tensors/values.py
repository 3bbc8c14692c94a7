"""The same entries with other values."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..errors import ArrayError, FormatError, Problem, raise_if
from ..formats.dictionary import applied
from ..formats.structure import STRUCTURES, structure_problems
from .backing import one_value
from .changing import with_tree
from .contents import Contents
from .validation import check_value_type, checked_fill, checked_type, checked_values

Self = TypeVar("Self", bound=Contents)


def astype(self: Self, dtype: npt.DTypeLike, *, copy: bool = True) -> Self:
    """The same tensor with values of another type, cast by numpy's rules. The other arrays are shared.

    Parameters
    ----------
    dtype : dtype_like
        A numpy dtype.
    copy : bool, default True
        A parameter of numpy, without an effect, because tensors are immutable.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    Raises
    ------
    ArrayError
        Tensors do not support the type.
    FormatError
        This structure does not support the type, or the mirror images would differ.

    See Also
    --------
    Tensor.with_values : The same entries with other values, such as a function of `values`.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[0, 2]], [1.5, 2.5], 3, "CVEC").astype("int8").values.tolist()
    [1, 2]
    """
    dtype = checked_type(dtype)
    stored = self._inside.own.stored
    tree = (stored.tree if stored.structure is None else stored.tree.plain).blanked()
    check_value_type(dtype)
    raise_if(FormatError, structure_problems(stored.structure, stored.shape, dtype) if stored.structure else ())
    stored_values = one_value(tree.values).reshape(1) if tree.iso else tree.values
    cast = applied(lambda x: x.astype(dtype), stored_values)
    if stored.structure is not None:
        mirrored = STRUCTURES[stored.structure].mirrored
        both = mirrored(tree.values[: len(cast)]).astype(dtype), mirrored(cast)[: len(tree.values)]
        if not np.array_equal(*both, equal_nan=dtype.kind in "fc"):
            what = f"{stored.structure} does not survive a cast to {dtype}; call expand_structure() first"
            raise FormatError(Problem("structure", what))
    values = repeat_one(cast, len(tree.values)) if tree.iso else cast
    fill = None if (old := self._inside.metadata.fill_value) is None else old.astype(dtype)
    return with_tree(self, stored.format, tree.with_values(values, tree.iso), fill_value=fill)


def with_values(self: Self, values: npt.ArrayLike, *, fill_value: Any = None) -> Self:
    """The same entries with other values, such as a function of `values`. The other arrays are shared.

    Parameters
    ----------
    values : array_like
        An array of the length of `values`, which is not copied, or a scalar for all.
    fill_value : scalar, optional
        Value of cells that are not stored; by default that of this tensor.

    Returns
    -------
    Tensor
        Tensor of the same shape, with the type of `values`.

    Raises
    ------
    ArrayError
        The length differs, or tensors do not support the type.
    FormatError
        This structure does not support the type.

    See Also
    --------
    Tensor.astype : The same tensor with values of another type, cast by numpy's rules.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack([[0, 2]], [4.0, 9.0], 3, "CVEC")
    >>> tensor.with_values(np.sqrt(tensor.values)).to_dense().tolist()
    [2.0, 0.0, 3.0]
    """
    stored, new = self._inside.own.stored, checked_values(values)
    tree = stored.tree
    if new.ndim and len(new) != len(tree.values):
        raise ArrayError(Problem("values", f"expected a scalar or {len(tree.values)} values, got {len(new)}"))
    raise_if(FormatError, structure_problems(stored.structure, stored.shape, new.dtype) if stored.structure else ())
    whole = new if new.ndim else repeat_one(new.reshape(1), len(tree.values))
    fill = checked_fill(self.fill_value if fill_value is None else fill_value, new.dtype)
    made = with_tree(self, stored.format, tree.with_values(whole, not new.ndim), fill_value=fill)
    raise_if(ArrayError, made._inside.backing.stored.diagonal_problems())
    return made
