"""HDF5: a group with one dataset for each array; the header is its attribute `binsparse`."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from ..arrays import Array, LazyArray, Parts, Pieces, lazy
from ..errors import ContainerError, PathExistsError, PathMissingError, Problem, UnsafeError
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from .base import DEFAULT_STORAGE, Storage, asked_for, bounded_chunk, named_by, names_in, raise_as_ours, touching
from .direct import DIRECT, parts_of
from .hdf5_disk import Disk
from .hdf5_opening import child_of
from .hdf5_opening import opened as opened
from .hdf5_opening import walk as walk
from .replacing import Others, Overwrite, keeps, part_of, replacing

ATTRIBUTE = "binsparse"
# Large arrays begin at a page: to read 124 MB takes 8.7 ms, from where they would fall else 10.8.
_ALIGNED = {"alignment_threshold": 2**16, "alignment_interval": 2**12}
_LEVEL = 4  # of gzip, as in h5py
CHUNK = 2**17  # items: half of the speed is lost in chunks of a thousand

# The HDF5 filters that may run: deflate, shuffle, fletcher32, szip, nbit, scaleoffset, lzf, blosc,
# lz4, bitshuffle, zstd, blosc2.
_FILTERS = {1, 2, 3, 4, 5, 6, 32000, 32001, 32004, 32008, 32015, 32026}


class HDF5Reader:
    """A group that is open for reading. Nothing outside of the file is read.

    Soft and external links, virtual datasets, external storage and unknown filters are refused.
    """

    def __init__(self, group: h5py.Group, limits: Limits) -> None:
        self._group = group
        self._limits = limits
        self._file = group.id if isinstance(group.id, h5py.h5f.FileID) else h5py.h5i.get_file_id(group.id)
        # The descriptor of a file whose contiguous arrays are read at their offset: a small slice in half of the time.
        driver, written = self._file.get_access_plist().get_driver(), self._file.get_intent() & h5py.h5f.ACC_RDWR
        near = DIRECT and driver == h5py.h5fd.SEC2 and not written
        plain = near and not self._file.get_create_plist().get_userblock()
        self._handle: int | None = self._file.get_vfd_handle() if plain else None

    @functools.cached_property
    def _far(self) -> bool:
        """Whether it is read through Python: it may lie on a web server."""
        return bool(self._file.get_access_plist().get_driver() == h5py.h5fd.fileobj_driver)

    @property
    def group(self) -> h5py.Group:
        """The h5py group, for modules that read or write another layout."""
        return self._group

    def read_header(self) -> Any:
        text = read_text(self._group, ATTRIBUTE, self._limits)
        if text is None:
            what = f"no attribute {ATTRIBUTE!r}: no Binsparse tensor here; list_tensors names those of the file"
            raise ContainerError(Problem(self._group.name, what))
        return load_json(text, self._limits)

    def array(self, name: str) -> LazyArray | None:
        dataset = child_of(self._group, name, h5py.h5d.DatasetID)
        if dataset is None:
            return None
        try:
            stored = _Stored(dataset)
            if stored.properties.get_external_count():
                raise UnsafeError(Problem(name, "its data is in another file"))
            if stored.properties.get_layout() == h5py.h5d.VIRTUAL:
                raise UnsafeError(Problem(name, "a virtual dataset is not followed"))
            if unknown := {*stored.filters} - _FILTERS:
                raise UnsafeError(Problem(name, f"the HDF5 filter {min(unknown)} is not allowed"))
            # In a remote file, to count the bytes of chunks reads about all of them.
            size = stored.nbytes if stored.chunk and self._far else dataset.get_storage_size()
            at = None if self._handle is None else stored.offset()
            if self._handle is not None and at is not None:
                if at + stored.nbytes > os.fstat(self._handle).st_size:
                    raise EOFError("the file ends before the array does")
                part = parts_of(self._handle, at, stored.dtype, name, self._limits)
            else:
                part = self._parts(stored, name)
            return lazy(stored.shape, stored.dtype, part, nbytes=size, chunk=stored.chunk or 1)
        except Exception as error:
            raise_as_ours(error, name)

    @property
    def kind(self) -> str:
        """The kind of file. Both kinds are read alike."""
        return "netcdf" if has_attribute(self._group.file, "_NCProperties") else "hdf5"

    def storage(self, name: str) -> Storage:
        """How an array is stored, as options for a writer. Any compression counts as gzip.

        Precondition: `array` was called.
        """
        stored = _Stored(child_of(self._group, name, h5py.h5d.DatasetID))
        if not stored.chunk or not stored.length:
            return DEFAULT_STORAGE
        plain = {*stored.filters} <= {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
        return Storage(
            "none" if plain else "gzip",
            asked_for(stored.chunk, stored.length, CHUNK),
            checksum=None if h5py.h5z.FILTER_FLETCHER32 in stored.filters else False,
        )

    def _parts(self, stored: _Stored, name: str) -> Parts:
        """A function that reads parts of a dataset, whose chunks are checked at the first."""
        checked = not stored.chunk

        def read(start: int, stop: int) -> Array:
            nonlocal checked
            self._limits.hold("array_bytes", (stop - start) * stored.dtype.itemsize, name, "the size in bytes")
            try:
                if stored.chunk and not checked:
                    bounded_chunk(name, stored.chunk, stored.length, stored.dtype.itemsize, self._limits)
                    if not self._far:
                        stored.check()
                        checked = True
                if stored.chunk and self._far:
                    stored.check_part(start, stop)
                return stored.part(start, stop)
            except Exception as error:
                raise_as_ours(error, name)

        return read


class _Stored:
    """A dataset of one dimension. h5py's own object takes longer to make than a small array to read."""

    def __init__(self, dataset: h5py.h5d.DatasetID) -> None:
        self._id = dataset
        self.shape: tuple[int, ...] = dataset.shape or ()  # None where it never has any item
        self.dtype: np.dtype[Any] = dataset.dtype
        self.length = math.prod(self.shape)
        self.nbytes = self.length * self.dtype.itemsize
        self.properties = dataset.get_create_plist()
        chunked = self.properties.get_layout() == h5py.h5d.CHUNKED
        self.chunk: int | None = math.prod(self.properties.get_chunk()) if chunked else None
        self.filters: list[int] = [self.properties.get_filter(k)[0] for k in range(self.properties.get_nfilters())]

    def part(self, start: int, stop: int) -> Array:
        """The items start … stop - 1."""
        if self.dtype.kind not in "iufb":  # h5py converts texts, enumerations and records
            array: Array = h5py.Dataset(self._id)[start:stop]
            return array
        items: Array = np.empty(stop - start, self.dtype)
        if len(items):
            there = self._id.get_space()
            there.select_hyperslab((start,), (len(items),))
            self._id.read(h5py.h5s.create_simple(items.shape), there, items)
        return items

    def offset(self) -> int | None:
        """Where the items begin in the file; None where only the library can read them."""
        if len(self.shape) != 1 or not self.length or self.dtype.kind not in "iuf":
            return None
        plain = self._id.get_type().equal(h5py.h5t.py_create(self.dtype))  # numpy has no integers of 12 bits
        at: int | None = self._id.get_offset() if plain and self._id.get_storage_size() == self.nbytes else None
        return at

    def check(self) -> None:
        """Raise ValueError for a chunk of no bytes: the library crashes when it filters nothing."""
        sizes: list[int] = []
        if self.shape:
            self._id.chunk_iter(lambda info: sizes.append(info.size))
        if 0 in sizes:
            raise ValueError("a chunk is stored in no bytes")

    def check_part(self, start: int, stop: int) -> None:
        """`check` of the chunks of some items, without reading where all the others are."""
        chunk = self.chunk or 1
        for at in range(start // chunk * chunk, stop, chunk):
            try:
                _, stored = self._id.read_direct_chunk((at,))
            except (OSError, RuntimeError):  # it was never written
                continue
            if not len(stored):
                raise ValueError("a chunk is stored in no bytes")


def read_text(group: h5py.Group, name: str, limits: Limits) -> bytes | None:
    """An attribute that is a string of any kind, or None without the attribute. Raises ContainerError, LimitError."""
    try:
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
    except Exception as error:
        raise_as_ours(error, name)
    if not isinstance(text, bytes):
        there = f"values of shape {shape}" if text is None else type(text).__name__
        raise ContainerError(Problem(name, f"expected a string, got {there}"))
    return text


def has_attribute(group: h5py.Group, name: str) -> bool:
    """Whether a group has an attribute. `name in group.attrs` takes ten times as long."""
    there: bool = h5py.h5a.exists(group.id, name.encode())
    return there


class HDF5Writer:
    """A group that is open for writing.

    Arrays are contiguous, so that they can be mapped. With compression or chunks, they are chunked with a checksum.
    """

    def __init__(self, group: h5py.Group, storage: Storage) -> None:
        self._group = group
        self._storage = storage

    @property
    def group(self) -> h5py.Group:
        """The h5py group, for modules that read or write another layout."""
        return self._group

    def write(self, name: str, pieces: Pieces) -> None:
        if self._group.id.links.exists(name.encode()):
            raise PathExistsError(Problem(f"{self._group.name}/{name}", "already exists, and is no array of a tensor"))
        compression = self._storage.of("compression", name)
        chunks = self._storage.of("chunks", name)
        options: dict[str, Any] = {}
        if pieces.length and (chunks or compression == "gzip"):
            options["chunks"] = (min(chunks or CHUNK, pieces.length),)
            checksum = self._storage.checksum
            if checksum is None:
                checksum = compression != "gzip"  # a deflated chunk has its own, Adler-32
            options["fletcher32"] = checksum
        if options and compression == "gzip":
            options |= {"compression": "gzip", "compression_opts": _LEVEL, "shuffle": True}
        dataset = self._group.create_dataset(name, (pieces.length,), pieces.dtype.newbyteorder("<"), **options)
        at = 0
        for piece in pieces.regrouped(*options.get("chunks", (1,))) if options else pieces.each():
            with touching(name):
                dataset[at : at + len(piece)] = piece
            at += len(piece)

    def write_header(self, header: Mapping[str, Any]) -> None:
        text = json.dumps(header)
        self._group.attrs.create(ATTRIBUTE, text, dtype=h5py.string_dtype("utf-8"))

    def clear(self, limits: Limits) -> None:
        """Delete the tensor in the group: its header, and the arrays that the header names."""
        names = arrays_in(self._group, limits)
        del self._group.attrs[ATTRIBUTE]
        for name in names:
            del self._group[name]


def arrays_in(group: h5py.Group, limits: Limits) -> list[str]:
    """The names of the arrays of the tensor in a group."""
    names = sorted(names_in(HDF5Reader(group, limits).read_header()))
    return [name for name in names if child_of(group, name, h5py.h5d.DatasetID) is not None]


def others(path: str) -> set[str]:
    """The names in a file, of members and attributes, that neither a tensor at its root nor NetCDF has made.

    Raises ContainerError.
    """
    with opened(path) as file, touching(path):
        ours, there = {ATTRIBUTE, "_NCProperties"}, {*file}
        if has_attribute(file, ATTRIBUTE):
            # h5py's own objects take four times as long: this is a tenth of a write of a million entries.
            links = file.id.links
            hard = [name for name in there if links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD]
            children = {name: h5py.h5o.open(file.id, name.encode()) for name in hard}
            arrays = {name: child for name, child in children.items() if isinstance(child, h5py.h5d.DatasetID)}
            ours |= named_by(HDF5Reader(file, DEFAULT_LIMITS).read_header, arrays)
            for name in ours & arrays.keys():
                if h5py.h5a.exists(arrays[name], b"DIMENSION_LIST"):
                    ours |= {scale.name[1:] for lies in file[name].dims for scale in lies.values()}
        return {*there, *file.attrs.keys()} - ours


@contextlib.contextmanager
def _aside(place: h5py.Group, overwrite: bool, limits: Limits, storage: Storage) -> Iterator[HDF5Writer]:
    """A new group within an open group. When the block ends well, the tensor moves from there to the open group.

    Where the block fails, the open group keeps its content.
    """
    name = str(place)
    if place.file.mode == "r":
        raise ContainerError(Problem(name, "is open for reading only; open the file with mode='r+'"))
    there = has_attribute(place, ATTRIBUTE)
    if there and not overwrite:
        raise PathExistsError(Problem(name, "has a tensor; pass overwrite=True"))
    old = arrays_in(place, limits) if there else []
    with touching(name):
        aside = place.create_group(os.path.basename(part_of("tensor")))
    try:
        yield HDF5Writer(aside.create_group("new"), storage)
        with touching(name):
            place.file.flush()  # the disk may be full
            _exchange(place, old, aside)
            place.file.flush()
    finally:
        del place[aside.name]


def _exchange(place: h5py.Group, old: Sequence[str], aside: h5py.Group) -> None:
    """Exchange the old arrays of a group and the new tensor in the group `aside`, atomically."""
    new, out = aside["new"], aside.create_group("old")
    names = list(new.keys())
    for name in names:
        if name not in old and place.id.links.exists(name.encode()):
            raise PathExistsError(Problem(f"{place.name}/{name}", "already exists, and is no array of a tensor"))
    moves = [(place, name, out) for name in old] + [(new, name, place) for name in names]
    done = []
    try:
        for source, name, target in moves:
            source.id.links.move(name.encode(), target.id, name.encode())
            done.append((source, name, target))
        HDF5Writer(place, DEFAULT_STORAGE).write_header(json.loads(new.attrs[ATTRIBUTE]))
    except BaseException:
        for source, name, target in reversed(done):
            target.id.links.move(name.encode(), source.id, name.encode())
        raise


@contextlib.contextmanager
def reading(path: str | h5py.Group, group: str | None, limits: Limits) -> Iterator[HDF5Reader]:
    """Open a group of a file, or of a group that is open. Raises ContainerError, UnsafeError, PathMissingError."""
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
    beside: Others = others,
) -> Iterator[HDF5Writer]:
    """A group of a new file, or of a copy of the file. The new file replaces the old file when the block ends well.

    Without a group, the whole file is replaced; with a group, and in an open group, only the tensor in it.
    beside: lists what the file holds beside what is written. Raises OptionError, and PathExistsError as
    `refuse_existing` does.
    """
    storage.refuse("HDF5", but=("compression", "chunks", "checksum"), compressions=("gzip", "none"))
    if isinstance(path, h5py.Group):
        with opened(path) as place, _aside(place, bool(overwrite), limits, storage) as writer:
            yield writer
        return
    with changing(path, overwrite, beside, keep=keeps(path, group, overwrite, beside)) as file:
        writer = HDF5Writer(walk(file, group, make=True), storage)
        make_room(writer, f"{path}:{group or '/'}", overwrite, limits)
        yield writer


