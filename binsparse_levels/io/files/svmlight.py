"""Text of svmlight and LIBSVM, read by scikit-learn: a line for each sample, its target, then `feature:value` in order.

The targets become labels of the samples; several targets of a sample become a text such as `0,2`. Features count from
1, or from 0 in a file with a feature 0, unless `zero_based` is passed. `qid:` and comments are ignored.
"""

from __future__ import annotations

import bisect
import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import TEXT, Column, Labels
from ..interface import Foreign
from . import text_tables
from .names import in_bytes

_DIMS = ("sample", "feature")
_SEVERAL = re.compile(rb"^[ \t]*[^\s#:]*,", re.MULTILINE)  # targets of a sample


@contextlib.contextmanager
def streaming(
    path: str,
    *,
    shape: int | Sequence[int] | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    whole: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[text_tables.Stream]:
    """The samples, which can be read within the block. shape: by default, the largest feature gives the width.

    zero_based: as for scikit-learn; a part of a data set may lack feature 0.

    The text is read twice, first for its targets and its shape, unless it is kept whole. Raises ArrayError,
    ContainerError.
    """

    def parts() -> Iterator[tuple[Any, Any]]:
        with text_tables.reading(path) as stream:
            for text, place in text_tables.blocks(stream, path, limits, whole=whole, numbers=False):
                yield _parse(text, place)

    kept = list(parts()) if whole else None
    pieces, least, width = [], 1, 0
    for matrix, targets in kept or parts():
        pieces.append(targets)
        least = int(matrix.indices.min(initial=least))
        width = max(width, matrix.shape[1] if matrix.nnz else 0)
    if zero_based is False and least == 0:
        raise ArrayError(Problem(path, "has a feature 0; pass zero_based=True, or leave it out"))
    base = int(least > 0 and zero_based is not True)

    def chunks() -> Iterator[tuple[list[Array], Array]]:
        row = 0
        for matrix, targets in kept or parts():
            rows = np.repeat(np.arange(row, row + len(targets)), np.diff(matrix.indptr)[: len(targets)])
            row += len(targets)
            yield [rows, matrix.indices - base], matrix.data

    if any(isinstance(piece, list) for piece in pieces):  # several targets of a sample
        texts = [",".join(f"{x:g}" for x in np.atleast_1d(np.asarray(sample))) for piece in pieces for sample in piece]
        column = Column(TEXT, *in_bytes([texts], "targets", limits))
    else:
        column = Column("float64", np.concatenate([np.empty(0), *pieces]))
    found = sum(map(len, pieces)), max(width - base, 0)
    sizes = found if shape is None else tuple(np.atleast_1d(np.asarray(shape, object)).tolist())
    yield text_tables.Stream("CSR", sizes, np.dtype(float), chunks(), Labels(_DIMS, {_DIMS[0]: column}))


def _parse(text: bytes, path: str) -> tuple[Any, Any]:
    """The samples as a scipy matrix with features from 0, and their targets. Raises ArrayError."""
    with needing("svmlight"):
        from sklearn.datasets import load_svmlight_file
    several = _SEVERAL.search(text) is not None

    def fault(text: bytes) -> Exception | None:
        try:
            load_svmlight_file(io.BytesIO(text), zero_based=True, multilabel=several)
        except (ValueError, OverflowError) as error:
            return error
        return None

    try:
        matrix, targets = load_svmlight_file(io.BytesIO(text), zero_based=True, multilabel=several)
    except (ValueError, OverflowError) as error:
        lines = text.split(b"\n")
        line = bisect.bisect_left(range(len(lines)), True, key=lambda n: fault(b"\n".join(lines[:n])) is not None)
        what = f"line {line}: {error!s:.80}, got {lines[line - 1]!r:.60}; correct this line"
        raise ArrayError(Problem(path, what)) from None
    return matrix, targets


FUNCTIONS = Foreign(streaming=streaming)
