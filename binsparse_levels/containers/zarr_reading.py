"""Read Zarr. Metadata of all arrays, next to the header or consolidated at the root, save requests to remote stores."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, StorePath

from ..arrays import Array, LazyArray, Size, lazy
from ..errors import (
    BinsparseError,
    ContainerError,
    DescriptorError,
    IncompleteError,
    LimitError,
    PathMissingError,
    Problem,
    UnsafeError,
)
from ..formats.json import RESERVED, load_json
from ..limits import DEFAULT_LIMITS, Limits
from ..log import LOG
from ..parallel import each
from ..thresholds import THRESHOLDS
from .base import (
    Storage,
    bounded_chunk,
    check_items,
    grown_chunk,
    is_url,
    named_by,
    names_in,
    no_tensor,
    parts_in,
    sizes_in,
    wrap_errors,
)
from .checksums import of_header
from .direct import refuse_links
from .interface import Claims, claimed, is_part
from .objects.chunks import Chunks, chunks_in
from .objects.codecs import CODECS
from .objects.folder import is_being_written
from .objects.reading import CachedArray, ObjectArray, Objects
from .replacing import real_path
from .zarr_internals import sync
from .zarr_stores import NAMES, LinklessStore, RemoteStore, is_local, objects_in, opened, stored

ATTRIBUTE = "binsparse"
ROOT = "zarr.json"  # the key of the metadata of a group
ARRAYS = f"{RESERVED}arrays"  # the metadata of all arrays, next to the header: one request opens a tensor
AT = f"{RESERVED}at"  # the prefix of the arrays of a group that a build has written into a bucket
ABOVE = ".."  # the prefix of the arrays of a part that are in the group above it
CONVENTIONS = "zarr_conventions"  # the key of the conventions that a group declares
CONVENTION = {
    "uuid": "242f5ddc-9d0d-4c6d-b93a-f3556f5eb274",
    "name": ATTRIBUTE,
    "description": "A sparse tensor whose arrays are described by a Binsparse header",
}
OURS = (ATTRIBUTE, ARRAYS, AT, CONVENTIONS)  # the attributes of a group that are those of its tensor
COMPLETE = f"{RESERVED}all_chunks_stored"  # marks our arrays, whose missing chunks are lost, not zeros
METADATA_LIMITS = replace(DEFAULT_LIMITS, header_bytes=2**26)  # which may list all arrays of a store
_MAX_CHUNKS = 2**22  # of an array that zarr reads, one chunk after the other
_MAX_OPEN_REQUESTS = 16  # for metadata

# The codecs that may run; those of version 2 by their numcodecs names.
_CODECS = {*CODECS, "bytes", "transpose", "sharding_indexed", "zlib", "lz4", "crc32c", "shuffle"}
_TEXTS = {"vlen-utf8"}  # in groups without a header, such as those of AnnData


def node_at(place: StorePath) -> dict[str, Any] | None:
    """The metadata of the group or array at a place, with its attributes; None if there is neither.

    Raises ContainerError for a local node with metadata of both versions, of which programs choose different ones.
    """
    node = _json(place, ROOT)
    if node is None or is_local(place.store):
        for kind in ("group", "array"):
            older = _json(place, f".z{kind}")
            if older is not None and node is not None:
                what = f"has metadata of two versions of Zarr; remove {ROOT}, or .z{kind} and .zattrs, of one version"
                raise ContainerError(Problem(str(place), what))
            if older is not None:
                return {**older, "node_type": kind, "attributes": _json(place, ".zattrs") or {}}
    return node


def _json(place: StorePath, key: str) -> dict[str, Any] | None:
    """The JSON object stored at a key. Unlike zarr, it refuses duplicate keys."""
    text = stored(place, key)
    try:
        found = None if text is None else load_json(text, METADATA_LIMITS, constants=True)
    except DescriptorError as error:
        raise ContainerError(Problem(f"{place}/{key}", error.problems[0].message)) from None
    if not isinstance(found, dict | None):
        raise ContainerError(Problem(f"{place}/{key}", "is no JSON object"))
    return found


class Group(zarr.Group):
    """A group that lists its members by their metadata, so that a member unknown to zarr is no error."""

    def keys(self) -> Generator[str, None]:
        yield from members(self.store_path)


def group_of(place: StorePath, node: Mapping[str, Any]) -> Group:
    """The group with these metadata, without consolidated ones, which may be out of date."""
    known = {"zarr_format": node["zarr_format"], "attributes": node.get("attributes", {})}
    return Group(zarr.AsyncGroup.from_dict(place, known))


# Arrays of a tensor, whose header is written last. Other arrays are variables of a Dataset, or of another program.
_OWN_ARRAY = re.compile(r"values|(indices|pointers_to)_[0-9]+")


class ZarrReader:
    """A group that is open for reading. Unknown codecs are refused before any codec runs."""

    def __init__(self, place: StorePath, node: Mapping[str, Any], limits: Limits) -> None:
        """node: the metadata of the group."""
        self._place = place
        self._attributes: Mapping[str, Any] = node.get("attributes", {})
        self._limits = limits
        self._chunks: dict[str, Chunks] = {}
        self._objects = Objects(objects_in(place.store), limits)
        #: The group with the arrays, for modules that read another layout.
        self.group = group_of(arrays_at(place, self._attributes), node)

    def read_header(self) -> Any:
        if ATTRIBUTE not in self._attributes:
            with wrap_errors(self._place.path):
                listed = members(self._place) if self._place.store.supports_listing else {}
            if any(_OWN_ARRAY.fullmatch(x) for x, node in listed.items() if node["node_type"] == "array"):
                raise IncompleteError(Problem(str(self._place), "arrays without a header; write it again"))
            raise no_tensor(self._place.path, f"attribute {ATTRIBUTE!r}", listed)
        header = self._attributes[ATTRIBUTE]
        header = load_json(header if isinstance(header, str) else json.dumps(header), self._limits)
        # The specification does not say where the JSON is stored: single and double nesting are both in use.
        if isinstance(header, dict) and ATTRIBUTE not in header and "version" in header and "format" in header:
            return {ATTRIBUTE: header}
        return header

    @functools.cached_property
    def _listed(self) -> Mapping[str, Any]:
        """Metadata and sizes of the arrays that are listed next to the header, if the store is remote."""
        listed: Any = self._attributes.get(ARRAYS) if isinstance(self._place.store, RemoteStore) else None
        match listed:
            case {"header": sum, "arrays": dict(), "bytes": dict()}:
                # Another program that replaced the header did not know of the list.
                if sum == of_header(self._attributes.get(ATTRIBUTE, {})):
                    return dict(listed)
        return {"arrays": {}, "bytes": {}}

    def array(self, name: str) -> LazyArray | None:
        with wrap_errors(name):
            place = self.group.store_path / name
            node = self._listed["arrays"].get(name) or node_at(place)
            if node is None:
                return None
            if node.get("node_type", "array") != "array":
                raise ContainerError(Problem(name, "is no array"))
            size = self._listed["bytes"].get(name)
            nbytes: Size | None = size if isinstance(size, int) else None
            if nbytes is None and place.store.supports_listing:
                nbytes = lambda: stored_size(place)  # noqa: E731
            try:
                self._chunks[name] = chunks = chunks_in(node, place.path)
            except NotImplementedError as reason:
                LOG.debug("%s: read by zarr, because of its %s", name, reason)
                return self._by_zarr(name, node, nbytes)
            LOG.debug("%s: read without zarr, in chunks of %d items (%s)", name, chunks.chunk, chunks.compression)
            complete = bool(node.get("attributes", {}).get(COMPLETE))
            return ObjectArray(name, self._objects, chunks, nbytes, complete=complete)

    def _by_zarr(self, name: str, node: dict[str, Any], nbytes: Size | None) -> LazyArray:
        """An array that zarr reads: of several dimensions, of texts, with other codecs."""
        codecs = node["codecs"] if node["zarr_format"] == 3 else [node["compressor"], *(node["filters"] or ())]
        allowed = _CODECS if ATTRIBUTE in self.group.metadata.attributes else _CODECS | _TEXTS
        if bad := sorted({*_codec_names(filter(None, codecs))} - allowed):
            raise UnsafeError(Problem(name, f"the codec {bad[0]!r} is not allowed; write the array with zstd"))
        known = {key: x for key, x in node.items() if node["zarr_format"] == 3 or key != "node_type"}
        array: zarr.Array[Any] = zarr.Array.from_dict(self.group.store_path / name, known)
        if node.get("storage_transformers"):
            raise UnsafeError(Problem(name, "has storage transformers"))

        @functools.cache
        def check() -> None:
            bounded_chunk(name, math.prod(array.shards or array.chunks), array.size, array.dtype.itemsize, self._limits)
            if array.nchunks > _MAX_CHUNKS:
                raise LimitError(Problem(name, f"{array.nchunks} chunks, more than {_MAX_CHUNKS}"))
            if isinstance(array.store, LinklessStore):
                refuse_links(str(array.store.root), f"{array.path}/c")
            if array.attrs.get(COMPLETE) and array.nchunks_initialized < array.nchunks:
                raise IncompleteError(Problem(name, "chunks are missing"))

        def read(start: int, stop: int) -> Array:
            check_items(name, stop - start, array.dtype.itemsize, self._limits)
            LOG.debug("%s: items %d to %d by zarr", name, start, stop - 1)
            with wrap_errors(name):
                check()
                return np.asarray(array[start:stop])

        whole = lazy(array.shape, np.dtype(array.dtype), read, nbytes=nbytes, chunk=max(math.prod(array.chunks), 1))
        return self.cached(name, whole)

    def cached(self, name: str, array: LazyArray) -> LazyArray:
        """The same array. The chunks of small reads are cached."""
        return CachedArray(name, self._objects, array)

    @property
    def kind(self) -> str:
        """The kind of file. Both versions are read the same way."""
        return "zarr2" if self.group.metadata.zarr_format == 2 else "zarr"

    @property
    def convention(self) -> bool:
        """True if the group declares the Zarr convention."""
        return bool(conventions(self._attributes, ours=True))

    def storage(self, name: str) -> Storage:
        """The storage options of an array, for a writer. Precondition: `array` was called."""
        found = self._chunks.get(name)
        if found is None:
            return Storage()
        newer = self.group.metadata.zarr_format == 3
        usual = usual_chunk(self._place.store) if newer else THRESHOLDS.zarr_shard
        chunks = grown_chunk(found.chunk, found.length, usual)
        shards = grown_chunk(found.per_file, found.length, THRESHOLDS.zarr_shard) if found.index else None
        plain = False if newer and not found.checksum else None
        compression = "small" if found.settings.get("cname") == "zstd" else found.compression
        settings = {name: found.settings} if found.length else None
        return Storage(compression, chunks, shards, chunk_checksum=plain, settings=settings)


def stored_size(place: StorePath) -> int:
    """The stored size of an array in bytes, in a store that lists its keys."""
    return int(sync(place.store.getsize_prefix(f"{place.path}/")))  # indices_1 is a prefix of indices_10


def _codec_names(codecs: Iterable[Any]) -> Iterator[str]:
    """The names of codecs in metadata of version 3 or 2, and of nested codecs."""
    for codec in codecs:
        yield str(codec["name" if "name" in codec else "id"])
        settings = codec.get("configuration") or {}
        yield from _codec_names([*settings.get("codecs", ()), *settings.get("index_codecs", ())])


def usual_chunk(store: Store) -> int:
    return THRESHOLDS.zarr_chunk if is_local(store) else THRESHOLDS.bucket_chunk


@contextlib.contextmanager
def reading(path: Any, group: str | None, limits: Limits) -> Iterator[ZarrReader]:
    """Open a group of a store: a path, a URL, a zip file, any Zarr store, or an open group."""
    with opened(path) as root:
        with wrap_errors(str(path)):
            node = _group_at(root, group)
            if node is None or node.get("node_type") != "group":
                where = f"{path}:{group}" if group else str(path)
                raise PathMissingError(Problem(where, "no such group of Zarr"))
            reader = ZarrReader(root / (group or ""), node, limits)
        yield reader


def _group_at(root: StorePath, group: str | None) -> dict[str, Any] | None:
    """The metadata of a group below a place.

    In a remote store without our header, consolidated metadata replace further requests. They are dropped if they
    differ from the stored attributes of a group with the shape of a matrix.
    """
    place, store = root / (group or ""), root.store
    node = node_at(place)
    attributes = (node or {}).get("attributes", {})
    if not isinstance(store, RemoteStore) or ATTRIBUTE in attributes:
        return node
    if store.consolidated is None and node is not None:
        store.consolidated = _consolidated(root, newer=node["zarr_format"] == 3)
    if store.consolidated and group and (node is None or ("shape" in attributes and not _agrees(store, place, node))):
        store.consolidated = {}
        return node_at(place)
    return node


def _consolidated(root: StorePath, *, newer: bool) -> dict[str, Any]:
    """The consolidated metadata at a group, by key."""
    top = _json(root, ROOT if newer else ".zmetadata") or {}
    nodes = ((top.get("consolidated_metadata") or {}) if newer else top).get("metadata") or {}
    return {(root / path / (ROOT if newer else "")).path: node for path, node in nodes.items()}


def _agrees(store: RemoteStore, place: StorePath, node: Mapping[str, Any]) -> bool:
    """Return True if the stored attributes of a group equal the consolidated ones."""
    newer = node["zarr_format"] == 3
    key = (place / (ROOT if newer else ".zattrs")).path
    text, listed = sync(store.stored_metadata(key)), (store.consolidated or {}).get(key, {})
    there = {} if text is None else load_json(text.to_bytes(), METADATA_LIMITS, constants=True)
    return bool(there.get("attributes", {}) == listed.get("attributes", {}) if newer else there == listed)


def prefix_in(attributes: Mapping[str, Any]) -> str:
    """The prefix of the arrays of a group, if a build has written it."""
    at = attributes.get(AT)
    return at if isinstance(at, str) and re.fullmatch("[0-9a-f]{16}", at) else ""


def arrays_at(place: StorePath, attributes: Mapping[str, Any]) -> StorePath:
    """The group with the arrays of a tensor; for the first part of a tensor that grew, it is the group above."""
    above, found, rest = str(attributes.get(AT)).partition(ABOVE)
    if above or not found:
        return place / prefix_in(attributes)
    return StorePath(place.store, place.path.rpartition("/")[0]) / prefix_in({AT: rest.strip("/")})


def arrays_above(place: StorePath, parts: Iterable[str]) -> set[str]:
    """The names of the arrays of a group that belong to one of its parts: those of the tensor before it grew."""
    known = [(node_at(place / name) or {}).get("attributes", {}) for name in parts]
    return {name for x in known if str(x.get(AT)).startswith(ABOVE) for name in names_in(x.get(ATTRIBUTE))}


def mark(path: Any, group: str | None, among: Iterable[str]) -> str | None:
    """The first of these names that an attribute of a group has; None for a group that is damaged.

    Raises ContainerError if there is nothing, or an array without any of these attributes.
    """
    node: Any = {}
    with opened(path) as root, contextlib.suppress(BinsparseError), wrap_errors(str(path)):
        node = _group_at(root, group)
    attributes = (node or {}).get("attributes", {})
    found = next((name for name in among if name in attributes), None)
    if node is None or (found is None and node.get("node_type") == "array"):
        raise ContainerError(Problem(str(path), "no such group of Zarr"))
    return found


def conventions(attributes: Mapping[str, Any], *, ours: bool) -> list[Any]:
    """The declarations of our convention in the attributes of a group, or those of all others."""
    listed = attributes.get(CONVENTIONS, [])
    known = listed if isinstance(listed, list) else [listed]
    return [x for x in known if (isinstance(x, dict) and x.get("uuid") == CONVENTION["uuid"]) == ours]


def with_header(known: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a group in which `new` replaces those of its tensor. Other conventions stay."""
    made = {**new, **{key: x for key, x in known.items() if key not in OURS}}
    made[CONVENTIONS] = [*conventions(known, ours=False), *conventions(new, ours=True)]
    if not made[CONVENTIONS]:
        del made[CONVENTIONS]
    return made


