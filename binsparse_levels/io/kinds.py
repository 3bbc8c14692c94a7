"""The table of kinds of files, and locations, to which paths are resolved."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import zlib
from builtins import open as open_file
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, TypeAlias

from ..containers import remote
from ..containers.base import is_url, split_path, wrap_errors
from ..containers.direct import open_zip
from ..containers.interface import Claims, Container
from ..containers.replacing import real_path
from ..errors import BinsparseError, ContainerError, OptionError, PathMissingError, Problem, did_you_mean
from ..limits import DEFAULT_LIMITS
from ..log import DEBUG, LOG, without_secrets
from .interface import Foreign, refuse
from .kind import Kind as Kind
from .texts import kind_by_lines, refuse_new_tables, refuse_tables

PLUG_IN = "; a plug-in may support it: install its package"

# A path, PATH:GROUP, a URL, a Zarr store, an open group of h5py or zarr, a mapping.
StoreLike: TypeAlias = Any


_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_SSCDF = Kind(
    ".io.files.sscdf", (".sscdf",), reads=("group", "check"), writes=("group", "storage", "limits"),
    attributes=("comment",), named=True, signature=_HDF5, objects="h5py:Group",
)  # fmt: skip
_ZARR = ("zarr.json", ".zgroup")
_NETCDF_3 = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_NAMES = ("row_names", "column_names")
_STORE = "zarr"  # which opens URLs and stores, and overwrites those in place
_MATRIX_MARKET = (b"%%MatrixMarket", b"%MatrixMarket")

# If several rows match, the first whose module claims the file is used, or else the last one.
KINDS = {
    "sscdf": _SSCDF,
    "sscdf_json": _SSCDF._replace(suffixes=(), options={"dialect": "json"}, signature=(), objects=""),
    "hdf5": Kind(
        ".containers.hdf5", (".h5", ".hdf5"),
        signature=_HDF5, group=("binsparse",), inner="group", objects="h5py:Group",
    ),
    "zarr": Kind(
        ".containers.zarr", (".zarr", ".zarr.zip"),
        folder=_ZARR, zip=_ZARR, zarr_group=("binsparse",), inner="zarr_group",
    ),
    "zarr2": Kind(".containers.zarr", (), {"zarr_format": 2}),
    "npz": Kind(".containers.npz", (".npz",), zip=("binsparse.npy",)),
    "sparse_npz": Kind(
        ".io.files.sparse_npz", reads=("group", "duplicates"),
        zip=("format.npy", "coords.npy", "compressed_axes.npy", "*indptr.npy"),
    ),
    "matlab": Kind(
        ".io.files.matlab", (".mat",), reads=("group", "duplicates"),
        signature=(b"MATLAB 7.3 MAT-file", b"MATLAB 5.0 MAT-file"), group=("MATLAB_sparse",),
    ),
    "cooler": Kind(".io.files.cooler", (".cool", ".mcool"), reads=("group", "duplicates"), group=("pixels",)),
    "petsc": Kind(".io.files.petsc", reads=("duplicates",), signature=(b"\0\x12{P", b"\0\0\0\0\0\x12{P")),
    "mex": Kind(
        ".io.files.mex", (".mex",), reads=("duplicates", "names"), signature=_MATRIX_MARKET,
        folder=("*matrix.mtx", "*matrix.mtx.gz", "*cells_x_genes.mtx", "*cells_x_genes.mtx.gz"),
    ),
    "svmlight": Kind(
        ".io.files.svmlight", (".svmlight", ".libsvm", ".svmlight.gz", ".libsvm.gz"), reads=("shape", "zero_based"),
    ),
    "metis": Kind(".io.files.metis", (".graph", ".graph.gz"), reads=("duplicates",)),
    "harwell_boeing": Kind(".io.files.harwell_boeing", reads=("duplicates",)),
    "rawarray_directory": Kind(".containers.npy_folder", (".bspra",), {"suffix": ".ra"}, folder=("values.ra",)),
    "directory": Kind(".containers.npy_folder", (".bspnpy",), folder=("binsparse.json",)),
    "netcdf": Kind(".containers.netcdf", (".nc", ".nc4")),
    "memory": Kind(".containers.memory", objects="collections.abc:Mapping"),
    "matrix_market": Kind(
        ".io.files.matrix_market", (".mtx", ".mtx.gz", ".ttx"), reads=("duplicates",),
        signature=_MATRIX_MARKET,
    ),
    "frostt": Kind(".io.files.frostt", (".tns", ".tns.gz"), reads=("shape", "duplicates")),
    "rawarray": Kind(
        ".io.files.rawarray", (".ra",), reads=("order", "dtype"), writes=("order", "eltype"),
        dense=True, signature=(b"rawarray", b"yarrawar"),
    ),
    "bpcells": Kind(
        ".io.files.bpcells", reads=("group", "duplicates"), writes=("group", "packed", "version", "chunks", "gzip"),
        attributes=_NAMES, folder=("version",), group=("version",),
    ),
    "anndata": Kind(
        ".io.files.anndata", (".h5ad", ".h5mu"), reads=("group", "duplicates", "names"),
        writes=("group", "storage", "limits"), attributes=_NAMES, dense=True,
        group=("encoding-type", "h5sparse_format", "indptr", "matrix", "obs"), zarr_group=("encoding-type",),
    ),
    "loom": Kind(".io.files.loom", (".loom",), reads=("group",), group=("row_attrs",)),
    "biom": Kind(".io.files.biom", (".biom",), reads=("group", "duplicates"), group=("observation",)),
    "esmf": Kind(".io.files.esmf", reads=("group", "shape", "duplicates"), signature=_NETCDF_3, group=("n_s",)),
    "gathered": Kind(
        ".io.files.gathered", reads=("group", "duplicates"), signature=_NETCDF_3, group=("_NCProperties",),
    ),
}  # fmt: skip


def register_kind(name: str, kind: Kind) -> None:
    """Add a kind of file. Raises OptionError for a name, a suffix, a signature or another mark that is taken.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> register_kind("npz", KINDS["npz"])  # again: nothing changes
    >>> register_kind("banana", Kind("my_package", (".npz",)))
    Traceback (most recent call last):
    binsparse_levels.errors.OptionError: banana: a kind of file has ['.npz'] already; choose another
    """
    taken = list(itertools.chain.from_iterable(known.marks() for known in KINDS.values()))
    clashes = [mark for mark in kind.marks() if mark in taken]
    if KINDS.get(name, kind) != kind or (name not in KINDS and clashes):
        raise OptionError(Problem(name, f"a kind of file has {clashes or 'this name'} already; choose another"))
    KINDS[name] = kind


@dataclass(frozen=True)
class Location:
    """The location of a tensor, to read or to write.

    path: text, or the given open object. name: of the kind in KINDS. handle: the argument of the module: the open file,
    if it was opened to find its kind, else the path. version: of a file at a URL.
    """

    path: Any
    group: str | None
    name: str
    handle: Any
    version: str | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def within(self, group: str | None) -> Location:
        """A group of this file, which may be of another kind according to marks of the group and of those above it.

        It is the first kind that claims the path, in the nearest group. Else it is the last kind whose mark the group
        has, or for an array the nearest group with a mark. That kind reports the fault.
        """
        reader: Any
        container, field, marked = self.kind.functions, self.kind.inner, None
        if not field or not isinstance(container, Container) or container.mark is None:
            return replace(self, group=group)
        parts = list(filter(None, (group or "").split("/")))
        for k in range(len(parts), -1, -1):
            above, path = "/".join(parts[:k]) or None, "/".join(parts[k:])
            kinds = {mark: name for name, kind in KINDS.items() for mark in getattr(kind, field)}
            name = None if path else self.name
            try:
                while (mark := container.mark(self.handle, above, kinds)) is not None:
                    name = kinds[mark]
                    if name != self.name:
                        LOG.debug("group %s: looks like the kind %s, because of %r", above or "/", name, mark)
                    claimed, functions = not path, KINDS[name].functions
                    if isinstance(functions, Foreign) and k == 0 and {*kinds.values()} <= {self.name, name}:
                        claimed = True  # no other kind is possible, so nothing is read
                    elif isinstance(functions, Foreign):
                        with container.reading(self.handle, above, DEFAULT_LIMITS) as reader:
                            claimed = path in functions.claims(reader.group)
                    if claimed:
                        return replace(self, group=group, name=name)
                    kinds = {mark: other for mark, other in kinds.items() if other != name}
            except (ContainerError, RuntimeError):  # an array, or nothing; a damaged group, of h5py
                name = None if name == self.name else name
            marked = marked or name
        return replace(self, group=group, name=marked or self.name)

    def options(self, given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """The options that are not None, with the group or the object's name from the path. Raises OptionError for an
        unknown one.
        """
        given = {"group": self.group or None, **given}
        name = given.pop("name", None) if self.kind.named else None
        if name is not None and self.group:
            what = f"names the object {self.group!r:.40}, and name={name!r:.40}; leave one out"
            raise OptionError(Problem(self.path, what))
        given |= {"group": name} if name is not None else {}
        refuse(self.path, known, **{name: value for name, value in given.items() if name not in known})
        return {name: value for name, value in given.items() if value is not None}


def claims_in(field: str) -> dict[str, Claims]:
    """The functions by which kinds claim paths, by their marks. field: of Kind, with the marks, or empty."""
    functions = [(kind.functions, getattr(kind, field)) for kind in KINDS.values() if field and getattr(kind, field)]
    return {mark: own.claims for own, marks in functions if isinstance(own, Foreign) for mark in marks}


@contextlib.contextmanager
def resolved(
    place: StoreLike, *, whole: bool = False, explain: Callable[[Location, BinsparseError], None] | None = None
) -> Iterator[Location]:
    """The location of a tensor, recognised by its content, then by its suffix. A file that is opened for that stays
    open within the block.

    whole: the kind is that of the file; otherwise that of the group in it. explain: adds remedies to errors in the
    block, which concern this file. Raises PathMissingError, ContainerError.
    """
    (path, group), location = split_place(place), place if isinstance(place, Location) else None
    try:
        if isinstance(place, Location):
            yield place
            return
        with contextlib.ExitStack() as stack:
            names, file, mark = _candidates(path, stack)
            opened = KINDS[names[-1]].functions.opened
            handle = path if opened is None else stack.enter_context(opened(file))
            others = ((name, KINDS[name].functions) for name in names[:-1])
            name = next((name for name, own in others if isinstance(own, Foreign) and own.claims(handle)), names[-1])
            if LOG.isEnabledFor(DEBUG):
                mark = mark if name == names[-1] else f"{mark} and its content"
                LOG.debug("%s: of the kind %s, because of %s", without_secrets(name_of(path)), name, mark)
            location = Location(path, group, name, handle, getattr(getattr(file, "fp", file), "version", None))
            yield location if whole else location.within(group)
    except BinsparseError as error:
        if error.file is None and isinstance(path, str):
            error.file = without_secrets(path if group is None else f"{path}:{group}")
        if explain is not None and location is not None:
            explain(location, error)
        raise


def target_at(place: StoreLike, name: str | None) -> Location:
    """The location to write to. name: of the kind; by default that of the suffix. Raises OptionError, ContainerError,
    PathMissingError for a missing folder.
    """
    if isinstance(place, Location):
        return place
    path, group = split_place(place)
    if name is not None and (not isinstance(name, str) or name not in KINDS):
        known = f"{did_you_mean(name, KINDS)}known are {', '.join(KINDS)}"
        raise OptionError(Problem("kind", f"unknown kind {name!r:.40}; {known}{PLUG_IN}"))
    if not isinstance(path, str):
        usual = _of_object(path)[-1]
        if name is not None and KINDS[name].module != KINDS[usual].module:
            raise OptionError(Problem("kind", f"{name} is written to a path, not to a {type(path).__name__}; pass one"))
        return Location(path, group, name or usual, path)
    name = name or (_of_parent(path) if group else None) or _by_suffix(path)
    if name is None:
        refuse_new_tables(path)
        written = [kind for kind in KINDS.values() if isinstance(own := kind.functions, Container) or own.write]
        suffixes = ", ".join(suffix for kind in written for suffix in kind.suffixes)
        raise ContainerError(Problem(path, f"unknown suffix; known are {suffixes}; or pass kind=…{PLUG_IN}"))
    if not is_url(path) and not os.path.isdir(folder := os.path.dirname(real_path(path))):
        raise PathMissingError(Problem(folder, "no such folder; make it first"))
    return Location(path, group, name, path)


def _of_parent(path: str) -> str | None:
    """The kind of the file at a path, if groups in it must be written as that kind, else None."""
    with contextlib.suppress(BinsparseError), resolved(path) as location:
        return location.name if location.kind.foreign and "group" in location.kind.writes else None
    return None


def split_place(place: StoreLike) -> tuple[Any, str | None]:
    """The path or open object, and the group."""
    if isinstance(place, Location):
        return place.path, place.group
    return split_path(place) if isinstance(place, str | os.PathLike) else (place, None)


def name_of(place: StoreLike) -> str:
    """The name of a place in errors: its path, or the type of the open object."""
    place = place.path if isinstance(place, Location) else place
    return os.fspath(place) if isinstance(place, str | os.PathLike) else f"the {type(place).__name__}"


def in_place(place: StoreLike) -> bool:
    """Return True if a write overwrites data in place, as in stores other than local files and folders."""
    path, _ = split_place(place)
    return is_url(path) if isinstance(path, str) else _of_object(path)[-1] == _STORE


def is_store(path: str) -> bool:
    """Return True if a write makes or changes a store of Zarr at a path, in kinds of files that are HDF5 or Zarr."""
    return is_url(path) or os.path.isdir(path) or _by_suffix(path) == _STORE


def in_memory(place: StoreLike) -> bool:
    """Return True if the arrays at a place are in memory already."""
    return not isinstance(place, str | os.PathLike) and _of_object(place)[-1] == "memory"


def is_foreign(place: StoreLike) -> bool:
    """Return True for a file of another system, in which zeros of a dense array are not marked as stored."""
    with resolved(place) as location:
        return location.kind.foreign


def _candidates(path: Any, closing: contextlib.ExitStack) -> tuple[list[str], Any, str]:
    """The possible kinds of a path or an open object; the path, or the file that was opened to find them; the mark."""
    if hasattr(path, "full_name") and hasattr(path, "open"):  # a file of fsspec, not open yet
        path = closing.enter_context(path.open())
    file, name = path, name_of(path)
    is_stream = hasattr(path, "readinto") and hasattr(path, "seek")
    if not is_stream and not isinstance(path, str):
        return _of_object(path), path, "its class"
    if is_url(path):
        # In zip://a.h5::https://b.zip?c, the first part with a path is the file.
        plain = next(part for part in path.split("::") if "://" in part).partition("?")[0].lower()
        refuse_tables(plain)
        usual = _by_suffix(plain)
        if usual is None or (usual == _STORE and not plain.endswith(".zip")):
            return [_STORE], path, "its scheme"
        file, is_stream = closing.enter_context(remote.file_at(path)), True
    elif not is_stream and os.path.isdir(path):
        with wrap_errors(name):
            there = os.listdir(path)
        return _kind_marked(path, "folder", there, path)
    elif not is_stream and not os.path.exists(path):  # the beginning of the names of several files
        ends = {mark[1:]: kind for kind in KINDS for mark in KINDS[kind].folder if mark.startswith("*")}
        end = next((end for end in ends if os.path.isfile(path + end)), None)
        if end is not None:
            return [ends[end]], path, f"the file {path}{end}"
    head = _head(file, name)
    if head.startswith(_ZIP):
        archive = closing.enter_context(open_zip(file))
        there = archive.namelist()  # a store may be zipped with its folder
        return _kind_marked(name, "zip", [*there, *({x.partition("/")[2] for x in there} & {*_ZARR})], archive)
    names = [kind for kind in KINDS if KINDS[kind].signature and head.startswith(KINDS[kind].signature)]
    if not names and not is_stream:
        import h5py  # not needed for texts of a known kind

        has_user_block = h5py.is_hdf5(path)  # before the signature, as in files of MuData
        names = [kind for kind in KINDS if KINDS[kind].signature == _HDF5 and has_user_block]
    if is_stream and (not names or KINDS[names[-1]].functions.opened is None):
        what = f"a file of the kind {names[-1]}" if names else "what is neither HDF5 nor a zip file"
        raise ContainerError(Problem(name, f"{what} is read from a local disk; download it, or convert it to .zarr"))
    if names:
        return names, file, "its signature"
    kind = _known_by_suffix(path, head)
    return [kind], file, "its suffix" if _by_suffix(path) else "its first line"


def _known_by_suffix(path: str, head: bytes) -> str:
    """The kind of a local file without a signature. Raises ContainerError."""
    kind = _by_suffix(path) or kind_by_lines(head)
    if kind is None:
        refuse_tables(path, head)
        raise ContainerError(Problem(path, f"neither its content nor its suffix is known{PLUG_IN}"))
    if KINDS[kind].group and not KINDS[kind].signature:
        what = "is no HDF5 file, or not a whole one; fetch or write it again"
        if head.lstrip().startswith(b"{"):
            what = "is JSON, as of BIOM 1, not HDF5; convert it by: biom convert --to-hdf5 -i OLD -o NEW"
        raise ContainerError(Problem(path, what))
    return kind


def _of_object(place: Any) -> list[str]:
    """The kinds of an open object. Anything unknown is a Zarr store."""
    names: list[str] = []
    for name, kind in KINDS.items():
        module, _, cls = kind.objects.partition(":")
        if module in sys.modules and isinstance(place, getattr(sys.modules[module], cls)):
            if names and KINDS[names[0]].objects != kind.objects:
                break
            names.append(name)
    return names or [_STORE]


def _by_suffix(path: str) -> str | None:
    path = path.lower().rstrip("/")
    return next((name for name, kind in KINDS.items() if kind.suffixes and path.endswith(kind.suffixes)), None)


def _kind_marked(path: str, field: str, there: Sequence[str], file: Any) -> tuple[list[str], Any, str]:
    """The first kind with a mark among the names `there`, as from `_candidates`. field: of Kind, with the marks."""
    marks = {mark: name for name, kind in KINDS.items() for mark in getattr(kind, field)}
    present = {*there}
    ends = (mark for mark in marks if mark.startswith("*") and any(name.endswith(mark[1:]) for name in there))
    mark = next((mark for mark in marks if mark in present), None) or next(ends, None)
    if mark is None:
        known = ", ".join(marks)
        raise ContainerError(Problem(path, f"contains no tensor: none of {known} is there; choose another path"))
    return [marks[mark]], file, f"the member {mark!r}"


def _head(file: str | IO[bytes], name: str) -> bytes:
    """The first bytes of a file or a stream, decompressed if they are gzip."""
    if not isinstance(file, str):
        with wrap_errors(name):
            file.seek(0)
            return file.read(2**7)
    if not os.path.isfile(file) and os.path.exists(file):  # opening a pipe would block
        raise ContainerError(Problem(name, "is no file; choose a file or a folder"))
    try:
        with open_file(file, "rb", buffering=0) as opened:
            head = opened.read(4096)
        if head[:2] != b"\x1f\x8b":
            return head
        head = zlib.decompressobj(wbits=31).decompress(head, 4096)
    except FileNotFoundError:
        raise PathMissingError(Problem(name, "no such file; check the path")) from None
    except OSError as error:
        raise ContainerError(Problem(name, f"cannot be read: {error.strerror}; check its permissions")) from error
    except zlib.error as error:
        raise ContainerError(Problem(name, f"not a gzip file: {error}; fetch it again")) from None
    if head.startswith((_HDF5, *_ZIP)):
        raise ContainerError(Problem(name, "is compressed by gzip as a whole; decompress it first, by gunzip"))
    return head
