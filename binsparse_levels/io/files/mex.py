"""Folders of 10x Genomics, read only: `matrix.mtx`, `barcodes.tsv`, and `features.tsv` or in older ones `genes.tsv`.

Each file may be compressed. Rows are features, columns barcodes. Labels are the first columns of the tables.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...errors import ArrayError, ContainerError, Problem, UnsafeError
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import TEXT, Column
from ..interface import Foreign
from . import matrix_market, text_tables
from .names import in_bytes, labelled, lines_of

_MATRIX, _COLUMNS, _ROWS = "matrix.mtx", "barcodes.tsv", ("features.tsv", "genes.tsv")


@contextlib.contextmanager
def streaming(path: str, *, whole: bool = False, limits: Limits = DEFAULT_LIMITS) -> Iterator[text_tables.Stream]:
    """The stream of Matrix Market, with labels in memory. Raises ContainerError, ArrayError."""
    with matrix_market.streaming(_there(path, [_MATRIX]), whole=whole, limits=limits) as stream:
        rows, columns = _there(path, _ROWS), _there(path, [_COLUMNS])
        dims = ("gene" if os.path.basename(rows).startswith("genes") else "feature", "barcode")
        tables = zip((rows, columns), stream.shape, strict=True)
        yield replace(stream, labels=labelled(dims, [_first_column(table, size, limits) for table, size in tables]))


def _there(path: str, names: Sequence[str]) -> str:
    """The path of the first file that exists. Raises ContainerError."""
    paths = [os.path.join(path, name + end) for name in names for end in ("", ".gz")]
    there = next((file for file in paths if os.path.isfile(file)), None)
    if there is None:
        raise ContainerError(Problem(path, f"has no {names[0]}, which belongs next to a matrix; put it there"))
    if os.path.islink(there):
        raise UnsafeError(Problem(there, "a symbolic link is not followed; name the folder that it leads to"))
    return there


def _first_column(path: str, size: int, limits: Limits) -> Column:
    """The labels in a table. Raises ArrayError."""
    with text_tables.reading(path) as stream:
        blocks = text_tables.blocks(stream, path, limits, numbers=False)
        firsts = ([line.partition(b"\t")[0] for line in lines_of(data)] for data, _ in blocks)
        texts, offsets = in_bytes(firsts, path, limits)
    if (count := len(offsets) - 1) != size:
        raise ArrayError(Problem(path, f"expected {size} lines, got {count}; use the table of this matrix"))
    return Column(TEXT, texts, offsets)


FUNCTIONS = Foreign(streaming=streaming)
