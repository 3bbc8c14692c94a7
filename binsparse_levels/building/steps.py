"""A build whose steps a batch system runs: planned, run and committed by processes that know the folder of the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..containers.base import DEFAULT_STORAGE, Storage
from ..containers.objects.stores import Kept
from ..errors import IncompleteError, OptionError, Problem, UnsafeError, within_memory
from ..formats.format import FormatLike
from ..io.kinds import Place
from ..limits import as_integer
from . import running
from .bad_rows import BadRows, kept
from .sources import SOURCES
from .to_store import _begun, _end, _folder, _resumed, _target, beside, replaced
from .work import Work, store_at, stored_plan


class Stage(NamedTuple):
    """How far a stage of a build is.

    total: the number of steps; where it is not 1 for every build, None while the stages before are not done. size: the
    bytes that its steps have left in the work. seconds: between the ends of its first step and of the last that is
    done.
    """

    name: str
    done: int
    total: int | None
    size: int = 0
    seconds: float = 0.0


@within_memory
def plan(
    source: Any,
    target: str | os.PathLike[str],
    shape: int | Sequence[int | None] | None,
    format: FormatLike | None,
    *,
    work: str | os.PathLike[str],
    onto: Place | None = None,
    columns: Sequence[str | None] | None = None,
    filters: Sequence[Any] | None = None,
    memory: int | None = None,
    storage: Storage = DEFAULT_STORAGE,
    **options: Any,
) -> list[Stage]:
    """Begin a build whose steps a batch system runs, or find it begun; its stages.

    Run every step of a stage by `step(work, stage, number)`, in any order and side by side. When they are done,
    `progress(work)` tells the number of steps of the next stage. `commit(work)` ends the build.

    Parameters
    ----------
    source, target, shape, format, onto, columns : as for `build`; Parquet files, or tensors.
    work : the folder or URL of the work. Every process has to reach it.
    memory : bytes that each process may use, as for `build`.
    storage : compression, chunks and shards.
    options : `duplicates`, `bad`, `dtype`, `fill_value`, `attributes`, `map`, `overwrite`, `limits`, as for `build`.

    Raises the errors of `build`.

    >>> import os, tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     while (todo := next((x for x in stages if x.done != x.total), None)) is not None:
    ...         for number in range(todo.total):
    ...             bl.step(work, todo.name, number)
    ...         stages = bl.progress(work)
    ...     left_out = bl.commit(work)
    ...     str(bl.open(f"{folder}/b.zarr").format)
    'CSC'
    """
    if callable(source) or hasattr(source, "to_delayed"):
        raise OptionError(Problem("source", "a batch system needs files; pass paths, or call build()"))
    place, folder = _target(target), _folder(work)
    if (old := replaced(place, onto, options.get("overwrite", False))) is not None:
        place = beside(place, folder)
    options |= {"onto": onto, "replaces": old}
    named = {"columns": columns, "count": None, "key": None, "filters": filters, "again": True}
    with store_at(folder).held():
        made = _resumed(folder, (source, named), place, shape, format, storage, None, memory=memory, **options)
        begun = _begun(folder, *made)
    return _stages(begun, timed=True)


@within_memory
def progress(work: str | os.PathLike[str]) -> list[Stage]:
    """How far the build in a work folder is, stage by stage, told by the objects there: their names, sizes and times.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.

    Raises PathMissingError, ContainerError for a folder without a plan.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     bl.progress(work) == stages, stages[0].name, stages[0].done
    (True, 'pack', 0)
    """
    return _stages(_work_at(work), timed=True)


@within_memory
def step(
    work: str | os.PathLike[str],
    stage: str,
    number: int,
    *,
    of: int | None = None,
    log: running.Log | None = None,
) -> None:
    """Run one step of the build in a work folder, or one task's share of the steps of a stage.

    A step may be run again, and by two processes at once: it leaves the same object.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.
    stage : the name of a stage, as `progress` gives it.
    number : of the step in its stage, from 0.
    of : the number of tasks that share the stage. Task `number` runs every step number, number + of, number + 2 of …
        that is not done.
    log : called behind each step with a dictionary: `stage`, `step`, `begin` in UTC, `seconds`, `processor` (seconds
        of it), `read` and `written` (bytes of the work and the target), `peak` (bytes that the process has had), and
        `error` where the step has failed.

    Raises OptionError for a stage or a number that the build does not have, IncompleteError where a stage before is not
    done, and the errors of `build`.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     bl.step(work, "pack", 0)
    ...     bl.progress(work)[0].done
    1
    """
    begun = _work_at(work)
    if stage not in (names := running.stages(begun.begun)):
        raise OptionError(Problem("stage", f"no stage {stage!r:.40}; the stages are {', '.join(names)}"))
    stages = {known.name: known for known in _stages(begun)}
    for name in names[: names.index(stage)]:
        _, done, total, *_ = stages[name]
        if done != total:
            what = f"{done} of {total} steps are done; run the others before those of {stage}"
            raise IncompleteError(Problem(name, what))
    known = stages[stage]
    assert known.total is not None
    first, tasks = as_integer(number), known.total if of is None else as_integer(of)
    if first is None or tasks is None or not 0 <= first < tasks:
        what = f"there are {tasks} {'steps' if of is None else 'tasks'}; count from 0"
        raise OptionError(Problem(f"{stage}.{number}", what))
    if of is not None and known.done == known.total:  # also where the work is removed
        return
    there = set() if of is None else begun.done(stage)
    for k in range(first, known.total, tasks):
        if k not in there:
            running.run_step(begun, stage, k, log=log)


@within_memory
def skipped(work: str | os.PathLike[str]) -> BadRows:
    """The bad rows that the build in a work folder has left out until now: how many for each reason, and where.

    Parameters
    ----------
    work : the folder or URL that `plan` was given, with `bad="skip"`.

    Raises PathMissingError, ContainerError for a folder without a plan.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work, bad="skip")
    ...     bl.skipped(work).counts
    {}
    """
    return kept(_work_at(work))


@within_memory
def commit(work: str | os.PathLike[str]) -> BadRows:
    """End the build in a work folder: write the header, by which the target is complete, and remove the work.

    `plan` has an example of a whole build.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.

    Returns the rows that `bad="skip"` has left out, as `skipped` does. Raises IncompleteError where a step is not done.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     try:
    ...         bl.commit(work)
    ...     except bl.IncompleteError:
    ...         print("steps are missing")
    steps are missing
    """
    begun = _work_at(work)
    with begun.store.held():
        if not begun.done("commit"):
            step(work, "commit", 0)
        return _end(begun)


def _work_at(address: str | os.PathLike[str]) -> Work:
    """The work in a folder, whose plan is not trusted: its source is made from its description alone."""
    folder = _folder(address)
    found, digest = stored_plan(folder)
    if found.source.get("kind") not in SOURCES:
        raise UnsafeError(Problem("source", "was given as an object of a program; call build() there"))
    return Work(folder, digest)


def _stages(work: Work, *, timed: bool = False) -> list[Stage]:
    """The stages of a build. Those behind the first that is not done have no total yet, but where there is one step.

    timed: with sizes and times of the objects that their steps have left.
    """
    found = []
    finished = bool(work.done("commit"))
    known = True
    for name in running.stages(work.begun):
        kept = work.store.listed(name) if timed else dict.fromkeys(work.store.names(name), Kept(0, 0.0))
        stage = running.stage_of(name)
        total = 1 if finished or (not known and stage.alone) else stage.count(work) if known else None
        there = [x for key, x in kept.items() if key.isdecimal() and (total is None or int(key) < total)]
        times = [one.time for one in there] or [0.0]
        done = 1 if finished else len(there)
        found.append(Stage(name, done, total, sum(one.size for one in there), max(times) - min(times)))
        known = known and done == total
    return found
