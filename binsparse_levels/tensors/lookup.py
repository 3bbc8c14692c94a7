"""Labels of a dimension, looked up as `xarray.DataArray.sel` does: by pandas.

Texts and integers are found exactly without pandas, by bisection. In ranges of texts, pandas compares their ranks: the
number of each among the different texts in ascending order. A pandas index of five million texts takes 400 MB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArrayError, Problem, needing
from ..levels.positions import Array

Found: TypeAlias = int | slice | Array  # coordinates, or a mask

FAILURES = (LookupError, TypeError, ValueError, ArithmeticError)  # of a look-up


def pandas_module() -> Any:
    """The module pandas. Raises PackageMissingError if it is not installed."""
    with needing("pandas"):
        import pandas
    return pandas


def index_of(labels: Array, zone: str | None) -> Any:
    """Labels as a pandas.Index. zone: of times, which are in UTC. Raises PackageMissingError, ArrayError."""
    pandas = pandas_module()
    if labels.dtype.kind == "T":
        return pandas.Index(labels.astype(object), dtype=object)
    try:
        index = pandas.Index(labels)
        return index if zone is None else index.tz_localize("UTC").tz_convert(zone)
    except (KeyError, ValueError) as error:  # an unknown zone, or a time that pandas does not have
        raise ArrayError(Problem("labels", f"pandas has no index of them: {error}; replace them")) from error


def plain(key: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """One label, or an array of several, as xarray takes them. dtype: of the labels. Raises TypeError, ValueError."""
    if isinstance(key, tuple) or (dtype is not None and hasattr(key, "keys") and hasattr(key, "__getitem__")):
        raise TypeError(f"a {type(key).__name__} is no label; pass a list or an array")
    array = np.asarray(key)
    if dtype is not None and dtype.kind == "f" and array.dtype.kind != "b":
        array = array.astype(dtype)
    if array.dtype == np.float16:  # pandas has no index of it
        array = array.astype(np.float64)
    if array.dtype.kind in "UT":  # numpy drops null characters at the end of the former
        array = np.array(key if isinstance(key, str | list) else array, np.dtypes.StringDType()).astype(object)
    if array.ndim > 1:
        raise ValueError("expected labels in one dimension")
    return array if array.ndim else array[()] if array.dtype.kind in "mM" else array.item()


@dataclass(frozen=True, eq=False)
class Lookup:
    """labels: by coordinate; texts with null characters are objects. zone: of times, which are in UTC.

    Methods raise PackageMissingError, or one of FAILURES.
    """

    labels: Array
    zone: str | None

    @property
    def _is_text(self) -> bool:
        return self.labels.dtype.kind in "TO"

    def _is_exact(self, keys: Sequence[Any]) -> bool:
        """True if labels are found without pandas."""
        return self._is_text or (self.labels.dtype.kind in "iu" and all(type(key) is int for key in keys))

    def find(self, key: Any) -> Found:
        """The coordinates that `sel` selects by a key."""
        if isinstance(key, slice):
            found = self._ask("slice_indexer", self._end(key.start), self._end(key.stop), key.step)
            if not isinstance(found, slice):
                raise KeyError("the labels do not ascend or descend")
            return found
        key = plain(key, self.labels.dtype)
        if isinstance(key, np.ndarray):
            return key if key.dtype.kind == "b" else self._several(key)
        if self._is_exact([key]):
            first, last = self._ends(key)
            if first == last:
                raise KeyError(key)
            return int(self._order[first]) if last - first == 1 else self._order[first:last]
        return self._ask("get_loc", key)  # type: ignore[no-any-return]

    def _ask(self, method: str, *arguments: Any) -> Any:
        """The answer of the pandas.Index."""
        asked = getattr(self._index, method)
        try:
            return asked(*arguments)
        except FAILURES:
            raise
        except Exception as error:  # of any other class, such as for an hour that the clocks skip
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _several(self, keys: Array) -> Array:
        exact = self._is_exact(keys.tolist())
        if not (self._distinct == len(self.labels) if exact else self._index.is_unique):
            raise ValueError("some labels are equal; select one label at a time")
        if exact:
            ends = map(self._ends, keys.tolist())
            found = np.array([self._order[first] if first < last else -1 for first, last in ends], np.int64)
        else:
            found = self._ask("get_indexer", pandas_module().Index(keys))
        if (found < 0).any():
            raise KeyError(keys[(found < 0).argmax()])
        return found

    @cached_property
    def _order(self) -> Array:
        """The coordinates in ascending order of their labels."""
        return np.argsort(self.labels, kind="stable")

    def _ends(self, label: Any) -> tuple[int, int]:
        """The range of `_order` with a label. numpy's searchsorted does not find long strings."""
        if self._is_text and not isinstance(label, str):
            return 0, 0
        first = bisect_left(self._order, label, key=self.labels.__getitem__)
        return first, bisect_right(self._order, label, first, key=self.labels.__getitem__)

    @cached_property
    def _ranks(self) -> Array:
        """The number of each label among the different labels in ascending order."""
        ascending = self.labels[self._order]
        ranks = np.empty(len(ascending), np.int32 if len(ascending) < 2**31 else np.int64)
        ranks[self._order] = np.cumsum(np.append(0, ascending[1:] != ascending[:-1]), dtype=ranks.dtype)[: len(ranks)]
        return ranks

    @cached_property
    def _distinct(self) -> int:
        """The number of different labels."""
        return int(self._ranks.max(initial=-1)) + 1

    @cached_property
    def _index(self) -> Any:
        """The pandas.Index: of texts, that of their ranks."""
        return index_of(self._ranks if self._is_text else self.labels, self.zone)

    def _end(self, label: Any) -> Any:
        """The end of a slice of the pandas.Index. A text that is not there is between two ranks."""
        label = np.asarray(label)[()] if getattr(label, "ndim", None) == 0 else label
        if label is None or not self._is_text:
            return label
        if not isinstance(label, str):
            raise TypeError("the labels are texts")
        first, last = self._ends(label)
        after = self._ranks[self._order[first]] if first < len(self._order) else self._distinct
        return int(after) if first < last else after - 0.5
