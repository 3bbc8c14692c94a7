"""Kinds of files: a row for each, and what kind is at a place or is to be written there."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..containers.base import (
    is_url,
    split_path,
)
from ..errors import (
    ContainerError,
    OptionError,
    PathMissingError,
    Problem,
)


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
        return self.tensors or self.module.startswith(".io.files.")


KINDS = {
    "hdf5": Kind(".containers.hdf5", (".h5", ".hdf5")),
    "zarr": Kind(".containers.zarr", (".zarr", ".zarr.zip")),
    "zarr2": Kind(".containers.zarr", (), {"zarr_format": 2}),
    "npz": Kind(".containers.npz", (".npz",)),
    "directory": Kind(".containers.npy_folder", (".bspnpy",)),
    "rawarray_directory": Kind(".containers.ra_folder", (".bspra",)),
    "netcdf": Kind(".containers.netcdf", (".nc", ".nc4")),
    "memory": Kind(".containers.memory"),
    "matrix_market": Kind(".io.files.matrix_market", (".mtx", ".mtx.gz"), reads=("duplicates",)),
    "frostt": Kind(".io.files.frostt", (".tns", ".tns.gz"), reads=("shape", "duplicates")),
    "rawarray": Kind(
        ".io.files.rawarray",
        (".ra",),
        reads=("order", "dtype"),
        writes=("order", "eltype", "big_endian", "encoding", "trailer"),
    ),
    "sscdf": Kind(".io.files.sscdf.file", (".sscdf",), {}, ("name", "check"), ("name", "storage", "limits"), True),
    "sscdf_json": Kind(
        ".io.files.sscdf.file", (), {"dialect": "json"}, ("name", "check"), ("name", "storage", "limits"), True
    ),
    "bpcells": Kind(
        ".io.files.bpcells", reads=("group", "duplicates"), writes=("group", "packed", "version", "chunks", "gzip")
    ),
    "anndata": Kind(".io.files.anndata", reads=("group", "duplicates")),
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


def in_place(path: Place) -> bool:
    """Whether what is at a path is overwritten where it lies: in stores that are no local files or folders."""
    place, _ = split_place(path)
    return is_url(place) if isinstance(place, str) else open_kind(place) == "zarr"


def is_mapping(place: Place) -> bool:
    """Whether a place is a mapping of arrays; an open group is none, though one of h5py's is a mapping for Python."""
    return isinstance(place, Mapping) and not _is_hdf5(place)


def _is_hdf5(place: Any) -> bool:
    h5py = sys.modules.get("h5py")  # where nobody has imported it, there is no group of it
    return h5py is not None and isinstance(place, h5py.Group)


def placed(kind: Kind, place: str, group: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what stands behind the colon of a path: a group, or in files that have them, a name; the root is
    the primary object.
    """
    if not kind.named:
        return {"group": group, **options}
    if group is not None and options.get("name") is not None:
        raise OptionError(Problem(place, f"names the object {group!r:.40}, and name={options['name']!r:.40}"))
    return {**options, "name": group or options.get("name")}


class Split(NamedTuple):
    """A place and a group in it, for what has no path to write both in."""

    place: Any
    group: str | None


def split_place(path: Place) -> Split:
    if isinstance(path, Split):
        return path
    return Split(*split_path(path)) if isinstance(path, str | os.PathLike) else Split(path, None)


def kind_to_write(place: Any, kind: str | None) -> str:
    if kind is not None:
        if not isinstance(kind, str) or kind not in KINDS:
            raise OptionError(Problem("kind", f"unknown kind {kind!r:.40}; known are {', '.join(KINDS)}"))
        if not isinstance(place, str) and KINDS[kind].module != KINDS[open_kind(place)].module:
            raise OptionError(Problem("kind", f"{kind} is written to a path, not to a {type(place).__name__}"))
        return kind
    if not isinstance(place, str):
        return open_kind(place)
    found = _kind_by_suffix(place)
    if found is None:
        suffixes = ", ".join(suffix for known in KINDS.values() for suffix in known.suffixes)
        raise ContainerError(Problem(place, f"unknown suffix; known are {suffixes}"))
    return found


def open_kind(place: Any) -> str:
    """The kind of a place that is no path."""
    return "hdf5" if _is_hdf5(place) else "memory" if isinstance(place, Mapping) else "zarr"


def _kind_by_suffix(path: str) -> str | None:
    name = path.lower().rstrip("/")
    return next((kind for kind, known in KINDS.items() if name.endswith(known.suffixes or ("\0",))), None)


def kind_at(place: Any, group: str | None) -> str:
    """As `kind_of`; of an HDF5 file, by what the group has. Where there is none, that of the file."""
    kind = kind_of(place)
    if kind != "hdf5":
        return kind
    marks = module_of(KINDS[kind]).marks(place, group)
    return next((kind for mark, kind in _HDF5_MARKS.items() if mark in marks), kind)


def kind_of(place: Any) -> str:
    """The kind of what is there, by its content, then its suffix."""
    if not isinstance(place, str):
        kind = open_kind(place)
        return "sscdf" if kind == "hdf5" and module_of(KINDS["sscdf"]).claims(place) else kind
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
            return "sscdf" if kind == "hdf5" and module_of(KINDS["sscdf"]).claims(place) else kind
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


def module_of(kind: Kind) -> Any:
    return importlib.import_module(kind.module, __package__.rpartition(".")[0])


def refuse(place: Any, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise OptionError(Problem(str(place), f"{name} does not apply to this kind of file"))


def chosen(place: Any, options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The options that were given; raises OptionError for one that this kind of file does not have."""
    refuse(place, **{name: value for name, value in options.items() if name not in known})
    return {name: value for name, value in options.items() if value is not None}
