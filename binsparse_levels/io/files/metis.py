"""Graphs in text of METIS, read only: a line with the numbers of vertices and edges, then a line for each vertex.

The first line may end with `fmt` and `ncon`. The digits of `fmt` show whether a line begins with a size of its vertex,
whether `ncon` weights of the vertex follow, and whether each neighbour is followed by a weight of the edge. METIS has
integers only; NetworKit writes other numbers, too. Vertices count from 1. An edge is in the lines of both vertices. An
empty line is a vertex without edges. Lines that begin with % are comments. Sizes and weights of vertices are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, ContainerError, Problem, warn
from ...limits import DEFAULT_LIMITS, Limits
from ..interface import Foreign
from . import text_tables
from .names import lines_of


class _Head(NamedTuple):
    """The first line. omitted: the count of numbers of a vertex in its line. width: that of numbers of a neighbour."""

    vertices: int
    edges: int
    omitted: int
    width: int


@contextlib.contextmanager
def streaming(path: str, *, whole: bool = False, limits: Limits = DEFAULT_LIMITS) -> Iterator[text_tables.Stream]:
    """The adjacency matrix: weights, or iso with the boolean True. Raises ArrayError, ContainerError."""
    with text_tables.reading(path) as stream:
        head = _read_head(stream, path, limits)
        if head.omitted:
            warn(f"{path}: sizes and weights of vertices are left out")
        dtype, one = (np.dtype(bool), np.ones(1, bool)) if head.width == 1 else (_weights(path, limits), None)
        chunks = _chunks(head, text_tables.blocks(stream, path, limits, whole=whole), path, dtype.str[1:])
        yield text_tables.Stream("CSR", (head.vertices, head.vertices), dtype, chunks, one=one)


def _weights(path: str, limits: Limits) -> np.dtype[np.generic]:
    """The type of the weights: int64 if all are written as integers, else float64. The text is read for this alone."""
    with text_tables.reading(path) as stream:
        blocks = text_tables.blocks(stream, path, limits, numbers=False)
        return np.dtype("f8" if any(re.search(rb"(?m)^[^%\n]*[.A-Za-z]", data) for data, _ in blocks) else "i8")


def _chunks(
    head: _Head, blocks: Iterable[tuple[bytes, str]], path: str, kind: str
) -> Iterator[tuple[list[Array], Array]]:
    """The entries of each block. kind: of the weights."""
    vertex = entries = loops = 0
    for data, place in blocks:
        found = [line for line in lines_of(data) if not line.startswith(b"%")]
        lines = [line.split() for line in found[: head.vertices - vertex]]
        if any(map(bytes.strip, found[len(lines) :])):
            raise ArrayError(Problem(path, f"has more lines than its {head.vertices} vertices; correct the first line"))
        lengths = np.array([max(len(line) - head.omitted, 0) for line in lines], np.int64)
        counts, rests = np.divmod(lengths, head.width)
        if rests.any():
            k = int(rests.argmax())
            what = f"vertex {vertex + k + 1}: its number of words does not fit the first line; correct one of them"
            raise ArrayError(Problem(path, what))
        words = itertools.chain.from_iterable(line[head.omitted :] for line in lines)
        text = b"\n".join(map(b" ".join, zip(*[words] * head.width, strict=True)))
        columns = text_tables.parse_table(text, ["i8", kind][: head.width], "%", place)
        i, j = np.repeat(np.arange(vertex, vertex + len(lines)), counts), columns[0] - 1
        text_tables.check_coordinates(columns[:1], path, lambda row: f"vertex {i[row] + 1}", [head.vertices])  # noqa: B023
        vertex, entries, loops = vertex + len(lines), entries + len(i), loops + int(np.count_nonzero(i == j))
        yield [i, j], np.array(True) if head.width == 1 else columns[1]
    if vertex < head.vertices:  # also bounds the memory by the size of the text
        raise ArrayError(Problem(path, f"has {vertex} lines for {head.vertices} vertices; fetch it again"))
    if 2 * head.edges not in (entries, entries + loops):  # some programs list a loop once
        what = f"has {entries} neighbours for {head.edges} edges, expected two for each; fetch it again"
        raise ArrayError(Problem(path, what))


def _read_head(stream: IO[bytes], path: str, limits: Limits) -> _Head:
    line = b"%"
    while line.startswith(b"%"):
        line = text_tables.read_line(stream, path, limits)
    words = line.decode("latin1").split()
    sizes = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 19]
    fmt = words[2].zfill(3) if len(words) > 2 else "000"
    if not 2 <= len(sizes) == len(words) <= 4 or len(fmt) != 3 or {*fmt} - {*"01"}:
        what = f"expected the numbers of vertices and edges, fmt and ncon, got {line!r:.60}; correct this line"
        raise ContainerError(Problem(path, what))
    weights = sizes[3] if len(sizes) > 3 else 1
    return _Head(sizes[0], sizes[1], int(fmt[0]) + int(fmt[1]) * weights, 1 + int(fmt[2]))


FUNCTIONS = Foreign(streaming=streaming)
