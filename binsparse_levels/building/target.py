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
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays import Array, Sliceable
from ..containers import zarr
from ..containers.base import is_url
from ..containers.objects.bucket import Bucket
from ..containers.objects.chunks import Chunks, chunks_in
from ..containers.replacing import Overwrite, link_folder, refuse_losing, remove, replacing_folder
from ..errors import ContainerError, IncompleteError, PathExistsError, PathMissingError, Problem
from ..formats.dtypes import data_type_of, encode
from ..tensors.encoding import check_header_size
from ..thresholds import THRESHOLDS
from .packing import encoded, join_heads, joint
from .plan import Plan
from .work import Work, store_at

_MAX_SHARDS = 2**12  # of an array
_STALE_SECONDS = 24 * 3600  # after which the objects of another build in a bucket are removed
_PREFIX = re.compile("[0-9a-f]{16}")  # of a build


def staging_of(target: str, folder: str, id: str, *, kept: bool) -> str:
    """The path where a build writes its arrays. folder: of the work. kept: True if it outlives the call."""
    if is_url(target):
        return f"{target.rstrip('/')}/{id}"
    head, name = os.path.split(target)
    return os.path.join(head, f".{name}.{id}.building") if kept else os.path.join(folder, "target")


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
    lengths = {name: (x.length, x.dtype) for name, x in arrays.items()}
    texts = zarr.new_metadata(lengths, header, storage, remote=is_url(str(plan.target)))
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
    for k in range(first, stop):
        begin, end = k * chunks.per_file, min((k + 1) * chunks.per_file, chunks.length)
        items = encode(array[begin // parts : -(-end // parts)], data_type)[begin % parts :][: end - begin]
        items = np.ascontiguousarray(items, chunks.dtype)
        store_at(str(work.plan.staging)).put(f"{name}/c/{k}", chunks.encoded(items))
    work.put(f"write/{number}", [])


def commit(work: Work, number: int) -> None:
    plan, found = work.plan, work.load("join/0")
    staging, target, root = str(plan.staging), str(plan.target), found[f"text:{zarr.ROOT}"].tobytes()
    remote = is_url(target)
    header = _pointing(root, plan.id) if remote else root
    if (plan.overwrite and not remote) or _root(target) != header:  # else an earlier call was killed after this block
        _check_complete(plan, found)
        store_at(staging).put(zarr.ROOT, [root])
        if remote:
            _point(plan, header)
        else:
            with replacing_folder(target, plan.overwrite, others=zarr.others) as part:
                link_folder(staging, part, shutil.ignore_patterns("*.part"))  # of a worker that was killed
    work.put(f"commit/{number}", [header])


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


def end(work: Work, stages: Iterable[str], staging: str) -> None:
    """Remove the files that a finished build no longer needs. The object of the commit remains, as a mark."""
    if not is_url(staging):
        remove(staging)
    for stage in ("plan", "spare", "rows", "labels", *stages):
        if stage != "commit":
            work.store.delete(stage)


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
