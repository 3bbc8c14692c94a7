"""Parquet files: where they are, their columns by folder, and each of them opened."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from ..containers.base import is_url, touching
from ..containers.objects.asking import asked, asked_for, bucket_at, bucket_of, obstore_module
from ..containers.remote import Ranges
from ..errors import PathMissingError, Problem
from .columns import arrow
from .states import bytes_of, state_of, unchanged

_BATCH = 2**16  # rows of a row group that is larger than a chunk, read at once
_BUFFER = 2**20  # bytes of a column that are read at once there
_WHOLE = 2**20  # bytes of a file that is read whole, by one request
TURN = 16  # files that a thread takes at once
_HIVE = re.compile(r"([^/\\=]+)=([^/\\]*)")

Item = TypeVar("Item")
Made = TypeVar("Made")


def parquet_files(places: str | Sequence[str]) -> list[str]:
    """The Parquet files at a path, a pattern, a folder, or a URL of a file or of a prefix; or at several of these."""
    if not isinstance(places, str | os.PathLike):
        return [file for place in places for file in parquet_files(place)]
    path = os.path.expanduser(places)
    if path.endswith(".parquet") and is_url(path):
        return [path]
    if is_url(path):
        root = path.rstrip("/")
        with touching(path):
            pages = asked(lambda: list(obstore_module().list(bucket_at(root))))
        names = sorted(entry["path"] for page in pages for entry in page)
        files = [f"{root}/{name}" for name in names if name.endswith(".parquet")]
    elif os.path.isdir(path):
        files = sorted(glob.glob(os.path.join(glob.escape(os.path.abspath(path)), "**", "*.parquet"), recursive=True))
    elif os.path.exists(path):
        files = [os.path.abspath(path)]
    else:
        there = sorted(glob.glob(os.path.abspath(path)))
        files = [file for place in there for file in ([place] if os.path.isfile(place) else parquet_files(place))]
    if not files:
        raise PathMissingError(Problem(path, "no Parquet files here; they end with .parquet"))
    return files


def hive_of(files: Sequence[str]) -> dict[str, list[Any]]:
    """The columns that the folders of files name, as in `year=2026/a.parquet`: for each file a value, a number where
    all are.
    """
    told = [dict(_HIVE.findall(os.path.dirname(file))) for file in files]
    found: dict[str, list[Any]] = {}
    for name in told[0] if told else ():
        if all(name in mine for mine in told):
            texts = [unquote(mine[name]) for mine in told]
            numbers = all(re.fullmatch(r"-?\d{1,18}", x) for x in texts)
            found[unquote(name)] = [int(x) for x in texts] if numbers else texts
    return found


@contextlib.contextmanager
def known_file(path: str, state: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a file, which has to be as it was known; few: columns that are read as dictionaries.

    A small file is read whole, by one request.
    """
    raw = arrow().py_buffer(bytes_of(path, state)) if state[0] <= _WHOLE else None
    with contextlib.ExitStack() as ending:
        if raw is None:
            ending.enter_context(unchanged(path, state, state_of))
        ending.enter_context(touching(path))

        def file(few: Sequence[str] = ()) -> Any:
            source = path if raw is None else arrow().BufferReader(raw)
            return ending.enter_context(opened(source, state[0], few=few))

        yield file


def opened(source: Any, size: int | None = None, *, buffered: bool = False, few: Sequence[str] = ()) -> Any:
    """A Parquet file at a path, at a URL or in memory. size: of an object, where it is known. buffered: its columns are
    read piece by piece. few: columns that are read as dictionaries.
    """
    arrow()
    from pyarrow.parquet import ParquetFile

    remote = is_url(source)
    return ParquetFile(
        _Object(source, size) if remote else source,
        buffer_size=_BUFFER if buffered else 0,
        pre_buffer=remote and not buffered,
        read_dictionary=list(few) or None,
    )


class Reader:
    """A row group, read from its beginning a batch at a time."""

    def __init__(self, path: str, group: int, columns: Sequence[str]) -> None:
        self.at = 0  # the first row that has not been given
        self._file, self._rest = opened(path, buffered=True), None
        self.there = set(self._file.schema_arrow.names)
        self._batches: Iterator[Any] = self._file.iter_batches(
            _BATCH, row_groups=[group], columns=[x for x in columns if x in self.there], use_threads=False
        )

    def rows(self, skip: int, count: int) -> Iterator[Any]:
        """Rows from `skip` on, in batches. Precondition: they are not behind `at`."""
        done = 0
        while done < count:
            batch = next(self._batches) if self._rest is None else self._rest
            over = min(skip - self.at, len(batch))
            part = batch[over : over + count - done]
            behind = over + len(part)
            self._rest = batch[behind:] if behind < len(batch) else None
            self.at, skip = self.at + behind, skip + len(part)
            done += len(part)
            if len(part):
                yield part


class _Object(Ranges):
    """An object in a store, as the file that pyarrow reads: each read is one request."""

    def __init__(self, url: str, size: int | None) -> None:
        self._read, self._place = obstore_module().get_range, bucket_of(url)
        super().__init__(asked_for(obstore_module().head, *self._place)["size"] if size is None else size)

    def read(self, size: int = -1) -> bytes:
        count = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if count < 1:
            return b""
        found = bytes(asked_for(self._read, *self._place, start=self._at, length=count))
        self._at += len(found)
        return found
