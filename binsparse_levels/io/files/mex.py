"""Folders of 10x Genomics: `matrix.mtx`, `barcodes.tsv`, and `features.tsv` or in older ones `genes.tsv`.

Each may be compressed, as newer ones are. Rows are features, columns barcodes; the tables have their labels first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...containers.replacing import replacing_folder
from ...errors import ArrayError, ContainerError, Problem, UnsafeError
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import TEXT, Column, Labels
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from . import matrix_market, text_tables
from .names import in_bytes, labelled, lines_of, to_write

__all__ = ["others", "streaming", "write"]

_MATRIX, _COLUMNS, _ROWS = "matrix.mtx", "barcodes.tsv", ("features.tsv", "genes.tsv")


@contextlib.contextmanager
def streaming(
    path: str, *, whole: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Iterator[text_tables.Stream | Tensor | None]:
    """As that of Matrix Market, with labels, which are in memory. Raises ContainerError, ArrayError."""
    with matrix_market.streaming(_there(path, [_MATRIX]), whole=whole, limits=limits) as stream:
        if isinstance(stream, text_tables.Stream):
            yield replace(stream, labels=_names(path, stream.shape, limits))
        else:
            yield stream and stream._labelled(_names(path, stream.shape, limits))


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a folder as newer programs make it. What has no label is called by its number.

    Raises FormatError for a tensor that the folder cannot represent.
    """
    check_representable(tensor, "a folder of 10x", path, ranks=(2,))
    rows, columns = (to_write(tensor, k) or list(map(str, range(size))) for k, size in enumerate(tensor.shape))
    for name in (*rows, *columns):
        if any(c in name for c in "\t\r\n"):
            raise ArrayError(Problem(path, f"a table has no names with tabs or ends of lines, as {name!r:.60} has"))
    with replacing_folder(path, overwrite, others=others) as folder:
        matrix_market.write(f"{folder}/{_MATRIX}.gz", tensor.expand_structure())
        for name, lines in ((_COLUMNS, columns), (_ROWS[0], [f"{x}\t{x}\tGene Expression" for x in rows])):
            with text_tables.writing(f"{folder}/{name}.gz", False) as stream:
                stream.write("".join(f"{line}\n" for line in lines).encode())


def others(path: str) -> set[str]:
    """The names in a folder that are not those of a matrix."""
    return set(os.listdir(path)) - {f"{name}{end}" for name in (_MATRIX, _COLUMNS, *_ROWS) for end in ("", ".gz")}


def _there(path: str, names: Sequence[str]) -> str:
    """The path of the first file that is there. Raises ContainerError."""
    paths = [os.path.join(path, name + end) for name in names for end in ("", ".gz")]
    there = next((file for file in paths if os.path.isfile(file)), None)
    if there is None:
        raise ContainerError(Problem(path, f"has no {names[0]}, which stands beside a matrix; put it there"))
    if os.path.islink(there):
        raise UnsafeError(Problem(there, "a symbolic link is not followed; name the folder that it leads to"))
    return there


def _names(path: str, shape: Sequence[int], limits: Limits) -> Labels | None:
    """The labels in both tables. Raises ContainerError, ArrayError."""
    rows = _there(path, _ROWS)
    dims = ("gene" if os.path.basename(rows).startswith("genes") else "feature", "barcode")
    tables = zip((rows, _there(path, [_COLUMNS])), shape, strict=True)
    return labelled(dims, [_labels(table, size, limits) for table, size in tables])


def _labels(path: str, size: int, limits: Limits) -> Column:
    """The first column of a table. Raises ArrayError."""
    with text_tables.reading(path) as stream:
        blocks = text_tables.blocks(stream, path, limits, numbers=False)
        pieces = ([line.partition(b"\t")[0] for line in lines_of(data)] for data, _ in blocks)
        octets, offsets = in_bytes(pieces, path, limits)
    if (count := len(offsets) - 1) != size:
        raise ArrayError(Problem(path, f"expected {size} lines, got {count}; take the table of this matrix"))
    return Column(TEXT, octets, offsets)
