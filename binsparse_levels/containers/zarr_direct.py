"""How Zarr arrays of one dimension lie in files; those of a local folder, read and written without zarr, by threads.

Chunks are files of their own or lie in shards; they are plain or compressed (zstd, gzip), with a checksum or without.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from numcodecs.zstd import Zstd

from ..arrays import Pieces
from ..parallel import each, get_threads
from . import zstd
from .direct import DIRECT, inflate, most_stored, opened, read_into, refuse_links

Bytes: TypeAlias = npt.NDArray[np.uint8]

ABSENT = 2**64 - 1  # offset and length of a chunk that is not there, in the index of a shard
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_GZIP = 31  # zlib's number for gzip
_FEW_FILES = 16  # so many files are looked for one by one; for more, the folder is listed


@dataclass(frozen=True)
class Chunks:
    """Where the items of an array lie: in the files `folder`/0, 1 … of `per_file` items, each in chunks of `chunk`.

    folder: a path, or what keys in a store begin with. indexed: the chunks of a file are found by the index at its end;
    else a file is a chunk. compression: zstd, gzip or none. checksum: crc32c, behind each chunk.
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
        """Chunks of a file."""
        return self.per_file // self.chunk

    @property
    def index_bytes(self) -> int:
        """Bytes of the index of a shard, at its end: offset and length of each chunk, and a checksum."""
        return 16 * self.per_index + 4

    def read(self, start: int, stop: int) -> tuple[npt.NDArray[Any], bool]:
        """The items start … stop - 1, and whether all their chunks exist. Missing items are fill values.

        Raises UnsafeError for a link, and any error of reading damaged files.
        """
        files = range(start // self.per_file, -(-stop // self.per_file))
        there = [k for k in files if self._is_there(k)] if len(files) <= _FEW_FILES else self._listed(files)
        array = np.empty(stop - start, self.dtype)
        whole = len(there) == len(files)
        if not whole:
            array[:] = self.fill
        pieces = -(-2 * get_threads() // max(len(there), 1))  # of a file, so that a large one keeps all threads busy
        step = -(-self.per_index // pieces)
        todo = []
        for k in there:
            first = max(start - k * self.per_file, 0) // self.chunk
            last = -(-min(stop - k * self.per_file, self.per_file) // self.chunk)
            todo += [(k, at, min(at + step, last)) for at in range(first, last, step)]
        return array, all(each(lambda piece: self._read(array, start, *piece), todo)) and whole

    def _is_there(self, number: int) -> bool:
        return os.path.lexists(os.path.join(self.folder, str(number)))

    def _listed(self, files: range) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            names = []
        there = [int(name) for name in names if name.isdecimal() and str(int(name)) == name]
        return sorted(k for k in there if k in files)

    def _read(self, array: npt.NDArray[Any], start: int, number: int, first: int, last: int) -> bool:
        """Read some chunks of a file into the array, which begins at item `start`; whether all of them exist."""
        path = os.path.join(self.folder, str(number))
        whole = True
        with opened(path) as (handle, size):
            index = self._index(handle, size) if self.indexed else np.array([[0, size]])
            for k in range(first, last):
                begin = number * self.per_file + k * self.chunk - start  # of the chunk, in the array
                out = array[max(begin, 0) : begin + self.chunk]
                offset, stored = map(int, index[k])
                if offset == stored == ABSENT:
                    out[:] = self.fill
                    whole = False
                    continue
                self.check_sizes(offset, stored, size)
                target = out if len(out) == self.chunk else np.empty(self.chunk, self.dtype)
                self._read_chunk(handle, offset, stored, target.view(np.uint8))
                if target is not out:
                    out[:] = target[max(-begin, 0) :][: len(out)]
        return whole

    def _index(self, handle: int, size: int) -> npt.NDArray[np.uint64]:
        """Offset and length of each chunk of a shard."""
        if size < self.index_bytes:
            raise ValueError("a shard is shorter than its index")
        raw = np.empty(self.index_bytes, np.uint8)
        read_into(handle, raw, size - raw.size)
        return self.parse_index(raw)

    def parse_index(self, raw: Bytes) -> npt.NDArray[np.uint64]:
        """Offset and length of each chunk of a shard, from the bytes at its end. Raises ValueError."""
        if raw.size != self.index_bytes:
            raise ValueError("a shard is shorter than its index")
        if _checksum(raw[:-4]) != raw[-4:].tobytes():
            raise ValueError("checksum mismatch in the index of a shard")
        return raw[:-4].view(np.uint64).reshape(-1, 2)

    def check_sizes(self, offset: int, stored: int, size: int) -> None:
        """Raise ValueError for an impossible chunk, before memory is allocated for it."""
        expanded, payload = self.chunk * self.dtype.itemsize, stored - 4 * self.checksum
        plain = self.compression == "none"
        if offset + stored > size or (payload != expanded if plain else not 0 < payload <= most_stored(expanded)):
            raise ValueError(f"a chunk of {expanded} bytes is stored in {stored}, at {offset} of a file of {size}")

    def _read_chunk(self, handle: int, offset: int, stored: int, out: Bytes) -> None:
        payload = stored - 4 * self.checksum
        raw = out if self.compression == "none" else np.empty(payload, np.uint8)
        read_into(handle, raw, offset)
        kept = np.empty(stored - payload, np.uint8)
        read_into(handle, kept, offset + payload)
        self._expand(raw, kept, out)

    def decode(self, stored: Bytes) -> npt.NDArray[Any]:
        """The items of a chunk, from its bytes. Raises any error for damaged ones."""
        self.check_sizes(0, stored.size, stored.size)
        payload = stored.size - 4 * self.checksum
        out = np.empty(self.chunk, self.dtype)
        raw, kept = stored[:payload], stored[payload:]
        self._expand(raw, kept, out.view(np.uint8))
        if self.compression == "none":
            out.view(np.uint8)[:] = raw
        return out

    def _expand(self, raw: Bytes, kept: Bytes, out: Bytes) -> None:
        """Compare the bytes of a chunk with its checksum, and expand them where they are compressed."""
        if self.checksum and _checksum(raw) != kept.tobytes():
            raise ValueError("checksum mismatch in a chunk")
        if self.compression == "zstd":
            zstd.expand(raw, out)
        elif self.compression == "gzip":
            out[:] = inflate(raw, out.size, _GZIP)

    def write(self, start: int, array: npt.NDArray[Any]) -> None:
        """Write the files of a new array that hold the items from `start` on. Precondition: there a file begins."""
        given = np.ascontiguousarray(array, self.dtype)
        os.makedirs(self.folder, exist_ok=True)
        first = start // self.per_file
        files = range(-(-len(given) // self.per_file))
        each(lambda k: self._write(first + k, given[k * self.per_file :][: self.per_file]), files)

    def extend(self, old: int, pieces: Pieces) -> None:
        """Extend an array of `old` items: write the new items, and again the file in which the old ones end."""
        at = old // self.per_file * self.per_file
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, str(at // self.per_file)))  # a link, of which the file stays as it is
        for piece in pieces.regrouped(self.per_file, at):
            self.write(at, piece)
            at += len(piece)

    def _write(self, number: int, items: npt.NDArray[Any]) -> None:
        with open(os.path.join(self.folder, str(number)), "xb") as file:
            file.writelines(self.encoded(items))

    def encoded(self, items: npt.NDArray[Any]) -> Iterator[Any]:
        """The bytes of a file of these items, in buffers."""
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
        raw: Any = items.view(np.uint8)
        if self.compression == "zstd":
            raw = Zstd(**self.settings).encode(raw)
        elif self.compression == "gzip":
            packer = zlib.compressobj(self.settings["level"], wbits=_GZIP)
            raw = packer.compress(raw) + packer.flush()
        yield raw
        if self.checksum:
            yield _checksum(raw)


def chunks_of(array: zarr.Array[Any], root: str) -> Chunks | None:
    """How an array in this folder is stored, or None where only zarr can read it. Raises UnsafeError."""
    dtype = np.dtype(array.dtype)
    if not DIRECT or sys.byteorder != "little" or array.metadata.zarr_format != 3 or dtype.kind not in "iuf":
        return None
    for key in ("zarr.json", "c"):
        refuse_links(root, f"{array.path}/{key}")
    with open(os.path.join(root, array.path, "zarr.json"), "rb") as file:
        metadata = json.load(file)
    if array.shape != tuple(metadata.get("shape", ())):
        return None
    return described(metadata, dtype, array.fill_value, os.path.join(root, array.path, "c"))


def keys_of(array: zarr.Array[Any]) -> Chunks | None:
    """How an array in any store is stored, or None where only zarr can read it."""
    dtype, metadata = np.dtype(array.dtype), dict[str, Any](array.metadata.to_dict())
    if sys.byteorder != "little" or dtype.kind not in "iuf" or array.ndim != 1 or min(array.chunks) < 1:
        return None
    if array.metadata.zarr_format == 3:
        return described(metadata, dtype, array.fill_value, f"{array.path}/c")
    match metadata:
        case {"compressor": None | {"id": "zstd" | "gzip"}, "filters": None | [] | ()} if dtype.isnative:
            how: dict[str, Any] = dict(metadata["compressor"] or {"id": "none"})
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
                case [{"name": "zstd" | "gzip" as name, "configuration": dict(settings)}]:
                    return name, settings, checksum
    return None


def _checksum(raw: Any) -> bytes:
    return int(google_crc32c.value(raw)).to_bytes(4, "little")