def others(path: str, there: Collection[str] | None = None) -> set[str]:
    """The members of a folder or zip file that belong neither to a tensor at its root nor to an unfinished build.

    there: the names of all members, if the caller has listed them. Raises ContainerError.
    """
    with opened(path) as root, wrap_errors(path):
        names = names_at(root) if there is None else there
        node = node_at(root)
        attributes = {} if node is None else node.get("attributes", {})
        ours: set[str] = set()
        if node is not None and ATTRIBUTE in attributes:
            reader = ZarrReader(root, node, DEFAULT_LIMITS)
            nodes = members(reader.group.store_path)
            tensors = {name for name, x in nodes.items() if ATTRIBUTE in x.get("attributes", {})}
            ours = named_by(reader.read_header, tensors.union(x for x in nodes if nodes[x]["node_type"] == "array"))
        parts = [name for name in names if is_part(name)]  # also those that are not in the list
        ours |= {*parts, *arrays_above(root, parts)}
    ours |= set() if conventions(attributes, ours=False) else {CONVENTIONS}
    return {*names, *attributes} - {*ours, *NAMES, ATTRIBUTE, ARRAYS, AT}


def neighbours(path: Any, group: str | None) -> dict[str, Mapping[str, int]]:
    """The sizes of the named dimensions of the arrays and tensors in the group above a tensor, except its own."""
    path = str(path.root) if isinstance(path, LocalStore) else path
    if isinstance(path, str) and not group:  # it may be a group of a larger store
        path, _, group = (path if is_url(path) else real_path(path)).rstrip("/").rpartition("/")
    with opened(path or os.sep) as root, wrap_errors(str(path)):
        above, _, name = (root / (group or "")).path.rpartition("/")
        place = StorePath(root.store, above)
        nodes = members(place) if name and node_at(place) is not None else {}
    found: dict[str, Mapping[str, int]] = {}
    for other in nodes.keys() - {name}:
        node, attributes = nodes[other], nodes[other].get("attributes", {})
        dims = node.get("dimension_names") or attributes.get("_ARRAY_DIMENSIONS") or ()
        found[other] = sizes_in(attributes.get(ATTRIBUTE)) or dict(zip(dims, node.get("shape", ()), strict=False))
    return found