def make_room(writer: HDF5Writer, place: str, overwrite: Overwrite, limits: Limits) -> None:
    """Delete the tensor in a group. Raises PathExistsError for a tensor that is there, unless `overwrite`."""
    if has_attribute(writer.group, ATTRIBUTE):
        if not overwrite:
            raise PathExistsError(Problem(place, "has a tensor; pass overwrite=True"))
        with touching(place):
            writer.clear(limits)


@contextlib.contextmanager
def changing(
    path: str, overwrite: Overwrite, others: Others | None = None, *, keep: bool, head: bytes = b"", **options: Any
) -> Iterator[h5py.File]:
    """A new file, or with `keep` a copy of the old file. It replaces the old file when the block ends well.

    overwrite, others: as for `replacing`. head: 512 bytes before those of HDF5 in a new file, or none. options: of
    h5py, for a new file. Raises ContainerError.
    """
    with replacing(path, overwrite, keep=keep, others=others) as part, Disk(part) as disk:
        old = keep and os.path.getsize(part)
        new = {**_ALIGNED, **options, **({"userblock_size": len(head), "alignment_interval": 1} if head else {})}
        try:
            with touching(path):
                file = h5py.File(disk, "r+") if old else h5py.File(disk, "w", **new)
            with file:
                yield file
            if head and not old:
                disk.seek(0)
                disk.write(head)
        finally:  # what the library says after a failed write misleads
            disk.raise_failure(path)


