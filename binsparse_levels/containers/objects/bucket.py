"""Objects of a bucket, whose requests are sent again where an answer is lost or refused."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar

import numpy as np

from ...errors import PathExistsError, Problem, needing
from ..base import touching
from ..remote import cloud_store
from .codecs import Bytes
from .stores import Range, shorter, touching_object

_PAUSES = 0.05, 0.1, 0.2, 0.4, 0.8  # seconds
_IN_MEMORY = 2**26  # bytes of an object; a longer one is sent from the disk
_AT_ONCE = 16  # requests to an object store at a time: a single request takes 10 to 50 ms

Item = TypeVar("Item")
Made = TypeVar("Made")


def _asked(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to a request that may be sent again.

    obstore repeats what a server under load refuses. It does not repeat an answer that is cut, and some servers and
    proxies deny access for a moment. So these are asked again, with growing pauses. Raises the last error; at once that
    an object is missing, or is there already.
    """
    from obstore.exceptions import AlreadyExistsError

    for pause in _PAUSES:
        try:
            return call(*arguments, **options)
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except Exception:
            time.sleep(pause)
    return call(*arguments, **options)


def side_by_side(call: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """The results of call(item), in order. So many calls run, or wait with their results, as a store serves at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        begun: deque[Future[Made]] = deque()
        for item in items:
            if len(begun) == _AT_ONCE:
                yield begun.popleft().result()
            begun.append(pool.submit(call, item))
        while begun:
            yield begun.popleft().result()


class Bucket:
    """A prefix of an object store. The environment has the credentials and the endpoint, as the store's programs
    expect them.
    """

    def __init__(self, url: str) -> None:
        with needing("remote"):
            import obstore
        self._url, self._calls = url.rstrip("/"), obstore
        with touching(url):
            self._store = cloud_store(self._url)

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        def send(file: IO[bytes]) -> None:
            file.seek(0)
            self._calls.put(self._store, key, file)

        with touching_object(f"{self._url}/{key}"), SpooledTemporaryFile(_IN_MEMORY) as file:
            file.writelines(pieces)
            _asked(send, file)

    def create(self, key: str, data: bytes) -> None:
        """Write an object where there is none. Raises PathExistsError."""
        from obstore.exceptions import AlreadyExistsError

        with touching_object(f"{self._url}/{key}"):
            try:
                _asked(self._calls.put, self._store, key, data, mode="create")
            except AlreadyExistsError:  # perhaps by this call, whose first answer was lost
                if self.get(key) != data:
                    raise PathExistsError(Problem(self._url, "already exists; pass overwrite=True")) from None

    def get(self, key: str) -> bytes:
        with touching_object(f"{self._url}/{key}"):
            return bytes(_asked(lambda: self._calls.get(self._store, key).bytes()))

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        def read(place: Range) -> Bytes:
            key, start, size = place
            if not size:
                return np.empty(0, np.uint8)
            with touching_object(f"{self._url}/{key}"):
                found = _asked(self._calls.get_range, self._store, key, start=start, length=size)
            if len(found) != size:
                raise shorter(f"{self._url}/{key}")
            return np.frombuffer(found, np.uint8)

        return side_by_side(read, wanted)

    def size(self, key: str) -> int:
        return self.state(key)[0]

    def state(self, key: str) -> tuple[int, str]:
        """What changes where the object changes: its size, and its tag or time."""
        with touching_object(f"{self._url}/{key}"):
            told = _asked(self._calls.head, self._store, key)
        return int(told["size"]), told["e_tag"] or str(told["last_modified"])

    def names(self, prefix: str) -> set[str]:
        return set(self.ages(prefix))

    def ages(self, prefix: str) -> dict[str, float]:
        """The keys below `prefix/`, without it, and when each was written, in seconds."""
        with touching_object(f"{self._url}/{prefix}"):
            pages = _asked(lambda: list(self._calls.list(self._store, prefix=prefix or None)))
        entries = [entry for page in pages for entry in page]
        return {x["path"].removeprefix(f"{prefix}/"): x["last_modified"].timestamp() for x in entries}

    def delete(self, prefix: str) -> None:
        with touching_object(f"{self._url}/{prefix}"):
            with suppress(FileNotFoundError):
                _asked(self._calls.delete, self._store, prefix)
            if keys := [f"{prefix}/{name}" for name in self.names(prefix)]:
                _asked(self._calls.delete, self._store, keys)
