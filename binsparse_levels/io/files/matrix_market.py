"""Matrix Market text (.mtx, .mtx.gz, .ttx): coordinate and array, every field and symmetry, of any rank."""

from __future__ import annotations

import bisect
import contextlib
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, ContainerError, FormatError, Problem, raise_if
from ...formats.format import coordinates
from ...formats.structure import STRUCTURES, diagonal_problems, in_triangle
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor
from ..interface import Foreign
from . import text_tables

COMMENT = "%"
_TYPES = {
    "real": ["f8"], "double": ["f8"], "integer": ["i8"], "unsigned-integer": ["u8"], "complex": ["f8", "f8"],
    "pattern": [],
}  # fmt: skip
_SYMMETRIES = {
    "general": None, "symmetric": "symmetric", "skew-symmetric": "skew_symmetric", "hermitian": "hermitian",
}  # fmt: skip
_RANKS = {"matrix": 2, "vector": 1, "tensor": None}


class _Header(NamedTuple):
    """The header of a file. entries: None for an array."""

    field: str
    structure: str | None
    shape: tuple[int, ...]
    entries: int | None


@contextlib.contextmanager
def streaming(path: str, *, whole: bool = False, limits: Limits = DEFAULT_LIMITS) -> Iterator[text_tables.Stream]:
    """The entries of a file, which can be read within the block: coordinates as COOR, an array as DMATC.

    A pattern becomes iso with the boolean True. A symmetry becomes a structure of the lower triangle; entries in the
    upper triangle are mirrored. Raises ArrayError, ContainerError.
    """
    with text_tables.reading(path) as stream:
        head = _read_header(stream, path, limits)
        blocks = text_tables.blocks(stream, path, limits, whole=whole)
        one = np.ones(1, bool) if head.field == "pattern" else None
        dtype, rank = _values([np.empty(0, x) for x in _TYPES[head.field]]).dtype, len(head.shape)
        if head.entries is None:
            axes = ", ".join(map(str, reversed(range(rank))))
            format, chunks = ", ".join(["dense"] * rank) + f" @ {axes}", _array_chunks(head, blocks, path)
        else:
            format, chunks = str(coordinates(rank)), _chunks(head, blocks, path)
        yield text_tables.Stream(format, head.shape, dtype, chunks, one=one, structure=head.structure)


def _chunks(head: _Header, blocks: Iterable[tuple[bytes, str]], path: str) -> Iterator[tuple[Sequence[Array], Array]]:
    """The entries of each block."""
    count, types = 0, ["i8"] * len(head.shape) + _TYPES[head.field]
    remedy = "correct this line" if head.field != "pattern" else "a file with values is integer or real, no pattern"
    for data, place in blocks:
        columns = text_tables.parse_table(data, types, COMMENT, place, remedy)
        line = functools.partial(text_tables.line_of, data, COMMENT)
        text_tables.check_coordinates(columns[: len(head.shape)], place, line, head.shape)
        coords: Sequence[Array] = [x - 1 for x in columns[: len(head.shape)]]
        values = _values(columns[len(head.shape) :])
        count += len(columns[0])
        if head.structure is not None:
            coords, values = _lower(head.structure, coords, values)
            if head.structure.startswith("skew") and head.field != "pattern":
                raise_if(ArrayError, diagonal_problems(head.structure, coords, values))
        yield coords, values
    if count != head.entries:
        raise ArrayError(Problem(path, f"declares {head.entries} entries but has {count}; correct its size line"))


def _array_chunks(
    head: _Header, blocks: Iterable[tuple[bytes, str]], path: str
) -> Iterator[tuple[Sequence[Array], Array]]:
    """The nonzero cells of each block. A file lists cells by columns; with a symmetry, those of the lower triangle."""
    at, expected, above = 0, math.prod(head.shape), 0
    if head.structure is not None:
        above = int(head.structure.startswith("skew"))
        longest = max(head.shape[0] - above, 0)  # of the columns
        expected = longest * (longest + 1) // 2
    for data, place in blocks:
        values = _values(text_tables.parse_table(data, _TYPES[head.field], COMMENT, place))
        end = at + len(values)
        if end > expected:
            break
        if head.structure is None:
            coords = _cells(head.shape, at, end)
        else:
            coords = _triangle(longest, above, at, end)
            raise_if(ArrayError, diagonal_problems(head.structure, coords, values))
        kept = values.astype(bool) | np.signbit(values.real) | np.signbit(values.imag)
        yield [x[kept] for x in coords], values[kept]
        at = end
    else:
        end = at
    if end != expected:
        raise ArrayError(Problem(path, f"expected {expected} values for shape {head.shape}, got {end}"))


def _cells(shape: Sequence[int], at: int, end: int) -> list[Array]:
    """The coordinates of the cells at … end - 1 of an array, counted by columns. Sizes may exceed those of numpy."""
    coords, rest = [], np.arange(at, end)
    for size in shape:
        rest, x = np.divmod(rest, min(size, INT64_MAX)) if len(rest) else (rest, rest)
        coords.append(x)
    return coords


