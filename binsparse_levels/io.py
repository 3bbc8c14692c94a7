"""Open, read and write: the one place that joins formats, data types and containers.

What is there is told by its content first and by its suffix second; where there is no content yet, by the suffix.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import os
import sys
import warnings
import weakref
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from .containers.base import (
    DEFAULT_STORAGE,
    ArrayInfo,
    Pieces,
    Reader,
    Storage,
    Writer,
    hold_lock,
    is_url,
    load_json,
    one_piece,
    refuse_existing,
    split_path,
)
from .containers.seal import sealed, summed, sums_of
from .descriptor import VERSION, Descriptor, parse_descriptor
from .errors import (
    BinsparseError,
    ContainerError,
    DialectWarning,
    OptionError,
    PathMissingError,
    Problem,
    within_memory,
)
from .fused import Duplicates
from .limits import DEFAULT_LIMITS, Limits
from .loading import Found, Loading, described, lazy_tensor
from .mapped import AnyTensor, MappedTensor, as_stored, as_written, without_map
from .maps import IndexMap
from .tensor import Check, Tensor


class Kind(NamedTuple):
    """A kind of file: the module that reads and writes it, its suffixes, what that module is to be told, and whether a
    file holds several tensors by name.

    Modules in `files` read and write tensors, those in `containers` headers and arrays. reads, writes: the options of
    `read` and `write` that a module in `files` has. A plug-in's module is named from its own package on; tensors:
    whether it is one as those in `files`. signature: how such a file begins.
    """

    module: str
    suffixes: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    named: bool = False
    tensors: bool = False
    signature: bytes = b""

    @property
    def holds_tensors(self) -> bool:
        """Whether the module reads and writes tensors, not arrays."""
        return self.tensors or self.module.startswith("files.")


KINDS = {
    "hdf5": Kind("containers.hdf5", (".h5", ".hdf5")),
    "zarr": Kind("containers.zarr", (".zarr", ".zarr.zip")),
    "zarr2": Kind("containers.zarr", (), {"zarr_format": 2}),
    "npz": Kind("containers.npz", (".npz",)),
    "directory": Kind("containers.directory", (".bspnpy",)),
    "rawarray_directory": Kind("containers.rawarray", (".bspra",)),
    "netcdf": Kind("containers.netcdf", (".nc", ".nc4")),
    "memory": Kind("containers.memory"),
    "matrix_market": Kind("files.matrix_market", (".mtx", ".mtx.gz"), reads=("duplicates",)),
    "frostt": Kind("files.frostt", (".tns", ".tns.gz"), reads=("shape", "duplicates")),
    "rawarray": Kind(
        "files.rawarray",
        (".ra",),
        reads=("order", "dtype"),
        writes=("order", "eltype", "big_endian", "encoding", "trailer"),
    ),
    "sscdf": Kind("files.sscdf", (".sscdf",), {}, ("name", "check"), ("name", "storage", "limits"), True),
    "sscdf_json": Kind("files.sscdf", (), {"dialect": "json"}, ("name", "check"), ("name", "storage", "limits"), True),
    "bpcells": Kind(
        "files.bpcells", reads=("group", "duplicates"), writes=("group", "packed", "version", "chunks", "gzip")
    ),
    "anndata": Kind("files.anndata", reads=("group", "duplicates")),
}
_SIGNATURES = {
    b"\x89HDF\r\n\x1a\n": "hdf5", b"%%MatrixMarket": "matrix_market", b"rawarray": "rawarray", b"yarrawar": "rawarray",
}  # fmt: skip
# An attribute of an HDF5 group, or an object in it, that tells what the group is; ours comes first.
_HDF5_MARKS = {
    "binsparse": "hdf5", "version": "bpcells", "encoding-type": "anndata", "h5sparse_format": "anndata",
    "barcodes": "anndata", "matrix": "anndata",
}  # fmt: skip
# A file in a folder, or a member of a zip file, that tells what the whole is.
_MARKS = {
    "zarr.json": "zarr", ".zgroup": "zarr", "values.ra": "rawarray_directory", "binsparse.json": "directory",
    "binsparse.npy": "npz",
}  # fmt: skip

# A path, PATH:GROUP, a URL or a store of zarr's, an open group of h5py's or zarr's, a mapping.
Place: TypeAlias = Any


@within_memory
def read(
    path: Place,
    *,
    lenient: bool = False,
    check: Check = "full",
    shape: int | Sequence[int] | None = None,
    duplicates: Duplicates | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> AnyTensor:
    """The tensor in PATH[:GROUP], in a store of zarr's, an open group of h5py's or zarr's, or in a mapping, copied into
    memory and checked in full; a MappedTensor where there is a map beside the descriptor.

    lenient: mend a fixed list of dialects that other programs write; each repair is told by a DialectWarning. check:
    as for Tensor. shape: of a .tns file, which names none; else its largest coordinates tell. duplicates: as for
    `pack`, "error" where it is not given; text files may have some, others only when read leniently. options: what
    other systems' files have of their own, such as the `name` of an object in an sscdf file, or `order` of RawArray;
    see `read` in the module in `files`.

    Raises FileNotFoundError, and BinsparseError of every kind with all that is wrong.
    """
    place, group = _split(path)
    kind = KINDS[_kind_at(place, group)]
    module = _module(kind)
    if kind.holds_tensors:
        given = _placed(kind, place, group, {"shape": shape, "duplicates": duplicates, **options})
        given |= {"lenient": lenient or None, "check": check if check != "full" else None}
        tensor: Tensor = module.read(place, limits=limits, **_chosen(place, given, kind.reads))
        return tensor
    _refuse(place, shape=shape, duplicates=None if lenient else duplicates, **options)
    with _one_folder(place), module.reading(place, group, limits) as reader:
        loading = Loading(reader, limits, lenient)
        found = loading.tensor(check, duplicates or "error")
    for repair in loading.repairs:
        warnings.warn(f"{place}: {repair}" if isinstance(place, str) else repair, DialectWarning, stacklevel=3)
    return as_written(found)


@within_memory
def open(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> AnyTensor:
    """The tensor in PATH[:GROUP], of which only the header and the metadata of the arrays are read, and compared.

    What is asked of it, or of a view of it, is then read, copied and checked; the container stays open as long as it or
    a view is there. It has to stay as it is: a write of this package makes a new one. A text file has no header, and is
    read. Raises what `read` raises.
    """
    place, group = _split(path)
    kind = KINDS[_kind_at(place, group)]
    if kind.holds_tensors:
        return _opened(path, kind, place, group, limits)
    with contextlib.ExitStack() as stack:
        unreplaced = stack.enter_context(_same_folder(place))
        reader = stack.enter_context(_module(kind).reading(place, group, limits))
        loading = Loading(reader, limits, False, unreplaced)
        tensor = loading.lazy_tensor()
        unreplaced()
        weakref.finalize(loading, stack.pop_all().close)
    return as_written(tensor)


class _Open:
    """What closes a file when nobody asks it any more."""


def _opened(path: Place, kind: Kind, place: Any, group: str | None, limits: Limits) -> AnyTensor:
    """A tensor in another system's file; where the module cannot read it in parts, it is read."""
    if not hasattr(_module(kind), "looking"):
        return read(path, limits=limits)
    keep = _Open()
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(_looking(kind, place, group, limits))
        tensor = lazy_tensor(found, keep)
        weakref.finalize(keep, stack.pop_all().close)
    return tensor


