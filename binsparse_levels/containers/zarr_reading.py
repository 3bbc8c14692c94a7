"""Read Zarr. The metadata of all arrays beside the header saves requests to far stores."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import StorePath

from ..arrays import Array, LazyArray, Parts, Size, lazy
from ..errors import (
    BinsparseError,
    ContainerError,
    IncompleteError,
    LimitError,
    PathMissingError,
    Problem,
    UnsafeError,
)
from ..formats.json import RESERVED, load_json
from ..limits import DEFAULT_LIMITS, Limits
from .base import Storage, asked_for, bounded_chunk, named_by, touching
from .checksums import of_header
from .direct import DIRECT, refuse_links
from .objects import folder
from .objects.chunks import Chunks, chunks_of, described
from .objects.codecs import CODECS
from .objects.reading import ObjectArray, Objects
from .objects.requests import Requests
from .objects.stores import PartStore
from .zarr_internals import members_of, sync
from .zarr_stores import Far, Folder, is_near, opened

ATTRIBUTE = "binsparse"
ROOT = "zarr.json"  # the key of the metadata of a group
ARRAYS = f"{RESERVED}arrays"  # the metadata of all arrays beside the header: one request opens a tensor
AT = f"{RESERVED}at"  # the prefix below which the arrays of a group are that a build has written into a bucket
COMPLETE = f"{RESERVED}all_chunks_stored"  # marks our arrays, whose missing chunks are lost, not zeros
CHUNK = 2**16  # items: a small slice reads little
SMALL_CHUNK = 2**11  # items, in an object store: 50 values at scattered coordinates of 2.5 M take 1.3 MB, else 25
SHARD = 2**20  # items: a large array makes few files
NAMES = {"zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata"}
_METADATA = 2**26  # bytes of the metadata of a group
_MOST_CHUNKS = 2**22  # of one array, read by zarr one by one
_MOST_CODECS = 2**6  # of one array, each of which zarr makes an object of, and passes all bytes through
_AT_ONCE = 2**6  # requests to a web server

# The codecs that may run; those of version 2 by their numcodecs names.
_CODECS = {*CODECS, "bytes", "transpose", "sharding_indexed", "zlib", "lz4", "crc32c", "shuffle"}
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {"float8"}
# What the metadata of an array have; zarr refuses others.
_MEMBERS = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value"}
_MEMBERS |= {"codecs", "attributes", "dimension_names", "storage_transformers"}
_TEXTS = {"vlen-utf8"}  # in groups without a header, such as those of AnnData


def objects_in(store: Store) -> PartStore:
    """The objects of a store of zarr's."""
    return folder.Folder(str(store.root)) if isinstance(store, Folder) and DIRECT else Requests(store)


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
        listed = {} if attributes is None else attributes[ARRAYS]
        self._listed, self._sizes = listed.get("arrays", {}), listed.get("bytes", {})
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self._objects = Objects(objects_in(group.store), limits)

    @property
    def group(self) -> zarr.Group:
        """The group, for modules that read another layout."""
        return self._group

    def read_header(self) -> Any:
        with touching(ATTRIBUTE):
            attributes = self._strict_attributes() if self._attributes is None else self._attributes
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
        newer = self._group.metadata.zarr_format == 3
        _refuse_two_versions(self._group.store_path, ".zgroup" if newer else ROOT)
        text = _stored(self._group.store_path, "zarr.json" if newer else ".zattrs")
        return _attributes(text, newer, self._limits)

    def array(self, name: str) -> LazyArray | None:
        with touching(name):
            place, listed = self._group.store_path / name, self._listed.get(name)
            told = listed or (_near_metadata(place, "array") if self._group.metadata.zarr_format == 3 else None)
            size = self._sizes.get(name)
            nbytes: Size = size if isinstance(size, int) else functools.partial(self._stored_size, name)
            if told is not None and (chunks := _known_chunks(told, f"{place.path}/c")) is not None:
                if listed is None:
                    _refuse_two_versions(place, ".zarray")
                complete = bool(told.get("attributes", {}).get(COMPLETE))
                return ObjectArray(name, self._objects, chunks, nbytes, complete=complete)
            if told is not None and len(told.get("codecs", ())) > _MOST_CODECS:
                raise LimitError(Problem(name, f"{len(told['codecs'])} codecs, more than {_MOST_CODECS}"))
            try:
                array = self._opened(name, told)
            except KeyError:
                if told is None:
                    return None
                raise
        if not isinstance(array, zarr.Array):
            raise ContainerError(Problem(name, "is no array"))
        with touching(name):
            allowed = _CODECS if ATTRIBUTE in self._group.metadata.attributes else _CODECS | _TEXTS
            metadata = array.metadata.to_dict()
            bad = sorted(_codec_names(metadata) - allowed)
            if bad:
                raise UnsafeError(Problem(name, f"the codec {bad[0]!r} is not allowed"))
            if listed is None:
                _refuse_two_versions(place, ".zarray" if array.metadata.zarr_format == 3 else ROOT)
            if metadata.get("storage_transformers"):
                raise UnsafeError(Problem(name, "has storage transformers"))
            if (chunks := chunks_of(array)) is not None:
                complete = bool(array.attrs.get(COMPLETE))
                return ObjectArray(name, self._objects, chunks, nbytes, complete=complete)
            parts = functools.cache(lambda: self._parts(array, name))

            def read(start: int, stop: int) -> Array:
                self._limits.hold("array_bytes", (stop - start) * array.dtype.itemsize, name, "the size in bytes")
                return parts()(start, stop)

            return lazy(array.shape, np.dtype(array.dtype), read, nbytes=nbytes, chunk=math.prod(array.chunks))

    def _opened(self, name: str, told: dict[str, Any] | None = None) -> Any:
        """What zarr makes of a member, or of its metadata. Raises KeyError."""
        if name not in self._arrays:
            made: Any = self._group[name] if told is None else zarr.Array.from_dict(self._group.store_path / name, told)
            self._arrays[name] = made
        return self._arrays[name]

    def _stored_size(self, name: str) -> int:
        """The bytes that an array takes. Raises ContainerError."""
        with touching(name):
            return stored_sizes([self._opened(name, self._listed.get(name))])[0]

    @property
    def kind(self) -> str:
        """The kind of file. Both versions are read alike."""
        return "zarr2" if self._group.metadata.zarr_format == 2 else "zarr"

    def storage(self, name: str) -> Storage:
        """How an array is stored, as options for a writer. Precondition: `array` was called."""
        array = self._opened(name, self._listed.get(name))
        newer = array.metadata.zarr_format == 3
        codecs: Sequence[Any] = array.compressors
        names = {str(x.to_dict()["name"]) if newer else _version_2_name(x) for x in codecs}
        known = [compression for compression in CODECS if compression in names]
        compression = known[0] if known else None if names - {"crc32c"} else "none"
        chunks = asked_for(array.chunks[0], array.size, usual_chunk(array.store) if newer else SHARD)
        shards = asked_for(array.shards[0], array.size, SHARD) if array.shards else None
        return Storage(compression, chunks, shards, False if newer and "crc32c" not in names else None)

    def _parts(self, array: zarr.Array[Any], name: str) -> Parts:
        """A function that reads parts of an array, whose chunks are checked."""
        with touching(name):
            bounded_chunk(name, math.prod(array.shards or array.chunks), array.size, array.dtype.itemsize, self._limits)
            if array.nchunks > _MOST_CHUNKS:
                raise LimitError(Problem(name, f"{array.nchunks} chunks, more than {_MOST_CHUNKS}"))
            if isinstance(array.store, Folder):
                refuse_links(str(array.store.root), f"{array.path}/c")
            if array.attrs.get(COMPLETE) and not _has_all_chunks(array):
                raise IncompleteError(Problem(name, "chunks are missing"))

        def read(start: int, stop: int) -> Array:
            with touching(name):
                return np.asarray(array[start:stop])

        return read


