"""The same tensor with labels and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy.typing as npt

from ..errors import OptionError, Problem
from .contents import Contents, Dimension, dimension_of, remade
from .labels import Labels, column_of

Self = TypeVar("Self", bound=Contents)


def with_labels(
    self: Self, labels: Mapping[Dimension, npt.ArrayLike | None] | None = None, *, dims: Sequence[str] | None = None
) -> Self:
    """The same tensor with labels of coordinates and names of dimensions. The arrays are shared.

    Parameters
    ----------
    labels : mapping of int or str to array_like, optional
        An array of strings, numbers, booleans or times, with a label for each coordinate, by dimension; others
        keep their labels. None instead of an array removes the labels of a dimension.
    dims : sequence of str, optional
        The names of all dimensions. By default they are unchanged, or `dim_0` and so on if there are labels.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    Raises
    ------
    ArrayError
        The labels are not as many as the coordinates, or of a type that labels cannot have.
    OptionError, IndexError
        The names do not fit, or no dimension has this name.

    See Also
    --------
    Tensor.labels : Return the labels of a dimension.
    Tensor.sel : Select by label, as `xarray.DataArray.sel` does.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack_dense([[0, 2], [3, 0]], "CSR").with_labels({"item": ["pen", "ink"]}, dims=["user", "item"])
    >>> tensor.sel(item="ink").to_dense().tolist()
    [2, 0]
    """
    if labels is None and dims is None:
        return self
    known = self._inside.metadata.labels or Labels(tuple(f"dim_{k}" for k in range(self.ndim)))
    names = known.dims if dims is None else tuple(dims)
    if len(set(names)) != self.ndim or len(names) != self.ndim or not all(isinstance(x, str) for x in names):
        raise OptionError(Problem("dims", f"expected {self.ndim} different names, got {names!s:.60}"))
    columns = {new: known.columns[old] for old, new in zip(known.dims, names, strict=True) if old in known.columns}
    named = remade(self, labels=Labels(names, columns, known.values))
    for dimension, array in (labels or {}).items():
        k = dimension_of(named, dimension)
        columns.pop(names[k], None)
        if array is not None:
            columns[names[k]] = column_of(array, names[k], self.shape[k])
    return named