def _looking(kind: Kind, place: Any, group: str | None, limits: Limits) -> contextlib.AbstractContextManager[Found]:
    """A tensor in another system's file, as long as it is open."""
    given = _chosen(place, _placed(kind, place, group, {}), kind.reads)
    found: contextlib.AbstractContextManager[Found] = _module(kind).looking(place, limits=limits, **given)
    return found


@within_memory
def write(
    path: Place,
    tensor: AnyTensor,
    *,
    overwrite: bool = False,
    kind: str | None = None,
    spec_version: str = VERSION,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    checksum: bool | None = None,
    narrow: bool = False,
    bitpacked: bool | Collection[str] = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write a tensor to PATH[:GROUP], into a store of zarr's, an open group of h5py's or zarr's, or a mapping; of a
    MappedTensor the tensor that is stored, with the map beside its descriptor, or, to another system's file, its
    entries.

    kind: one of KINDS; the suffix of a path tells it where it is not given. spec_version: the version that the
    descriptor names; "0.1" is for programs that know no other. compression (gzip, zstd, none), chunks and shards (in
    items), checksum: as far as the container has them, for all arrays or by name; checksum=True also seals the header
    and every array, so that `read` refuses a file in which anything has changed; where they are not given, HDF5,
    NetCDF and NPZ hold plain arrays that anyone can read or map, and Zarr chunks of 2**16 items in shards of 2**20,
    with zstd and checksums. narrow: index and pointer arrays take the smallest unsigned integers that hold their
    numbers, and are read as such. bitpacked: index and pointer arrays, or the arrays of integers with these names,
    `values` among them, take as many bits as their numbers need, and are read as what they were; no other program
    reads them. options: what other systems' files have of their own, see `write` in the module in `files`.

    A file or local folder appears whole, in one step, or not at all; into another store the header is written last. A
    group is written into what is there, the rest of which is kept; an open group or a mapping, too, takes the tensor
    in and keeps the rest. What is not a path is as it was where the call fails. Raises FileExistsError for what is
    there, unless `overwrite`; BinsparseError for a tensor that the kind of file cannot hold, before anything is
    touched; LimitError for a header that `read` would refuse; TypeError for an option that the container does not
    have.
    """
    if not isinstance(tensor, Tensor | MappedTensor):
        raise TypeError(f"expected a Tensor, got {type(tensor).__name__}")
    place, group = _split(path)
    found = KINDS[_kind_to_write(place, kind)]
    _check_folder(place)
    storage = Storage(compression, chunks, shards, checksum)
    if found.holds_tensors:
        _refuse(place, narrow=narrow or None, bitpacked=bitpacked or None)
        given = _placed(found, place, group, options)
        if "storage" in found.writes:
            given |= {"storage": storage, "limits": limits}
        else:
            storage.refuse("this kind of file", but=found.writes)
            given |= {"chunks": chunks} if chunks is not None else {}
        options = {**found.options, **_chosen(place, given, found.writes)}
        _writer(found, place)(place, without_map(tensor), overwrite=overwrite, **options)
        return
    _refuse(place, **options)
    if not isinstance(spec_version, str):
        raise TypeError(f"a version is a string, got {spec_version!r:.40}")
    header, arrays = as_stored(tensor)._stored(spec_version, narrow=narrow, bitpacked=bitpacked)
    storage.check_names(arrays)
    parse_descriptor(load_json(json.dumps(header), limits), limits)  # what is written can be read
    header = sealed(header, sums_of(arrays)) if checksum else header
    write_arrays(path, header, arrays, overwrite=overwrite, kind=kind, storage=storage, limits=limits)


def write_pieces(
    path: Place,
    header: Mapping[str, Any],
    pieces: Mapping[str, Pieces],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    checksum: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """As `write`, of arrays that come in pieces."""
    check_target(path, overwrite=overwrite, kind=kind)
    storage = Storage(compression, chunks, shards, checksum)
    storage.check_names(pieces)
    parse_descriptor(load_json(json.dumps(header), limits), limits)  # what is written can be read
    sums: dict[str, int] = {}
    if checksum:
        pieces = {name: summed(name, x, sums) for name, x in pieces.items()}
    write_arrays(
        path,
        (lambda: sealed(header, sums)) if checksum else header,
        pieces,
        overwrite=overwrite,
        kind=kind,
        storage=storage,
        limits=limits,
    )


def check_target(path: Place, *, overwrite: bool, kind: str | None = None) -> None:
    """Raise what `write_pieces` would, as far as can be told before there is anything to write."""
    place, group = _split(path)
    if KINDS[_kind_to_write(place, kind)].holds_tensors:
        raise OptionError(Problem(str(place), "this kind of file is not written in pieces"))
    _check_folder(place)
    if isinstance(place, str) and not is_url(place) and group is None:
        refuse_existing(place, overwrite)


def _check_folder(place: Any) -> None:
    if isinstance(place, str) and not is_url(place):
        folder = os.path.dirname(os.path.realpath(place))
        if not os.path.isdir(folder):
            raise PathMissingError(Problem(folder, "no such folder"))


def in_place(path: Place) -> bool:
    """Whether what is at a path is overwritten where it lies: in stores that are no local files or folders."""
    place, _ = _split(path)
    return is_url(place) if isinstance(place, str) else _open_kind(place) == "zarr"


def is_mapping(place: Place) -> bool:
    """Whether a place is a mapping of arrays; an open group is none, though one of h5py's is a mapping for Python."""
    return isinstance(place, Mapping) and not _is_hdf5(place)


def _is_hdf5(place: Any) -> bool:
    h5py = sys.modules.get("h5py")  # where nobody has imported it, there is no group of it
    return h5py is not None and isinstance(place, h5py.Group)


def same_store(a: Place, b: Place) -> bool:
    """Whether two paths are of the same store, whatever the groups."""
    one, other = (getattr(place, "store", place) for place, _ in map(_split, (a, b)))
    return bool(one == other)


def refuse_files(path: Place) -> None:
    """Raise OptionError for a file of another system, to which nothing is appended."""
    place, group = _split(path)
    if KINDS[_kind_at(place, group)].holds_tensors:
        raise OptionError(Problem(str(path), "this kind of file is not appended to; convert it first"))


def locked(path: Place) -> contextlib.AbstractContextManager[None]:
    """Nobody else reads and writes again what is at a path within the block; of a mapping, or of a store that is no
    local folder or file, there is no lock. Raises ContainerError where another does so for long.
    """
    place, _ = _split(path)
    place = os.fspath(root) if isinstance(root := getattr(place, "root", None), os.PathLike) else place
    return hold_lock(place) if isinstance(place, str) and "://" not in place else contextlib.nullcontext()


class Kept(NamedTuple):
    """How a tensor is stored in a container: as options of `write_pieces`, and the wrappers of bit-packed arrays."""

    options: Mapping[str, Any] = {}
    wrappers: Mapping[str, str] = {}


def kept(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Kept:
    """How the tensor in PATH[:GROUP] is stored; of a file of another system nothing."""
    place, group = _split(path)
    kind = _kind_at(place, group)
    if KINDS[kind].holds_tensors:
        return Kept()
    with _module(KINDS[kind]).reading(place, group, limits) as reader:
        loading = Loading(reader, limits, False)
        stored = {}
        if hasattr(reader, "storage"):
            stored = {name: reader.storage(name) for name in loading.infos}
            of_others = next((x for x in stored.values() if x != DEFAULT_STORAGE), DEFAULT_STORAGE)
            empty = [name for name, info in loading.infos.items() if 0 in info.shape]
            stored |= {name: of_others for name in empty if stored[name] == DEFAULT_STORAGE}
        options: dict[str, Any] = {"kind": getattr(reader, "kind", kind)}
        for option in ("compression", "chunks", "shards"):
            by_name = {name: getattr(x, option) for name, x in stored.items() if getattr(x, option) is not None}
            options[option] = by_name or None
        plain = False in (x.checksum for x in stored.values())
        options["checksum"] = True if loading.sealed else False if plain else None
        types = loading.descriptor.data_types
        return Kept(options, {name: x.wrapper for name, x in types.items() if x.wrapper})


def kept_at(path: Place, sources: Iterable[Place], options: Mapping[str, Any], limits: Limits) -> Kept:
    """How tensors that are joined at a path are stored: sealed if one of them is, else as the first, as far as the kind
    of container is the same; and as the options say.
    """
    first, *others = (kept(source, limits=limits) for source in sources)
    place, _ = _split(path)
    kind = _kind_to_write(place, options.get("kind"))
    sealed = any(each.options.get("checksum") for each in (first, *others))
    same = first.options if first.options.get("kind") == kind else {}
    return Kept({**same, **({"checksum": True} if sealed else {}), **options}, first.wrappers)


def extend(
    path: Place, header: Mapping[str, Any], pieces: Mapping[str, Pieces], *, checksum: bool | None, limits: Limits
) -> bool:
    """Let the arrays at PATH[:GROUP] become these, which begin as they are, without writing again what is there; False,
    and nothing done, where the container cannot. checksum: True if it is sealed.
    """
    place, group = _split(path)
    module = _module(KINDS[_kind_at(place, group)])

    def now_sealed() -> Mapping[str, Any]:
        sums: dict[str, int] = {}
        for name, x in pieces.items():
            deque(summed(name, x, sums).each(), 0)
        return sealed(header, sums)

    return hasattr(module, "extend") and bool(
        module.extend(place, group, now_sealed if checksum else lambda: header, pieces, limits)
    )


@within_memory
def read_all(path: Place, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, AnyTensor]:
    """All tensors of a file or store by name: of the groups of a container, or of the objects of an sscdf file. The one
    at the root, the primary object, is under None. Raises what `read` raises.
    """
    place, _ = _split(path)
    kind = KINDS[_kind_of(place)]
    if kind.named:
        found: dict[str | None, AnyTensor] = _module(kind).read_all(place, check=check, limits=limits)
        return found
    names = list_tensors(path, limits=limits)
    groups = {None if name == "/" else name: None if name == "/" else name for name in names}
    return {name: read(_Split(place, group), check=check, limits=limits) for name, group in groups.items()}


@within_memory
def write_all(
    path: Place,
    tensors: Mapping[str | None, Tensor],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write an sscdf file of several tensors by name, the primary object under None, in one step; options as for
    `write`. Into the groups of a container each is written on its own. Raises what `write` raises.
    """
    place, group = _split(path)
    found = KINDS[_kind_to_write(place, kind)]
    if not found.named:
        raise OptionError(
            Problem(str(place), "is no kind of file that holds several by name; write each to PATH:GROUP")
        )
    _refuse(place, group=group)
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise TypeError(f"expected a mapping from names to tensors, got {tensors!r:.60}")
    _check_folder(place)
    storage = Storage(compression, chunks)
    _module(found).write_all(place, tensors, overwrite=overwrite, storage=storage, limits=limits, **found.options)


@within_memory
def repair(
    path: Place, out: Place, *, duplicates: Duplicates | None = None, limits: Limits = DEFAULT_LIMITS
) -> list[str]:
    """Read leniently what a strict reader refuses, write it to a new file, and tell what was mended.

    Mended are entries out of order, duplicates in the way that is named, integers stored wider or narrower than
    declared, and the dialects of other programs: nothing that would have to be invented. Raises what `read` and `write`
    raise.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DialectWarning)
        text = KINDS[_kind_at(*_split(path))].holds_tensors
        tensor = read(path, lenient=not text, duplicates=duplicates, limits=limits)
    write(out, tensor, limits=limits)
    return [str(found.message) for found in caught if issubclass(found.category, DialectWarning)]


def open_reader(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> contextlib.AbstractContextManager[Reader]:
    """The container at PATH[:GROUP], open for reading."""
    place, group = _split(path)
    reader: contextlib.AbstractContextManager[Reader] = _module(KINDS[_kind_of(place)]).reading(place, group, limits)
    return reader


def write_arrays(
    path: Place,
    header: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    arrays: Mapping[str, npt.NDArray[Any] | Pieces],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    storage: Storage = DEFAULT_STORAGE,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a header and the arrays that it names into a container, as they are; see `write`. A header may be made when
    the arrays are written.
    """
    place, group = _split(path)
    found = KINDS[_kind_to_write(place, kind)]
    opened: contextlib.AbstractContextManager[Writer] = _module(found).writing(
        place, group, overwrite, limits, storage, **found.options
    )
    try:
        with opened as writer:
            for name, array in arrays.items():
                writer.write(name, array if isinstance(array, Pieces) else one_piece(array))
            # last, for it tells that all arrays are there
            writer.write_header(header() if callable(header) else header)
    except RuntimeError as error:  # so the HDF5 libraries say that the disk is full
        raise ContainerError(Problem(str(place), f"cannot be written: {error}")) from error


class Description(NamedTuple):
    """What a file says of a tensor: the descriptor, metadata of the arrays, what lenient reading had to mend, and
    the map through which it is stored.
    """

    descriptor: Descriptor
    arrays: Mapping[str, ArrayInfo]
    repairs: Sequence[str] = ()
    map: IndexMap | None = None


@within_memory
def describe(path: Place, *, lenient: bool = False, limits: Limits = DEFAULT_LIMITS) -> Description:
    """The descriptor in PATH[:GROUP], compared with the metadata of its arrays. No array is read, where there is a
    header to say what they are; a text file has none, and is read. Raises what `read` raises.
    """
    place, group = _split(path)
    kind = KINDS[_kind_at(place, group)]
    if hasattr(_module(kind), "looking"):
        _refuse(place, lenient=lenient or None)
        with _looking(kind, place, group, limits) as found:
            return Description(*described(found))
    if kind.holds_tensors:
        header, arrays = as_stored(read(path, lenient=lenient, limits=limits))._stored()
        infos = {name: ArrayInfo(x.shape, x.dtype, x.nbytes) for name, x in arrays.items()}
        return Description(parse_descriptor(header, limits), infos)
    with _module(kind).reading(place, group, limits) as reader:
        loading = Loading(reader, limits, lenient)
        return Description(loading.descriptor, loading.infos, loading.repairs, loading.map)


@within_memory
def list_tensors(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """The groups of a file, a store or an open group that hold a tensor, as PATH:GROUP takes them; the root is "/".

    Only that each has a header is looked at. Raises what `read` raises for the file itself.
    """
    place, _ = _split(path)
    kind = _kind_of(place)
    module = _module(KINDS[kind])
    if hasattr(module, "list_groups"):
        more = {"claims": [_module(KINDS[other]).claims for other in ("bpcells", "anndata")]} if kind == "hdf5" else {}
        return [name or "/" for name in module.list_groups(place, limits, **more)]
    if hasattr(module, "reading"):
        with module.reading(place, None, limits) as reader:
            reader.read_header()
    return ["/"]


@contextlib.contextmanager
def _one_folder(place: Any) -> Iterator[None]:
    """Raise ContainerError where another folder took the place of this one, since what was read may be of both."""
    with _same_folder(place) as unreplaced:
        try:
            yield
        except BinsparseError as error:
            unreplaced(error)
            raise
        unreplaced()


@contextlib.contextmanager
def _same_folder(place: Any) -> Iterator[Callable[..., None]]:
    """A function that raises ContainerError if another folder took the place of this one."""
    try:
        handle = os.open(place, os.O_RDONLY) if isinstance(place, str) and os.path.isdir(place) else None
    except OSError:  # a folder cannot be opened everywhere
        handle = None

    def unreplaced(error: Exception | None = None) -> None:
        if handle is not None and not (os.path.exists(place) and os.path.samestat(os.fstat(handle), os.stat(place))):
            raise ContainerError(Problem(place, "was replaced while it was read; read it again")) from error

    try:  # as long as it is open, no other folder gets its number
        yield unreplaced
    finally:
        if handle is not None:
            os.close(handle)


def _placed(kind: Kind, place: str, group: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what stands behind the colon of a path: a group, or in files that have them, a name; the root is
    the primary object.
    """
    if not kind.named:
        return {"group": group, **options}
    if group is not None and options.get("name") is not None:
        raise OptionError(Problem(place, f"names the object {group!r:.40}, and name={options['name']!r:.40}"))
    return {**options, "name": group or options.get("name")}


class _Split(NamedTuple):
    """A place and a group in it, for what has no path to write both in."""

    place: Any
    group: str | None


def _split(path: Place) -> _Split:
    if isinstance(path, _Split):
        return path
    return _Split(*split_path(path)) if isinstance(path, str | os.PathLike) else _Split(path, None)


def _kind_to_write(place: Any, kind: str | None) -> str:
    if kind is not None:
        if not isinstance(kind, str) or kind not in KINDS:
            raise OptionError(Problem("kind", f"unknown kind {kind!r:.40}; known are {', '.join(KINDS)}"))
        if not isinstance(place, str) and KINDS[kind].module != KINDS[_open_kind(place)].module:
            raise OptionError(Problem("kind", f"{kind} is written to a path, not to a {type(place).__name__}"))
        return kind
    if not isinstance(place, str):
        return _open_kind(place)
    found = _kind_by_suffix(place)
    if found is None:
        suffixes = ", ".join(suffix for known in KINDS.values() for suffix in known.suffixes)
        raise ContainerError(Problem(place, f"unknown suffix; known are {suffixes}"))
    return found


def _open_kind(place: Any) -> str:
    """The kind of a place that is no path."""
    return "hdf5" if _is_hdf5(place) else "memory" if isinstance(place, Mapping) else "zarr"


def _kind_by_suffix(path: str) -> str | None:
    name = path.lower().rstrip("/")
    return next((kind for kind, known in KINDS.items() if name.endswith(known.suffixes or ("\0",))), None)


def _kind_at(place: Any, group: str | None) -> str:
    """As `_kind_of`; of an HDF5 file, by what the group has. Where there is none, that of the file."""
    kind = _kind_of(place)
    if kind != "hdf5":
        return kind
    marks = _module(KINDS[kind]).marks(place, group)
    return next((kind for mark, kind in _HDF5_MARKS.items() if mark in marks), kind)


def _kind_of(place: Any) -> str:
    """The kind of what is there, by its content, then its suffix."""
    if not isinstance(place, str):
        kind = _open_kind(place)
        return "sscdf" if kind == "hdf5" and _module(KINDS["sscdf"]).claims(place) else kind
    if is_url(place):
        return "zarr"
    if os.path.isdir(place):
        return _marked(os.listdir(place), place, {**_MARKS, "version": "bpcells"})
    if os.path.exists(place) and not os.path.isfile(place):  # a pipe would wait for somebody to write
        raise ContainerError(Problem(place, "is no file"))
    try:
        with builtins.open(place, "rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise PathMissingError(Problem(place, "no such file")) from None
    except OSError as error:
        raise ContainerError(Problem(place, f"cannot be read: {error.strerror}")) from error
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        try:
            with zipfile.ZipFile(place) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise ContainerError(Problem(place, f"cannot be opened as a zip file: {error}")) from None
        return _marked(names, place)
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 64)
        except zlib.error as error:
            raise ContainerError(Problem(place, f"not a gzip file: {error}")) from None
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return "sscdf" if kind == "hdf5" and _module(KINDS["sscdf"]).claims(place) else kind
    found = _kind_by_suffix(place)
    if found is None:
        raise ContainerError(Problem(place, "neither its content nor its suffix is known"))
    return found


def _marked(names: Sequence[str], place: str, marks: Mapping[str, str] = _MARKS) -> str:
    kind = next((kind for mark, kind in marks.items() if mark in names), None)
    if kind is None:
        raise ContainerError(Problem(place, f"holds no tensor: none of {', '.join(marks)} is there"))
    return kind


def register_kind(name: str, kind: Kind) -> None:
    """Make a kind of file known. Raises OptionError for a name, a suffix or a signature that is taken."""
    taken = [suffix for known in KINDS.values() for suffix in known.suffixes]
    clashes = [x for x in kind.suffixes if x in taken] + [kind.signature] * (kind.signature in _SIGNATURES)
    if KINDS.get(name, kind) != kind or (name not in KINDS and clashes):
        raise OptionError(Problem(name, f"a kind of file has that name, or its {clashes or 'name'}, already"))
    KINDS[name] = kind
    if kind.signature:
        _SIGNATURES[kind.signature] = name


def _module(kind: Kind) -> Any:
    own = kind.module.startswith(("files.", "containers."))
    return importlib.import_module(f"{__package__}.{kind.module}" if own else kind.module)


def _writer(kind: Kind, place: Any) -> Any:
    module = _module(kind)
    if not hasattr(module, "write"):
        raise OptionError(Problem(str(place), "this kind of file is only read"))
    return module.write


def _refuse(place: Any, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise OptionError(Problem(str(place), f"{name} does not apply to this kind of file"))


def _chosen(place: Any, options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The options that were given; raises OptionError for one that this kind of file does not have."""
    _refuse(place, **{name: value for name, value in options.items() if name not in known})
    return {name: value for name, value in options.items() if value is not None}
