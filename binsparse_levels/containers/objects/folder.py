"""Objects of a local folder: threads read bytes, and an object gets its name when it is complete."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import PathMissingError
from ...parallel import each
from ...system import rename_new, to_disk
from ..base import wrap_errors, write_error
from ..direct import open_file, read_into, refuse_links
from ..replacing import remove
from .codecs import Bytes
from .stores import Object, Part, Range, Use, shorter, wrap_object_errors

_BEING_WRITTEN = re.compile(r".+\.[0-9a-f]{12}\.part")


def is_being_written(name: str) -> bool:
    """Return True for the temporary name of an object."""
    return _BEING_WRITTEN.fullmatch(name) is not None


class Folder:
    """A local folder. A key is a path in it. Parts are read without following links below the folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._checked: set[str] = set()  # folders without a link above them

    def each(self, parts: Sequence[Part], use: Use) -> None:
        for folder in {part.key.rpartition("/")[0] for part in parts} - self._checked:
            refuse_links(self._root, folder)
            self._checked.add(folder)
        each(lambda k: use(k, self._read(parts[k])), range(len(parts)))

    def _read(self, part: Part) -> Bytes | None:
        path = f"{self._root}/{part.key}"
        try:
            with open_file(path, PathMissingError, buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                start = part.start if part.start >= 0 else size + part.start
                length = size if part.length is None else part.length
                if start < 0 or start + length > size or length > part.most:
                    raise ValueError(f"{length} bytes at {start} of an object of {size}, at most {part.most}")
                raw = np.empty(length, np.uint8)
                read_into(file.fileno(), raw, start)
                return raw
        except PathMissingError:
            if os.path.lexists(path):
                raise
            return None

    def put_all(self, objects: Sequence[Object]) -> None:
        each(lambda item: self.put(item[0], item[1](), flush=False), objects)

    def create(self, key: str, data: bytes) -> bool:
        """Write a new object. Returns False, without any change, if it exists."""
        return bool(self.put(key, [data], flush=False, rename=rename_new))

    def put(
        self,
        key: str,
        pieces: Iterable[Any],
        flush: bool = True,
        rename: Callable[[str, str], bool | None] = os.replace,
    ) -> bool | None:
        """Write an object, and return what `rename` returns. flush: to the disk, before it gets its name."""
        path = f"{self._root}/{key}"
        part = self._part(path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(part, "wb") as file:
                file.writelines(pieces)
            if flush:
                to_disk(part)
            done = rename(part, path)
            if done is False:
                remove(part)
            return done
        except BaseException as error:
            remove(part)
            if isinstance(error, OSError):
                raise write_error(path, error) from error
            raise

    def _part(self, path: str) -> str:
        return f"{path}.{uuid.uuid4().hex[:12]}.part"

    def get(self, key: str) -> bytes:
        path = f"{self._root}/{key}"
        with wrap_object_errors(path), open(path, "rb") as file:
            return file.read()

    def ranges(self, places: Sequence[Range]) -> Iterator[Bytes]:
        for key, start, size in places:
            path = f"{self._root}/{key}"
            with wrap_object_errors(path):
                raw = np.fromfile(path, np.uint8, size, offset=start)
            if len(raw) != size:
                raise shorter(path)
            yield raw

    def size(self, key: str) -> int:
        path = f"{self._root}/{key}"
        with wrap_object_errors(path):
            return os.path.getsize(path)

    def names(self, prefix: str) -> set[str]:
        path = f"{self._root}/{prefix}"
        with wrap_errors(path), contextlib.suppress(FileNotFoundError):
            return {name for name in os.listdir(path) if not is_being_written(name)}
        return set()

    def delete(self, prefix: str) -> None:
        remove(f"{self._root}/{prefix}")