def list_groups(path: Any, limits: Limits, claims: Mapping[str, Claims]) -> list[str]:
    """The groups of a store that have a header, and the paths that kinds with a mark claim.

    The root is an empty string.
    """
    with opened(path) as root, wrap_errors(str(path)):
        if not root.store.supports_listing:
            raise ContainerError(Problem(str(path), "a web server lists no groups; name a group, as in URL:GROUP"))
        node = node_at(root)
        if node is None:
            raise PathMissingError(Problem(str(path), "no such group of Zarr; check the path"))
        groups = [("", group_of(root, node))]
        for above, _ in groups:  # it grows
            inner = {f"{above}/{name}".lstrip("/"): x for name, x in members(root / above).items()}
            groups += [(name, group_of(root / name, x)) for name, x in inner.items() if x["node_type"] == "group"]
        names = {name for name, group in groups if ATTRIBUTE in group.attrs}
        for name, group in groups:
            names -= {f"{name}/{part}".lstrip("/") for part in parts_in(group.attrs.get(ATTRIBUTE))}
        for name, group in groups:
            names |= claimed(group, name, [claims[mark] for mark in claims if mark in group.attrs])
        return sorted(names)


def members(place: StorePath) -> dict[str, dict[str, Any]]:
    """The metadata of the groups and arrays in a group, by name."""
    names = [name for name in names_at(place) if name not in NAMES]
    nodes = each(lambda name: node_at(place / name), names, 1 if is_local(place.store) else _MAX_OPEN_REQUESTS)
    return {name: x for name, x in zip(names, nodes, strict=True) if x and x.get("node_type") in ("array", "group")}


def names_at(place: StorePath) -> list[str]:
    """The names directly below a place, without temporary ones."""

    async def listed() -> list[str]:
        return [name async for name in place.store.list_dir(place.path) if not is_being_written(name)]

    return sync(listed())
