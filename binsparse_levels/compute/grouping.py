"""Sums, means and extremes over groups of coordinates: given groups, or periods of labels that are times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArrayError, FormatError, OptionError, Problem, within_memory
from ..formats.format import FormatLike
from ..levels.positions import Array
from ..tensors.contents import Dimension, dimension_of, labels_of
from ..tensors.foreign import as_tensor
from ..tensors.inside import Metadata
from ..tensors.lookup import pandas_module
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, tensor_of
from .contracting import Rules, contracted
from .products import LETTERS, einsum
from .reductions import REDUCTIONS
from .semirings import SEMIRINGS, Semiring
from .types import number_type
from .walk import checked_memory

_GROUP = LETTERS[-1]  # the index of the groups


def _extreme(how: str, what: str) -> Callable[..., Tensor]:
    """A method of `Groups`: extremes of stored entries, joined with the fill value where a group has more cells."""

    def method(self: Groups, format: FormatLike | None = None, *, memory: int | None = None) -> Tensor:
        record, counts = REDUCTIONS[how], self._counts(how, "groupby makes groups that have some")
        members, grouped, tensor, own, out = self._operands()
        kind = number_type(tensor.dtype, "values")
        work = np.dtype(record.dtype(kind, kind))
        best = Semiring(f"np.{how}imum({{0}}, {{1}})", "{0}", record.join, record.neutral(work))

        def of_stored(semiring: Semiring, dtype: np.dtype[Any]) -> Tensor:
            rules = Rules({*out}, dtype, checked_memory(memory), semiring)
            made, letters = contracted(tensor.astype(kind, copy=False), own, members, grouped, rules)
            return made.permute([letters.index(x) for x in out])

        made, count = of_stored(best, work), of_stored(SEMIRINGS["plus_pair"], np.result_type(kind, np.int64))
        coords, values = made.unpack()
        joined = record.join(values, np.asarray(inside(tensor).pad).astype(work))
        values = np.where(count.values != counts[coords[self.dimension]], joined, values).astype(tensor.dtype)
        target, fill = made.format if format is None else format, tensor.fill_value
        whole = pack(coords, values, made.shape, target, fill_value=fill, limits=tensor.limits)
        made = tensor_of(inside(whole).backing, Metadata(fill, labels=inside(tensor).metadata.labels))
        return made.with_labels({self.dimension: self.labels}, dims=self.tensor.dims)

    method.__doc__ = f"""The {what} of the groups, as `Tensor.{how}`: all cells take part, and NaN takes precedence.

        Parameters
        ----------
        format : str, Format or mapping, optional
            See `sum`.
        memory : int, optional
            Bytes that the call may take.

        Returns
        -------
        Tensor
            Tensor of the same type with the same fill value, labelled by the groups.

        Raises
        ------
        ArrayError
            A group has no coordinates, or arithmetic does not support the type of the values.
        """
    method.__name__ = how
    return method


@within_memory
@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the coordinates of a dimension, as `groupby` and `resample` return them.

    Parameters
    ----------
    tensor : Tensor
        Tensor whose coordinates are grouped.
    dimension : int
        Number of the dimension.
    codes : ndarray
        Number of the group of each coordinate, or -1 for none.
    labels : ndarray
        Label of each group.

    See Also
    --------
    groupby : Group the coordinates of a dimension, for sums, means and extremes.
    resample : Group the coordinates of a dimension by periods of their labels.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> groups = bl.groupby(bl.pack_dense([[1, 2], [4, 0], [8, 0]], "CSR"), 0, ["b", "a", "b"])
    >>> groups.sum("CSR").to_dense().tolist(), groups.mean().to_dense().tolist()
    ([[4, 0], [9, 2]], [[4.0, 0.0], [4.5, 1.0]])
    """

    tensor: Tensor
    dimension: int
    codes: Array
    labels: Any

    def sum(self, format: FormatLike | None = None, *, memory: int | None = None) -> Tensor:
        """The sums of the groups: a Tensor with a coordinate for each group, in order of their labels.

        Parameters
        ----------
        format : str, Format or mapping, optional
            Format of the result; by default dense and sparse levels.
        memory : int, optional
            Bytes for the blocks that are read from a file; by default 2**28.

        Returns
        -------
        Tensor
            Tensor, labelled by the groups. Integers and booleans have 64 bits, as sums of numpy.

        Raises
        ------
        FormatError
            Cells that are not stored are not 0.
        ArrayError
            Arithmetic does not support the type of the values.
        """
        if fill := self.tensor.fill_value:
            what = f"cells that are not stored have the value {fill}, not 0; use to_dense() and pandas"
            raise FormatError(Problem("fill_value", what))
        members, grouped, plain, own, out = self._operands()
        made = einsum(f"{grouped},{own}->{out}", members, plain, format=format, memory=memory)
        return made.with_labels({self.dimension: self.labels}, dims=self.tensor.dims)  # type: ignore[no-any-return]

    def mean(self, format: FormatLike | None = None, *, memory: int | None = None) -> Tensor:
        """The sums divided by the numbers of coordinates of the groups, stored or not.

        Parameters
        ----------
        format : str, Format or mapping, optional
            See `sum`.
        memory : int, optional
            Bytes that the call may take.

        Returns
        -------
        Tensor
            Tensor, labelled by the groups.

        Raises
        ------
        ArrayError
            A group has no coordinates, and so no mean.
        FormatError
            See `sum`.
        """
        counts = self._counts("mean", "call sum()")
        after = (1,) * (self.tensor.ndim - self.dimension - 1)
        return np.true_divide(self.sum(format, memory=memory), counts.reshape(-1, *after))  # type: ignore[return-value]

    min = _extreme("min", "minima")
    max = _extreme("max", "maxima")

    def _counts(self, how: str, use: str) -> Array:
        """The numbers of coordinates of the groups. Raises ArrayError for an empty group. use: the remedy."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.labels))
        if not counts.all():
            which = self.labels[int(np.flatnonzero(counts == 0)[0])]
            raise ArrayError(Problem("groups", f"{which!s:.40} has no coordinates, so no {how}; {use}"))
        return counts

    def _operands(self) -> tuple[Tensor, str, Tensor, str, str]:
        """The matrix of groups and coordinates, the tensor without labels of the dimension, and letters.

        The matrix has an entry for each coordinate of a group. The letters are those of both and of the result.
        """
        tensor, k = self.tensor, self.dimension
        (there,) = np.nonzero(self.codes >= 0)
        shape = len(self.labels), tensor.shape[k]
        members = pack([self.codes[there], there], np.ones(len(there), bool), shape, "CSR", fill_value=False)
        own = LETTERS[: tensor.ndim]
        plain = tensor if tensor.dims is None else tensor.with_labels({k: None})
        return members, f"{_GROUP}{own[k]}", plain, own, own.replace(own[k], _GROUP)


@within_memory
def groupby(tensor: Any, dimension: Dimension, groups: npt.ArrayLike) -> Groups:
    """Group the coordinates of a dimension, for sums, means and extremes. A file is read in blocks.

    Parameters
    ----------
    tensor : Tensor or array
        Tensor, or any object that `as_tensor` accepts.
    dimension : int or str
        Its number or name.
    groups : array_like
        The group of each coordinate, such as a column of a table with a row for each. A missing group, as of
        `pandas.factorize`, leaves the coordinate out. The groups are sorted.

    Returns
    -------
    Groups
        Groups with the methods `sum`, `mean`, `min` and `max`.

    Raises
    ------
    OptionError
        The groups are not as many as the coordinates, or pandas is missing.
    IndexError
        There is no such dimension.

    See Also
    --------
    resample : Group the coordinates of a dimension by periods of their labels.
    reduce : Reduce dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> sales = bl.pack_dense([[1, 2], [4, 0], [8, 0]], "CSR", dims=["user", "item"])
    >>> by_country = bl.groupby(sales, "user", ["no", "it", "no"]).sum()
    >>> by_country.labels("user").tolist(), by_country.to_dense().tolist()
    (['it', 'no'], [[4, 0], [9, 2]])
    """
    tensor = as_tensor(tensor, copy=False)
    k = dimension_of(tensor, dimension)
    given = np.asarray(groups) if isinstance(groups, list | tuple) else groups
    if np.shape(given) != (tensor.shape[k],):
        what = f"expected {tensor.shape[k]} groups, one for each coordinate, got the shape {np.shape(given)}"
        raise OptionError(Problem("groups", what))
    codes, labels = pandas_module().factorize(given, sort=True)
    return Groups(tensor, k, codes, np.asarray(labels) if getattr(labels, "tz", None) is None else labels)


@within_memory
def resample(tensor: Any, dimension: Dimension, frequency: str) -> Groups:
    """Group the coordinates of a dimension by periods of their labels, as `pandas.Series.resample`.

    Parameters
    ----------
    tensor : Tensor or array
        Tensor, or any object that `as_tensor` accepts.
    dimension : int or str
        Its number or name; its labels are times.
    frequency : str
        Frequency of pandas, such as "MS" for months. A period without coordinates is an empty group.

    Returns
    -------
    Groups
        Groups with the methods `sum`, `mean`, `min` and `max`.

    Raises
    ------
    OptionError
        The labels are no times, pandas does not know the frequency, or it is missing.
    IndexError
        There is no such dimension.

    See Also
    --------
    groupby : Group the coordinates of a dimension, for sums, means and extremes.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> days = np.array(["2026-01-30", "2026-01-31", "2026-03-01"], "M8[D]")
    >>> rain = bl.pack_dense([[1, 2], [4, 0], [8, 0]], "CSR", dims=["day", "place"]).with_labels({"day": days})
    >>> bl.resample(rain, "day", "MS").sum().to_dense().tolist()
    [[5, 2], [0, 0], [8, 0]]
    """
    tensor = as_tensor(tensor, copy=False)
    k = dimension_of(tensor, dimension)
    column, pandas = labels_of(tensor, k), pandas_module()
    index = None if column is None else column.index()
    if not isinstance(index, pandas.DatetimeIndex) or len(index) != tensor.shape[k]:
        what = f"the labels of dimension {dimension!r:.40} are no times; add some by with_labels, or call groupby"
        raise OptionError(Problem("dimension", what))
    try:
        periods = pandas.Series(1, index).resample(frequency).count()
    except ValueError as error:
        raise OptionError(Problem("frequency", f"pandas refuses {frequency!r:.40}: {error}")) from error
    codes = np.full(len(index), -1)
    order = np.argsort(index.asi8, kind="stable")
    order = order[~index.isna()[order]]
    codes[order] = np.repeat(np.arange(len(periods)), periods.to_numpy())
    labels = periods.index
    return Groups(tensor, k, codes, labels.to_numpy() if labels.tz is None else labels)
