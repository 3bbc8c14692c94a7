"""Zarr, versions 3 and 2, in any store of zarr's: a group with a Zarr array for each array; the header is an attribute.

The header is nested twice, as other programs read it: attributes["binsparse"] = {"binsparse": {…}, the user's JSON}.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath

from ..arrays import Array, LazyArray, Parts, Pieces, Size, lazy
from ..errors import (
    BinsparseError,
    ContainerError,
    IncompleteError,
    LimitError,
    OptionError,
    PathExistsError,
    PathMissingError,
    Problem,
    UnsafeError,
)
from ..formats.json import RESERVED, load_json
from ..limits import DEFAULT_LIMITS, Limits
from .base import Storage, asked_for, bounded_chunk, is_url, named_by, names_in, touching
from .checksums import of_header
from .direct import DIRECT, open_zip, refuse_links
from .objects.chunks import chunks_of
from .objects.reading import ObjectArray, Objects
from .objects.stores import Folder as Files
from .objects.stores import Requests
from .objects.stores import Store as ObjectStore
from .objects.writing import extend as extend_array
from .objects.writing import write as write_array
from .replacing import Others, Overwrite, keeps, remove, replacing, replacing_folder
from .zarr_stores import Far, Folder, check_store, is_near, opened, undone

ATTRIBUTE = "binsparse"
ROOT = "zarr.json"  # the key of the metadata of a group
_ARRAYS = f"{RESERVED}arrays"  # the metadata of all arrays beside the header: one request opens a tensor
BUILD = f"{RESERVED}build"  # the build that writes a group, or has written it
_COMPLETE = f"{RESERVED}all_chunks_stored"  # marks our arrays, whose missing chunks are lost, not zeros
_CHUNK = 2**16  # items: a small slice reads little
_SMALL_CHUNK = 2**11  # items, in an object store: 50 values at scattered coordinates of 2.5 M take 1.3 MB, else 25
_SHARD = 2**20  # items: a large array makes few files
_NAMES = {"zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata"}
_METADATA = 2**26  # bytes of the metadata of a group
_MOST_FILES = 2**10  # of one array that grows, as long as they are small
_MOST_CHUNKS = 2**22  # of one array, read by zarr one by one
_AT_ONCE = 2**6  # requests to a web server

# The codecs that may run; those of version 2 by their numcodecs names.
_CODECS = {"bytes", "transpose", "sharding_indexed", "zstd", "gzip", "zlib", "blosc", "lz4", "crc32c", "shuffle"}
_TEXTS = {"vlen-utf8"}  # in groups without a header, such as those of AnnData


def _objects_in(store: Store) -> ObjectStore:
    """The objects of a store of zarr's."""
    return Files(str(store.root)) if isinstance(store, Folder) and DIRECT else Requests(store)


def _prefix(array: zarr.Array[Any]) -> str:
    """The prefix of the keys of an array.

    zarr leaves out the slash: in a zip file or in memory it takes keys of `indices_10` for keys of `indices_1`.
    """
    return f"{array.store_path.path}/".lstrip("/")