def _triangle(longest: int, above: int, at: int, end: int) -> list[Array]:
    """The coordinates of the cells at … end - 1 of a lower triangle, counted by columns.

    longest: the length of the first column, whose first row is `above`. Only the columns of these cells take memory.
    """

    def start(j: int) -> int:
        return j * longest - j * (j - 1) // 2

    columns = range(min(longest, end))
    first, last = bisect.bisect_right(columns, at, key=start) - 1, bisect.bisect_left(columns, end, key=start)
    starts = np.array([start(j) for j in range(first, last)], np.int64)
    k = np.arange(at, end)
    j = np.searchsorted(starts, k, "right") - 1
    return [k - starts[j] + j + first + above, j + first] if len(k) else [k, k]


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a matrix: as an array if only values are stored, else as coordinates, in stored order.

    A structure is written as its lower triangle. An iso tensor of the boolean True is written as a pattern. Raises
    FormatError for a tensor that the text cannot represent.
    """
    check_representable(tensor, "a .mtx file", path, ranks=(2,), structures=True)
    if tensor.structure is not None and tensor.structure.startswith("skew") and tensor.dtype.kind == "u":
        raise FormatError(Problem(path, f"a .mtx file cannot represent {tensor.structure} of unsigned numbers"))
    coords, values = tensor.unpack()
    as_array = not tensor.arrays and tensor.structure is None
    pattern = tensor.iso and tensor.dtype.kind == "b" and not as_array and bool(values[:1].all())
    field = "pattern" if pattern else _field(tensor.dtype, path)
    symmetry = "general"
    if tensor.structure is not None:
        symmetry = tensor.structure.rpartition("_")[0].replace("_", "-")
        kept = in_triangle(tensor.structure, coords)
        coords, values = _lower(tensor.structure, [x[kept] for x in coords], values[kept])
        if symmetry.startswith("skew"):
            raise_if(FormatError, diagonal_problems(tensor.structure, coords, values))
    columns = [] if pattern else [values.astype(np.uint8)] if tensor.dtype.kind == "b" else [values]
    if tensor.dtype.kind == "c":
        columns = [values.real, values.imag]
    size = [*tensor.shape] if as_array else [*tensor.shape, len(values)]
    if as_array:
        by_column = np.lexsort(coords)
        columns = [x[by_column] for x in columns]
    else:
        columns = [*(x + 1 for x in coords), *columns]
    with text_tables.writing(path, overwrite) as stream:
        form = "array" if as_array else "coordinate"
        stream.write(f"%%MatrixMarket matrix {form} {field} {symmetry}\n{' '.join(map(str, size))}\n".encode())
        text_tables.format_table(stream, columns)


def _lower(structure: str, coords: Sequence[Array], values: Array) -> tuple[tuple[Array, Array], Array]:
    """The entries in the lower triangle; those of the upper triangle are mirrored."""
    i, j = coords
    above = i < j
    if above.any() and not (values.dtype.kind == "b" and structure.startswith("skew")):  # which is refused later
        values = np.where(above, STRUCTURES[structure].mirrored(values), values)
        i, j = np.maximum(i, j), np.minimum(i, j)
    return (i, j), values


def _field(dtype: np.dtype[np.generic], path: str) -> str:
    """The field for values of this type. The text does not store their width."""
    if dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise FormatError(Problem(path, f"the text of a .mtx file would round {dtype} values; call astype() first"))
    field = {"b": "integer", "i": "integer", "u": "integer", "f": "real", "c": "complex"}.get(dtype.kind)
    if field is None:
        raise FormatError(Problem(path, f"a .mtx file has no {dtype} values; call astype() first"))
    return "unsigned-integer" if dtype == np.uint64 else field


def _read_header(stream: IO[bytes], path: str, limits: Limits) -> _Header:
    first = text_tables.read_line(stream, path, limits)
    words = first.decode("latin1").lower().split()
    if len(words) != 5 or words[0].lstrip("%") != "matrixmarket" or words[1] not in _RANKS:
        raise ContainerError(Problem(path, f"expected %%MatrixMarket matrix coordinate or array, got {first!r:.80}"))
    _, what, form, field, symmetry = words
    known = form in ("coordinate", "array") and field in _TYPES and symmetry in _SYMMETRIES
    if not known or (form == "array" and field == "pattern") or (what != "matrix" and symmetry != "general"):
        raise ContainerError(Problem(path, f"unknown kind of {' '.join(words[1:]):.80}"))
    line = b"%"
    while line and (not line.strip() or line.lstrip().startswith(b"%")):
        line = text_tables.read_line(stream, path, limits)
    is_listed = form == "coordinate"
    rank = _RANKS[what] or len(line.split()) - is_listed
    sizes = [int(size) for size in line.split() if size.isdigit() and len(size) < 20]
    if rank < 1 or len(sizes) != len(line.split()) or len(sizes) != rank + is_listed:
        raise ContainerError(Problem(path, f"expected a line of {max(rank, 1) + is_listed} sizes, got {line!r:.80}"))
    structure = _SYMMETRIES["symmetric" if symmetry == "hermitian" and field != "complex" else symmetry]
    if structure is not None and sizes[0] != sizes[1]:
        raise ArrayError(Problem(path, f"is {symmetry}, but has {sizes[0]} × {sizes[1]} cells; declare it general"))
    structure = structure and f"{structure}_lower"
    return _Header(field, structure, tuple(sizes[:rank]), sizes[-1] if is_listed else None)


def _values(numbers: Sequence[np.ndarray]) -> np.ndarray:
    if not numbers:
        return np.array(True)
    if len(numbers) == 1:
        return numbers[0]
    values = np.empty(len(numbers[0]), np.complex128)  # a sum with 1j would lose infinities and signs of zero
    values.real, values.imag = numbers
    return values


FUNCTIONS = Foreign(streaming=streaming, write=write)
