"""From trees to the target: the steps join, write and commit, into a sharded Zarr store.

The target says from the beginning which build it belongs to. Every step compares that before it writes and behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..arrays import Array, Sliceable, in_pieces
from ..containers import zarr
from ..containers.base import Storage, is_url
from ..containers.objects.chunks import Chunks, described
from ..containers.objects.stores import Store
from ..containers.replacing import exchange_folders, hold_lock, remove
from ..engine.joining import AT_ONCE
from ..errors import ContainerError, IncompleteError, PathMissingError, Problem
from ..formats.dtypes import data_type_of, encode
from ..system import to_disk
from ..tensors.encoding import encode_pieces, hold_header
from . import labelling
from .states import state_of_tensor, unchanged
from .trees import join_heads, joint
from .work import Work, store_at

_SHARD = 2**20  # items, at least
_MOST_SHARDS = 2**12  # of an array
_WRITTEN = 2**25  # bytes that one step writes, before they are compressed


def _of(work: Work) -> Store:
    return store_at(str(work.begun.target))


def claim(work: Work) -> None:
    """Mark the target as that of a build, unless it is marked. Raises ContainerError where another one has it."""
    text = {"zarr_format": 3, "node_type": "group", "attributes": {zarr.BUILD: work.begun.identity}}
    target = _of(work)
    if not target.names("") and not work.done("join"):
        target.create(zarr.ROOT, json.dumps(text).encode())
    hold(work)


def hold(work: Work, place: str | None = None) -> bytes:
    """The metadata of the target, which may have another place. Raises ContainerError where it is that of another build
    or program by now.
    """
    target = place or str(work.begun.target)
    try:
        raw = store_at(target).get(zarr.ROOT)
        found = json.loads(raw)["attributes"][zarr.BUILD]
    except PathMissingError:
        what = f"has been removed since the build in {work.address} began; remove that folder, or pass another work="
        raise ContainerError(Problem(target, what)) from None
    except (ValueError, KeyError, TypeError):
        found = None
    if found != work.begun.identity:
        what = f"is written by another build or program, not by the build in {work.address}; build to another target"
        raise ContainerError(Problem(target, what))
    return raw


def take_place(work: Work) -> None:
    """Put a target that is complete in the place of the tensor onto which it is built, unless it is there.

    Raises ContainerError where that tensor has changed.
    """
    plan, target = work.begun, str(work.begun.target)
    if plan.replaces is None:
        return
    with hold_lock(plan.replaces):
        if not _left(work, plan.replaces):
            hold(work)
            onto = plan.source["onto"]
            with unchanged(onto["places"][0], onto["states"][0], state_of_tensor):
                pass
            exchange_folders(target, plan.replaces)
            to_disk(os.path.dirname(plan.replaces))
        remove(target)


def _left(work: Work, place: str) -> bool:
    """Whether a store is as the build has left it."""
    with contextlib.suppress(PathMissingError):
        return hashlib.sha256(store_at(place).get(zarr.ROOT)).digest() == bytes(work.get("commit/0"))
    return False


def hold_done(work: Work) -> None:
    """Raise ContainerError where the target of a build that is done is not as it was left."""
    place = work.begun.replaces or str(work.begun.target)
    if hashlib.sha256(hold(work, place)).digest() != bytes(work.get("commit/0")):
        what = f"has changed since the build in {work.address} was done; remove that folder, or pass another work="
        raise ContainerError(Problem(place, what))


def join(work: Work, number: int) -> None:
    plan, heads = work.plan, join_heads(work)
    pieces = {name: in_pieces(array, AT_ONCE) for name, array in joint(work, heads).items()}
    metadata_of = replace(plan.metadata, labels=labelling.kept(work))
    header, encoded = encode_pieces(
        pieces, plan.parsed, plan.stored_shape, metadata_of, structure=plan.structure, map=plan.through, packed=True
    )
    hold_header(header, plan.bounds)
    storage = Storage(**plan.storage)
    if plan.storage.get("shards") is None:  # few files, however large the arrays
        wanted = {name: -(-x.length // _MOST_SHARDS) for name, x in encoded.items()}
        shards = {name: max(2 ** (most - 1).bit_length(), _SHARD) for name, most in wanted.items()}
        storage = replace(storage, shards=shards)
    metadata = zarr.new_metadata(
        {name: (x.length, x.dtype) for name, x in encoded.items()}, header, storage, remote=is_url(plan.target)
    )
    tasks = []
    for k, (name, x) in enumerate(encoded.items()):
        per_file = _chunks(metadata[f"{name}/zarr.json"]).per_file
        at_once = max(_WRITTEN // (per_file * x.dtype.itemsize), 1)
        files = -(-x.length // per_file)
        tasks += [(k, first, min(first + at_once, files)) for first in range(0, files, at_once)]
    root = json.loads(metadata[zarr.ROOT])
    root["attributes"][zarr.BUILD] = work.begun.identity
    metadata[zarr.ROOT] = json.dumps(root).encode()
    hold(work)
    for key, text in metadata.items():
        if key != zarr.ROOT:  # with the header, which is the commit
            _of(work).put(key, [text])
    hold(work)
    table = {"heads": heads, "names": np.array(list(encoded)), "tasks": np.array(tasks, np.int64).reshape(-1, 3)}
    texts = {f"text:{key}": np.frombuffer(text, np.uint8) for key, text in metadata.items()}
    work.save(f"join/{number}", **table, **texts)


def _encodable(work: Work, heads: Array) -> dict[str, Sliceable]:
    """The arrays that are written, by name, before they are encoded."""
    plan, labels = work.plan, labelling.kept(work)
    fill = {} if plan.fill is None else {"fill_value": np.full(1, plan.fill_value, plan.dtype)}
    return {**joint(work, heads), **fill, **(labels.arrays() if labels is not None else {})}


def _chunks(text: bytes) -> Chunks:
    """How the array with this metadata is stored."""
    metadata = json.loads(text)
    found = described(metadata, np.dtype(metadata["data_type"]), metadata["fill_value"])
    assert found is not None  # what is written is of the plainest kind
    return found


@lru_cache(2)
def _joined(work: Work) -> tuple[dict[str, Sliceable], dict[str, Array]]:
    """The arrays to write, and the table of the step that joined them."""
    found = work.load("join/0")
    return _encodable(work, found["heads"]), found


def write(work: Work, number: int) -> None:
    arrays, found = _joined(work)
    which, first, stop = found["tasks"][number].tolist()
    name = str(found["names"][which])
    array, chunks = arrays[name], _chunks(found[f"text:{name}/zarr.json"].tobytes())
    data_type = data_type_of(array.dtype, name)
    parts = data_type.parts
    hold(work)
    for k in range(first, stop):
        begin, end = k * chunks.per_file, min((k + 1) * chunks.per_file, chunks.length)
        items = encode(array[begin // parts : -(-end // parts)], data_type)[begin % parts :][: end - begin]
        items = np.ascontiguousarray(items, chunks.dtype)
        _of(work).put(f"{name}/c/{k}", chunks.encoded(items))
    hold(work)
    work.put(f"write/{number}", [])


def commit(work: Work, number: int) -> None:
    target, found = _of(work), work.load("join/0")
    hold(work)
    missing = [f"step {k} of write" for k in sorted(set(range(len(found["tasks"]))) - work.done("write"))]
    for which, name in enumerate(found["names"].tolist()):
        files = int(found["tasks"][found["tasks"][:, 0] == which, 2].max(initial=0))
        there, key = target.names(f"{name}/c"), f"{name}/zarr.json"
        try:
            if target.get(key) != found[f"text:{key}"].tobytes():
                raise ContainerError(Problem(f"{work.plan.target}/{key}", "is not as it was written; build again"))
        except PathMissingError:
            missing.append(key)
        missing += [f"{name}/c/{k}" for k in range(files) if str(k) not in there]
    if missing:
        raise IncompleteError(
            Problem("write", f"{len(missing)} things are missing, such as {missing[0]}; run the steps")
        )
    text = found[f"text:{zarr.ROOT}"].tobytes()
    target.sweep()
    target.put(zarr.ROOT, [text])
    work.put(f"commit/{number}", [hashlib.sha256(text).digest()])
