"""Matrices in text next to tables of names, read only: folders of 10x Genomics and of kallisto.

10x: `matrix.mtx`, `barcodes.tsv`, and `features.tsv` or in older ones `genes.tsv`. Rows are features, columns barcodes.
kallisto: `cells_x_genes.mtx`, `.barcodes.txt`, `.genes.txt`. Rows are barcodes, columns genes, whose symbols are in
`.genes.names.txt`. In GEO, all names begin with the same text, such as `GSM1_`. Each file may be compressed. Labels are
the first columns of the tables.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...containers.base import wrap_errors
from ...errors import ArrayError, BinsparseError, ContainerError, Problem, UnsafeError, check_choice
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import TEXT, Column
from ..interface import Foreign
from . import matrix_market, text_tables
from .names import Names, in_bytes, labelled, lines_of

_MATRICES = ("matrix.mtx", "cells_x_genes.mtx")
# The possible ends of the names of the tables of rows and of columns, by the end of that of the matrix.
_TABLES: dict[str, tuple[Sequence[str], ...]] = {
    "matrix.mtx": (["features.tsv", "genes.tsv"], ["barcodes.tsv"]),
    ".mtx": ([".barcodes.txt"], [".genes.txt"]),
    "symbol": ([".barcodes.txt"], [".genes.names.txt"]),
}
_DIMS = {
    "features.tsv": "feature", "genes.tsv": "gene", ".genes.txt": "gene", ".genes.names.txt": "gene", "": "barcode",
}  # fmt: skip


@contextlib.contextmanager
def streaming(
    path: str, *, names: Names = None, whole: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Iterator[text_tables.Stream]:
    """The stream of Matrix Market, with labels in memory. Raises ContainerError, ArrayError.

    path: a folder, the beginning of the names of its files, or a matrix. names: "symbol" takes the second column of
    features and genes as labels, or the second file of kallisto.
    """
    check_choice("names", names, Names)
    matrix = _matrix(path)
    with matrix_market.streaming(matrix, whole=whole, limits=limits) as stream:
        tables = _tables(matrix, names)
        dims = [next(dim for end, dim in _DIMS.items() if table.removesuffix(".gz").endswith(end)) for table in tables]
        second = [names == "symbol" and dim != "barcode" and ".tsv" in x for x, dim in zip(tables, dims, strict=True)]
        columns = [_column(*x, limits) for x in zip(tables, map(int, second), stream.shape, strict=True)]
        yield replace(stream, labels=labelled(dims, columns))


def claims(path: Any) -> list[str]:
    """The matrix itself, if its tables are next to it."""
    with contextlib.suppress(BinsparseError):
        return [""] * (len(_tables(path)) > 0)
    return []


def _matrix(path: str) -> str:
    """The path of the matrix. Raises ContainerError for none or several."""
    if os.path.isfile(path):
        return path
    if not os.path.isdir(path):
        return _there(path, _MATRICES)
    with wrap_errors(path):
        names = {name.removesuffix(".gz"): name for name in sorted(os.listdir(path), reverse=True)}
    found = sorted(name for name in names if name.endswith(_MATRICES))
    if len(found) > 1:
        one = os.path.join(path, names[found[0]])
        what = f"has several matrices, {', '.join(found):.300}; name one, such as {one}"
        raise ContainerError(Problem(path, what))
    return _there(os.path.join(path, ""), found or _MATRICES)


def _tables(matrix: str, names: Names = None) -> list[str]:
    """The tables of rows and columns next to a matrix. Raises ContainerError."""
    plain = matrix.removesuffix(".gz")
    end = next((end for end in _TABLES if plain.endswith(end)), "")
    tables = _TABLES.get("symbol" if names and end == ".mtx" else end, ())
    return [_there(plain.removesuffix(end), ends) for ends in tables]


def _there(beginning: str, ends: Sequence[str]) -> str:
    """The first file that exists. Raises ContainerError."""
    paths = [beginning + end + packed for end in ends for packed in ("", ".gz")]
    there = next((file for file in paths if os.path.isfile(file)), None)
    if there is None:
        raise ContainerError(Problem(beginning, f"has no {ends[0]}, which belongs next to a matrix; put it there"))
    if os.path.islink(there):
        raise UnsafeError(Problem(there, "a symbolic link is not followed; name the folder that it leads to"))
    return there


def _column(path: str, number: int, size: int, limits: Limits) -> Column:
    """The labels in a column of a table. Raises ArrayError."""
    with text_tables.reading(path) as stream:
        blocks = text_tables.blocks(stream, path, limits, numbers=False)
        fields = ([line.split(b"\t", number + 1)[number] for line in lines_of(data)] for data, _ in blocks)
        try:
            texts, offsets = in_bytes(fields, path, limits)
        except IndexError:
            raise ArrayError(Problem(path, f"has a line without a column {number + 1}; leave names out")) from None
    if (count := len(offsets) - 1) != size:
        raise ArrayError(Problem(path, f"expected {size} lines, got {count}; use the table of this matrix"))
    return Column(TEXT, texts, offsets)


FUNCTIONS = Foreign(streaming=streaming, claims=claims)
