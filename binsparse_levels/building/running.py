"""The stages of a build, run by this process, a pool of `concurrent.futures`, or a Dask cluster.

A step is a function of the work and a number, and writes one whole object, STAGE/NUMBER. A step that is repeated, or
run twice at the same time, writes the same object, so an interrupted build continues where it stopped.

| stage | a step reads | and writes |
|---|---|---|
| sample | a chunk of the source | keys of some entries |
| split | all samples | the keys at which partitions begin |
| partition | a chunk of the source | its entries by partition |
| pack | a partition of all chunks | its trees: one, or several if it is too large for one |
| join | the heads of all trees | a table of them; metadata of the target |
| write | parts of trees | whole shards of the target |
| commit | which shards are written | the target in its place |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import Any, NamedTuple

from ..containers.base import is_url
from ..errors import ContainerError, OptionError, Problem
from ..levels.registry import SentKind, register_sent, sent_kinds
from ..parallel import using_threads
from ..progress import Progress
from ..system import release
from . import packing, partitions
from .plan import Plan
from .request import Workers
from .work import Work

_DASK_MEMORY_SHARE = 0.45  # of a Dask worker's limit: Dask pauses it at 0.8, and its libraries use memory too
_WORKER_BYTES = 6 * 2**25  # of an idle worker
_RETRIES = 3  # of a task whose worker has died


class Stage(NamedTuple):
    """A stage. run: runs one step. count: returns the number of steps, after the previous stages. alone: True if there
    is one step, which the calling process runs.
    """

    run: Callable[[Work, int], None]
    count: Callable[[Work], int] = lambda work: 1
    alone: bool = False


def _of_target(name: str) -> Callable[[Work, int], None]:
    def run(work: Work, number: int) -> None:
        from . import target  # which loads zarr

        getattr(target, name)(work, number)

    return run


STAGES = {
    "sample": Stage(partitions.sample, lambda work: len(partitions.sampled(work))),
    "split": Stage(partitions.split, alone=True),
    "partition": Stage(partitions.partition, lambda work: len(work.source)),
    "pack": Stage(packing.pack, packing.count),
    "join": Stage(_of_target("join"), alone=True),
    "write": Stage(_of_target("write"), lambda work: len(work.load("join/0")["tasks"])),
    "commit": Stage(_of_target("commit"), alone=True),
}


def _stages(plan: Plan) -> list[str]:
    """The stages of a build, in order."""
    names = list(STAGES)
    first, stop = "pack" if plan.sorted else "sample", len(names) if plan.target else names.index("join")
    return names[names.index(first) : stop]


def run_step(work: Work, stage: str, number: int, kinds: Sequence[SentKind] = ()) -> None:
    """Run one step, in any process. kinds: the kinds of level of other packages that the caller has registered."""
    if kinds:
        register_sent(kinds)
    threads = work.plan.threads
    with contextlib.nullcontext() if threads is None else using_threads(threads):
        STAGES[stage].run(work, number)
    release()


def run(work: Work, client: Any = None, progress: Progress | None = None) -> None:
    """Run all steps that are not done, stage by stage.

    client: a Dask client, an executor of concurrent.futures, or None. progress: called with the name of a stage, the
    number of finished steps, and their total. Raises the errors of the steps.
    """
    if is_dask(client):
        client = client.get_executor(pure=False, retries=_RETRIES)
    if not isinstance(client, Executor | None):
        what = f"expected a Dask client or an executor of concurrent.futures, got {type(client).__name__}"
        raise OptionError(Problem("client", what))
    kinds = () if in_this_process(client) else sent_kinds()
    report = progress or (lambda *args: None)
    for stage in _stages(work.plan):
        count = STAGES[stage].count(work)
        there = work.done(stage)
        todo = [k for k in range(count) if k not in there]
        done = count - len(todo)
        report(stage, done, count)
        step = partial(run_step, work, stage, kinds=kinds)
        for _ in map(step, todo) if client is None or STAGES[stage].alone else _in_pool(client, step, todo):
            done += 1
            report(stage, done, count)


def in_this_process(client: Any) -> bool:
    """Return True if the steps run in this process."""
    return isinstance(client, ThreadPoolExecutor | None)


def refuse_fork(client: Any, places: Iterable[Any]) -> None:
    """Raise OptionError if a pool forks and a place is a URL: threads of an object store's client do not survive it."""
    context: Any = client._mp_context if isinstance(client, ProcessPoolExecutor) else None
    if context is not None and context.get_start_method() == "fork" and any(map(is_url, places)):
        what = "a pool that forks fails with object stores; pass mp_context=multiprocessing.get_context('spawn')"
        raise OptionError(Problem("client", what))


def is_dask(client: Any) -> bool:
    """Return True for a client of dask.distributed."""
    return type(client).__module__.startswith("distributed.") and hasattr(client, "scheduler_info")


def _in_pool(pool: Executor, step: Callable[[int], Any], numbers: Sequence[int]) -> Iterator[Any]:
    waiting = [pool.submit(step, number) for number in numbers]
    try:
        for future in as_completed(waiting):
            yield future.result()
    except Exception as error:
        if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
            what = f"a worker has died: {error!r:.300}; give the workers more memory, or pass memory=, and call again"
            raise ContainerError(Problem("client", what)) from error
        raise
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)  # so that no step runs in a folder that the caller removes


def workers_of(client: Any) -> Workers | None:
    """The processes of a client; None if the steps run in this process."""
    if in_this_process(client):
        return None
    threads, limit = 1, None
    if is_dask(client):
        found = client.scheduler_info(n_workers=-1)["workers"].values()
        if not found:
            raise OptionError(Problem("client", "the cluster has no workers; start one first"))
        threads = max(worker["nthreads"] for worker in found)
        limit = min((worker["memory_limit"] for worker in found if worker["memory_limit"]), default=None)
    share = None if limit is None else int(limit * _DASK_MEMORY_SHARE) // threads
    return Workers(share, _WORKER_BYTES // threads)
