"""FROSTT text tensors (.tns, .tns.gz): a line for each entry with its coordinates, counted from 1, and its value."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, FormatError, Problem
from ...formats.format import coordinates
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor
from ..interface import Foreign
from . import text_tables

COMMENT = "#"
_HEAD = 2**16  # bytes that are searched for sizes before the entries


@contextlib.contextmanager
def streaming(
    path: str, *, shape: int | Sequence[int] | None = None, whole: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Iterator[text_tables.Stream]:
    """The entries of a .tns file, in the order of its lines. They can be read within the block.

    shape: by default that in the head of the file, or else from the largest coordinates. If it is passed, the head is
    not compared with the entries. The values are int64 if all are written as integers, else float64. The text is read
    twice, first for its shape and its type, unless it is kept whole. Raises ArrayError for another table,
    ContainerError.
    """
    with text_tables.reading(path) as stream:
        stated, count, begin = _head(stream.read(_HEAD))

    def tables(width: int = 1) -> Iterator[list[Array]]:
        kind = "i8"  # of values; after the first that is no integer, all are read as floating-point numbers
        with text_tables.reading(path) as stream:
            stream.read(begin)
            for data, place in text_tables.blocks(stream, path, limits, whole=whole):
                width = max(width, _width(data, place))
                try:
                    table = _parse(data, width, kind, place)
                except ArrayError:
                    kind = "f8"
                    table = _parse(data, width, kind, place)
                yield table

    kept = list(tables()) if whole else None
    found, dtypes, width, entries, first = np.zeros(1, np.int64), {np.dtype(np.int64)}, 1, 0, None
    for *columns, values in kept or tables():
        width = max(width, len(columns) + 1)
        if len(values):
            first = [x[0] for x in (*columns, values)] if first is None else first
            entries += len(values)
            found = np.maximum([x.max() for x in columns], found)
            dtypes.add(values.dtype)
    empty = not found.any()
    if shape is None and stated is not None and (empty or len(stated) == width - 1):
        if (found > stated).any():
            what = f"has coordinates up to {found.tolist()}, but the sizes in its head are {stated}"
            raise ArrayError(Problem(path, f"{what}; pass shape= to read it"))
        shape = stated
    if shape is None or shape is stated:
        _check_count(path, entries, count, found, first)
    if shape is None and empty:
        raise ArrayError(Problem(path, "has no entries, so its shape is unknown; pass shape="))
    sizes = tuple(found.tolist()) if shape is None else tuple(np.atleast_1d(np.asarray(shape, object)).tolist())
    dtype = np.result_type(*dtypes)

    def chunks() -> Iterator[tuple[list[Array], Array]]:
        for *columns, values in kept or tables(width):
            if columns or len(values):
                yield [x - 1 for x in columns], values.astype(dtype, copy=False)

    with text_tables.reading(path):  # for errors about repeated entries
        yield text_tables.Stream(str(coordinates(len(sizes) if empty else width - 1)), sizes, dtype, chunks())


def _check_count(path: str, entries: int, count: int | None, found: Array, first: list[np.generic] | None) -> None:
    """Raise ArrayError if there are more or fewer entries than the head has, or if the first is itself a head.

    Some programs write the sizes and the number of entries in the first line.
    """
    if count not in (None, entries):
        what = f"has {entries} entries, but {count} by its head: it may be cut off"
        raise ArrayError(Problem(path, f"{what}; pass shape= to read it"))
    if first is not None and entries > 1 and list(first) == [*found, entries - 1]:
        what = f"the first line, {' '.join(map(str, first))}, equals sizes and the number of the other lines"
        raise ArrayError(Problem(path, f"{what}; remove it, or pass shape= if it is an entry"))


def _head(data: bytes) -> tuple[list[int] | None, int | None, int]:
    """The sizes and the number of entries in the head of a file, if it has any, and the offset of the entries.

    This package writes the sizes in a comment. Other programs write a line with the rank, perhaps after the word
    `sptensor`, and a line with the sizes. The number of entries may follow the rank or the sizes.
    """
    stated, lines = None, list[tuple[list[bytes], int]]()
    for line in re.finditer(rb"[^\n]+", data):
        words = line.group().lstrip(b"# \t").split()
        is_comment, are_sizes = line.group().lstrip().startswith(b"#"), all(map(bytes.isdigit, words))
        if is_comment and words and are_sizes:
            stated = list(map(int, words))
        elif words and not is_comment and words != [b"sptensor"]:
            lines.append((words, line.start()))
        if len(lines) == 4:
            break
    if len(lines) >= 3:
        (first, _), (sizes, _), *entries = lines
        rank, count = len(sizes), first[1] if len(first) == 2 else b""
        if len(entries[0][0]) == 1 and len(entries) > 1:
            (count,), entries = entries[0][0], entries[1:]
        if len(first) < 3 and first[0] == b"%d" % rank and len(entries[0][0]) == rank + 1 and b"".join(sizes).isdigit():
            return list(map(int, sizes)), int(count) if count.isdigit() else None, entries[0][1]
    return stated, None, 0


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write the entries in stored order, the shape in a comment.

    Raises FormatError for a tensor that the text cannot represent.
    """
    type_fits = tensor.dtype.kind in "biuf" and tensor.dtype.itemsize <= 8
    check_representable(tensor, "a .tns file", path, ranks=range(1, tensor.ndim + 1), type_fits=type_fits)
    coords, values = tensor.unpack()
    if values.dtype == np.uint64 and len(values) and values.max() > INT64_MAX:
        raise FormatError(Problem(path, "a .tns file has no integers above 2**63 - 1; call astype() first"))
    numbers = values.astype(np.uint8) if values.dtype.kind == "b" else values
    with text_tables.writing(path, overwrite) as stream:
        stream.write(f"{COMMENT} {' '.join(map(str, tensor.shape))}\n".encode())
        text_tables.format_table(stream, [*(x + 1 for x in coords), numbers])


def _width(data: bytes, path: str) -> int:
    """The number of numbers in a line; 1 if no line has any."""
    line = re.search(rb"^[ \t]*[^\s#][^\n#]*", data, re.MULTILINE)
    width = 1 if line is None else len(line.group().split())
    if line is not None and width < 2:
        raise ArrayError(Problem(path, f"expected coordinates and a value on a line, got {line.group()!r:.60}"))
    return width


def _parse(data: bytes, width: int, kind: str, path: str) -> list[Array]:
    """The coordinates and values of a block. kind: of the values."""
    table = text_tables.parse_table(data, ["i8"] * (width - 1) + [kind], COMMENT, path)
    text_tables.check_coordinates(table[:-1], path, functools.partial(text_tables.line_of, data, COMMENT))
    return table


FUNCTIONS = Foreign(streaming=streaming, write=write)
