"""The number of threads, and two ways to use them. Only kernels and decompression release the GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .errors import OptionError, Problem
from .limits import as_integer
from .system import processors

Item = TypeVar("Item")
Made = TypeVar("Made")

_GRAIN = 2**18  # items per thread: half a millisecond in a kernel; a thread starts in 50 µs
_threads = processors()


def get_threads() -> int:
    """The number of threads that an operation may use. The default is the number of processors of this process.

    >>> get_threads() >= 1
    True
    """
    return _threads


def set_threads(count: int) -> None:
    """Set the number of threads of every operation in this process. Results do not depend on it.

    Parameters
    ----------
    count: at least 1. Use 1 in programs that distribute the work themselves.

    Raises
    ------
    OptionError: `count` is not a positive integer.

    >>> before = get_threads()
    >>> set_threads(1)
    >>> get_threads()
    1
    >>> set_threads(before)
    """
    global _threads
    number = as_integer(count)
    if number is None or number < 1:
        raise OptionError(Problem("threads", f"expected an integer >= 1, got {count!r:.40}"))
    _threads = number


def shares(count: int) -> list[tuple[int, int]]:
    """Split 0 … count into one range per thread, or fewer ranges if there is little work."""
    parts = max(min(_threads, count // _GRAIN), 1)
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def each(call: Callable[[Item], Made], items: Iterable[Item], threads: int | None = None) -> list[Made]:
    """The results of call(item), in the order of the items. The first exception in that order is raised."""
    todo = list(items)
    workers = min(threads or _threads, len(todo))
    if workers < 2:
        return [call(item) for item in todo]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(call, todo))


def in_turn(prepare: Callable[[Item], Made], finish: Callable[[Made], None], items: Iterable[Item]) -> None:
    """Run finish(prepare(item)) for every item: `prepare` in parallel, `finish` one at a time, in order.

    A thread finishes its item before it takes another one.
    """
    todo = list(items)
    numbered = iter(enumerate(todo))
    taking = threading.Lock()
    turn = threading.Condition()
    done = 0
    failed = False

    def work(_: int) -> None:
        nonlocal done, failed
        try:
            while True:
                with taking:
                    taken = next(numbered, None)
                if taken is None:
                    return
                number, item = taken
                made = prepare(item)
                with turn:
                    while done != number:
                        if failed:
                            return
                        turn.wait()
                finish(made)
                with turn:
                    done += 1
                    turn.notify_all()
        except BaseException:
            with turn:
                failed = True
                turn.notify_all()
            raise

    each(work, range(min(_threads, len(todo))))
