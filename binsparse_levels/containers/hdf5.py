"""HDF5: a group with one dataset for each array; the header is its attribute `binsparse`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from ..arrays import LazyArray, Pieces
from ..errors import ContainerError, PathExistsError, PathMissingError, Problem
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from ..log import DEBUG, LOG
from ..thresholds import THRESHOLDS
from .base import (
    CHUNKED,
    DEFAULT_STORAGE,
    Storage,
    grown_chunk,
    in_turn,
    named_by,
    names_in,
    no_tensor,
    sizes_in,
    wrap_errors,
)
from .direct import DIRECT
from .filters import GZIP_LEVEL, begun, chosen, deflated, sample
from .hdf5_arrays import Dataset
from .hdf5_files import changing, child_of
from .hdf5_files import opened as opened
from .hdf5_files import walk as walk
from .interface import Claims, Container, claimed
from .replacing import Others, Overwrite, keeps, part_of

ATTRIBUTE = "binsparse"
COMPRESSIONS = ("gzip", "small", "none")  # "small" is gzip, too


class HDF5Reader:
    """A group that is open for reading. Nothing outside the file is read.

    Soft and external links, virtual datasets, external storage and unknown filters are refused.
    """

    def __init__(self, group: h5py.Group, limits: Limits) -> None:
        #: The h5py group, for modules that read or write another layout.
        self.group = group
        self._limits = limits
        self._file = group.id if isinstance(group.id, h5py.h5f.FileID) else h5py.h5i.get_file_id(group.id)
        driver = self._file.get_access_plist().get_driver()
        self._remote = driver == h5py.h5fd.fileobj_driver  # a Python stream may read from a web server
        # The descriptor of a file whose contiguous arrays are read at their offset: a small slice in half of the time.
        local = DIRECT and driver == h5py.h5fd.SEC2 and not self._file.get_intent() & h5py.h5f.ACC_RDWR
        plain = local and not self._file.get_create_plist().get_userblock()
        self._handle: int | None = self._file.get_vfd_handle() if plain else None
        self._why = "a user block in the file" if local else "a file that is remote, or open for writing"

    def read_header(self) -> Any:
        text = read_text(self.group, ATTRIBUTE, self._limits)
        if text is None:
            with wrap_errors(self.group.name):  # a damaged group cannot be listed
                members = list(self.group)
            raise no_tensor(self.group.name, f"attribute {ATTRIBUTE!r}", members)
        return load_json(text, self._limits)

    def array(self, name: str) -> LazyArray | None:
        dataset = child_of(self.group, name, h5py.h5d.DatasetID)
        if dataset is None:
            return None
        with wrap_errors(name):
            array = Dataset(dataset, name, self._limits, self._remote)
            if self._handle is not None and array.deflated:
                from .hdf5_chunks import DeflatedArray

                LOG.debug("%s: its chunks are read at their offsets, and inflated without the HDF5 library", name)
                return DeflatedArray(name, array, self._handle, self._limits)
            why = self._why if self._handle is None else array.read_at_offset(self._handle)
            if LOG.isEnabledFor(DEBUG):
                LOG.debug("%s: read %s", name, f"by the HDF5 library, because of {why}" if why else "at its offset")
            return array

    @property
    def kind(self) -> str:
        """The kind of file. Both kinds are read the same way."""
        return "netcdf" if has_attribute(self.group.file, "_NCProperties") else "hdf5"

    def storage(self, name: str) -> Storage:
        """The storage options of an array, for a writer. Any compression counts as gzip.

        Precondition: `array` was called.
        """
        array = Dataset(child_of(self.group, name, h5py.h5d.DatasetID), name, self._limits, self._remote)
        if not array.chunked or not len(array):
            return DEFAULT_STORAGE
        plain = {*array.filters} <= {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
        return Storage(
            "none" if plain else "gzip",
            grown_chunk(array.chunk, len(array), THRESHOLDS.hdf5_chunk if plain else THRESHOLDS.deflated_chunk),
            chunk_checksum=None if h5py.h5z.FILTER_FLETCHER32 in array.filters else False,
            settings=None if plain else {name: {"shuffle": h5py.h5z.FILTER_SHUFFLE in array.filters}},
        )


def read_text(group: h5py.Group, name: str, limits: Limits) -> bytes | None:
    """An attribute that is a string of any kind, or None without the attribute. Raises ContainerError, LimitError."""
    with wrap_errors(name):
        key = name.encode()
        if not h5py.h5a.exists(group.id, key):
            return None
        attribute = h5py.h5a.open(group.id, key)
        shape, text = attribute.shape, None
        if shape in ((), (1,)):
            limits.hold("header_bytes", attribute.get_storage_size(), name, "the length of the attribute")
            item = np.zeros(shape, attribute.dtype)
            attribute.read(item)
            text = item.item()
    if not isinstance(text, bytes):
        there = f"values of shape {shape}" if text is None else type(text).__name__
        raise ContainerError(Problem(name, f"expected a string, got {there}"))
    return text


def has_attribute(group: h5py.Group, name: str) -> bool:
    """Return True if a group has an attribute. `name in group.attrs` takes ten times as long."""
    there: bool = h5py.h5a.exists(group.id, name.encode())
    return there


class HDF5Writer:
    """A group that is open for writing.

    Arrays are contiguous, so they can be mapped. With compression or chunks, they are chunked with a checksum.
    """

    def __init__(self, group: h5py.Group, storage: Storage) -> None:
        #: The h5py group, for modules that read or write another layout.
        self.group = group
        self._storage = storage

    def write(self, name: str, pieces: Pieces) -> None:
        if self.group.id.links.exists(name.encode()):
            raise PathExistsError(Problem(f"{self.group.name}/{name}", "already exists, and is no array of a tensor"))
        compression = self._storage.of("compression", name)
        compressed = compression in ("gzip", "small")
        chunks = self._storage.of("chunks", name)
        options: dict[str, Any] = {}
        if pieces.length and (chunks or compressed):
            usual = THRESHOLDS.deflated_chunk if compression == "gzip" else THRESHOLDS.hdf5_chunk
            options["chunks"] = (min(chunks or usual, pieces.length),)
            checked = self._storage.chunk_checksum
            # A deflated chunk contains one already, Adler-32.
            options["fletcher32"] = not compressed if checked is None else checked
        first, every = begun(pieces, *options["chunks"]) if options else (None, pieces.each())
        if first is not None and compressed:
            kept = self._storage.of("settings", name)
            kept = kept or {"shuffle": chosen([True, False], sample(first, *options["chunks"]), deflated)}
            options |= {"compression": "gzip", "compression_opts": GZIP_LEVEL, **kept}
        del first  # one piece at a time is in memory
        dataset = self.group.create_dataset(name, (pieces.length,), pieces.dtype.newbyteorder("<"), **options)
        at = 0
        for piece in every:
            with wrap_errors(name):
                dataset[at : at + len(piece)] = piece
            at += len(piece)

    def within(self, name: str) -> HDF5Writer:
        if self.group.id.links.exists(name.encode()):
            raise PathExistsError(Problem(f"{self.group.name}/{name}", "already exists, and is no order of a tensor"))
        ordered = self.group.file.id.get_create_plist().get_link_creation_order()  # as NetCDF requires
        return type(self)(self.group.create_group(name, track_order=bool(ordered)), self._storage)

    def write_header(self, header: Mapping[str, Any]) -> None:
        text = json.dumps(header)
        self.group.attrs.create(ATTRIBUTE, text, dtype=h5py.string_dtype("utf-8"))

    def clear(self, limits: Limits) -> None:
        """Delete the tensor in the group: its header, and the arrays and orders that the header names."""
        names = members_in(self.group, limits)
        del self.group.attrs[ATTRIBUTE]
        for name in names:
            del self.group[name]


def members_in(group: h5py.Group, limits: Limits) -> list[str]:
    """The names of the arrays and of the orders of the tensor in a group."""
    return sorted(_members(group, names_in(HDF5Reader(group, limits).read_header())))


def _members(group: h5py.Group, names: Iterable[str]) -> dict[str, Any]:
    """The arrays, and the groups with a tensor, of these names in a group. Links are not followed."""
    hard = {name: group[name] for name in names if isinstance(group.get(name, getlink=True), h5py.HardLink)}
    return {name: x for name, x in hard.items() if isinstance(x, h5py.Dataset) or has_attribute(x, ATTRIBUTE)}


def others(path: str) -> set[str]:
    """The members and attributes of a file that belong neither to a tensor at its root nor to NetCDF.

    Raises ContainerError.
    """
    with opened(path) as file, wrap_errors(path):
        ours = {ATTRIBUTE, "_NCProperties"}
        if has_attribute(file, ATTRIBUTE):
            members = _members(file, file)
            ours |= named_by(HDF5Reader(file, DEFAULT_LIMITS).read_header, members)
            for name in ours & members.keys():
                if has_attribute(members[name], "DIMENSION_LIST"):
                    ours |= {scale.name[1:] for dim in members[name].dims for scale in dim.values()}
        return {*file, *file.attrs} - ours


@contextlib.contextmanager
def _beneath(place: h5py.Group, overwrite: bool, limits: Limits, storage: Storage) -> Iterator[HDF5Writer]:
    """A temporary group within an open group. If the block succeeds, the tensor moves from there to the open group.

    If the block fails, the open group keeps its content.
    """
    name = str(place)
    if place.file.mode == "r":
        raise ContainerError(Problem(name, "is open for reading only; open the file with mode='r+'"))
    there = has_attribute(place, ATTRIBUTE)
    if there and not overwrite:
        raise PathExistsError(Problem(name, "has a tensor; pass overwrite=True"))
    old = members_in(place, limits) if there else []
    with wrap_errors(name):
        aside = place.create_group(os.path.basename(part_of("tensor")))
    try:
        new = aside.create_group("new")
        yield HDF5Writer(new, storage)
        with wrap_errors(name), in_turn:
            if has_attribute(place, ATTRIBUTE) and not there:
                raise PathExistsError(Problem(name, "another thread has written a tensor into it; pass another group"))
            place.file.flush()  # the disk may be full
            for member in new:
                if member not in old and place.id.links.exists(member.encode()):
                    what = "already exists, and is no array of a tensor"
                    raise PathExistsError(Problem(f"{place.name}/{member}", what))
            for member in old:
                del place[member]
            for member in list(new):
                new.id.links.move(member.encode(), place.id, member.encode())
            HDF5Writer(place, DEFAULT_STORAGE).write_header(json.loads(new.attrs[ATTRIBUTE]))
            place.file.flush()
    finally:
        del place[aside.name]


@contextlib.contextmanager
def reading(path: str | h5py.Group, group: str | None, limits: Limits) -> Iterator[HDF5Reader]:
    """Open a group of a file, or of an open group. Raises ContainerError, UnsafeError, PathMissingError."""
    with opened(path) as file:
        yield HDF5Reader(walk(file, group), limits)


@contextlib.contextmanager
def writing(
    path: str | h5py.Group,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    *,
    list_others: Others = others,
    by: type[HDF5Writer] = HDF5Writer,
    **options: Any,
) -> Iterator[HDF5Writer]:
    """A group of a new file, or of a copy of the file. The new file replaces the old one if the block succeeds.

    Without a group, the whole file is replaced; with a group, and in an open group, only the tensor in it.
    list_others: lists the members of the file that are not part of the tensor. by: the writer. options: of h5py, for a
    new file. Raises OptionError, and PathExistsError as `refuse_existing` does.
    """
    storage.refuse("HDF5", but=CHUNKED, compressions=COMPRESSIONS)
    if isinstance(path, h5py.Group):
        with opened(path) as place, _beneath(place, bool(overwrite), limits, storage) as writer:
            yield writer
        return
    with changing(path, overwrite, list_others, keep=keeps(path, group, overwrite, list_others), **options) as file:
        place = walk(file, group, make=True, track_order=options.get("track_order"))
        with wrap_errors(path):
            writer = by(place, storage)
        if has_attribute(place, ATTRIBUTE):
            if not overwrite:
                raise PathExistsError(Problem(f"{path}:{group or '/'}", "has a tensor; pass overwrite=True"))
            with wrap_errors(path):
                writer.clear(limits)
        yield writer


def mark(path: str | h5py.Group, group: str | None, among: Iterable[str]) -> str | None:
    """The first of these names that an attribute or a member of a group has; None for a missing group."""
    with opened(path) as file, contextlib.suppress(PathMissingError), wrap_errors(file.file.filename):
        place = walk(file, group)
        for name in among:
            if _is_marked(place, name.encode()):
                return name
    return None


def _is_marked(group: h5py.Group, key: bytes) -> bool:
    return bool(h5py.h5a.exists(group.id, key) or group.id.links.exists(key))


def neighbours(path: str | h5py.Group, group: str | None) -> dict[str, Mapping[str, int]]:
    """The sizes of the named dimensions of a NetCDF file and its tensors, except one at the root or directly below."""
    with opened(path) as file, wrap_errors(str(path)):
        place, root = walk(file, group), file.file
        if not has_attribute(root, "_NCProperties") or place.name.rpartition("/")[0] or place == root:
            return {}
        found: dict[str, Mapping[str, int]] = {}
        for name, member in _members(root, root).items():
            if has_attribute(member, ATTRIBUTE) and member != place:
                found[name] = sizes_in(HDF5Reader(member, DEFAULT_LIMITS).read_header())
            elif has_attribute(member, "REFERENCE_LIST") or has_attribute(member, "CLASS"):
                found[name] = {name: member.shape[0]}
        return found


def list_groups(path: str | h5py.Group, limits: Limits, claims: Mapping[str, Claims]) -> list[str]:
    """The groups with a header, and the paths that kinds with a mark claim, in a file or an open group.

    The root is an empty string. Links are not followed.
    """
    names = set[str]()

    def look(name: str, item: Any) -> None:
        with wrap_errors(name):
            if isinstance(item, h5py.Group):
                there = [claims[mark] for mark in claims if _is_marked(item, mark.encode())]
                names.update(claimed(item, name, there), [name] if has_attribute(item, ATTRIBUTE) else ())

    with opened(path) as file, wrap_errors(str(path)):
        look("", file)
        file.visititems(look)
    return sorted(names)


FUNCTIONS = Container(
    reading=reading,
    writing=writing,
    opened=opened,
    list_groups=list_groups,
    mark=mark,
    others=others,
    neighbours=neighbours,
)
