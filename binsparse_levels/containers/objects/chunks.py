"""Where the chunks of an array of one dimension lie in a store, and how each is encoded.

Chunks are objects of their own or lie in shards; they are plain or compressed, with a checksum or without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr

from .codecs import CODECS, Bytes, Wanted

ABSENT = 2**64 - 1  # offset and length of a chunk that is not there, in the index of a shard
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_SUM = 4  # bytes of a checksum


@dataclass(frozen=True)
class Chunks:
    """Where the items of an array lie: in the objects `folder`/0, 1 … of `per_file` items, each in chunks of `chunk`.

    indexed: an object is a shard, whose end has the places of its chunks; else it is a chunk. compression: a key of
    CODECS, with its settings. checksum: crc32c, behind each chunk.
    """

    folder: str
    length: int
    dtype: np.dtype[Any]
    fill: Any
    per_file: int
    chunk: int
    indexed: bool
    compression: str
    settings: dict[str, Any]
    checksum: bool

    @property
    def per_index(self) -> int:
        """Chunks of an object."""
        return self.per_file // self.chunk

    @property
    def index_bytes(self) -> int:
        """Bytes of the index of a shard, at its end: offset and length of each chunk, and a checksum."""
        return 16 * self.per_index + 4

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the items of a chunk."""
        return self.chunk * self.dtype.itemsize

    @property
    def tail(self) -> int:
        """Bytes behind the payload of a chunk: its checksum."""
        return _SUM * self.checksum

    @property
    def most(self) -> int:
        """Bytes that a chunk may take where it is stored. A larger chunk is not read."""
        return CODECS[self.compression].most(self.chunk_bytes) + self.tail

    @property
    def plain(self) -> bool:
        """Whether items lie in the store as they are, so that some of them can be read."""
        return self.compression == "none" and not self.checksum

    def key(self, number: int) -> str:
        """The key of the object in which a chunk lies."""
        return f"{self.folder}/{number // self.per_index}"

    def place(self, index: npt.NDArray[np.uint64], k: int) -> tuple[int, int] | None:
        """Offset and length of a chunk in its shard, or None for a missing chunk. Raises ValueError."""
        offset, stored = map(int, index[k])
        if offset == stored == ABSENT:
            return None
        payload = stored - self.tail
        if not payload > 0 or stored > self.most or (self.compression == "none" and payload != self.chunk_bytes):
            raise ValueError(f"a chunk of {self.chunk_bytes} bytes is stored in {stored}, at {offset} of its shard")
        return offset, stored

    def parse_index(self, raw: Bytes) -> npt.NDArray[np.uint64]:
        """Offset and length of each chunk of a shard, from the bytes at its end. Raises ValueError."""
        if raw.size != self.index_bytes:
            raise ValueError("a shard is shorter than its index")
        if _checksum(raw[:-_SUM]) != raw[-_SUM:].tobytes():
            raise ValueError("checksum mismatch in the index of a shard")
        return raw[:-_SUM].view(np.uint64).reshape(-1, 2)

    def decode(self, payload: Bytes, tail: Bytes, out: Bytes, wanted: Wanted | None = None) -> None:
        """Fill `out` with the bytes of the items of a chunk, or at least of those that are wanted.

        Raises any error for damaged bytes.
        """
        if self.checksum and _checksum(payload) != tail.tobytes():
            raise ValueError("checksum mismatch in a chunk")
        codec = CODECS[self.compression]
        if wanted is None or codec.expand_some is None:
            codec.expand(payload, out)
        else:
            codec.expand_some(payload, out, wanted)

    def fill_into(self, out: npt.NDArray[Any]) -> None:
        """Fill `out` with what a missing chunk holds."""
        out[:] = 0 if self.fill is None else self.fill

    def encoded(self, items: npt.NDArray[Any]) -> Iterator[Any]:
        """The bytes of an object of these items, in buffers."""
        items = np.ascontiguousarray(items, self.dtype)
        index = np.full((self.per_index, 2), ABSENT, np.uint64)
        at = 0
        for k, start in enumerate(range(0, len(items), self.chunk)):
            index[k, 0] = at
            for raw in self._encoded_chunk(items[start : start + self.chunk]):
                yield raw
                at += len(raw)
            index[k, 1] = at - int(index[k, 0])
        if self.indexed:
            yield index.tobytes() + _checksum(index.tobytes())

    def _encoded_chunk(self, items: npt.NDArray[Any]) -> Iterator[Any]:
        if len(items) < self.chunk:
            items = np.concatenate([items, np.full(self.chunk - len(items), self.fill, self.dtype)])
        raw: Any = CODECS[self.compression].encode(items, self.settings)
        yield raw
        if self.checksum:
            yield _checksum(raw)


def chunks_of(array: zarr.Array[Any]) -> Chunks | None:
    """How a Zarr array is stored, or None where only zarr can read it."""
    dtype, metadata = np.dtype(array.dtype), dict[str, Any](array.metadata.to_dict())
    if sys.byteorder != "little" or dtype.kind not in "iuf" or array.ndim != 1 or min(array.chunks) < 1:
        return None
    if array.metadata.zarr_format == 3:
        return described(metadata, dtype, array.fill_value, f"{array.path}/c")
    match metadata:
        case {"compressor": compressor, "filters": None | [] | ()} if dtype.isnative:
            how: dict[str, Any] = dict(compressor or {"id": "none"})
            if how["id"] not in CODECS:
                return None
            (size,) = array.chunks
            return Chunks(array.path, array.size, dtype, array.fill_value, size, size, False, how.pop("id"), how, False)
    return None


def described(metadata: Any, dtype: np.dtype[Any], fill: Any, folder: str = "") -> Chunks | None:
    """How an array of version 3 with this metadata is stored."""
    match metadata:
        case {
            "shape": [length],
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [per_file]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": codecs,
            **more,
        } if not more.get("storage_transformers"):
            pass
        case _:
            return None
    chunk, indexed = per_file, False
    match codecs:
        case [{"name": "sharding_indexed", "configuration": {"chunk_shape": [chunk], "codecs": codecs, **more}}]:
            if more.get("index_location", "end") != "end" or _chain(more.get("index_codecs")) != ("none", {}, True):
                return None
            indexed = True
    chain = _chain(codecs)
    if chain is None or min(per_file, chunk) < 1 or per_file % chunk:
        return None
    return Chunks(folder, length, dtype, fill, per_file, chunk, indexed, *chain)


def _chain(codecs: Any) -> tuple[str, dict[str, Any], bool] | None:
    """The compression, its settings, and whether there is a checksum; None for other codecs."""
    match codecs:
        case [first, *rest] if first in (_BYTES, {"name": "bytes"}):  # a type of one byte has no order
            checksum = rest[-1:] == [{"name": "crc32c"}]
            match rest[: len(rest) - checksum]:
                case []:
                    return "none", {}, checksum
                case [{"name": str(name), "configuration": dict(settings)}] if name in CODECS:
                    return name, settings, checksum
    return None


def _checksum(raw: Any) -> bytes:
    return int(google_crc32c.value(raw)).to_bytes(_SUM, "little")
