"""What a build will take, told before it begins from what its plan would hold: metadata is read, nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..containers.base import DEFAULT_STORAGE, Storage
from ..engine.joining import by_arrays
from ..engine.tree import index_dtype
from ..errors import OptionError, Problem, within_memory
from ..formats.format import FormatLike
from ..io.kinds import Place
from ..system import resident
from . import labelling, partitions, planning, running
from .chunks import Volume
from .onto import Onto
from .parquet import Parquet
from .planning import Plan
from .stored_tensors import Tensors
from .to_store import _planned, _refuse_present, _target, beside, replaced

_SAMPLE = 8 * partitions._KEYS  # bytes
_FILE = 7e-4  # seconds of a processor to look into a file while planning, and to open it in a step
_STEP = 1e-3  # of a step itself
# Of an entry, measured with 10 and 20 million rows of rank 3 in Parquet files.
_RATES = {"labels": 6e-7, "merge": 2e-7, "partition": 2.5e-7, "pack": 1.4e-7, "write": 9e-8}
_MANY, _SMALL = 100, 2**16  # files that are many, and rows of a file that is small
_UNEVEN = 4  # times the rows of the chunks on average
_RANGES = 10**6


class EstimatedStage(NamedTuple):
    """What a stage will take. steps: exact for stages that read the source. read, written: bytes. seconds: of a
    processor.
    """

    name: str
    steps: int
    read: int
    written: int
    seconds: float


class Estimate(NamedTuple):
    """What a build will take, if its coordinates are spread evenly; `str` prints it as a table.

    rows: that are read. memory: bytes of the process of a step; builds of 20 million rows took 0.93 to 1.07 times that
    at their peak. work, target: bytes in these places, before compression. seconds: of a processor, at the rates of a
    small machine. warnings: what would make the build slow or large.
    """

    stages: list[EstimatedStage]
    rows: int
    memory: int
    work: int
    target: int
    seconds: float
    warnings: list[str]

    def __str__(self) -> str:
        lines = [f"{'stage':<10}{'steps':>8}{'MB read':>12}{'MB written':>12}{'s':>10}"]
        for name, steps, read, written, seconds in self.stages:
            lines.append(f"{name:<10}{steps:>8}{read / 1e6:>12.1f}{written / 1e6:>12.1f}{seconds:>10.1f}")
        lines.append(
            f"{self.rows} rows; a step takes about {self.memory / 1e6:.0f} MB of memory, the work {self.work / 1e6:.1f}"
            f" MB, the target {self.target / 1e6:.1f} MB; all steps {self.seconds:.1f} s of a processor"
        )
        return "\n".join([*lines, *(f"warning: {x}" for x in self.warnings)])


@within_memory
def estimate(
    source: Any,
    target: str | os.PathLike[str],
    shape: int | Sequence[int | None] | None,
    format: FormatLike | None,
    *,
    onto: Place | None = None,
    columns: Sequence[str | None] | None = None,
    filters: Sequence[Any] | None = None,
    memory: int | None = None,
    storage: Storage = DEFAULT_STORAGE,
    **options: Any,
) -> Estimate:
    """What the build that `plan` would begin takes: steps, bytes, memory and seconds. Nothing is written.

    The metadata of the source tells it. Filters and repeated entries make all less; entries that lie close together
    make partitions uneven, so that more of them are cut and packed.

    Parameters
    ----------
    source, target, shape, format, onto, columns, filters, memory, storage, options : as for `plan`.

    Raises the errors of `plan`.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     told = bl.estimate(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC")
    >>> told.rows, [(stage.name, stage.steps) for stage in told.stages]
    (2, [('pack', 1), ('join', 1), ('write', 3), ('commit', 1)])
    """
    if callable(source) or hasattr(source, "to_delayed"):
        raise OptionError(Problem("source", "only files tell how much they hold; pass paths"))
    named = {"columns": columns, "count": None, "key": None, "filters": filters, "again": True}
    place = _target(target)
    if (old := replaced(place, onto, options.get("overwrite", False))) is None:
        _refuse_present(place, options.get("overwrite", False))
    else:
        place = beside(place, "")
    options |= {"onto": onto, "replaces": old}
    plan, entries = _planned(None, (source, named), place, shape, format, storage, None, memory=memory, **options)
    assert isinstance(entries, Parquet | Tensors | Onto)
    return _estimated(plan, len(entries), entries.volume)


def _estimated(plan: Plan, chunks: int, source: Volume) -> Estimate:
    from . import target  # which loads zarr

    coded, size = len(labelling.columns(plan)), source.rows * partitions.row_bytes(plan)
    packs = chunks if plan.sorted else partitions._pieces(plan, source.rows) if source.rows else 0
    tree = _tree_bytes(plan, source.rows)
    sampled, codes = len(partitions.sampled_among(chunks)), 4 * source.rows * coded
    told = {
        "labels": (chunks * coded, source.size * coded, codes + source.size),
        "merge": (coded, codes + source.size, codes + source.size),
        "sample": (sampled, source.size * sampled // max(chunks, 1), sampled * _SAMPLE),
        "partition": (chunks, source.size + 2 * codes, size),
        "again": (0, 0, 0),
        "pack": (packs, source.size if plan.sorted else size, tree),
        "write": (len(plan.names) + tree // target._WRITTEN, tree, tree),
    }
    stages = []
    for name in running.stages(plan):
        steps, read, written = told.get(name, (1, 0, 0))
        times = coded if name in ("labels", "merge") else 1
        seconds = _STEP * steps + _RATES.get(name, 0.0) * source.rows * times
        if name in ("labels", "partition") or (name == "pack" and plan.sorted):
            seconds += _FILE * source.files * times
        stages.append(EstimatedStage(name, steps, read, written, seconds))
    *coords, value = (dtype.itemsize for dtype in plan.column_types)
    held = min(max(source.most, 0 if plan.sorted else -(-source.rows // max(packs, 1))), plan.rows)
    return Estimate(
        stages,
        source.rows,
        resident() + planning._ALLOWANCE + held * planning._bytes_of_entry(len(coords), coords[0], value),
        sum(stage.written for stage in stages if stage.name != "write"),
        tree,
        sum(stage.seconds for stage in stages),
        list(_warnings(plan, chunks, source, packs)),
    )


def _tree_bytes(plan: Plan, entries: int) -> int:
    """The bytes of a tree of so many entries."""
    item, total, reached = index_dtype(plan.dims, entries).itemsize, 0, 1
    for number, (place, n, children) in enumerate(planning.positions(plan, entries)):
        known = place.level.nbytes(place.dims, n, children, root=number == 0, itemsize=item)
        total += item * place.level.rank * children if known is None else known
        reached = children
    return total + reached * plan.column_types[-1].itemsize


def _warnings(plan: Plan, chunks: int, source: Volume, packs: int) -> Iterator[str]:
    if coded := labelling.columns(plan):
        columns = ", ".join(plan.column_names[k] for k in coded)
        yield f"labels in {columns} are numbered first, by four more stages, which read the files once a column"
    if source.files >= _MANY and source.rows < _SMALL * source.files:
        seconds = _FILE * source.files
        yield f"{source.files} files of {source.rows // source.files} rows take {seconds:.0f} s to open; join them"
    if source.cut:
        what = f"{source.cut} row groups have more than the {plan.rows} rows that a step holds"
        yield f"{what}, and each step reads its row group from the beginning; pass more memory"
    if source.most > _UNEVEN * -(-source.rows // max(chunks, 1)):
        yield f"the largest chunk has {source.most} of {source.rows} rows; write row groups of equal sizes"
    if not plan.sorted and chunks * packs > _RANGES:
        yield f"the steps of pack read {chunks * packs} ranges of objects; pass more memory"
    if not by_arrays(plan.parsed.levels):
        yield f"{plan.parsed} is joined through all entries in a single process; take levels that CSF or CSR has"
