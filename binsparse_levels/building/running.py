"""The stages of a build, and what runs them: this process, a pool of `concurrent.futures`, or a Dask cluster.

A step is a function of the work and a number, and leaves one whole object, STAGE/NUMBER. A step that is repeated, or
run twice at once, leaves the same object, so that a build goes on wherever it was stopped.

Coordinates that are labels are made first: see `labelling`.

| stage | a step reads | and leaves |
|---|---|---|
| sample | a part of a chunk of the source | keys of some entries |
| split | all samples | the keys at which partitions begin |
| partition | a chunk of the source | its entries by partition |
| table | where the partitions begin in each chunk | a table of that, and cuts of partitions that are too large |
| again | such a partition of some chunks | its entries by these cuts |
| pack | a partition of all chunks | a tree |
| join | the heads of all trees | a table of them; empty arrays in the target |
| write | parts of trees | whole shards of the target |
| commit | which shards are written | the header of the target |
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..containers.base import is_url
from ..containers.objects.stores import moved
from ..errors import ArrayError, BinsparseError, ContainerError, OptionError, Problem
from ..io.writing import Progress
from ..levels.registry import Travelling, arrive, travelling
from ..parallel import using_threads
from ..system import peak, release
from ..tensors.tensor import Tensor
from . import labelling, partitions, trees
from .bad_rows import BadRows, Told
from .chunks import Source
from .columns import within
from .planning import Plan
from .stored_tensors import Tensors
from .work import Work

_RETRIES = 3  # of a task, after a worker's death
_PATIENCE = 300  # tenths of a second for tasks that were cancelled


class Stage(NamedTuple):
    """A stage. run: one step. count: the number of steps, known when the stages before are done. alone: there is one
    step, which the caller runs.
    """

    run: Callable[[Work, int], None]
    count: Callable[[Work], int]
    alone: bool = False


def _one(work: Work) -> int:
    return 1


def _rows(key: str, name: str) -> Callable[[Work], int]:
    return lambda work: len(work.load(key)[name])


def _of_target(name: str) -> Callable[[Work, int], None]:
    def run(work: Work, number: int) -> None:
        from . import target  # which loads zarr

        getattr(target, name)(work, number)

    return run


LABELS = {
    "labels": Stage(labelling.labels, lambda work: len(work.source) * len(labelling.columns(work.begun))),
    "fences": Stage(labelling.fences, _one, alone=True),
    "merge": Stage(labelling.merge, labelling.merges),
    "number": Stage(labelling.number, _one, alone=True),
}  # of a build whose coordinates are to be made
STAGES = {
    "sample": Stage(partitions.sample, lambda work: len(partitions.sampled(work))),
    "split": Stage(partitions.split, _one, alone=True),
    "partition": Stage(partitions.partition, lambda work: len(work.source)),
    "table": Stage(partitions.table, _one, alone=True),
    "again": Stage(partitions.again, _rows("table/0", "tasks")),
    "pack": Stage(trees.pack, lambda work: len(work.source) if work.begun.sorted else _rows("table/0", "packs")(work)),
    "join": Stage(_of_target("join"), _one, alone=True),
    "write": Stage(_of_target("write"), _rows("join/0", "tasks")),
    "commit": Stage(_of_target("commit"), _one, alone=True),
}


def stages(plan: Plan) -> list[str]:
    """The stages of a build, in order."""
    names = list(STAGES)
    names = names[names.index("pack") if plan.sorted else 0 : None if plan.target is not None else names.index("join")]
    return [*(LABELS if labelling.columns(plan) else ()), *names]


def stage_of(name: str) -> Stage:
    """The stage of this name."""
    return LABELS.get(name) or STAGES[name]


Log: TypeAlias = Callable[[dict[str, Any]], None]


def run_step(work: Work, stage: str, number: int, kinds: Sequence[Travelling] = (), log: Log | None = None) -> None:
    """Run one step, in whatever process. kinds: of level, of other packages, that the caller knows. log: called with
    what the step has taken.
    """
    if kinds:
        arrive(kinds)
    plan = work.begun
    with contextlib.ExitStack() as around:
        if plan.threads is not None:
            around.enter_context(using_threads(plan.threads))
        if log is not None:
            around.enter_context(_logged(stage, number, log))
        around.enter_context(_naming(work.source, _chunk_of(work, stage, number), f"step {number} of {stage}"))
        stage_of(stage).run(work, number)
    release()


@contextlib.contextmanager
def _logged(stage: str, number: int, log: Log) -> Iterator[None]:
    """Tell a log what the block, a step, has taken."""
    told: dict[str, Any] = {"stage": stage, "step": number, "begin": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    begin, processor, before = time.perf_counter(), time.process_time(), moved.copy()
    try:
        yield
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        seconds = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - processor}
        told |= {name: round(x, 3) for name, x in seconds.items()}
        log(told | {"read": moved["got"] - before["got"], "written": moved["put"] - before["put"], "peak": peak()})


def _chunk_of(work: Work, stage: str, number: int) -> int | None:
    """The number of the chunk that a step reads, if it reads a chunk."""
    if stage == "sample":
        return partitions.sampled(work)[number]
    if stage == "labels":
        return number // len(labelling.columns(work.begun))
    return number if stage == "partition" or (stage == "pack" and work.begun.sorted) else None


@contextlib.contextmanager
def _naming(source: Source, chunk: int | None, step: str) -> Iterator[None]:
    """Name the chunk of a source, if any, in the errors of the block."""
    try:
        yield
    except Exception as error:
        if chunk is None:
            raise
        name = source.name(chunk)
        if isinstance(error, ArrayError) and not error.problems[0].path.startswith(name.partition(",")[0]):
            raise within(name, error) from None
        if not isinstance(error, BinsparseError):
            error.add_note(f"{name} ({step})")
        raise


def at_once(plan: Plan, source: Source) -> tuple[Tensor, BadRows] | None:
    """The tensor of a source of one chunk at most, without steps, and its bad rows; None for other sources."""
    if not plan.sorted or labelling.columns(plan) or not trees.fits_whole(plan):
        return None
    if not len(source):
        return trees.whole(plan, [np.empty(0, dtype) for dtype in plan.column_types]), BadRows({}, [])
    bad = Told(plan, partial(source.places, 0))
    with _naming(source, 0, "the only chunk"):
        tensor = trees.whole(plan, partitions.checked_columns(plan, source.read(0), bad.tell))
    labels = source.first_labels() if isinstance(source, Tensors) else None
    return tensor._labelled(labels), bad.all


Run = Callable[[Callable[[int], Any], Sequence[int]], Iterable[Any]]


def run(work: Work, client: Any = None, progress: Progress | None = None) -> None:
    """Run all steps that are not done, stage by stage.

    client: a Dask client, an executor of concurrent.futures, or None. progress: called with the name of a stage, how
    many steps are done, of how many. Raises what the steps raise.
    """
    runner = _runner(client)
    _refuse_forks(work, client)
    kinds = () if isinstance(client, ThreadPoolExecutor | None) else travelling()
    for stage in stages(work.begun):
        count = stage_of(stage).count(work)
        there = work.done(stage)
        todo = [k for k in range(count) if k not in there]
        if progress is not None:
            progress(stage, count - len(todo), count)
        step = partial(run_step, work, stage, kinds=kinds)
        finished = map(step, todo) if stage_of(stage).alone else runner(step, todo)
        for k, _ in enumerate(finished):
            if progress is not None:
                progress(stage, count - len(todo) + k + 1, count)


def _runner(client: Any) -> Run:
    if client is None:
        return map
    if is_dask(client):
        return partial(_on_dask, client)
    if isinstance(client, Executor):
        return partial(_in_pool, client)
    what = f"expected a Dask client or an executor of concurrent.futures, got {type(client).__name__}"
    raise OptionError(Problem("client", what))


def _refuse_forks(work: Work, client: Any) -> None:
    """Raise OptionError for a pool that forks, where an object store is used: its threads do not survive a fork."""
    known = work.begun.source
    places = [work.address, work.begun.target, *known.get("files", ()), *known.get("places", ())]
    places += known.get("onto", {}).get("places", ())
    context: Any = client._mp_context if isinstance(client, ProcessPoolExecutor) else None
    if (
        context is not None
        and context.get_start_method() == "fork"
        and any(is_url(place) for place in places if place is not None)
    ):
        what = "a pool that forks fails with object stores; pass mp_context=multiprocessing.get_context('spawn')"
        raise OptionError(Problem("client", what))


def is_dask(client: Any) -> bool:
    """Whether this is a client of dask.distributed."""
    return type(client).__module__.startswith("distributed.") and hasattr(client, "scheduler_info")


def _in_pool(pool: Executor, step: Callable[[int], Any], numbers: Sequence[int]) -> Iterator[Any]:
    waiting = [pool.submit(step, number) for number in numbers]
    try:
        for future in as_completed(waiting):
            yield future.result()
    except BrokenExecutor as error:
        what = f"a process of the pool has died: {error!r:.200}; give it more memory, or pass memory=; call it again"
        raise ContainerError(Problem("client", what)) from error
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)  # no step goes on in a folder that the caller removes


def _on_dask(client: Any, step: Callable[[int], Any], numbers: Sequence[int]) -> Iterator[Any]:
    from distributed import KilledWorker
    from distributed import as_completed as completed

    name = f"{step.args[1]}-{uuid.uuid4().hex[:8]}"  # type: ignore[attr-defined]
    waiting = client.map(step, list(numbers), pure=False, retries=_RETRIES, key=name)
    try:
        for future in completed(waiting) if waiting else ():  # type: ignore[no-untyped-call]
            yield future.result()
            future.release()
    except KilledWorker as error:
        what = f"a worker has died: {error!r:.300}; give the workers more memory, or pass memory=, and call it again"
        raise ContainerError(Problem("client", what)) from error
    finally:
        client.cancel(waiting)
        _until_ended(client, name)


def _until_ended(client: Any, name: str) -> None:
    """Wait for tasks of this name that run although they are cancelled: they write into the folder of the work."""

    def runs(dask_worker: Any) -> bool:
        return any(str(task.key).startswith(name) for task in dask_worker.state.all_running_tasks)

    for _ in range(_PATIENCE):
        with contextlib.suppress(Exception):  # workers that have gone
            if not any(client.run(runs).values()):
                return
        time.sleep(0.1)


def workers(client: Any) -> tuple[int, int | None]:
    """The threads of a worker of a Dask cluster, and the bytes of memory of the smallest worker, or None."""
    found = client.scheduler_info(n_workers=-1)["workers"].values()
    if not found:
        raise OptionError(Problem("client", "the cluster has no workers; start one first"))
    limits = [worker["memory_limit"] for worker in found if worker["memory_limit"]]
    return max(worker["nthreads"] for worker in found), min(limits, default=None)
