"""Threads that share work: what `each`, `finish_in_order` and `shares` promise, whoever takes which item."""

import gc
import itertools
import multiprocessing
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

from binsparse_levels import pack, pack_dense, parallel, read, system, write


@pytest.fixture(params=[1, 2, 5], autouse=True)
def threads(request):
    before = parallel.get_threads()
    parallel.set_threads(request.param)
    yield request.param
    parallel.set_threads(before)


def test_results_come_in_the_order_of_the_items():
    def call(k):
        time.sleep(0.002 * (k % 3))
        return k * k

    assert parallel.each(call, range(20)) == [k * k for k in range(20)]
    assert parallel.each(call, []) == []
    assert parallel.each(call, [3], 7) == [9]


def test_the_first_failure_is_raised_and_ends_the_work(threads):
    begun = []

    def call(k):
        begun.append(k)
        time.sleep(0.01 if k == 2 else 0)
        if k in (2, 3):
            raise ValueError(k)

    with pytest.raises(ValueError, match="2"):
        parallel.each(call, range(1000))
    assert len(begun) < 1000 - threads


def test_a_failure_keeps_nothing():
    class Large:
        pass

    gone = []

    def call(k):
        large = Large()
        gone.append(weakref.ref(large))
        raise ValueError(k)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="0") as caught:
            parallel.each(call, range(3))
        del caught
        assert gone[0]() is None
    finally:
        gc.enable()


def test_blocks_without_collection_overlap():
    """The second thread begins between the ends of the first: the collector is on when both have ended."""
    entered, may_end = threading.Event(), threading.Event()

    def other():
        with parallel.uncollected:
            entered.set()
            may_end.wait()

    thread = threading.Thread(target=other)
    with parallel.uncollected:
        thread.start()
        entered.wait()
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()


def test_work_within_work_is_done():
    def call(k):
        return sum(parallel.each(lambda j: k * j, range(10)))

    assert parallel.each(call, range(10)) == [45 * k for k in range(10)]


def test_threads_stay(threads):
    def numbers():
        return {x.ident for x in threading.enumerate() if x.name == "binsparse_levels"}

    parallel.each(time.sleep, [0.001] * 10)
    before = numbers()
    assert len(before) >= threads - 1
    for _ in range(10):
        parallel.each(time.sleep, [0] * 10)
    assert numbers() == before


def _doubled(numbers):
    return parallel.each(lambda x: 2 * x, numbers)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="a system without fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_child_has_threads_of_its_own():
    assert _doubled([1, 2, 3]) == [2, 4, 6]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_doubled, ([1, 2, 3],)).get(60) == [2, 4, 6]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_lock_is_free_in_a_forked_process():
    lock, held, over = parallel.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock, lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        with lock:
            os._exit(0)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_waits_for_locks_that_no_thread_of_the_child_would_release():
    lock, order = threading.Lock(), []
    system.LOCKS.append(lock)
    try:
        lock.acquire()
        threading.Timer(0.1, lambda: (order.append("released"), lock.release())).start()
        if (child := os.fork()) == 0:
            os._exit(lock.locked())
        order.append("forked")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert order == ["released", "forked"]
        assert not lock.locked()
    finally:
        system.LOCKS.remove(lock)


def test_items_are_finished_in_order_and_a_failure_ends_all():
    done = []
    parallel.finish_in_order(lambda k: time.sleep(0.001 * (k % 3)) or k, done.append, range(30))
    assert done == list(range(30))

    def finish(k):
        if k == 7:
            raise ValueError(k)
        done.append(k)

    done.clear()
    with pytest.raises(ValueError, match="7"):
        parallel.finish_in_order(lambda k: k, finish, range(30))
    assert done == list(range(7))


@pytest.mark.parametrize("size", [1, 64])
def test_shares_cover_all_and_little_work_has_one(threads, size):
    for count in (0, 1, 3, 2**15, 2**20, 2**24):
        ends = np.array(parallel.shares(count, size))
        assert ends[0, 0] == 0
        assert ends[-1, 1] == count
        assert (ends[1:, 0] == ends[:-1, 1]).all()
        assert len(ends) <= threads
        assert len(ends) == 1 or count * size >= 2**21 * len(ends)


def test_a_thread_may_use_others_without_a_word_to_the_rest(threads):
    with parallel.using_threads(7):
        assert parallel.get_threads() == 7
        assert parallel.each(lambda _: parallel.get_threads(), [0, 1], 1) == [7, 7]
        other = []
        thread = threading.Thread(target=lambda: other.append(parallel.get_threads()))
        thread.start()
        thread.join()
        assert other == [threads]
    assert parallel.get_threads() == threads


@pytest.mark.slow
def test_a_number_of_threads_that_changes_at_every_call_changes_no_result(monkeypatch):
    """Every pass takes the shares that it was given."""
    rng, count, shape = np.random.default_rng(0), 600_000, (3000, 3000, 300)
    coords, values = [rng.integers(0, size, count) for size in shape], rng.random(count)
    matrix = pack(coords[:2], values, shape[:2], "CSR", duplicates="sum")

    def results():
        stored = {}
        write(stored, matrix, bitpacked=["indices_1"])
        yield pack(coords, values, shape, "CSF", duplicates="sum")
        yield matrix.convert("CSC")
        yield read(stored)
        yield pack_dense(matrix.to_dense(), "CSR")

    right = list(results())
    numbers = itertools.cycle((4, 1, 3, 2, 5))
    monkeypatch.setattr(parallel, "get_threads", lambda: next(numbers))
    for _ in range(5):
        assert all(found.equals(expected) for found, expected in zip(results(), right, strict=True))
