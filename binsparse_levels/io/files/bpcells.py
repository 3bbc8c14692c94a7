"""BPCells matrices: folders and groups of HDF5 files, bit-packed or not, of versions 1 and 2.

A matrix is compressed by rows (CSR) or columns (CSC). `index`, and `val` of unsigned integers, are packed in chunks of
128, regardless of the ends of rows or columns. Names of rows and columns are labels of the dimensions `row` and
`column`. Entries need be neither ordered nor unique.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from itertools import product
from typing import IO, Any

import h5py
import numpy as np

from ...arrays import Array, LazyArray, Sliceable, lazy
from ...containers import hdf5
from ...containers.base import DEFAULT_STORAGE, wrap_errors
from ...containers.direct import open_file, parts_of
from ...containers.replacing import Overwrite, refuse_existing, replacing_folder
from ...errors import (
    ArrayError,
    ContainerError,
    FormatError,
    OptionError,
    PathExistsError,
    PathMissingError,
    Problem,
)
from ...formats.bitpacked import Stream, encode
from ...kernels.codecs import CHUNK, LESS_ONE, ZIGZAG
from ...limits import DEFAULT_LIMITS, Limits, as_integers
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor
from ..file_tensors import Compression, FileTensor, compressed
from ..interface import Foreign
from .names import encodes, labelled, lines_of, to_write
from .sources import Group

_VERSION = re.compile(r"(packed|unpacked)-(uint|float|double)-matrix-v([12])|(unpacked)-(ulong)-matrix-v(2)")
_TYPES = {"uint32": b"UINT32v1", "uint64": b"UINT64v1", "float32": b"FLOATSv1", "float64": b"DOUBLEv1"}
_VALUES = {"uint": "uint32", "float": "float32", "double": "float64", "ulong": "uint64"}
_FORMATS: dict[str, Compression] = {"row": "CSR", "col": "CSC"}
_NAMES = ("row_names", "col_names")
_WRAP = 2**32  # words, at which `idx` wraps around
_STREAMS = ("", "_data", "_idx", "_idx_offsets", "_starts")
_MEMBERS = {"shape", "idxptr", "storage_order", *_NAMES, *map("".join, product(("index", "val"), _STREAMS))}
_MAX_UINT32 = 2**32 - 1  # the largest dimension and integer
_CHUNK_ITEMS = 1024  # of a dataset, as in BPCells itself
_SUFFIXES = (".h5", ".hdf5", ".h5ad")


def look(path: str, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a folder or a group, with lazy arrays.

    Raises ContainerError for another file, ArrayError for arrays that do not fit each other.
    """
    if not isinstance(path, str) or not os.path.isdir(path):
        return _matrix(_Source(closing.enter_context(hdf5.reading(path, group, limits)), limits))
    if group:
        raise PathMissingError(Problem(f"{path}:{group}", "a folder of BPCells has no groups; leave out the group"))
    return _matrix(_Folder(path, limits, closing))


def claims(group: Any) -> list[str]:
    """The group itself, if its version is that of such a matrix."""
    version = group.attrs.get("version")
    return [""] * (isinstance(version, str) and _VERSION.fullmatch(version) is not None)


