"""Write the trees into the target, a sharded Zarr store: the steps `join`, `write` and `commit`.

Locally, the arrays are written into a folder next to the target. The last step replaces the target by its files. In a
bucket, they are written below a separate prefix. The last step makes the header of the target point to this prefix.
Until then, the target is the old tensor. If two builds write the same target, the later one wins.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays import Array, Sliceable
from ..containers import zarr
from ..containers.base import Storage, is_url
from ..containers.checksums import Sum, of_header, sealed
from ..containers.objects.bucket import Bucket
from ..containers.objects.chunks import Chunks, chunks_in
from ..containers.objects.codecs import COMPRESSIONS
from ..containers.replacing import Overwrite, link_folder, refuse_losing, remove, replacing_folder
from ..containers.zarr_reading import ARRAYS, ATTRIBUTE
from ..errors import ContainerError, IncompleteError, OptionError, PathExistsError, PathMissingError, Problem
from ..formats.dtypes import data_type_of, encode
from ..io.kinds import KINDS, target_at
from ..tensors.encoding import check_header_size
from ..thresholds import THRESHOLDS
from .packing import encoded, join_heads, joint
from .plan import Plan
from .sources import unchanged
from .work import Work, begin, begun, scratch, store_at

_MAX_SHARDS = 2**12  # of an array
_STALE_SECONDS = 24 * 3600  # after which the objects of another build in a bucket are removed
_WORKED = "plan", "spare", "rows", "labels", "sample", "split", "partition", "pack", "join", "write"  # not the commit
_PREFIX = re.compile("[0-9a-f]{16}")  # of a build


@dataclass
class StoreTarget:
    """A Zarr store, which all processes write. Raises OptionError, PathMissingError, PathExistsError.

    target: its URL or real path. folder: of the work. id: of this build; a call that continues it keeps it.
    """

    target: Any
    overwrite: Overwrite
    storage: Storage
    work: InitVar[Any]

    def __post_init__(self, work: Any) -> None:
        self.target = _place_of(self.target)
        if work is None and is_url(self.target):
            raise OptionError(Problem("work", "a target in an object store needs the URL of a work folder; pass work="))
        self.storage.refuse("a build", but=("compression", "chunks", "shards", "checksum"), compressions=COMPRESSIONS)
        self._kept, self._ending = work is not None, contextlib.ExitStack()
        self.folder, self.id = "" if work is None else _address(work), uuid.uuid4().hex[:16]

    def begin(self, *parts: Any) -> dict[str, Any] | None:
        """The record of an earlier call for the same build, empty if there is none; None if the build is done.

        parts: dataclasses that identify the build, besides this target.
        """
        if not self._kept:
            self.folder = self._ending.enter_context(scratch(self.target))
        there = begun(self.folder, self, *parts) if self._kept else None
        if there is None:
            refuse_present(self.target, self.overwrite)
            return {}
        self.id = there["id"]
        if finished(self.target, self.folder):
            self.finish(Work(self.folder))
            return None
        return there

    def keep(self, record: Mapping[str, Any], *parts: Any) -> None:
        """Store the record for a repeated call."""
        if self._kept:
            begin(self.folder, {**record, "id": self.id}, self, *parts)

    def planned(self, plan: Plan) -> Plan:
        """The plan with this target."""
        plan = replace(plan, target=self.target, staging=self._staging, id=self.id)
        return replace(plan, overwrite=self.overwrite, storage=self.storage)

    @property
    def _staging(self) -> str:
        """The path where the arrays are written."""
        if is_url(self.target):
            return f"{self.target.rstrip('/')}/{self.id}"
        head, name = os.path.split(self.target)
        outlives = os.path.join(head, f".{name}.{self.id}.building")
        return outlives if self._kept else os.path.join(self.folder, "target")

    def finish(self, work: Work) -> None:
        """Remove the files that a finished build no longer needs. The object of the commit remains, as a mark."""
        if not is_url(self.target):
            remove(self._staging)
        for stage in _WORKED:
            store_at(work.address).delete(stage)

    def close(self) -> None:
        """Discard the work, unless the caller keeps it."""
        self._ending.close()


def _address(work: str | os.PathLike[str]) -> str:
    """The URL or the absolute path of a work folder, which other processes find too."""
    return str(work) if is_url(str(work)) else os.path.abspath(os.path.expanduser(work))


def _place_of(place: str | os.PathLike[str]) -> str:
    """The URL or real path of a store. Raises OptionError, PathMissingError, PathExistsError."""
    location = target_at(place, "zarr")
    others = [suffix for name, kind in KINDS.items() if name != "zarr" for suffix in kind.suffixes] + [".zip"]
    if location.group is not None or str(location.path).endswith(tuple(others)):
        raise OptionError(Problem(str(place), "a build makes a whole Zarr folder; pass a .zarr, without a group"))
    if is_url(location.path):
        return str(location.path)
    path: str = os.path.realpath(location.path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise PathExistsError(Problem(path, "is a file, and a store is a folder; remove it first"))
    return path


def refuse_present(target: str, overwrite: Overwrite) -> None:
    """Raise PathExistsError for a target that exists, or contains more than the tensor to overwrite."""
    there = {name.partition("/")[0] for name in store_at(target).names("")}
    built = {name for name in there if _PREFIX.fullmatch(name)}  # in a bucket, perhaps of a build that has failed
    if not there - built:
        return
    if not overwrite:
        raise PathExistsError(Problem(target, "already exists; pass overwrite=True"))
    if zarr.ROOT not in there and ".zgroup" not in there:
        raise PathExistsError(Problem(target, "is a folder without a Zarr group; remove it first, or pass another"))
    if overwrite != "file":
        refuse_losing(target, sorted(zarr.others(target, there) - built))


def join(work: Work, number: int) -> None:
    plan, heads = work.plan, join_heads(work)
    header, arrays = encoded(work, heads)
    check_header_size(header, plan.limits)
    storage = plan.storage
    if storage.shards is None:  # few files, however large the arrays
        least = {name: -(-x.length // _MAX_SHARDS) for name, x in arrays.items()}
        shards = {name: max(2 ** (items - 1).bit_length(), THRESHOLDS.shard_items) for name, items in least.items()}
        storage = replace(storage, shards=shards)
    texts = zarr.new_metadata(arrays, header, storage, remote=is_url(str(plan.target)))
    tasks = []
    for k, (name, x) in enumerate(arrays.items()):
        per_file = _chunks(texts[f"{name}/zarr.json"]).per_file
        per_step = max(THRESHOLDS.step_bytes // (per_file * x.dtype.itemsize), 1)
        files = -(-x.length // per_file)
        tasks += [(k, first, min(first + per_step, files)) for first in range(0, files, per_step)]
    for key, text in texts.items():
        if key != zarr.ROOT:  # the root, with the header, is written by `commit`
            store_at(str(plan.staging)).put(key, [text])
    table = {"heads": heads, "names": np.array(list(arrays)), "tasks": np.array(tasks, np.int64).reshape(-1, 3)}
    work.save(f"join/{number}", **table, **{f"text:{key}": np.frombuffer(x, np.uint8) for key, x in texts.items()})


def _chunks(text: bytes) -> Chunks:
    """The chunks of the array with this metadata."""
    return chunks_in(json.loads(text), "")


@lru_cache(2)
def _joined(work: Work) -> tuple[dict[str, Sliceable], dict[str, Array]]:
    """The arrays to write, by name, before they are encoded, and the table of the step that joined them."""
    plan, found, labels = work.plan, work.load("join/0"), work.source.labels(work.plan)
    fill = {} if plan.fill_value is None else {"fill_value": np.full(1, plan.fill_value, plan.dtype)}
    return {**joint(work, found["heads"]), **fill, **(labels.arrays() if labels is not None else {})}, found


def write(work: Work, number: int) -> None:
    arrays, found = _joined(work)
    which, first, stop = found["tasks"][number].tolist()
    name = str(found["names"][which])
    array, chunks = arrays[name], _chunks(found[f"text:{name}/zarr.json"].tobytes())
    data_type = data_type_of(array.dtype, name)
    parts = data_type.parts
    total = Sum()
    for k in range(first, stop):
        begin, end = k * chunks.per_file, min((k + 1) * chunks.per_file, chunks.length)
        items = encode(array[begin // parts : -(-end // parts)], data_type)[begin % parts :][: end - begin]
        items = np.ascontiguousarray(items, chunks.dtype)
        store_at(str(work.plan.staging)).put(f"{name}/c/{k}", chunks.encoded(items))
        if work.plan.storage.checksum:
            total.add(items)
    work.put(f"write/{number}", [np.array([total.bytes, total.size]).data] if work.plan.storage.checksum else [])


def commit(work: Work, number: int) -> None:
    plan, found = work.plan, work.load("join/0")
    staging, target = str(plan.staging), str(plan.target)
    root = _sealed(found[f"text:{zarr.ROOT}"].tobytes(), _sums(work, found) if plan.storage.checksum else {})
    remote = is_url(target)
    header = _pointing(root, plan.id) if remote else root
    # An earlier call may have been killed after this block. Headers of a local target do not distinguish builds.
    done = _root(target) == header if remote else not plan.overwrite and _same_file(staging, target)
    if not done:
        _check_complete(plan, found)
        store_at(staging).put(zarr.ROOT, [root])
        if remote:
            _point(plan, header)
        else:
            with (
                unchanged(target, work.source.states, plan.limits),
                replacing_folder(target, plan.overwrite, others=zarr.others) as part,
            ):
                link_folder(staging, part, shutil.ignore_patterns("*.part"))  # of a worker that was killed
    work.put(f"commit/{number}", [header])


def _sealed(text: bytes, sums: Mapping[str, int]) -> bytes:
    """The metadata of a group with a seal. sums: the checksums of all arrays; empty for no seal."""
    if not sums:
        return text
    root = json.loads(text)
    known = root["attributes"]
    known[ATTRIBUTE] = sealed(known[ATTRIBUTE], sums)
    known[ARRAYS]["header"] = of_header(known[ATTRIBUTE])
    return json.dumps(root).encode()


def _sums(work: Work, found: dict[str, Array]) -> dict[str, int]:
    """The checksum of each array, joined from those of the steps `write`."""
    names = found["names"].tolist()
    types = [_chunks(found[f"text:{name}/zarr.json"].tobytes()).dtype for name in names]
    totals = [Sum() for _ in names]
    for number, (which, *_) in enumerate(found["tasks"].tolist()):
        totals[which].join(*work.get(f"write/{number}").view(np.int64).tolist(), types[which].itemsize)
    return {name: total.of(dtype) for name, total, dtype in zip(names, totals, types, strict=True)}


def _same_file(staging: str, target: str) -> bool:
    """Return True if the target has the header that was linked or copied from the staging folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        one, other = (os.stat(os.path.join(place, zarr.ROOT)) for place in (staging, target))
        return (one.st_mtime_ns, one.st_size) == (other.st_mtime_ns, other.st_size)
    return False


