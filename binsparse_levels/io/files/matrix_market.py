"""Matrix Market text (.mtx, .mtx.gz): coordinate and array, every field and symmetry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, ContainerError, FormatError, Problem
from ...formats.format import ALIASES
from ...formats.structure import STRUCTURES, expand, in_triangle
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.packing import pack
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from . import text_tables

COMMENT = "%"
_TYPES = {
    "real": ["f8"], "double": ["f8"], "integer": ["i8"], "unsigned-integer": ["u8"], "complex": ["f8", "f8"],
    "pattern": [],
}  # fmt: skip
_SYMMETRIES = {
    "general": None, "symmetric": "symmetric", "skew-symmetric": "skew_symmetric", "hermitian": "hermitian",
}  # fmt: skip


class Header(NamedTuple):
    """The first lines of a file; entries is None for an array."""

    field: str
    symmetry: str | None
    shape: tuple[int, int]
    entries: int | None


@contextlib.contextmanager
def streaming(
    path: str, *, whole: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Iterator[text_tables.Stream | Tensor | None]:
    """The entries of a coordinate file as COOR, which can be read within the block. An array is read whole as DMATC, or
    not at all.

    A pattern becomes iso, of the boolean True. A symmetry becomes a structure; its entries lie in the lower
    triangle by the standard, and in the upper one in files of some programs. Raises ArrayError, ContainerError.
    """
    with text_tables.reading(path) as stream:
        head = _read_header(stream, path, limits)
        if head.entries is None:
            blocks = text_tables.blocks(stream, path, limits, whole=True)
            yield _read_array(head, b"".join(data for data, _ in blocks), path, limits) if whole else None
            return
        structures = [] if head.symmetry is None else [f"{head.symmetry}_lower", f"{head.symmetry}_upper"]
        one = np.ones(1, bool) if head.field == "pattern" else None
        chunks = _chunks(head, text_tables.blocks(stream, path, limits, whole=whole), path, structures)
        dtype = _values([np.empty(0, x) for x in _TYPES[head.field]]).dtype
        yield text_tables.Stream("COOR", head.shape, dtype, chunks, one=one, structures=structures)


def _chunks(
    head: Header, blocks: Iterable[tuple[bytes, str]], path: str, structures: list[str]
) -> Iterator[tuple[list[Array], Array]]:
    """The entries of each block. structures: those that do not fit are removed."""
    count = 0
    for data, place in blocks:
        rows, columns, *numbers = text_tables.parse_table(data, ["i8", "i8", *_TYPES[head.field]], COMMENT, place)
        coords, values = [rows - 1, columns - 1], _values(numbers)
        count += len(rows)
        if head.symmetry is not None:
            structures[:] = [name for name in structures if in_triangle(name, coords).all()]
            if not structures:
                what = f"is {head.symmetry}, with entries in both triangles; declare it general"
                raise ArrayError(Problem(path, what))
        yield coords, values
    if count != head.entries:
        raise ArrayError(Problem(path, f"announces {head.entries} entries and has {count}; correct its size line"))


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a matrix: as an array where only values are stored, else by coordinates, in stored order.

    A structure is written with the lower triangle. Of an iso tensor the boolean True is written as a pattern. Raises
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
        name, _, triangle = tensor.structure.rpartition("_")
        symmetry = name.replace("_", "-")
        kept = in_triangle(tensor.structure, coords)
        coords, values = tuple(x[kept] for x in coords), values[kept]
        if triangle == "upper":
            diagonal = coords[0] == coords[1]
            coords = coords[::-1]
            values = np.where(diagonal, values, STRUCTURES[tensor.structure].mirrored(values))
    columns = [] if pattern else [values]
    if tensor.dtype.kind == "c":
        columns = [values.real, values.imag]
    elif tensor.dtype.kind == "b" and not pattern:
        columns = [values.astype(np.uint8)]
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


def _field(dtype: np.dtype[np.generic], path: str) -> str:
    """The field that holds values of this type; the text itself keeps no width."""
    if dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise FormatError(Problem(path, f"the text of a .mtx file would round {dtype} values; call astype() first"))
    field = {"b": "integer", "i": "integer", "u": "integer", "f": "real", "c": "complex"}.get(dtype.kind)
    if field is None:
        raise FormatError(Problem(path, f"a .mtx file holds no {dtype} values; call astype() first"))
    return "unsigned-integer" if dtype == np.uint64 else field


def _read_header(stream: IO[bytes], path: str, limits: Limits) -> Header:
    first = text_tables.read_line(stream, path, limits)
    words = first.decode("latin1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[2] not in ("coordinate", "array"):
        raise ContainerError(Problem(path, f"expected %%MatrixMarket matrix coordinate or array, got {first!r:.80}"))
    _, _, form, field, symmetry = words
    if field not in _TYPES or symmetry not in _SYMMETRIES or (form == "array" and field == "pattern"):
        raise ContainerError(Problem(path, f"unknown kind of matrix: {' '.join(words[2:]):.80}"))
    while (line := text_tables.read_line(stream, path, limits)) and (
        not line.strip() or line.lstrip().startswith(b"%")
    ):
        pass
    sizes = line.split()
    wanted = 3 if form == "coordinate" else 2
    if len(sizes) != wanted or not all(size.isdigit() and len(size) < 20 for size in sizes):
        raise ContainerError(Problem(path, f"expected a line of {wanted} sizes, got {line!r:.80}"))
    rows, columns, *entries = map(int, sizes)
    symmetry = "symmetric" if symmetry == "hermitian" and field != "complex" else symmetry
    return Header(field, _SYMMETRIES[symmetry], (rows, columns), entries[0] if entries else None)


def _values(numbers: Sequence[np.ndarray]) -> np.ndarray:
    if not numbers:
        return np.array(True)
    if len(numbers) == 1:
        return numbers[0]
    values = np.empty(len(numbers[0]), np.complex128)  # a sum with 1j would lose infinities and signs of zero
    values.real, values.imag = numbers
    return values


def _read_array(head: Header, data: bytes, path: str, limits: Limits) -> Tensor:
    """An array lists its columns one behind the other, with a symmetry the lower triangle alone."""
    values = _values(text_tables.parse_table(data, _TYPES[head.field], COMMENT, path))
    rows, columns = head.shape
    structure = None if head.symmetry is None else f"{head.symmetry}_lower"
    if structure is None:
        if len(values) != rows * columns:
            raise ArrayError(Problem(path, f"expected {rows * columns} values, got {len(values)}"))
        return Tensor(ALIASES["DMATC"], head.shape, {}, values, limits=limits)
    above = 1 if head.symmetry == "skew_symmetric" else 0
    count = rows * (rows + 1) // 2 - above * rows
    if rows != columns or len(values) != count:
        what = f"expected the {count} values of a triangle of {rows} × {columns}, got {len(values)}"
        raise ArrayError(Problem(path, what))
    limits.hold("dense_bytes", rows * columns * values.itemsize, path, "the size in bytes of the dense array")
    j, i = np.triu_indices(rows, above)
    coords, full = expand(structure, (i, j), values)
    dense = pack(coords, full, head.shape, "DMATC", limits=limits)
    return Tensor(dense.format, dense.shape, {}, dense.values, structure=structure, limits=limits)