def _has_all_chunks(array: zarr.Array[Any]) -> bool:
    """Whether each chunk, or shard, of an array of one dimension is stored."""

    (size,) = array.shards or array.chunks
    wanted = [_prefix(array) + array.metadata.encode_chunk_key((k,)) for k in range(-(-array.size // size))]

    async def there() -> bool:
        if array.store.supports_listing:
            return {key async for key in array.store.list_prefix(_prefix(array))}.issuperset(wanted)
        for at in range(0, len(wanted), _AT_ONCE):
            if not all(await asyncio.gather(*map(array.store.exists, wanted[at : at + _AT_ONCE]))):
                return False
        return True

    return bool(sync(there()))


class ZarrReader:
    """A group that is open for reading. Unknown codecs are refused before any codec runs."""

    def __init__(self, group: zarr.Group, limits: Limits, attributes: Mapping[str, Any] | None = None) -> None:
        """attributes: those of the group, if they list the metadata of all arrays, and are to be believed."""
        self._group = group
        self._limits = limits
        self._attributes = attributes
        listed = {} if attributes is None else attributes[_ARRAYS]
        self._listed, self._sizes = listed.get("arrays", {}), listed.get("bytes", {})
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self._objects = Objects(_objects_in(group.store), limits)

    @property
    def group(self) -> zarr.Group:
        """The group, for modules that read another layout."""
        return self._group

    def read_header(self) -> Any:
        with touching(ATTRIBUTE):
            attributes = self._strict_attributes() if self._attributes is None else self._attributes
        if ATTRIBUTE not in attributes and BUILD in attributes:
            raise IncompleteError(
                Problem(str(self._group.store_path), "a build has begun here; end it, or begin again")
            )
        if ATTRIBUTE not in attributes:
            with touching(self._group.path):
                listed = members(self._group) if self._group.store.supports_listing else []
                arrays = any(isinstance(node, zarr.Array) for _, node in listed)
            if arrays:  # the header is written last
                raise IncompleteError(Problem(str(self._group.store_path), "arrays without a header; write it again"))
            raise ContainerError(Problem(self._group.path, f"no attribute {ATTRIBUTE!r}: no Binsparse tensor here"))
        header = attributes[ATTRIBUTE]
        header = load_json(header if isinstance(header, str) else json.dumps(header), self._limits)
        # The text of the specification does not say where the JSON lives: single and double are both in use.
        if isinstance(header, dict) and ATTRIBUTE not in header and "version" in header and "format" in header:
            return {ATTRIBUTE: header}
        return header

    def _strict_attributes(self) -> dict[str, Any]:
        """The attributes, from the stored JSON. zarr itself accepts duplicate keys, and metadata of two versions."""
        _refuse_two_versions(self._group, ".zgroup")
        newer = self._group.metadata.zarr_format == 3
        text = _stored(self._group.store_path, "zarr.json" if newer else ".zattrs")
        return _attributes(text, newer, self._limits)

    def array(self, name: str) -> LazyArray | None:
        with touching(name):
            listed = self._listed.get(name)
            if listed is not None:
                array: Any = zarr.Array.from_dict(self._group.store_path / name, listed)
            else:
                try:
                    array = self._group[name]
                except KeyError:
                    return None
        if not isinstance(array, zarr.Array):
            raise ContainerError(Problem(name, "is no array"))
        with touching(name):
            allowed = _CODECS if ATTRIBUTE in self._group.attrs else _CODECS | _TEXTS
            bad = sorted(_codec_names(array.metadata.to_dict()) - allowed)
            if bad:
                raise UnsafeError(Problem(name, f"the codec {bad[0]!r} is not allowed"))
            if listed is None:
                _refuse_two_versions(array, ".zarray")
            if array.metadata.to_dict().get("storage_transformers"):
                raise UnsafeError(Problem(name, "has storage transformers"))
            self._arrays[name] = array
            told = self._sizes.get(name)
            nbytes: Size = told if isinstance(told, int) else functools.partial(_stored_size, array, name)
            if (chunks := chunks_of(array)) is not None:
                complete = bool(array.attrs.get(_COMPLETE))
                return ObjectArray(name, self._objects, chunks, nbytes, complete=complete)
            parts = functools.cache(lambda: self._parts(array, name))

            def read(start: int, stop: int) -> Array:
                self._limits.hold("array_bytes", (stop - start) * array.dtype.itemsize, name, "the size in bytes")
                return parts()(start, stop)

            return lazy(array.shape, np.dtype(array.dtype), read, nbytes=nbytes, chunk=math.prod(array.chunks))

    @property
    def kind(self) -> str:
        """The kind of file. Both versions are read alike."""
        return "zarr2" if self._group.metadata.zarr_format == 2 else "zarr"

    def storage(self, name: str) -> Storage:
        """How an array is stored, as options for a writer. Precondition: `array` was called."""
        array = self._arrays[name]
        newer = array.metadata.zarr_format == 3
        codecs: Sequence[Any] = array.compressors
        names = {str(x.to_dict()["name"]) if newer else _version_2_name(x) for x in codecs}
        known = [compression for compression in ("zstd", "gzip") if compression in names]
        compression = known[0] if known else None if names - {"crc32c"} else "none"
        chunks = asked_for(array.chunks[0], array.size, _usual_chunk(array.store) if newer else _SHARD)
        shards = asked_for(array.shards[0], array.size, _SHARD) if array.shards else None
        return Storage(compression, chunks, shards, False if newer and "crc32c" not in names else None)

    def _parts(self, array: zarr.Array[Any], name: str) -> Parts:
        """A function that reads parts of an array, whose chunks are checked."""
        with touching(name):
            bounded_chunk(name, math.prod(array.shards or array.chunks), array.size, array.dtype.itemsize, self._limits)
            if array.nchunks > _MOST_CHUNKS:
                raise LimitError(Problem(name, f"{array.nchunks} chunks, more than {_MOST_CHUNKS}"))
            if isinstance(array.store, Folder):
                refuse_links(str(array.store.root), f"{array.path}/c")
            if array.attrs.get(_COMPLETE) and not _has_all_chunks(array):
                raise IncompleteError(Problem(name, "chunks are missing"))

        def read(start: int, stop: int) -> Array:
            with touching(name):
                return np.asarray(array[start:stop])

        return read


def _attributes(text: bytes | None, newer: bool, limits: Limits) -> dict[str, Any]:
    """The attributes of a group, from its strict JSON: version 3 has them under a key.

    Metadata may list all arrays of the store, so they have a larger limit.
    """
    found = {} if text is None else load_json(text, replace(limits, header_bytes=max(limits.header_bytes, _METADATA)))
    return dict(found.get("attributes", {}) if newer else found)


def _stored_size(array: zarr.Array[Any], name: str) -> int:
    """The bytes that an array takes. Raises ContainerError."""
    with touching(name):
        return _stored_sizes([array])[0]


def _stored_sizes(arrays: Iterable[zarr.Array[Any]]) -> list[int]:
    """The bytes that arrays take, or at the most where they cannot be listed."""

    async def size(array: zarr.Array[Any]) -> int:
        listed = array.store.supports_listing
        return await array.store.getsize_prefix(_prefix(array)) if listed else int(array.nbytes)

    async def sizes() -> list[int]:
        return list(await asyncio.gather(*map(size, arrays)))

    return sync(sizes())


def _stored(place: StorePath, key: str) -> bytes | None:
    """The value of a key at a place, or None. A folder is read without zarr, which takes 0.3 ms a key."""
    if not isinstance(place.store, Folder):
        buffer = sync((place / key).get())
        return None if buffer is None else buffer.to_bytes()
    root, path = str(place.store.root), f"{place.path}/{key}".lstrip("/")
    refuse_links(root, path)
    try:
        with open(os.path.join(root, path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _refuse_two_versions(node: zarr.Group | zarr.Array[Any], older: str) -> None:
    """Raise ContainerError for a node with metadata of both versions, of which programs take one or the other."""
    if _stored(node.store_path, older if node.metadata.zarr_format == 3 else "zarr.json") is not None:
        raise ContainerError(Problem(str(node.store_path), "has metadata of two versions of Zarr"))


def _codec_names(metadata: Mapping[str, Any]) -> set[str]:
    if metadata.get("zarr_format") == 2:
        version_2 = [metadata.get("compressor"), *(metadata.get("filters") or ())]
        return {_version_2_name(codec) for codec in version_2 if codec is not None}
    names: set[str] = set()
    todo = list(metadata.get("codecs", ()))
    while todo:
        codec = todo.pop()
        names.add(codec["name"])
        settings = codec.get("configuration") or {}
        todo += [*settings.get("codecs", ()), *settings.get("index_codecs", ())]
    return names


def _version_2_name(codec: Any) -> str:
    return str(codec["id"] if isinstance(codec, Mapping) else codec.codec_id)


class ZarrWriter:
    """A group that is being filled. Chunks of zeros are stored too, so that a missing chunk is detected.

    ours: no other program will change the arrays. Only such arrays have a mark and a fill value, which a change would
    make wrong.
    """

    def __init__(self, group: zarr.Group, storage: Storage, *, ours: bool = True) -> None:
        self._group = group
        self._storage = storage
        self._ours = ours
        self._made: dict[str, zarr.Array[Any]] = {}
        self.written: list[str] = []

    @property
    def group(self) -> zarr.Group:
        """The group, for modules that write another layout."""
        return self._group

    def create(self, name: str, length: int, dtype: np.dtype[Any]) -> zarr.Array[Any]:
        """An array without chunks."""
        if name in self._group:
            raise PathExistsError(Problem(f"{self._group.path}/{name}", "already exists, and is no array of a tensor"))
        compression = self._storage.of("compression", name) or "zstd"
        self.written.append(name)
        layout = self._version_2 if self._group.metadata.zarr_format == 2 else self._version_3
        with touching(name):
            self._made[name] = self._group.create_array(
                name,
                shape=(length,),
                dtype=np.dtype(dtype.newbyteorder("<").str),  # zarr knows one of two C names of a type
                fill_value=_sentinel(name, dtype) if self._ours else 0,
                config={"write_empty_chunks": True},
                attributes={_COMPLETE: True} if self._ours else {},
                **layout(name, length, compression),
            )
        return self._made[name]

    def write(self, name: str, pieces: Pieces) -> None:
        created = self.create(name, pieces.length, pieces.dtype)
        if (chunks := chunks_of(created)) is not None:
            write_array(_objects_in(created.store), chunks, pieces)
            return
        at = 0
        for piece in pieces.regrouped(math.prod(created.shards or created.chunks)):
            if len(piece):
                created[at : at + len(piece)] = piece
            at += len(piece)

    def write_header(self, header: Mapping[str, Any]) -> None:
        _commit(self._group, header, self._made)

    def _version_2(self, name: str, length: int, compression: str) -> dict[str, Any]:
        import numcodecs

        chunk = self._storage.of("chunks", name) or _SHARD
        compressors = {"zstd": numcodecs.Zstd(level=1), "gzip": numcodecs.GZip(level=5), "none": None}
        return {"chunks": (min(chunk, max(length, 1)),), "compressors": compressors[compression]}

    def _version_3(self, name: str, length: int, compression: str) -> dict[str, Any]:
        from zarr.codecs import Crc32cCodec, GzipCodec, ZstdCodec

        chunk = min(self._storage.of("chunks", name) or _usual_chunk(self._group.store), max(length, 1))
        shard = self._storage.of("shards", name)
        known: dict[str, list[Any]] = {"zstd": [ZstdCodec(level=1)], "gzip": [GzipCodec(level=5)], "none": []}
        codecs = known[compression]
        if self._storage.checksum is not False:
            codecs = [*codecs, Crc32cCodec()]
        options: dict[str, Any] = {"chunks": (chunk,), "compressors": codecs or None}
        options["dimension_names"] = [f"dim_{name}"]  # without a name xarray refuses the group
        if shard or length > chunk:
            options["shards"] = (-(-min(shard or _SHARD, max(length, 1)) // chunk) * chunk,)
        return options


def _commit(
    group: zarr.Group, header: Mapping[str, Any], arrays: Mapping[str, zarr.Array[Any]], *, stored: bool = True
) -> None:
    """Write the header, and beside it the metadata of its arrays, and their sizes where they are stored already."""
    listed = {
        "header": of_header(header),
        "arrays": {name: _metadata_of(array) for name, array in arrays.items()},
        "bytes": dict(zip(arrays, _stored_sizes(arrays.values()), strict=True)) if stored else {},
    }
    group.update_attributes({ATTRIBUTE: dict(header), _ARRAYS: listed})


def _metadata_of(array: Any) -> dict[str, Any]:
    """The metadata of an array, as JSON."""
    kept = {
        key: json.loads(text.to_bytes())
        for key, text in array.metadata.to_buffer_dict(default_buffer_prototype()).items()
    }
    return dict(kept["zarr.json"] if "zarr.json" in kept else {**kept[".zarray"], "attributes": kept[".zattrs"]})


def _usual_chunk(store: Store) -> int:
    return _CHUNK if is_near(store) else _SMALL_CHUNK


def _sentinel(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a Zarr array: for indices and pointers, a number out of range."""
    return 0 if name in ("values", "fill_value") or dtype.kind not in "iu" else np.iinfo(dtype).max


@contextlib.contextmanager
def reading(path: Any, group: str | None, limits: Limits) -> Iterator[ZarrReader]:
    """Open a group of a store: a path, a URL, a zip file, any store of zarr's, or an open group."""
    _check_place(path)
    with opened(path) as store:
        with touching(str(path)):
            reader = _known(store, group, limits)
            try:
                reader = reader or ZarrReader(
                    zarr.open_group(store, path=group or "", mode="r", use_consolidated=False), limits
                )
            except (FileNotFoundError, KeyError):
                raise PathMissingError(Problem(f"{path}:{group or ''}", "no such group")) from None
        yield reader


def _known(store: Any, group: str | None, limits: Limits) -> ZarrReader | None:
    """The tensor in an object store, if its header lists the metadata of all arrays: then one or two requests suffice.

    Nearer stores are cheap to ask, and give the metadata of the arrays themselves.
    """
    if not isinstance(store, Far) or (head := _head(store, group)) is None:
        return None
    text, version = head
    attributes = _attributes(text, version == 3, limits)
    header = attributes.get(ATTRIBUTE)
    match attributes.get(_ARRAYS):
        # Another program that replaced the header did not know of the list.
        case {"header": sum, "arrays": dict(), "bytes": dict()} if isinstance(header, dict) and sum == of_header(
            header
        ):
            metadata = {"zarr_format": version, "attributes": attributes}
            place = store / group if group else store
            return ZarrReader(zarr.Group(zarr.AsyncGroup.from_dict(place, metadata)), limits, attributes)
    return None


def _head(store: Any, group: str | None) -> tuple[bytes, int] | None:
    """The stored JSON with the attributes of a group, and the version of Zarr; None for a group without attributes."""
    heads: dict[str | None, tuple[bytes, int] | None] = store.heads if isinstance(store, Far) else {}
    if group not in heads:
        place = store if isinstance(store, StorePath) else StorePath(store)
        place = place / group if group else place
        texts = ((_stored(place, key), version) for key, version in (("zarr.json", 3), (".zattrs", 2)))
        heads[group] = next(((text, version) for text, version in texts if text is not None), None)
    return heads[group]


def marks(path: Any, group: str | None) -> set[str]:
    """The names of the attributes of a group; none for a group that is missing, damaged, or has a header."""
    with opened(path) as store, contextlib.suppress(BinsparseError), touching(str(path)):
        text, version = _head(store, group) or (None, 3)
        found = _attributes(text, version == 3, DEFAULT_LIMITS)
        return set() if ATTRIBUTE in found else set(found)
    return set()


@contextlib.contextmanager
def writing(
    path: Any,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    *,
    zarr_format: int = 3,
    beside: Others | None = None,
) -> Iterator[ZarrWriter]:
    """A group of a new store, or of a copy of the store. It replaces the old store when the block ends well.

    Other stores than local folders and zip files are written in place, the header last. Where that fails, the store
    is restored. There, and with a group, everything but the tensor is kept.
    beside: lists what a folder holds beside what is written. Raises PathExistsError, OptionError.
    """
    _check_place(path)
    if isinstance(path, zarr.Group):
        check_store(path.store)
        store, inner = _within(path)
        with writing(store, inner, overwrite, limits, storage, zarr_format=path.metadata.zarr_format) as writer:
            yield writer
        fresh = zarr.open_group(path.store_path, mode="r", use_consolidated=False).attrs.asdict()
        path.metadata.attributes.clear()  # else what is set next through this group would take the header away
        path.metadata.attributes.update(fresh)
        return
    if _NAMES & set((group or "").split("/")):
        raise ContainerError(Problem(str(group), "no group has the name of what Zarr keeps"))
    more = ("shards",) if zarr_format == 3 else ()
    storage.refuse(
        f"Zarr {zarr_format}", but=("compression", "chunks", "checksum", *more), compressions=("zstd", "gzip", "none")
    )
    if type(path) is LocalStore and not path.read_only:
        path = str(path.root)
    if not isinstance(path, str) or is_url(path):
        with undone(path) as store, _filling(store, group, overwrite, limits, storage, zarr_format) as writer:
            yield writer
        return
    beside = beside or others
    keep = keeps(path, group, overwrite, beside)
    if path.lower().endswith(".zip"):
        # A key of a zip file cannot be written twice, and attributes are: a folder is filled, and zipped at the end.
        with replacing(path, overwrite, keep=keep, others=beside) as part:
            folder = f"{part}.d"
            try:
                os.mkdir(folder)
                if keep and os.path.getsize(part):
                    with open_zip(part) as archive:
                        archive.extractall(folder)
                with _filling(folder, group, bool(overwrite), limits, storage, zarr_format) as writer:
                    yield writer
                _zip(folder, part)
            finally:
                remove(folder)
        return
    with (
        replacing_folder(path, overwrite, keep=keep, others=beside) as part,
        _filling(part, group, bool(overwrite), limits, storage, zarr_format) as writer,
    ):
        yield writer


def others(path: str) -> set[str]:
    """The names of what lies in a folder or zip file beside a tensor at its root. Raises ContainerError."""
    with opened(path) as store, touching(path):
        if isinstance(store, Folder):
            names = set(os.listdir(path))
        else:
            names = {name.partition("/")[0] for name in store._zf.namelist()}
        root = zarr.open_group(store, mode="r", use_consolidated=False) if _NAMES & names else None
        attributes = {} if root is None else root.attrs.asdict()
        reader = ZarrReader(root, DEFAULT_LIMITS) if root is not None and ATTRIBUTE in attributes else None
        arrays = [] if reader is None else [name for name, x in members(reader.group) if isinstance(x, zarr.Array)]
        ours = set() if reader is None else named_by(reader.read_header, arrays)
    return {*names, *attributes} - {*ours, *_NAMES, ATTRIBUTE, _ARRAYS}


def new_metadata(
    arrays: Mapping[str, tuple[int, np.dtype[Any]]], header: Mapping[str, Any], storage: Storage, *, remote: bool
) -> dict[str, bytes]:
    """The metadata of a group of Zarr 3 with these arrays, by key. arrays: a length and a type by name. remote: for an
    object store.
    """
    if remote and storage.chunks is None:
        storage = replace(storage, chunks=_SMALL_CHUNK)
    kept: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(kept), zarr_format=3)
    writer = ZarrWriter(group, storage)
    made = {name: writer.create(name, length, dtype) for name, (length, dtype) in arrays.items()}
    _commit(group, header, made, stored=False)
    return {key: buffer.to_bytes() for key, buffer in kept.items()}


def extend(
    path: Any, group: str | None, header: Callable[[], Mapping[str, Any]], pieces: Mapping[str, Pieces], limits: Limits
) -> bool:
    """Extend the arrays of a group in a local folder to longer ones with the same beginning. False where it cannot.

    header: is called after the arrays are written. Files of whole chunks or shards are not written again: hard links
    to them are put into a new folder, which replaces the old one atomically.
    """
    if not isinstance(path, str) or not os.path.isdir(path):
        return False
    with opened(path) as store, touching(path):
        place = zarr.open_group(store, path=group or "", mode="r", use_consolidated=False)
        if place.metadata.zarr_format != 3:
            return False
        for name, given in pieces.items():
            array = place.get(name)
            if not isinstance(array, zarr.Array) or array.dtype != given.dtype or not array.attrs.get(_COMPLETE):
                return False
            chunks = chunks_of(array)
            if chunks is None or array.size > given.length:
                return False
            if chunks.per_file < _SHARD and given.length > _MOST_FILES * chunks.per_file:
                return False  # chunks as small as the first tensor was: as many files, if it goes on
    with replacing_folder(path, True, keep=True) as part, _settled(), touching(path):
        root = zarr.open_group(Folder(part), mode="r+", use_consolidated=False)
        place = root.require_group(group) if group else root
        arrays: dict[str, Any] = {name: place[name] for name in pieces}
        for name, array in arrays.items():
            old, given = array.size, pieces[name]
            if old == given.length:  # the fill value, or the one value of all
                continue
            array.resize((given.length,))
            chunks = chunks_of(array)
            assert chunks is not None
            extend_array(_objects_in(array.store), chunks, old, given)
        _commit(place, header(), arrays)
    return True


def _zip(folder: str, target: str) -> None:
    """Store the files of a folder in a zip file, sorted and without times: equal folders give equal bytes."""
    files = sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    with zipfile.ZipFile(target, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(os.path.relpath(file, folder).replace(os.sep, "/"))
            with open(file, "rb") as source, archive.open(member, "w", force_zip64=True) as out:
                shutil.copyfileobj(source, out)


@contextlib.contextmanager
def _filling(
    store: str | Store | StorePath,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    zarr_format: int,
) -> Iterator[ZarrWriter]:
    if isinstance(store, str):
        store = Folder(store)
    with _settled(), touching(str(store)):
        try:
            root = zarr.open_group(store, mode="r+", use_consolidated=False)
        except FileNotFoundError:
            root = zarr.create_group(store, zarr_format=zarr_format)  # type: ignore[arg-type]
        if zarr_format == 2 != root.metadata.zarr_format:
            raise OptionError(Problem("kind", f"{store} is of version {root.metadata.zarr_format} already"))
        place = root.require_group(group) if group else root
        if ATTRIBUTE in place.attrs:
            if not overwrite:
                raise PathExistsError(Problem(f"group {group or '/'}", "has a tensor; pass overwrite=True"))
            _clear(place, limits)
        # Consolidated metadata would no longer be true: of version 2 they are a key, of version 3 a part of the root's.
        if root.metadata.zarr_format == 2:
            sync(root.store.delete(".zmetadata"))
        else:
            root.update_attributes({})
    writer = ZarrWriter(place, storage)
    try:
        with _settled():
            yield writer
    except BaseException:
        for name in writer.written:  # so that a second try finds nothing in its way
            with contextlib.suppress(Exception):
                del place[name]
        raise


def _check_place(path: Any) -> None:
    if not isinstance(path, str | Store | StorePath | zarr.Group):
        raise TypeError(f"expected a path, a store or a group of zarr's, got {type(path).__name__}")


def _within(group: zarr.Group) -> tuple[Any, str]:
    """The store of an open group, and the path in it. If the root of the store is no group, the group is it."""
    store, path = group.store, group.path
    try:
        zarr.open_group(store, mode="r", use_consolidated=False)
    except FileNotFoundError:
        return os.path.join(store.root, path) if type(store) is LocalStore else group.store_path, ""
    return str(store.root) if type(store) is LocalStore else store, path


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    """After a fault, wait for pending writes of zarr: they would write into a folder that is being removed."""
    try:
        yield
    except BaseException:
        sync(_settle())
        raise


async def _settle() -> None:
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


def _clear(group: zarr.Group, limits: Limits) -> None:
    """Delete the tensor in a group: its header first, then the arrays that the header names."""
    names = names_in(ZarrReader(group, limits).read_header())
    for key in (ATTRIBUTE, _ARRAYS):
        group.attrs.pop(key, None)
    for name in sorted(names):
        if isinstance(group.get(name), zarr.Array):
            del group[name]


def list_groups(path: Any, limits: Limits, claims: Sequence[Callable[[zarr.Group], bool]] = ()) -> list[str]:
    """The groups of a store that have a header, or that one of `claims` accepts. The root is an empty string."""
    with opened(path) as store, touching(str(path)):
        root = zarr.open_group(store, mode="r", use_consolidated=False)
        if not root.store.supports_listing:
            raise ContainerError(Problem(str(path), "a web server lists no groups; name one, as in URL:GROUP"))
        groups = [("", root)]
        for path, group in groups:  # it grows
            inner = [(f"{path}/{name}".lstrip("/"), x) for name, x in members(group) if isinstance(x, zarr.Group)]
            groups += inner
        return sorted(
            name for name, group in groups if ATTRIBUTE in group.attrs or any(claim(group) for claim in claims)
        )


def members(group: zarr.Group) -> list[tuple[str, Any]]:
    """The groups and arrays in a group, by name; not what is neither.

    zarr's own listing warns of the latter, and leaves tasks behind when one of many fails.
    """

    async def found() -> list[Any]:
        names = [name async for name in group.store.list_dir(group.path)]
        names = [name for name in names if name not in _NAMES]
        nodes = await asyncio.gather(*map(group._async_group.getitem, names), return_exceptions=True)
        return list(zip(names, nodes, strict=True))

    nodes = sync(found())
    for _, node in nodes:
        if isinstance(node, BaseException) and not isinstance(node, KeyError):
            raise node
    wrapped = {zarr.AsyncGroup: zarr.Group, zarr.AsyncArray: zarr.Array}
    return [(name, wrapped[type(node)](node)) for name, node in nodes if type(node) in wrapped]