def _attributes(text: bytes | None, newer: bool, limits: Limits) -> dict[str, Any]:
    """The attributes of a group, from its strict JSON: version 3 has them under a key.

    Metadata may list all arrays of the store, so they have a larger limit.
    """
    told = {} if text is None else load_json(text, replace(limits, header_bytes=max(limits.header_bytes, _METADATA)))
    return dict(told.get("attributes", {}) if newer else told)


def stored_sizes(arrays: Iterable[zarr.Array[Any]]) -> list[int]:
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


def _refuse_two_versions(place: StorePath, other: str) -> None:
    """Raise ContainerError for a node with metadata of both versions, of which programs take one or the other.

    other: the key of the metadata of the other version.
    """
    if _stored(place, other) is not None:
        raise ContainerError(Problem(str(place), "has metadata of two versions of Zarr"))


def _known_chunks(told: Mapping[str, Any], folder: str) -> Chunks | None:
    """How an array of numbers is stored, by its metadata of version 3. None where zarr has to look, in 0.6 ms."""
    match told:
        case {"shape": [length], "data_type": str(name), "fill_value": fill, **more} if (
            name in _NUMBERS and {*told} <= _MEMBERS and type(length) is int and length >= 0
        ):
            dtype, names, attributes = np.dtype(name), more.get("dimension_names"), more.get("attributes", {})
        case _:
            return None
    whole = type(fill) is int and (dtype.kind == "f" or int(np.iinfo(dtype).min) <= fill <= int(np.iinfo(dtype).max))
    if not (whole or (type(fill) is float and dtype.kind == "f")) or type(attributes) is not dict:
        return None
    if names is not None and not (type(names) is list and len(names) == 1 and isinstance(names[0], str | None)):
        return None
    chunks = described(told, dtype, dtype.type(fill), folder)
    return chunks if chunks and type(chunks.per_file) is type(chunks.chunk) is int else None


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


def usual_chunk(store: Store) -> int:
    return CHUNK if is_near(store) else SMALL_CHUNK


