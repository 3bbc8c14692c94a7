"""Objects of a bucket. A request is repeated if its answer is lost or refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar

import numpy as np

from ...errors import PathExistsError, Problem, needing
from ...parallel import each
from ...thresholds import THRESHOLDS
from ..base import wrap_errors
from ..remote import cloud_store
from .codecs import Bytes
from .stores import Range, shorter, wrap_object_errors

_RETRY_SECONDS = 0.05, 0.1, 0.2, 0.4, 0.8
_MAX_OPEN_REQUESTS = 16  # a single request takes 10 to 50 ms

Item = TypeVar("Item")
Made = TypeVar("Made")


def _retried(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to a request, which is repeated after errors, with growing pauses.

    obstore itself repeats requests that an overloaded server refuses, but not those whose answer is truncated, or to
    which a server or proxy denies access for a moment. Raises the last error; immediately if an object is missing, or
    exists already.
    """
    from obstore.exceptions import AlreadyExistsError

    for pause in _RETRY_SECONDS:
        try:
            return call(*arguments, **options)
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except Exception:
            time.sleep(pause)
    return call(*arguments, **options)


def map_concurrently(call: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """The results of call(item), in order. The number of calls that run, or whose results wait, is bounded."""
    for at in range(0, len(items), _MAX_OPEN_REQUESTS):
        yield from each(call, items[at : at + _MAX_OPEN_REQUESTS], _MAX_OPEN_REQUESTS)


class Bucket:
    """A prefix of an object store. Credentials and endpoint come from the usual environment variables of the store."""

    def __init__(self, url: str) -> None:
        with needing("remote"):
            import obstore
        self._url, self._calls = url.rstrip("/"), obstore
        with wrap_errors(url):
            self._store = cloud_store(self._url)

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        def send(file: IO[bytes]) -> None:
            file.seek(0)
            self._calls.put(self._store, key, file)

        with wrap_object_errors(f"{self._url}/{key}"), SpooledTemporaryFile(THRESHOLDS.spooled_bytes) as file:
            file.writelines(pieces)
            _retried(send, file)

    def create(self, key: str, data: bytes) -> None:
        """Write a new object. Raises PathExistsError."""
        from obstore.exceptions import AlreadyExistsError

        with wrap_object_errors(f"{self._url}/{key}"):
            try:
                _retried(self._calls.put, self._store, key, data, mode="create")
            except AlreadyExistsError:  # perhaps written by this call, whose first answer was lost
                if self.get(key) != data:
                    raise PathExistsError(Problem(self._url, "already exists; pass overwrite=True")) from None

    def get(self, key: str) -> bytes:
        with wrap_object_errors(f"{self._url}/{key}"):
            return bytes(_retried(lambda: self._calls.get(self._store, key).bytes()))

    def ranges(self, places: Sequence[Range]) -> Iterator[Bytes]:
        def read(place: Range) -> Bytes:
            key, start, size = place
            if not size:
                return np.empty(0, np.uint8)
            with wrap_object_errors(f"{self._url}/{key}"):
                found = _retried(self._calls.get_range, self._store, key, start=start, length=size)
            if len(found) != size:
                raise shorter(f"{self._url}/{key}")
            return np.frombuffer(found, np.uint8)

        return map_concurrently(read, places)

    def size(self, key: str) -> int:
        return self.state(key)[0]

    def state(self, key: str) -> tuple[int, str]:
        """The size of an object, and its tag or time: any change of the object changes these."""
        with wrap_object_errors(f"{self._url}/{key}"):
            head = _retried(self._calls.head, self._store, key)
        return int(head["size"]), head["e_tag"] or str(head["last_modified"])

    def names(self, prefix: str) -> set[str]:
        return set(self.ages(prefix))

    def ages(self, prefix: str) -> dict[str, float]:
        """The keys below `prefix/`, without it, and the time of the last write of each, in seconds."""
        with wrap_object_errors(f"{self._url}/{prefix}"):
            pages = _retried(lambda: list(self._calls.list(self._store, prefix=prefix or None)))
        entries = [entry for page in pages for entry in page]
        return {x["path"].removeprefix(f"{prefix}/"): x["last_modified"].timestamp() for x in entries}

    def delete(self, prefix: str) -> None:
        with wrap_object_errors(f"{self._url}/{prefix}"):
            with suppress(FileNotFoundError):
                _retried(self._calls.delete, self._store, prefix)
            if keys := [f"{prefix}/{name}" for name in self.names(prefix)]:
                _retried(self._calls.delete, self._store, keys)
