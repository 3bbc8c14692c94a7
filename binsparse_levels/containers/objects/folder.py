"""Objects of a local folder: bytes are read by threads, and an object gets its name when it is whole."""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import ContainerError, Problem
from ...parallel import each, get_threads
from ...system import to_disk
from ..base import touching
from ..direct import opened, read_in_steps, read_into, refuse_links
from ..replacing import remove
from .codecs import Bytes
from .stores import Part, Range, Use, shorter, touching_object

_GRAIN = 2**18  # bytes that a thread reads and uses at least
_FEW_OBJECTS = 16  # so many files are opened to see whether they are there; for more, the folder is listed
_NOTHING = np.empty(0, np.uint8)


class Folder:
    """A local folder. A key is a path in it.

    Parts are read into the buffers where they belong, and no link is followed on the way to them.
    """

    far = False

    def __init__(self, root: str) -> None:
        self._root = root
        self._sound: set[str] = set()  # folders without a link above them

    def each(self, parts: Sequence[Part], use: Use) -> None:
        objects = [list(run) for _, run in itertools.groupby(range(len(parts)), lambda k: parts[k].key)]
        for numbers in objects:
            folder = parts[numbers[0]].key.rpartition("/")[0]
            if folder not in self._sound:
                refuse_links(self._root, folder)
                self._sound.add(folder)
        if len(objects) > _FEW_OBJECTS:
            objects = self._there(objects, parts, use)
        total = sum(part.bound for part in parts)
        shares = list(_shared(objects, parts, max(total // (2 * get_threads()), _GRAIN)))
        alone = len(shares) < get_threads()

        def read(share: list[list[int]]) -> None:
            for run in share:
                self._read([(k, parts[k]) for k in run], use, alone)

        each(read, shares)

    def put_all(self, objects: Sequence[tuple[str, Callable[[], Iterable[Any]]]]) -> None:
        def put(item: tuple[str, Callable[[], Iterable[Any]]]) -> None:
            with self._written(item[0], item[1](), False) as (path, part):
                os.replace(part, path)

        each(put, objects)

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        try:
            with self._written(key, pieces, flush) as (path, part):
                os.replace(part, path)
        except OSError as error:
            raise ContainerError(
                Problem(self._path(key), f"cannot be written: {error.strerror}; make room or check the rights")
            ) from error

    def _part(self, path: str) -> str:
        """Where an object is written before it gets its name."""
        return f"{path}.{uuid.uuid4().hex[:12]}.part"

    @contextlib.contextmanager
    def _written(self, key: str, pieces: Iterable[Any], flush: bool) -> Iterator[tuple[str, str]]:
        """The path of an object, and a file beside it that holds its bytes and is removed where the block leaves it."""
        path = self._path(key)
        part = self._part(path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(part, "wb") as file:
                file.writelines(pieces)
            if flush:
                to_disk(part)
            yield path, part
        finally:
            remove(part)

    def _there(self, objects: list[list[int]], parts: Sequence[Part], use: Use) -> list[list[int]]:
        """The objects that are there. For parts of the others, `use` is called."""
        names: dict[str, set[str]] = {}
        there = []
        for numbers in objects:
            folder, _, name = parts[numbers[0]].key.rpartition("/")
            if folder not in names:
                try:
                    names[folder] = set(os.listdir(os.path.join(self._root, folder)))
                except FileNotFoundError:
                    names[folder] = set()
            if name in names[folder]:
                there.append(numbers)
            else:
                for k in numbers:
                    use(k, None, _NOTHING)
        return there

    def _read(self, run: list[tuple[int, Part]], use: Use, alone: bool) -> None:
        """Read parts of one object. alone: no other thread has work."""
        try:
            with opened(os.path.join(self._root, run[0][1].key)) as (handle, size):
                for k, part in run:
                    use(k, *_read_part(handle, size, part, alone))
        except FileNotFoundError:
            for k, _ in run:
                use(k, None, _NOTHING)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, *key.split("/"))

    def get(self, key: str) -> bytes:
        with touching_object(self._path(key)), open(self._path(key), "rb") as file:
            return file.read()

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        for key, start, size in wanted:
            with touching_object(self._path(key)):
                raw = np.fromfile(self._path(key), np.uint8, size, offset=start)
            if len(raw) != size:
                raise shorter(self._path(key))
            yield raw

    def size(self, key: str) -> int:
        with touching_object(self._path(key)):
            return os.path.getsize(self._path(key))

    def names(self, prefix: str) -> set[str]:
        path = self._path(prefix)
        with touching(path), contextlib.suppress(FileNotFoundError):
            return {name for name in os.listdir(path) if not name.endswith(".part")}
        return set()

    def delete(self, prefix: str) -> None:
        remove(self._path(prefix))


def _read_part(handle: int, size: int, part: Part, alone: bool) -> tuple[Bytes | Exception, Bytes]:
    start = part.start if part.start >= 0 else size + part.start
    count = size - start if part.length is None else part.length
    if part.whole not in (None, size):
        return ValueError(f"expected an object of {part.whole} bytes, got {size}"), _NOTHING
    if start < 0 or start + count > size or not part.tail <= count <= part.most:
        return ValueError(f"{count} bytes at {start} of an object of {size}, at most {part.most}"), _NOTHING
    payload = count - part.tail
    raw = np.empty(payload, np.uint8) if part.into is None else part.into()
    if raw.size != payload:
        return ValueError(f"a chunk of {raw.size} bytes is stored in {payload}"), _NOTHING
    (read_in_steps if alone else read_into)(handle, raw, start)
    tail = np.empty(part.tail, np.uint8) if part.tail else _NOTHING
    if part.tail:
        read_into(handle, tail, start + payload)
    return raw, tail


def _shared(objects: list[list[int]], parts: Sequence[Part], step: int) -> Iterator[list[list[int]]]:
    """Runs of parts of the same object, in shares of about `step` bytes."""
    share: list[list[int]] = []
    held = 0
    for numbers in objects:
        share.append([])
        for k in numbers:
            if held >= step:
                yield [run for run in share if run]
                share, held = [[]], 0
            share[-1].append(k)
            held += parts[k].bound
    yield [run for run in share if run]
