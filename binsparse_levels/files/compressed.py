"""What files of compressed rows or columns share: what they hold, still in the file, and the tensor that is made of it.

Arrays in files are one-dimensional objects with `shape`, `dtype`, a length, and `[a:b]`, which reads that part, or
decodes it. Other programs store them as other types of numbers too: those that were asked for are given, or an error.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt

from ..bitpacked import Section, Sliceable, bounds
from ..containers import hdf5
from ..containers.base import bounded_chunk, touching
from ..containers.local import DIRECT, read_in_steps
from ..errors import ArrayError, ContainerError, PathMissingError, Problem, UnsafeError, raise_if
from ..fused import Duplicates
from ..limits import INT64_MAX, Limits
from ..tensor import Tensor, pack

Array: TypeAlias = npt.NDArray[Any]
Axis: TypeAlias = Literal["row", "col"]  # by which a matrix is compressed


@dataclass(frozen=True, eq=False)
class Compressed:
    """A matrix in a file, before it is read. names: of its pointers, indices and values in the file, for errors.

    Only the ends of the pointers have been looked at.
    """

    format: Literal["CSR", "CSC"]
    shape: tuple[int, int]
    pointers: Sliceable
    indices: Sliceable
    values: Sliceable
    names: tuple[str, str, str]
    attributes: Mapping[str, Sequence[str]]

    @property
    def arrays(self) -> dict[str, Sliceable]:
        """The index and pointer arrays by the names that they have in a tensor."""
        return {"pointers_to_1": self.pointers, "indices_1": self.indices}

    def tensor(self, duplicates: Duplicates, limits: Limits) -> Tensor:
        """The matrix in memory, checked in full. Entries of a row or column that are out of order are sorted.

        Raises ArrayError, LimitError.
        """
        loaded = []
        for name, stored in zip(self.names, (self.pointers, self.indices, self.values), strict=True):
            limits.hold("array_bytes", len(stored) * stored.dtype.itemsize, name, "the size in bytes")
            loaded.append(stored[:])
        pointers, indices, values = loaded
        place = self.format, self.shape
        arrays = {"pointers_to_1": pointers, "indices_1": indices}
        try:
            made = Tensor(*place, arrays, values, limits=limits)
        except ArrayError:
            with self._named():
                loose = Tensor(*place, arrays, values, check="trusted", limits=limits)
            coords, entries = loose.unpack()
            made = pack(coords, entries, *place[::-1], duplicates=duplicates, limits=limits)
        attributes = {name: list(names) for name, names in self.attributes.items() if names}
        return Tensor._trusted(made.format, made.shape, made._tree, None, None, attributes, {})

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Errors with the names that the arrays have in the file."""
        ours = dict(zip((*self.arrays, "values"), self.names, strict=True))
        try:
            yield
        except ArrayError as error:
            named = []
            for problem in error.problems:
                name, bracket, rest = problem.path.partition("[")
                named.append(Problem(ours.get(name, name) + bracket + rest, problem.message))
            raise ArrayError(named) from None


def compressed(
    by: Axis,
    shape: tuple[int, int],
    pointers: Sliceable,
    names: tuple[str, str, str],
    attributes: Mapping[str, Sequence[str]],
    entries: Callable[[int], tuple[Sliceable, Sliceable]],
) -> Compressed:
    """A matrix, compressed by rows or columns, whose pointers have the right length and ends. entries(n): the n indices
    and values. Raises ArrayError.
    """
    fibers = shape[0 if by == "row" else 1]
    if fibers == 0 and len(pointers) == 2 and not pointers[:].any():  # so BPCells writes no rows or columns
        pointers = Section(pointers, 0, 1)
    if len(pointers) != fibers + 1:
        what = f"expected a length of {fibers + 1} for shape {shape[0]} × {shape[1]}, got {len(pointers)}"
        raise ArrayError(Problem(names[0], what))
    first, last = (int(pointers[at : at + 1][0]) for at in (0, fibers))
    if first != 0 or not 0 <= last <= INT64_MAX:
        raise ArrayError(Problem(names[0], f"goes from {first} to {last}"))
    wrong = [
        Problem(name, f"expected none or {size} for shape {shape[0]} × {shape[1]}, got {len(attributes[name])}")
        for name, size in zip(("row_names", "column_names"), shape, strict=True)
        if name in attributes and len(attributes[name]) not in (0, size)
    ]
    raise_if(ArrayError, wrong)
    indices, values = entries(last)
    return Compressed("CSR" if by == "row" else "CSC", shape, pointers, indices, values, names, attributes)