class _Source(Group):
    """A group of an HDF5 file. Numeric types of other programs are converted or refused."""

    def version(self) -> str:
        return self.attribute_text("version")

    def typed(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        """An array converted to a type. unsigned: refuse signed integers.

        Raises ArrayError for another array, PathMissingError.
        """
        expected = np.dtype(dtype)
        kinds = "u" if unsigned else "iu" if expected.kind in "iu" else expected.kind
        stored = self.numbers(name, kinds, f"{'unsigned ' * unsigned}{expected}")
        if stored.dtype == expected:
            return stored
        if expected.kind == "f":
            raise ArrayError(Problem(name, f"expected {expected}, got {stored.dtype}"))
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max

        def read(begin: int, end: int) -> Array:
            items = stored[begin:end]
            wrong = np.flatnonzero((items < least) | (items > most))
            if len(wrong):
                path = f"{name}[{begin + wrong[0]}]"
                raise ArrayError(Problem(path, f"{items[wrong[0]]} is out of the range of {dtype}"))
            return items.astype(dtype)

        return lazy(len(stored), expected, read)


class _Folder(_Source):
    """A folder with a file for each array: 8 bytes for the type, then the numbers; or lines of text.

    Symbolic links are not followed. Files stay open until `closing` ends.
    """

    def __init__(self, path: str, limits: Limits, closing: contextlib.ExitStack) -> None:
        super().__init__(self, limits)
        self._path = path
        self._closing = closing

    def version(self) -> str:
        lines = self.texts("version")
        if len(lines) != 1:
            raise ContainerError(Problem(f"{self._path}/version", f"expected one line, got {len(lines)}"))
        return lines[0]

    def array(self, name: str) -> LazyArray:
        file, known = self._open(name), {head: dtype for dtype, head in _TYPES.items()}
        if (head := file.read(8)) not in known:
            raise ArrayError(Problem(name, f"expected a file that begins with a type such as UINT32v1, got {head!r}"))
        stored = np.dtype(known[head]).newbyteorder("<")
        count = (os.fstat(file.fileno()).st_size - 8) // stored.itemsize
        return lazy(count, stored, parts_of(file.fileno(), 8, stored, name, self.limits))

    def strings(self, name: str) -> Any:
        file = self._open(name)
        self.limits.hold("array_bytes", os.fstat(file.fileno()).st_size, name, "the size in bytes")
        with wrap_errors(name):
            return np.array(lines_of(file.read()), object)

    def _open(self, name: str) -> IO[bytes]:
        file = open_file(os.path.join(self._path, name), PathMissingError, buffering=0)
        return self._closing.enter_context(file)


def _matrix(source: _Source) -> FileTensor:
    is_packed, value_type, version = _version(source.version())
    order = next(iter(source.texts("storage_order")), "")
    if order not in _FORMATS:
        raise ContainerError(Problem("storage_order", f"expected row or col, got {order!r:.40}"))
    sizes = source.typed("shape", "uint32")
    if len(sizes) != 2:
        raise ArrayError(Problem("shape", f"expected 2 sizes, got {len(sizes)}"))
    rows, columns = map(int, sizes[:])
    labels = labelled(("row", "column"), [source.labels(*x) for x in zip(_NAMES, (rows, columns), strict=True)])
    pointers = source.typed("idxptr", "uint32" if version == 1 else "uint64")
    count = int(pointers[-1:].max(initial=0))

    def numbers(name: str, codec: int, dtype: str) -> Sliceable:
        if is_packed and dtype == "uint32":
            return _stream(source, name, codec, count, version)
        return source.typed(name, dtype)

    indices, values = numbers("index", ZIGZAG, "uint32"), numbers("val", LESS_ONE, _VALUES[value_type])
    return compressed(_FORMATS[order], (rows, columns), {"idxptr": pointers, "index": indices, "val": values}, labels)


def _version(text: str) -> tuple[bool, str, int]:
    """True for a packed matrix, the type of the values, and the number of the version."""
    if match := _VERSION.fullmatch(text):
        packed, values, number = filter(None, match.groups())
        return packed == "packed", values, int(number)
    if text.endswith("-matrix-v9999"):
        raise ContainerError(Problem("version", f"{text:.60} is an experiment, which only BPCells itself reads"))
    if "-fragments-" in text:
        raise ContainerError(Problem("version", f"{text:.60}: fragments are no matrix; read them by BPCells itself"))
    known = "packed- or unpacked- uint, float or double -matrix-v1 or v2"
    raise ContainerError(Problem("version", f"expected {known}, got {text!r:.60}"))


def _stream(source: _Source, name: str, codec: int, count: int, version: int) -> Stream:
    """Packed numbers in the arrays NAME_data, NAME_idx, NAME_idx_offsets and NAME_starts."""
    words = source.typed(f"{name}_data", "uint32", unsigned=True)
    idx = source.typed(f"{name}_idx", "uint32", unsigned=True)
    starts = source.typed(f"{name}_starts", "uint32", unsigned=True) if codec == ZIGZAG else None
    if len(idx) < (expected := -(-count // CHUNK) + 1):  # the rest is checked when it is decoded
        raise ArrayError(Problem(f"{name}_idx", f"expected a length of {expected}, got {len(idx)}"))
    wraps = np.empty(0, np.int64)
    if version > 1:
        wraps = _wraps(source.typed(f"{name}_idx_offsets", "uint64"), f"{name}_idx_offsets", len(idx), len(words))

    def offsets(first: int, last: int) -> Array:
        positions = idx[first:last].astype(np.int64)
        if len(wraps):
            positions += _WRAP * np.searchsorted(wraps, np.arange(first, first + len(positions)), side="right")
        return positions

    return Stream(name, codec, count, words, offsets, starts)


def _wraps(stored: Sliceable, name: str, chunks: int, words: int) -> Array:
    """The chunks at which `idx` wraps around at 2**32 words. Decoding detects other decreases."""
    if not 2 <= len(stored) <= 2 + words // _WRAP:
        most = f"2 … {2 + words // _WRAP}"
        raise ArrayError(Problem(name, f"expected a length of {most} for {words} words, got {len(stored)}"))
    places = stored[:]
    if places[0] != 0 or places[-1] != chunks or (places[1:] < places[:-1]).any():
        raise ArrayError(Problem(name, f"expected to go from 0 to {chunks} without a decrease"))
    return places[1:-1].astype(np.int64)


# Writing


def write(
    path: str,
    tensor: Tensor,
    *,
    overwrite: bool = False,
    group: str | None = None,
    packed: bool = True,
    version: int = 2,
    chunks: int = _CHUNK_ITEMS,
    gzip: int = 0,
) -> None:
    """Write a matrix to a folder; to HDF5 with a group, or a path that ends with .h5, .hdf5 or .h5ad.

    It is stored by columns if the tensor's format is (CSC, DCSC …), else by rows. Values become uint if all are
    unsigned 32-bit integers, else float or double. Names are labels of the dimensions, else the attributes `row_names`
    and `column_names`. packed: bit-pack index and integer values. version: 1 for programs before March 2023. chunks: of
    HDF5 datasets, in items; gzip: their level of compression.

    Raises FormatError for a tensor that such a file cannot represent, OptionError, PathExistsError.
    """
    version, chunks, gzip = as_integers((version, chunks, gzip))
    integers = {type(version), type(chunks), type(gzip)} == {int}
    if not integers or version not in (1, 2) or chunks < 1 or not 0 <= gzip <= 9:
        what = f"expected version 1 or 2, chunks >= 1 and gzip 0 … 9, got {version!r:.40}, {chunks!r:.40}, {gzip!r:.40}"
        raise OptionError(Problem(path, what))
    in_hdf5 = group is not None or path.lower().endswith(_SUFFIXES)
    if not in_hdf5 and (gzip or chunks != _CHUNK_ITEMS):
        raise OptionError(Problem(path, "a folder of BPCells has no chunks and no compression; leave them out"))
    arrays, texts = _contents(path, tensor, packed, version)
    if in_hdf5:
        options = {"compression": "gzip", "compression_opts": gzip, "shuffle": True} if gzip else {}
        _write_group(path, group, overwrite, arrays, texts, {"chunks": (chunks,), **options})
    else:
        _write_folder(path, overwrite, arrays, texts)


def _contents(path: str, tensor: Tensor, packed: bool, number: int) -> tuple[dict[str, Array], dict[str, list[str]]]:
    """The arrays and the lists of texts of a matrix, including the version."""
    check_representable(tensor, "BPCells", path, ranks=(2,))
    if max(tensor.shape) > _MAX_UINT32:
        raise FormatError(Problem(path, f"BPCells has no dimension above {_MAX_UINT32}, got {tensor.shape}; split it"))
    texts = {theirs: _names(tensor, k) for k, theirs in enumerate(_NAMES)}
    order = "col" if tensor.format.order == (1, 0) else "row"
    matrix = tensor.convert(_FORMATS[order])
    value_type = _value_type(matrix.values, path)
    packed_values = packed and value_type == "uint"
    texts |= {"storage_order": [order], "version": [f"{'un' * (not packed)}packed-{value_type}-matrix-v{number}"]}
    pointers, indices = matrix.arrays["pointers_to_1"], matrix.arrays["indices_1"].astype(np.uint32, copy=False)
    if number == 1 and int(pointers[-1]) > _MAX_UINT32:
        what = f"version 1 stores at most {_MAX_UINT32} entries, got {int(pointers[-1])}; write version 2"
        raise FormatError(Problem("idxptr", what))
    values = matrix.values.astype(_VALUES[value_type], copy=False)
    arrays = {
        "idxptr": pointers.astype(np.uint32 if number == 1 else np.uint64),
        "shape": np.array(matrix.shape, np.uint32),
    }
    arrays |= _packed("index", indices, ZIGZAG, number) if packed else {"index": indices}
    arrays |= _packed("val", values, LESS_ONE, number) if packed_values else {"val": values}
    return arrays, texts


def _packed(name: str, numbers: Array, codec: int, version: int) -> dict[str, Array]:
    encoded = encode(numbers, codec)
    crossings = int(encoded.offsets[-1]) // _WRAP
    if version == 1 and crossings:
        what = f"version 1 stores less than 2**32 packed words, got {encoded.offsets[-1]}; write version 2"
        raise FormatError(Problem(name, what))
    arrays = {f"{name}_data": encoded.words, f"{name}_idx": (encoded.offsets % _WRAP).astype(np.uint32)}
    if version > 1:
        inner = np.searchsorted(encoded.offsets, _WRAP * np.arange(1, crossings + 1))
        arrays[f"{name}_idx_offsets"] = np.array([0, *inner, len(encoded.offsets)], np.uint64)
    if codec == ZIGZAG:
        arrays[f"{name}_starts"] = encoded.starts
    return arrays


def _value_type(values: Array, path: str) -> str:
    """The name of the BPCells type that represents these values exactly."""
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
        return "double" if values.dtype.itemsize == 8 else "float"
    if values.dtype.kind not in "biu":
        raise FormatError(Problem(path, f"BPCells has no {values.dtype} values; call astype() first"))
    if values.size and values.dtype.kind != "b" and not 0 <= int(values.min()) <= int(values.max()) <= _MAX_UINT32:
        what = f"BPCells stores integers in 0 … {_MAX_UINT32}, got {values.min()} … {values.max()}; convert to float"
        raise FormatError(Problem(path, what))
    return "uint"


def _names(tensor: Tensor, dimension: int) -> list[str]:
    names = to_write(tensor, dimension)
    for k, text in enumerate(names):
        if not encodes(text) or "\n" in text or text.endswith("\r"):  # it would change when it is read
            raise FormatError(Problem(f"{_NAMES[dimension]}[{k}]", f"no line of text: {text!r:.60}; rename it"))
    return names


def _write_folder(path: str, overwrite: bool, arrays: Mapping[str, Array], texts: Mapping[str, list[str]]) -> None:
    refuse_existing(path, overwrite)
    real = os.path.realpath(path)
    if os.path.isdir(real) and os.listdir(real) and not is_folder(real):
        what = "contains no matrix of BPCells, and is not overwritten; choose another path"
        raise PathExistsError(Problem(path, what))
    with replacing_folder(path, overwrite) as temporary:
        for name, array in arrays.items():
            with open(os.path.join(temporary, name), "wb") as file:
                file.write(_TYPES[array.dtype.name])
                file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        for name, lines in texts.items():
            with open(os.path.join(temporary, name), "wb") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())


def is_folder(path: str) -> bool:
    """Return True if a folder is marked as a matrix of BPCells."""
    version = os.path.join(path, "version")
    if os.path.islink(version) or not os.path.isfile(version):
        return False
    with open(version, "rb") as file:
        return file.read(9).startswith((b"packed-", b"unpacked-"))


def _write_group(
    path: str,
    group: str | None,
    overwrite: bool,
    arrays: Mapping[str, Array],
    texts: dict[str, list[str]],
    options: Mapping[str, Any],
) -> None:
    whole: Overwrite = "file" if overwrite and group is None else overwrite
    with hdf5.writing(path, group, whole, DEFAULT_LIMITS, DEFAULT_STORAGE) as writer:
        target = writer.group
        if "version" in target.attrs:
            if not overwrite:
                raise PathExistsError(Problem(f"{path}:{group}", "has a matrix; pass overwrite=True"))
            del target.attrs["version"]
            for name in _MEMBERS & set(target.keys()):
                del target[name]
        (version,) = texts.pop("version")
        taken = {*arrays, *texts} & set(target.keys())
        if taken:
            what = "already exists, and is no array of a matrix of BPCells; choose another group"
            raise PathExistsError(Problem(f"{target.name}/{min(taken)}", what))
        for name, array in arrays.items():
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            target.create_dataset(name, data=little, maxshape=(None,), **options)
        for name, lines in texts.items():
            target.create_dataset(name, shape=(len(lines),), dtype=h5py.string_dtype())[...] = lines
        target.attrs["version"] = version


FUNCTIONS = Foreign(look=look, claims=claims, write=write)
