"""Groups of Zarr, versions 2 and 3, as sources of lazy arrays and texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arrays import Array, LazyArray, lazy
from ...containers.base import touching
from ...containers.zarr import ZarrReader
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from .sources import Group


class ZarrGroup(Group):
    """A group of Zarr, with a Zarr array for each array. The attributes are JSON.

    unreplaced: raises an error if another folder has replaced the store.
    """

    reader: ZarrReader  # type: ignore[assignment]

    def __init__(self, reader: ZarrReader, limits: Limits, unreplaced: Callable[[], None] | None) -> None:
        self.reader = reader
        self.limits = limits
        self._unreplaced = unreplaced

    @property
    def attributes(self) -> dict[str, Any]:
        with touching(self.reader.group.name):
            return self.reader.group.attrs.asdict()

    def has(self, name: str) -> bool:
        group = self.reader.group
        with touching(group.name):  # a web server lists nothing, and is asked for this member
            return name in (set(group.keys()) if group.store.supports_listing else group)

    def _is_link(self, name: str) -> bool:
        return False

    def texts(self, name: str) -> list[str]:
        texts: list[str] = self._strings(name)[:].tolist()
        return texts

    def _strings(self, name: str) -> LazyArray:
        info = self.one_dimension(name)
        if info.dtype.kind not in "TU":
            raise ArrayError(Problem(name, f"expected texts, got {info.dtype}"))
        return info

    def attribute_text(self, name: str) -> str:
        text = self._attribute(name)
        if not isinstance(text, str):
            raise ContainerError(Problem(name, f"expected a string, got {type(text).__name__}"))
        return text

    def attribute_numbers(self, name: str) -> list[int]:
        numbers = self._attribute(name)
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise ContainerError(Problem(name, f"expected integers, got {numbers!r:.60}"))
        return numbers

    def _attribute(self, name: str) -> Any:
        if name not in self.attributes:
            raise ContainerError(Problem(name, "this attribute is missing"))
        return self.attributes[name]

    def _array(self, name: str) -> LazyArray:
        stored = super()._array(name)

        def read(start: int, stop: int) -> Array:
            try:
                return stored[start:stop]
            finally:
                if self._unreplaced is not None:
                    self._unreplaced()

        return lazy(stored.shape, stored.dtype, read, nbytes=lambda: stored.nbytes)

    def _missing(self, name: str) -> PathMissingError:
        return PathMissingError(Problem(name, f"{self.reader.group.name} has no such array"))
