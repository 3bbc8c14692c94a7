"""The number of threads, and two ways to use them. Only kernels, reads and decompression release the GIL.

Threads stay alive and wait for work. Waking a thread takes 20 to 50 µs; starting and ending one took 140 µs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from .limits import checked_integer
from .system import processors
from .thresholds import THRESHOLDS

Item = TypeVar("Item")
Made = TypeVar("Made")

_threads = processors()


class _PerThread(threading.local):
    """Settings of this thread."""

    threads: int | None = None


_this_thread = _PerThread()


class Lock:
    """A reentrant lock of the threads of a process. In a forked process it is free, whichever thread held it."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class _Uncollected:
    """A block in which no thread collects garbage. Blocks of several threads overlap: the last one to end restores."""

    def __init__(self) -> None:
        self._lock, self._blocks, self._collects = Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._collects = gc.isenabled()
                gc.disable()
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._collects:
                gc.enable()


uncollected = _Uncollected()


def get_threads() -> int:
    """The number of threads that an operation may use. The default is the number of processors of this process.

    Another thread may change it at any time, so a function that uses it twice calls this function once.

    Returns
    -------
    int
        Int : at least 1.

    See Also
    --------
    set_threads : Set the number of threads of every operation in this process.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.get_threads() >= 1
    True
    """
    return _this_thread.threads or _threads


def set_threads(count: int) -> None:
    """Set the number of threads of every operation in this process. Results do not depend on it.

    Parameters
    ----------
    count : int
        At least 1. Use 1 in programs that distribute work among processes.

    Raises
    ------
    OptionError
        `count` is not a positive integer.

    See Also
    --------
    get_threads : The number of threads that an operation may use.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> before = bl.get_threads()
    >>> bl.set_threads(1)
    >>> bl.get_threads()
    1
    >>> bl.set_threads(before)
    """
    global _threads
    _threads = checked_integer("threads", count)


@contextlib.contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Use this number of threads for calls of this thread within the block. Other threads are not affected."""
    before, _this_thread.threads = _this_thread.threads, count
    try:
        yield
    finally:
        _this_thread.threads = before


def shares(count: int, size: int, least: int = 1) -> list[tuple[int, int]]:
    """Split 0 … count into one range per thread, or fewer ranges if there is little work.

    Passes that require the same ranges use the result of one call.

    size: bytes moved for an item; a cache line for each cache miss. least: the smallest number of items of a range.
    """
    parts = max(min(get_threads(), count * size // THRESHOLDS.thread_bytes, count // least), 1)
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def each(call: Callable[[Item], Made], items: Iterable[Item], threads: int | None = None) -> list[Made]:
    """The results of call(item), in the order of the items. The first exception in that order is raised."""
    todo = list(items)
    workers = min(threads or get_threads(), len(todo))
    if workers < 2:
        return [call(item) for item in todo]
    work = _Work(call, todo)
    _call_in_threads(work.take, workers - 1)
    work.take()
    work.over.acquire()
    if work.failed:
        first, work.failed = work.failed[min(work.failed)], {}  # the frames of an error keep arrays alive
        try:
            raise first
        finally:
            del first
    return work.made  # type: ignore[return-value]


class _Work(Generic[Item, Made]):
    """A queue of items for threads. Late threads find it empty and return; no thread waits for them."""

    def __init__(self, call: Callable[[Item], Made], todo: list[Item]) -> None:
        self._call, self._todo = call, todo
        self.made: list[Made | None] = [None] * len(todo)
        self.failed: dict[int, BaseException] = {}
        self._counting = threading.Lock()
        self._taken, self._left = 0, len(todo)
        self.over = threading.Lock()  # released when the last item is done
        self.over.acquire()

    def take(self) -> None:
        """Process items until there are none. After a failure, the remaining items are dropped."""
        while True:
            with self._counting:
                k = self._taken
                if k == len(self._todo):
                    return
                self._taken += 1
            try:
                self.made[k] = self._call(self._todo[k])
            except BaseException as error:
                self.failed[k] = error
            with self._counting:
                self._left -= 1
                if k in self.failed:
                    self._left -= len(self._todo) - self._taken
                    self._taken = len(self._todo)
                if not self._left:
                    self.over.release()


_pool: tuple[SimpleQueue[Callable[[], Any]], list[threading.Thread]] = SimpleQueue(), []


def _call_in_threads(call: Callable[[], Any], count: int) -> None:
    """Let this number of other threads make a call when they are idle."""
    global _pool
    if not all(thread.is_alive() for thread in _pool[1]):  # they do not survive a fork
        _pool = SimpleQueue(), []
    calls, threads = _pool
    while len(threads) < count:
        thread = threading.Thread(target=_serve, args=(calls,), name="binsparse_levels", daemon=True)
        thread.start()
        threads.append(thread)
    for _ in range(count):
        calls.put(call)


def _serve(calls: SimpleQueue[Callable[[], Any]]) -> None:
    while True:
        calls.get()()


def finish_in_order(prepare: Callable[[Item], Made], finish: Callable[[Made], None], items: Iterable[Item]) -> None:
    """Run finish(prepare(item)) for every item: `prepare` in parallel, `finish` one at a time, in order.

    A thread finishes its item before it takes another one.
    """
    turn = threading.Condition()
    done = 0
    failed = False

    def work(numbered: tuple[int, Item]) -> None:
        nonlocal done, failed
        number, item = numbered
        try:
            made = prepare(item)
            with turn:
                turn.wait_for(lambda: done == number or failed)
            if not failed:
                finish(made)
        except BaseException:
            failed = True
            raise
        finally:
            with turn:
                done += 1
                turn.notify_all()

    each(work, enumerate(items))
