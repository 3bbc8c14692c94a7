"""Requests to object stores, which are sent again where an answer is lost or refused."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import needing
from ..remote import RETRY

_PAUSES = 0.05, 0.1, 0.2, 0.4, 0.8  # seconds
_AT_ONCE = 16  # requests to an object store at a time: a single request takes 10 to 50 ms

Item = TypeVar("Item")
Made = TypeVar("Made")


def obstore_module() -> Any:
    """The module obstore. Raises PackageMissingError where it is not installed."""
    with needing("remote"):
        import obstore.store
    return obstore


def bucket_at(url: str) -> Any:
    """The store of obstore's at the URL of a prefix."""
    return obstore_module().store.from_url(url, retry_config=RETRY)


def bucket_of(url: str) -> tuple[Any, str]:
    """The store that has an object, and its key."""
    folder, _, name = url.rpartition("/")
    return bucket_at(folder), name


def asked(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to a request that may be sent again.

    obstore repeats what a server under load refuses. It repeats neither an answer that is cut, nor a write on a
    condition. Servers and proxies also deny access, or what was just written, for a moment. So all of these are asked
    again, with growing pauses. Raises the error that came most often; at once that a condition does not hold.
    """
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    errors: list[Exception] = []
    for pause in (0.0, *_PAUSES):
        time.sleep(pause)
        try:
            return call(*arguments, **options)
        except (AlreadyExistsError, PreconditionError):
            raise
        except Exception as error:
            errors.append(error)
    raise max(errors, key=lambda error: sum(type(other) is type(error) for other in errors))


def side_by_side(call: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """The results of call(item), in order. So many calls run, or wait with their results, as a store serves at once."""
    if len(items) < 2:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        begun: deque[Future[Made]] = deque()
        for item in items:
            if len(begun) == _AT_ONCE:
                yield begun.popleft().result()
            begun.append(pool.submit(call, item))
        while begun:
            yield begun.popleft().result()
