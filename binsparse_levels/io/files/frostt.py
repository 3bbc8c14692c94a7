"""FROSTT text tensors (.tns, .tns.gz): a line for each entry, its coordinates from 1, then its value."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from ...arrays import Array
from ...engine.emission import Duplicates
from ...errors import ArrayError, FormatError, Problem, raise_if
from ...formats.format import coordinates
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.packing import pack
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from . import text_tables

COMMENT = "#"


def read(
    path: str,
    *,
    shape: int | Sequence[int] | None = None,
    duplicates: Duplicates = "error",
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """The tensor in a .tns file, every entry with all its coordinates, in the order of the dimensions.

    shape: by default from the largest coordinates, because the file has no shape. The values are int64 where all are
    written as integers, else float64. Raises ArrayError for another table, ContainerError.
    """
    with text_tables.reading(path) as stream:
        data = text_tables.read_rest(stream, path, limits)
    text_tables.warn_of_end(data, path)
    *columns, values = _parse(data, _width(data, path), path)
    columns = [x - 1 for x in columns]
    if shape is None:
        if not len(values):
            raise _unknown_shape(path)
        shape = [int(x.max()) + 1 for x in columns]
    if not len(values):
        columns = [np.empty(0, np.int64)] * np.size(shape)
    return pack(columns, values, shape, coordinates(len(columns)), duplicates=duplicates, limits=limits)


@contextlib.contextmanager
def streaming(path: str, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[text_tables.Stream]:
    """The entries, which can be read within the block. The text is read twice: first for its shape and its type."""
    width, sizes, types = 1, [0], set()
    with text_tables.reading(path) as stream:
        for data, place in text_tables.blocks(stream, path, limits):
            width = max(width, _width(data, place))
            *columns, values = _parse(data, width, place)
            if len(values):
                sizes = np.maximum([int(x.max()) for x in columns], sizes).tolist()
                types.add(values.dtype)
    if not types:
        raise _unknown_shape(path)
    dtype = np.result_type(*types)

    def chunks(stream: IO[bytes]) -> Iterator[tuple[list[Array], Array]]:
        for data, place in text_tables.blocks(stream, path, limits):
            *columns, values = _parse(data, width, place)
            yield [x - 1 for x in columns], values.astype(dtype, copy=False)

    with text_tables.reading(path) as stream:
        yield text_tables.Stream(str(coordinates(width - 1)), tuple(sizes), dtype, chunks(stream))


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write the entries in stored order, the shape in a comment.

    Raises FormatError for a tensor that the text cannot represent.
    """
    type_fits = tensor.dtype.kind in "biuf" and tensor.dtype.itemsize <= 8
    check_representable(tensor, "a .tns file", path, ranks=range(1, tensor.ndim + 1), type_fits=type_fits)
    coords, values = tensor.unpack()
    if values.dtype == np.uint64 and len(values) and values.max() > INT64_MAX:
        raise FormatError(Problem(path, "a .tns file holds no integers above 2**63 - 1; call astype() first"))
    numbers = values.astype(np.uint8) if values.dtype.kind == "b" else values
    with text_tables.writing(path, overwrite) as stream:
        stream.write(f"{COMMENT} {' '.join(map(str, tensor.shape))}\n".encode())
        text_tables.format_table(stream, [*(x + 1 for x in coords), numbers])


def _width(data: bytes, path: str) -> int:
    """How many numbers a line has; 1 where no line has any."""
    line = re.search(rb"^[ \t]*[^\s#][^\n#]*", data, re.MULTILINE)
    if line is None:
        return 1
    width = len(line.group().split())
    if width < 2:
        raise ArrayError(Problem(path, f"expected coordinates and a value on a line, got {line.group()!r:.60}"))
    return width


def _parse(data: bytes, width: int, path: str) -> list[Array]:
    types = ["i8"] * width
    whole = text_tables.numbers_in(data, types, COMMENT)
    table = text_tables.parse_table(data, [*types[:-1], "f8"], COMMENT, path) if isinstance(whole, Exception) else whole
    problems = [
        Problem(f"{path}: column {k + 1}", f"coordinates count from 1, got {x.min()}; count from 1 in the file")
        for k, x in enumerate(table[:-1])
        if len(x) and x.min() < 1
    ]
    raise_if(ArrayError, problems)
    return table


def _unknown_shape(path: str) -> ArrayError:
    return ArrayError(Problem(path, "has no entries to tell its shape; pass shape="))