def mark(path: str | h5py.Group, group: str | None, among: Iterable[str]) -> str | None:
    """The first of these names that an attribute or a member of a group has; None for a missing group."""
    with opened(path) as file:
        try:
            place = walk(file, group)
            for name in among:
                if h5py.h5a.exists(place.id, name.encode()) or place.id.links.exists(name.encode()):
                    return name
        except PathMissingError:
            pass
        except Exception as error:
            raise_as_ours(error, file.file.filename)
    return None


def list_groups(
    path: str | h5py.Group, limits: Limits, claims: Sequence[Callable[[h5py.Group], bool]] = ()
) -> list[str]:
    """The groups with a header, or that a function of `claims` accepts, in a file or an open group.

    The root is an empty string. Links are not followed.
    """
    names = []
    with opened(path) as file:
        todo = [("", file)]
        seen = set()
        while todo:
            name, group = todo.pop()
            with touching(name):
                address = h5py.h5o.get_info(group.id).addr
                if address in seen:  # a hard link to a group above
                    continue
                seen.add(address)
                if has_attribute(group, ATTRIBUTE) or any(claim(group) for claim in claims):
                    names.append(name)
                for child in sorted(group.keys(), reverse=True):
                    link = group.get(child, getlink=True)
                    if isinstance(link, h5py.HardLink) and isinstance(group[child], h5py.Group):
                        todo.append((f"{name}/{child}".lstrip("/"), group[child]))
    return names
