"""Threads: how many, and two ways to use them. Kernels and decompression let go of the GIL, the rest does not gain."""

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

_GRAIN = 2**18  # items that are worth a thread: half a millisecond of a kernel, against 50 µs for the start of one
_threads = processors()


def get_threads() -> int:
    """How many threads an operation may use; at first, the number of processors of this process."""
    return _threads


def set_threads(count: int) -> None:
    """Let an operation use so many threads, in the whole process. Results do not depend on it. Raises OptionError."""
    global _threads
    number = as_integer(count)
    if number is None or number < 1:
        raise OptionError(Problem("threads", f"expected an integer >= 1, got {count!r:.40}"))
    _threads = number


def shares(count: int) -> list[tuple[int, int]]:
    """0 … count cut into a range for each thread, or fewer where there is little to do."""
    parts = max(min(_threads, count // _GRAIN), 1)
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def each(call: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """The results of call(item), in the order of the items; what the first of them raises is raised."""
    todo = list(items)
    workers = min(_threads, len(todo))
    if workers < 2:
        return [call(item) for item in todo]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(call, todo))


def in_turn(prepare: Callable[[Item], Made], finish: Callable[[Made], None], items: Iterable[Item]) -> None:
    """finish(prepare(item)) for every item: prepared side by side, finished one at a time, in the order of the items.

    A thread finishes what it has prepared before it takes another item.
    """
    todo = list(items)
    workers = min(_threads, len(todo))
    if workers < 2:
        for item in todo:
            finish(prepare(item))
        return
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

    each(work, range(workers))
