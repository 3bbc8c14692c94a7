"""The layout and the encoding of the chunks of a one-dimensional array in a store.

A chunk is an object or a part of a shard. It is plain or compressed, with or without a checksum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ...thresholds import THRESHOLDS
from .codecs import CODECS, Bytes
from .stores import ArrayStore

ABSENT = 2**64 - 1  # offset and length of a missing chunk in the index of a shard
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_KEYS = {"name": "default", "configuration": {"separator": "/"}}
_CHECKSUM_BYTES = 4
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {"float8"} | {"bool"}
# The members of the metadata of an array; zarr refuses others.
_MEMBERS = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value"}
_MEMBERS |= {"codecs", "attributes", "dimension_names", "storage_transformers"}


@dataclass(frozen=True)
class Chunks:
    """The layout of an array: the objects `folder`/0, 1 … of `per_file` items, each in chunks of `chunk` items.

    index: where an object, a shard, has the index of its chunks, "start" or "end"; "" if an object is a chunk.
    compression: a key of CODECS, with its settings. checksum: crc32c, after each chunk.
    """

    folder: str
    length: int
    dtype: np.dtype[Any]
    fill: Any
    per_file: int
    chunk: int
    index: str
    compression: str
    settings: dict[str, Any]
    checksum: bool

    @property
    def per_index(self) -> int:
        """The number of chunks in an object."""
        return self.per_file // self.chunk

    @property
    def index_bytes(self) -> int:
        """The size of the index of a shard: offset and length of each chunk, and a checksum."""
        return 16 * self.per_index + _CHECKSUM_BYTES

    @property
    def chunk_bytes(self) -> int:
        """The size of the items of a chunk."""
        return self.chunk * self.dtype.itemsize

    @property
    def most(self) -> int:
        """The maximum stored size of a chunk in bytes. A larger chunk is not read."""
        return CODECS[self.compression].most(self.chunk_bytes) + _CHECKSUM_BYTES * self.checksum

    def parse_index(self, raw: Bytes) -> npt.NDArray[np.uint64]:
        """The offset and the length of each chunk of a shard, from the bytes of its index. Raises ValueError."""
        if raw.size != self.index_bytes:
            raise ValueError("a shard is shorter than its index")
        if _checksum(raw[:-_CHECKSUM_BYTES]) != raw[-_CHECKSUM_BYTES:].tobytes():
            raise ValueError("checksum mismatch in the index of a shard")
        return raw[:-_CHECKSUM_BYTES].view("<u8").reshape(-1, 2)

    def decode(self, raw: Bytes, out: Bytes) -> None:
        """Fill `out` with the bytes of the items of a chunk. Raises any error for damaged bytes."""
        if self.checksum:
            raw, tail = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
            if _checksum(raw) != tail.tobytes():
                raise ValueError("checksum mismatch in a chunk")
        CODECS[self.compression].expand(raw, out)

    def encoded(self, items: npt.NDArray[Any]) -> Iterator[Any]:
        """The bytes of an object with these items, in buffers. Precondition: the index is not at the start."""
        items = np.ascontiguousarray(items, self.dtype)
        index = np.full((self.per_index, 2), ABSENT, "<u8")
        at = 0
        for k, start in enumerate(range(0, len(items), self.chunk)):
            index[k, 0] = at
            for raw in self._encoded_chunk(items[start : start + self.chunk]):
                yield raw
                at += len(raw)
            index[k, 1] = at - int(index[k, 0])
        if self.index:
            yield index.tobytes() + _checksum(index.tobytes())

    def _encoded_chunk(self, items: npt.NDArray[Any]) -> Iterator[Any]:
        if len(items) < self.chunk:
            items = np.concatenate([items, np.full(self.chunk - len(items), self.fill, self.dtype)])
        raw: Any = CODECS[self.compression].encode(items, self.settings)
        yield raw
        if self.checksum:
            yield _checksum(raw)


def write(store: ArrayStore, chunks: Chunks, pieces: Iterable[npt.NDArray[Any]]) -> None:
    """Write the objects of an array. pieces: of multiples of `per_file` items; the last piece may be shorter."""
    step = max(THRESHOLDS.sent_bytes // (chunks.per_file * chunks.dtype.itemsize), 1)
    number = 0
    for piece in pieces:
        parts = [piece[at : at + chunks.per_file] for at in range(0, len(piece), chunks.per_file)]
        for at in range(0, len(parts), step):
            batch = enumerate(parts[at : at + step], number + at)
            store.put_all([(f"{chunks.folder}/{k}", partial(chunks.encoded, part)) for k, part in batch])
        number += len(parts)


def chunks_in(metadata: Mapping[str, Any], path: str) -> Chunks:
    """The layout of the array at a path of a store, from its metadata.

    Raises NotImplementedError with the reason for an array that only zarr can read.
    """
    match metadata:
        case {"shape": list(shape)} if len(shape) != 1:
            raise NotImplementedError(f"{len(shape)} dimensions")
        case {
            "zarr_format": 2, "shape": [length], "chunks": [per_file], "dtype": str(name), "fill_value": fill,
            "compressor": dict() | None as compressor, "filters": list() | None as filters,
        }:  # fmt: skip
            if not re.fullmatch(r"<[iuf][248]|\|[iub]1", name):
                raise NotImplementedError(f"type {name!r:.40}")
            how = dict(compressor or {"id": "none"})
            if filters or how.get("id") not in CODECS:
                raise NotImplementedError(f"codecs {[*(filters or ()), compressor]!r:.80}")
            dtype, chunk, index, chain, folder = np.dtype(name), per_file, "", (how.pop("id"), how, False), path
            fill = dtype.type().item() if fill is None else fill
        case {
            "zarr_format": 3, "shape": [length], "data_type": name, "fill_value": fill, "codecs": codecs,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [per_file]}}, "chunk_key_encoding": keys,
            **more,
        }:  # fmt: skip
            if not isinstance(name, str) or name not in _NUMBERS:
                raise NotImplementedError(f"type {name!r:.40}")
            if keys != _KEYS:
                raise NotImplementedError(f"keys of chunks {keys!r:.80}")
            names, others = more.get("dimension_names"), {*metadata} - _MEMBERS or more.get("storage_transformers")
            named = names is None or (type(names) is list and len(names) == 1 and isinstance(names[0], str | None))
            if not named or type(more.get("attributes", {})) is not dict or others:
                raise NotImplementedError(f"metadata {others or [names, more.get('attributes')]!r:.80}")
            dtype, chunk, index, folder = np.dtype(name).newbyteorder("<"), per_file, "", f"{path}/c"
            match codecs:
                case [{"name": "sharding_indexed", "configuration": {"chunk_shape": [chunk], "codecs": codecs, **of}}]:
                    index = str(of.get("index_location", "end"))
                    if index not in ("start", "end") or _chain(of.get("index_codecs")) != ("none", {}, True):
                        raise NotImplementedError(f"index of shards {of!r:.80}")
            chain = _chain(codecs)
        case _:
            raise NotImplementedError("unknown metadata")
    if not _is_value(fill, dtype):
        raise NotImplementedError(f"fill value {fill!r:.40} of the type {dtype}")
    if not _are_sizes(length, per_file, chunk) or per_file % chunk:
        raise NotImplementedError(f"length {length!r:.40} in chunks of {per_file!r:.40} and {chunk!r:.40}")
    return Chunks(folder, length, dtype, dtype.type(fill), per_file, chunk, index, *chain)


def _is_value(fill: Any, dtype: np.dtype[Any]) -> bool:
    """Return True if a JSON value is valid for a numeric type."""
    if type(fill) is int and dtype.kind in "iu":
        return int(np.iinfo(dtype).min) <= fill <= int(np.iinfo(dtype).max)
    return type(fill) in {"f": (int, float), "b": (bool,)}.get(dtype.kind, ())


def _are_sizes(length: Any, *chunks: Any) -> bool:
    return type(length) is int and length >= 0 and all(type(chunk) is int and chunk > 0 for chunk in chunks)


def _chain(codecs: Any) -> tuple[str, dict[str, Any], bool]:
    """The compression, its settings, and True if there is a checksum. Raises NotImplementedError for other codecs."""
    match codecs:
        case [first, *rest] if first in (_BYTES, {"name": "bytes"}):  # a type of one byte has no order
            checksum = rest[-1:] == [{"name": "crc32c"}]
            match rest[: len(rest) - checksum]:
                case []:
                    return "none", {}, checksum
                case [{"name": str(name), "configuration": dict(settings)}] if name in CODECS:
                    return name, settings, checksum
    raise NotImplementedError(f"codecs {codecs!r:.80}")


def _checksum(raw: Any) -> bytes:
    return int(google_crc32c.value(raw)).to_bytes(_CHECKSUM_BYTES, "little")