def first_items(stored: Sliceable, count: int, name: str) -> Sliceable:
    """As many of an array as are wanted; it may have more. Raises ArrayError where it has fewer."""
    if len(stored) < count:
        raise ArrayError(Problem(name, f"expected a length of {count}, got {len(stored)}"))
    return Section(stored, 0, count)


class Place(Protocol):
    """A folder or a group of arrays and texts."""

    def numbers(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        """An array of that type of numbers; `unsigned`: it must not be stored with signs. Raises ArrayError where it is
        none, ContainerError where it is missing.
        """

    def texts(self, name: str) -> list[str]:
        """A list of texts. Raises as `numbers` does."""

    def version(self) -> str:
        """What the place says that it is."""


# Folders


@dataclass(frozen=True, eq=False)
class _FileNumbers:
    """The numbers in a file behind `at` bytes."""

    path: str
    file: IO[bytes]
    at: int
    shape: tuple[int]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, window: slice) -> Array:
        begin, end = bounds(window, len(self))
        array = np.empty(end - begin, self.dtype)
        place = self.at + begin * self.dtype.itemsize
        with touching(self.path):
            if DIRECT:
                read_in_steps(self.file.fileno(), array, place)
            else:
                self.file.seek(place)
                if self.file.readinto(array) != array.nbytes:  # type: ignore[attr-defined]
                    raise EOFError("the file ends before the array does")
        return array.astype(self.dtype.newbyteorder("="), copy=False)


