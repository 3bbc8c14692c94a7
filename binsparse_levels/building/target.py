"""From trees to the target: the steps join, write and commit, into a sharded Zarr store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..arrays import Array, LazyArray, in_pieces
from ..containers import zarr
from ..containers.base import Storage, is_url
from ..containers.objects.chunks import Chunks, described
from ..engine.joining import AT_ONCE
from ..errors import IncompleteError, PathMissingError, Problem
from ..formats.dtypes import data_type_of, encode
from ..tensors.encoding import encode_pieces, hold_header
from .planning import Plan, Work
from .store import store_at
from .trees import join_heads, joint

_SHARD = 2**20  # items, at least
_MOST_SHARDS = 2**12  # of an array
_BEGUN = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'  # which readers find incomplete
_WRITTEN = 2**25  # bytes that one step writes, before they are compressed


def join(work: Work, number: int) -> None:
    plan, heads = work.plan, join_heads(work)
    arrays = _encodable(plan, joint(work, heads))
    pieces = {name: in_pieces(array, AT_ONCE) for name, array in arrays.items() if name != "fill_value"}
    header, encoded = encode_pieces(
        pieces, plan.parsed, plan.stored_shape, plan.metadata, structure=plan.structure, map=plan.through, packed=True
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
    target = store_at(str(plan.target))
    target.create(zarr.ROOT, _BEGUN)
    for key, text in metadata.items():
        if key != zarr.ROOT:  # with the header, which is the commit
            target.put(key, [text])
    table = {"heads": heads, "names": np.array(list(encoded)), "tasks": np.array(tasks, np.int64).reshape(-1, 3)}
    texts = {f"text:{key}": np.frombuffer(text, np.uint8) for key, text in metadata.items()}
    work.save(f"join/{number}", **table, **texts)


def _encodable(plan: Plan, arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray | Array]:
    """The arrays that are written, by name, before they are encoded."""
    fill = {} if plan.fill is None else {"fill_value": np.full(1, plan.fill_value, plan.dtype)}
    return {**arrays, **fill}


def _chunks(text: bytes) -> Chunks:
    """How the array with this metadata is stored."""
    metadata = json.loads(text)
    found = described(metadata, np.dtype(metadata["data_type"]), metadata["fill_value"])
    assert found is not None  # what is written is of the plainest kind
    return found


@lru_cache(2)
def _joined(work: Work) -> tuple[dict[str, LazyArray | Array], dict[str, Array]]:
    """The arrays to write, and the table of the step that joined them."""
    found = work.load("join/0")
    return _encodable(work.plan, joint(work, found["heads"])), found


def write(work: Work, number: int) -> None:
    arrays, found = _joined(work)
    which, first, stop = found["tasks"][number].tolist()
    name = str(found["names"][which])
    array, chunks = arrays[name], _chunks(found[f"text:{name}/zarr.json"].tobytes())
    data_type = data_type_of(array.dtype, name)
    target, parts = store_at(str(work.plan.target)), data_type.parts
    for k in range(first, stop):
        begin, end = k * chunks.per_file, min((k + 1) * chunks.per_file, chunks.length)
        items = encode(array[begin // parts : -(-end // parts)], data_type)[begin % parts :][: end - begin]
        items = np.ascontiguousarray(items, chunks.dtype)
        target.put(f"{name}/c/{k}", chunks.encoded(items))
    work.store.put(f"write/{number}", [b""])


def commit(work: Work, number: int) -> None:
    target, found = store_at(str(work.plan.target)), work.load("join/0")
    missing = [f"step {k} of write" for k in sorted(set(range(len(found["tasks"]))) - work.done("write"))]
    for which, name in enumerate(found["names"].tolist()):
        files = int(found["tasks"][found["tasks"][:, 0] == which, 2].max(initial=0))
        there = target.names(f"{name}/c")
        try:
            target.size(f"{name}/zarr.json")
        except PathMissingError:
            missing.append(f"{name}/zarr.json")
        missing += [f"{name}/c/{k}" for k in range(files) if str(k) not in there]
    if missing:
        raise IncompleteError(
            Problem("write", f"{len(missing)} things are missing, such as {missing[0]}; run the steps")
        )
    target.put(zarr.ROOT, [found[f"text:{zarr.ROOT}"].tobytes()])
    work.store.put(f"commit/{number}", [b""])
