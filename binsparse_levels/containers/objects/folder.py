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
from ...parallel import each, get_threads
from ...system import rename_new, to_disk
from ..base import wrap_errors, write_error
from ..direct import open_file, read_into, refuse_links
from ..replacing import remove
from .codecs import Bytes
from .stores import Object, Part, Range, Use, shorter, wrap_object_errors

_RUNS_PER_THREAD = 4  # at least, if there are several parts
_MAX_PARTS = 2**4  # that are read with one opened file
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
        most = min(max(len(parts) // (_RUNS_PER_THREAD * get_threads()), 1), _MAX_PARTS)
        runs: list[list[int]] = []  # parts of one object, which is opened once for them
        for k, part in enumerate(parts):
            if runs and len(runs[-1]) < most and parts[k - 1].key == part.key:
                runs[-1].append(k)
            else:
                runs.append([k])
        each(lambda run: self._read([(k, parts[k]) for k in run], use), runs)

    def _read(self, run: Sequence[tuple[int, Part]], use: Use) -> None:
        """Read parts of one object."""
        path = f"{self._root}/{run[0][1].key}"
        try:
            file = open_file(path, PathMissingError, buffering=0)
        except PathMissingError:
            if os.path.lexists(path):
                raise
            for k, _ in run:
                use(k, None)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            for k, part in run:
                start = part.start if part.start >= 0 else size + part.start
                length = size if part.length is None else part.length
                if start < 0 or start + length > size or length > part.most:
                    raise ValueError(f"{length} bytes at {start} of an object of {size}, at most {part.most}")
                raw = np.empty(length, np.uint8)
                read_into(file.fileno(), raw, start)
                use(k, raw)

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