class Folder:
    """A folder with a file for each array: 8 bytes that name the type, then its numbers; or lines of text.

    types: what those bytes are, by numpy's name of the type. Symbolic links are not followed; files stay open until
    `closing` ends.
    """

    def __init__(self, path: str, types: Mapping[str, bytes], limits: Limits, closing: contextlib.ExitStack) -> None:
        self._path = path
        self._types = types
        self._limits = limits
        self._closing = closing

    def numbers(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        file = self._open(name)
        head, wanted = file.read(8), self._types[dtype]
        if head != wanted:
            raise ArrayError(Problem(name, f"expected a file that begins with {wanted!r}, got {head!r}"))
        kind = np.dtype(dtype).newbyteorder("<")
        size = os.fstat(file.fileno()).st_size
        self._limits.hold("array_bytes", size, name, "the size in bytes")
        return _FileNumbers(name, file, 8, ((size - 8) // kind.itemsize,), kind)

    def texts(self, name: str) -> list[str]:
        file = self._open(name)
        self._limits.hold("array_bytes", os.fstat(file.fileno()).st_size, name, "the size in bytes")
        with touching(name):
            data = file.read()
        try:
            lines = data.decode().split("\n")
        except UnicodeDecodeError as error:
            raise ArrayError(Problem(name, f"not UTF-8: {error}")) from None
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    def version(self) -> str:
        lines = self.texts("version")
        if len(lines) != 1:
            raise ContainerError(Problem(f"{self._path}/version", f"expected one line, got {len(lines)}"))
        return lines[0]

    def _open(self, name: str) -> IO[bytes]:
        path = os.path.join(self._path, name)
        if os.path.islink(path):
            raise UnsafeError(Problem(path, "a symbolic link is not followed"))
        if not os.path.isfile(path):  # a pipe would wait for somebody to write
            raise PathMissingError(Problem(path, "no such file"))
        try:
            return self._closing.enter_context(open(path, "rb", buffering=0))
        except OSError as error:
            raise ContainerError(Problem(path, f"cannot be read: {error.strerror}")) from None


# Groups of HDF5 files


@dataclass(frozen=True, eq=False)
class _DatasetNumbers:
    """The numbers in a dataset."""

    reader: hdf5.HDF5Reader
    name: str
    dataset: h5py.Dataset
    shape: tuple[int]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, window: slice) -> Array:
        begin, end = bounds(window, len(self))
        with touching(self.name):
            whole = (begin, end) == (0, len(self))
            array: Array = self.reader.read(self.name) if whole else self.dataset[begin:end]
        return array.astype(self.dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, eq=False)
class _Converted:
    """Integers as integers of another type."""

    name: str
    stored: Sliceable
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, window: slice) -> Array:
        found = self.stored[window]
        limits = np.iinfo(self.dtype)
        wrong = (found < limits.min) | (found > limits.max)
        if wrong.any():
            at = int(np.argmax(wrong))
            place = bounds(window, len(self))[0] + at
            raise ArrayError(Problem(f"{self.name}[{place}]", f"{found[at]} is out of the range of {self.dtype}"))
        return found.astype(self.dtype)


class Group:
    """A group of an HDF5 file, with a dataset for each array."""

    def __init__(self, reader: hdf5.HDF5Reader, limits: Limits) -> None:
        self._reader = reader
        self._limits = limits

    @property
    def attributes(self) -> h5py.AttributeManager:
        return self._reader.group.attrs

    def names(self) -> set[str]:
        """What lies in the group; that it is there is all that is known."""
        with touching(self._reader.group.name):
            return set(self._reader.group.keys())

    def numbers(self, name: str, dtype: str | None = None, *, unsigned: bool = False) -> Sliceable:
        """dtype: None for that which is stored."""
        if dtype is None:
            return self._numbers(name, "biuf", "numbers")
        wanted = np.dtype(dtype)
        kinds = "u" if unsigned else "iu" if wanted.kind in "iu" else wanted.kind
        found = self._numbers(name, kinds, f"{'unsigned ' * unsigned}{wanted}")
        if found.dtype == wanted:
            return found
        if wanted.kind == "f":
            raise ArrayError(Problem(name, f"expected {wanted}, got {found.dtype}"))
        return _Converted(name, found, wanted)

    def integers(self, name: str) -> Sliceable:
        """Integers of the type that is stored. Raises as `numbers` does."""
        return self._numbers(name, "iu", "integers")

    def _numbers(self, name: str, kinds: str, expected: str) -> Sliceable:
        dataset = self._dataset(name)
        stored = dataset.dtype
        if stored.kind not in kinds:
            raise ArrayError(Problem(name, f"expected {expected}, got {stored}"))
        self._limits.hold("array_bytes", dataset.size * stored.itemsize, name, "the size in bytes")
        return _DatasetNumbers(self._reader, name, dataset, dataset.shape, stored.newbyteorder("="))

    def texts(self, name: str) -> list[str]:
        dataset = self._dataset(name)
        self._limits.hold("array_bytes", dataset.size * dataset.dtype.itemsize, name, "the size in bytes")
        if h5py.check_string_dtype(dataset.dtype) is None:
            raise ArrayError(Problem(name, f"expected texts, got {dataset.dtype}"))
        with touching(name):
            found = dataset[...]
        return [_text(text, f"{name}[{k}]") for k, text in enumerate(found)]

    def version(self) -> str:
        return self.attribute_text("version")

    def attribute_text(self, name: str) -> str:
        """An attribute that is a text. Raises ContainerError."""
        with touching(name):
            if name not in self.attributes:
                raise ContainerError(Problem(name, f"{self._reader.group.name} has no such attribute"))
            size = self.attributes.get_id(name).get_storage_size()
            self._limits.hold("header_bytes", size, name, "the length of the attribute")
            text = self.attributes[name]
        if isinstance(text, np.ndarray) and text.shape == (1,):
            text = text[0]
        if not isinstance(text, str | bytes):
            raise ContainerError(Problem(name, f"expected a text, got {type(text).__name__}"))
        return _text(text, name)

    def attribute_numbers(self, name: str) -> list[int]:
        """An attribute that is a list of integers. Raises ContainerError."""
        with touching(name):
            size = self.attributes.get_id(name).get_storage_size()
            self._limits.hold("header_bytes", size, name, "the length of the attribute")
            numbers = np.asarray(self.attributes[name])
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ContainerError(Problem(name, f"expected integers, got {numbers.dtype} of shape {numbers.shape}"))
        found: list[int] = numbers.tolist()
        return found

    def _dataset(self, name: str) -> h5py.Dataset:
        info = self._reader.info(name)
        if info is None:
            raise PathMissingError(Problem(name, f"{self._reader.group.name} has no such dataset"))
        if len(info.shape) != 1:
            raise ArrayError(Problem(name, f"expected one dimension, got shape {info.shape}"))
        with touching(name):
            dataset = self._reader.group[name]
            if dataset.chunks:
                chunk = math.prod(dataset.chunks)
                bounded_chunk(name, chunk, dataset.size, dataset.dtype.itemsize, self._limits)
        return dataset


def _text(text: Any, path: str) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else str(text).encode().decode()
    except UnicodeError as error:
        raise ArrayError(Problem(path, f"not UTF-8: {error}")) from None