@contextlib.contextmanager
def reading(path: Any, group: str | None, limits: Limits) -> Iterator[ZarrReader]:
    """Open a group of a store: a path, a URL, a zip file, any store of zarr's, or an open group."""
    check_place(path)
    with opened(path) as store:
        with touching(str(path)):
            reader = _known(store, group, limits)
            try:
                reader = reader or ZarrReader(_group(store, group or ""), limits)
            except (FileNotFoundError, KeyError):
                where = f"{path}:{group}" if group else str(path)
                raise PathMissingError(Problem(where, "no such group of Zarr; check the path")) from None
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
    match attributes.get(ARRAYS):
        # Another program that replaced the header did not know of the list.
        case {"header": sum, "arrays": dict(), "bytes": dict()} if isinstance(header, dict) and sum == of_header(
            header
        ):
            metadata = {"zarr_format": version, "attributes": attributes}
            place = store / "/".join(filter(None, (group, _prefix_in(attributes))))
            return ZarrReader(zarr.Group(zarr.AsyncGroup.from_dict(place, metadata)), limits, attributes)
    return None


def _group(store: Any, path: str, *, follow: bool = True) -> zarr.Group:
    """A group, or the one below it that has its arrays."""
    place = StorePath(store) if isinstance(store, Folder) else store
    if isinstance(place, StorePath) and (metadata := _near_metadata(place / path, "group")) is not None:
        metadata.pop("consolidated_metadata", None)  # another program may have made it untrue
        found = zarr.Group(zarr.AsyncGroup.from_dict(place / path, metadata))
    else:
        found = zarr.open_group(store, path=path, mode="r", use_consolidated=False)
    below = _prefix_in(found.attrs.asdict()) if follow else ""
    return _group(store, f"{path}/{below}".strip("/"), follow=False) if below else found


def _prefix_in(attributes: Mapping[str, Any]) -> str:
    """The prefix that a build has written a group's arrays below, if any."""
    at = attributes.get(AT)
    return at if isinstance(at, str) and re.fullmatch("[0-9a-f]{16}", at) else ""


def _near_metadata(place: StorePath, node: str) -> dict[str, Any] | None:
    """The metadata of an array or a group of version 3 in a folder; None elsewhere. zarr takes 0.5 ms to read them."""
    text = _stored(place, ROOT) if isinstance(place.store, Folder) else None
    metadata = {} if text is None else json.loads(text)
    match metadata:
        case {"zarr_format": 3, "node_type": kind} if kind == node:
            return dict(metadata)
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


def check_place(path: Any) -> None:
    if not isinstance(path, str | Store | StorePath | zarr.Group):
        raise TypeError(f"expected a path, a store or a group of zarr's, got {type(path).__name__}")


def mark(path: Any, group: str | None, among: Iterable[str]) -> str | None:
    """The first of these names that an attribute of a group has; None for a group that is missing, damaged, or has a
    header.
    """
    with opened(path) as store, contextlib.suppress(BinsparseError), touching(str(path)):
        text, version = _head(store, group) or (None, 3)
        attributes = _attributes(text, version == 3, DEFAULT_LIMITS)
        return None if ATTRIBUTE in attributes else next((name for name in among if name in attributes), None)
    return None


def others(path: str, there: Collection[str] | None = None) -> set[str]:
    """The names of what lies in a folder or zip file beside a tensor at its root, or beside what a build has begun.

    there: the names, where the caller has listed them. Raises ContainerError.
    """
    with opened(path) as store, touching(path):
        if there is not None or isinstance(store, Folder):
            names = set(os.listdir(path) if there is None else there)
        else:
            names = {name.partition("/")[0] for name in store._zf.namelist()}
        root = _group(store, "") if NAMES & names else None
        attributes = {} if root is None else root.attrs.asdict()
        reader = ZarrReader(root, DEFAULT_LIMITS) if root is not None and ATTRIBUTE in attributes else None
        arrays = [] if reader is None else [name for name, x in members(reader.group) if isinstance(x, zarr.Array)]
        ours = set() if reader is None else named_by(reader.read_header, arrays)
    return {*names, *attributes} - {*ours, *NAMES, ATTRIBUTE, ARRAYS, AT}


def list_groups(path: Any, limits: Limits, claims: Sequence[Callable[[zarr.Group], bool]] = ()) -> list[str]:
    """The groups of a store that have a header, or that a function of `claims` accepts. The root is an empty string."""
    with opened(path) as store, touching(str(path)):
        root = zarr.open_group(store, mode="r", use_consolidated=False)
        if not root.store.supports_listing:
            raise ContainerError(Problem(str(path), "a web server lists no groups; name a group, as in URL:GROUP"))
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

    async def listed() -> list[Any]:
        names = [name async for name in group.store.list_dir(group.path)]
        names = [name for name in names if name not in NAMES]
        return list(zip(names, await members_of(group, names), strict=True))

    nodes = sync(listed())
    for _, node in nodes:
        if isinstance(node, BaseException) and not isinstance(node, KeyError):
            raise node
    wrapped = {zarr.AsyncGroup: zarr.Group, zarr.AsyncArray: zarr.Array}
    return [(name, wrapped[type(node)](node)) for name, node in nodes if type(node) in wrapped]