def _root(target: str) -> bytes | None:
    with contextlib.suppress(PathMissingError):
        return store_at(target).get(zarr.ROOT)
    return None


def finished(target: str, folder: str) -> bool:
    """Return True if the build in a folder has finished. Raises ContainerError if the target has changed since."""
    try:
        header = bytes(Work(folder).get("commit/0"))
    except PathMissingError:
        return False
    if _root(target) != header:
        what = f"has changed since the build in {folder} was done; remove that folder, or pass another work="
        raise ContainerError(Problem(target, what))
    return True


def _check_complete(plan: Plan, found: dict[str, Array]) -> None:
    """Raise IncompleteError if shards are missing. In a bucket, another build removes those that are a day old."""
    for which, name in enumerate(found["names"].tolist()):
        files = int(found["tasks"][found["tasks"][:, 0] == which, 2].max(initial=0))
        if missing := set(map(str, range(files))) - store_at(str(plan.staging)).names(f"{name}/c"):
            what = f"{len(missing)} shards of {name} are missing; start the build again in another folder"
            raise IncompleteError(Problem(str(plan.staging), what))


def _pointing(text: bytes, id: str) -> bytes:
    """The metadata of a group whose arrays are below a prefix."""
    root: dict[str, Any] = json.loads(text)
    root["attributes"][zarr.AT] = id
    return json.dumps(root).encode()


def _point(plan: Plan, root: bytes) -> None:
    """Point the header of a target in a bucket to this build. Remove the previous arrays and those of failed builds."""
    target, before = str(plan.target), None
    bucket = Bucket(target)
    with contextlib.suppress(PathMissingError, ValueError, KeyError):
        before = json.loads(bucket.get(zarr.ROOT))["attributes"].get(zarr.AT)
    if plan.overwrite:
        refuse_present(target, plan.overwrite)
        bucket.put(zarr.ROOT, [root])
    else:
        bucket.create(zarr.ROOT, root)
    ages = bucket.ages("")
    for top in {name.partition("/")[0] for name in ages} - {plan.id, zarr.ROOT}:
        other = _PREFIX.fullmatch(top) and top != before  # perhaps of a build that runs
        if not other or time.time() - max(x for name, x in ages.items() if name.startswith(f"{top}/")) > _STALE_SECONDS:
            bucket.delete(top)
