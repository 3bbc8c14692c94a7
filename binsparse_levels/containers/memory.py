"""A mapping in memory: the header, a JSON object, under `binsparse`, and each array under its name."""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Pieces, copy_if_writable, lazy
from ..errors import BinsparseError, ContainerError, OptionError, PathExistsError, Problem
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from .base import Storage, in_turn, names_in, no_tensor
from .interface import Container
from .npz import text_in
from .replacing import Overwrite

KEY = "binsparse"


class MemoryReader:
    """A mapping as a container. Whole arrays are copied only if the caller or another process may change them."""

    def __init__(self, mapping: Mapping[str, Any], limits: Limits) -> None:
        self._mapping = mapping
        self._limits = limits

    def read_header(self) -> Any:
        if KEY not in self._mapping:
            raise no_tensor("", f"key {KEY!r}", map(str, self._mapping))
        header = self._mapping[KEY]
        if isinstance(header, np.ndarray) and header.ndim == 0 and header.dtype.kind in "US":
            header = text_in(header)
        if isinstance(header, str | bytes):
            return load_json(header, self._limits)
        try:
            return load_json(json.dumps(header), self._limits)
        except (TypeError, ValueError, RecursionError) as error:
            raise ContainerError(Problem(KEY, f"no JSON: {error}")) from None

    def array(self, name: str) -> LazyArray | None:
        if name not in self._mapping:
            return None
        array = self._mapping[name]
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise ContainerError(Problem(name, f"expected a numpy array, got {type(array).__name__}"))

        def read(start: int, stop: int) -> Array:
            whole = stop - start == array.size and not _is_mapped(array)
            return copy_if_writable(array) if whole else np.array(array[start:stop])

        return lazy(array.shape, array.dtype, read)


def _is_mapped(array: Any) -> bool:
    """Return True if the items are in a memory-mapped file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return isinstance(array, mmap.mmap)


class MemoryWriter:
    """Collects the header and the arrays. The mapping is changed at the end."""

    def __init__(self) -> None:
        self.collected: dict[str, Any] = {}

    def write(self, name: str, pieces: Pieces) -> None:
        self.collected[name] = pieces.whole()

    def write_header(self, header: Mapping[str, Any]) -> None:
        self.collected[KEY] = dict(header)


@contextlib.contextmanager
def reading(mapping: Mapping[str, Any], group: str | None, limits: Limits) -> Iterator[MemoryReader]:
    """Open a mapping."""
    yield MemoryReader(mapping, limits)


@contextlib.contextmanager
def writing(
    mapping: MutableMapping[str, Any], group: str | None, overwrite: Overwrite, limits: Limits, storage: Storage
) -> Iterator[MemoryWriter]:
    """Fill a mapping. The tensor replaces the tensor in the mapping; other items are kept. A failure is undone.

    Raises PathExistsError for a mapping that is not empty, unless `overwrite`.
    """
    if not isinstance(mapping, MutableMapping):
        raise OptionError(Problem("kind", f"expected a mapping that can be changed, got {type(mapping).__name__}"))
    storage.refuse("a mapping", but=("checksum",))
    if mapping and not overwrite:
        raise PathExistsError(Problem("mapping", "is not empty; pass overwrite=True"))
    writer = MemoryWriter()
    yield writer
    new = writer.collected
    with in_turn:
        if mapping and not overwrite:
            raise PathExistsError(Problem("mapping", "another thread has filled it in the meantime; pass another"))
        old = {name: mapping[name] for name in {*new, *_names(mapping)} if name in mapping}
        try:
            mapping.update(new)
            for name in old.keys() - new.keys():
                del mapping[name]
        except BaseException:
            for name in new.keys() - old.keys():
                mapping.pop(name, None)
            mapping.update(old)
            raise


def _names(mapping: Mapping[str, Any]) -> set[str]:
    """The keys of the tensor in the mapping: its header, and the arrays that the header names."""
    try:
        header = MemoryReader(mapping, DEFAULT_LIMITS).read_header()
    except BinsparseError:
        return set()
    return {KEY, *names_in(header)}


FUNCTIONS = Container(reading=reading, writing=writing)
