"""Requests to object stores, which are sent again where an answer is lost or refused."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import needing
from ..remote import RETRY

_PAUSES = 0.05, 0.1, 0.2, 0.4, 0.8  # seconds
# Calls of fewer seconds of the processor are not worth a thread, unless they wait: so many times as long as they
# compute, and so many seconds more.
_SHORT, _WAITING, _PATIENCE = 0.002, 3, 0.02
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


def get_bytes(store: Any, key: str) -> tuple[Any, Any]:
    """What a store tells of an object, and all its bytes."""
    answer = obstore_module().get(store, key)
    return answer.meta, answer.bytes()


def asked(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to a request that may be sent again.

    obstore repeats what a server under load refuses. It repeats neither an answer that is cut, nor a write on a
    condition. Servers and proxies also deny access, or what was just written, for a moment. So all of these are asked
    again, with growing pauses. Raises the error that came most often; at once that a condition does not hold.
    """
    return _asked(lambda: call(*arguments, **options), lambda: False)


def asked_for(call: Callable[..., Any], store: Any, key: str, **options: Any) -> Any:
    """As `asked`, for what reads an object. Raises FileNotFoundError at once where a listing says so too."""
    return _asked(lambda: call(store, key, **options), lambda: _is_missing(store, key))


def _asked(call: Callable[[], Any], missing: Callable[[], bool]) -> Any:
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    errors: list[Exception] = []
    for pause in (0.0, *_PAUSES):
        time.sleep(pause)
        try:
            return call()
        except (AlreadyExistsError, PreconditionError):
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and missing():
                raise
            errors.append(error)
    raise max(errors, key=lambda error: sum(type(other) is type(error) for other in errors))


def _is_missing(store: Any, key: str) -> bool:
    """Whether a listing that begins just before an object does not have it."""
    before = f"{key[:-1]}{chr(ord(key[-1]) - 1)}z".replace("//", "/.")  # a path has no empty part
    try:
        page: Any = next(iter(obstore_module().list(store, key.rpartition("/")[0] or None, offset=before)), [])
    except Exception:  # what fails too tells nothing
        return False
    return key not in [entry["path"] for entry in page]


def side_by_side(call: Callable[[Item], Made], items: Sequence[Item], *, turn: int = 1) -> Iterator[Made]:
    """The results of call(item), in order. So many calls run, or wait with their results, as a store serves at once.

    turn: so many items a thread takes at once, where to hand one over takes as long as the call. Such items are taken
    without threads while their calls are short and do not wait (20,000 Parquet files of 1,000 rows: half the time).
    """
    if turn > 1:
        done, short, least, clock, busy = 0, True, math.inf, 0.0, 0.0
        while done < len(items) and short and clock < _WAITING * busy + _PATIENCE:
            begin, computed = time.perf_counter(), time.thread_time()
            made = call(items[done])
            spent = time.thread_time() - computed
            clock, busy, least = clock + time.perf_counter() - begin, busy + spent, min(least, spent)
            done += 1
            short = done < 3 or least < _SHORT  # the first may import and compile
            yield made
        items = items[done:]
    if len(items) < 2:
        yield from map(call, items)
        return
    turn = min(turn, -(-len(items) // _AT_ONCE))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        begun: deque[Future[list[Made]]] = deque()
        for at in range(0, len(items), turn):
            if len(begun) == _AT_ONCE:
                yield from begun.popleft().result()
            begun.append(pool.submit(lambda some: [call(item) for item in some], items[at : at + turn]))
        while begun:
            yield from begun.popleft().result()
