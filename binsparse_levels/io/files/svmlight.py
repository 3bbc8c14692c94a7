"""Text of svmlight and LIBSVM, read by scikit-learn: a line for each sample, its target, then `feature:value` in order.

The targets become labels of the samples; of several for a sample, as texts such as `0,2`. Features count from 1, or in
a file that has a feature 0 from there. `qid:` and comments are left out.
"""

from __future__ import annotations

import bisect
import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from ...arrays import Array
from ...errors import ArrayError, FormatError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import TEXT, Column, Labels
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from . import text_tables
from .names import in_bytes

__all__ = ["streaming", "write"]

_DIMS = ("sample", "feature")
_SEVERAL = re.compile(rb"^[ \t]*[^\s#:]*,", re.MULTILINE)  # targets of a sample
_TARGETS = re.compile(r"[-+.\w]+(,[-+.\w]+)*")


@contextlib.contextmanager
def streaming(
    path: str, *, shape: int | Sequence[int] | None = None, whole: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Iterator[text_tables.Stream]:
    """The samples, which can be read within the block. shape: by default, the largest feature gives its width.

    The text is read twice, unless it is kept whole: first for its targets and its shape. Raises ArrayError,
    ContainerError.
    """

    def parts(stream: IO[bytes]) -> Iterator[tuple[Any, Any]]:
        for text, place in text_tables.blocks(stream, path, limits, whole=whole, numbers=False):
            yield _parse(text, place)

    pieces, kept, least, width = [], [], 1, 0
    with text_tables.reading(path) as stream:
        for matrix, targets in parts(stream):
            pieces.append(targets)
            kept += [(matrix, targets)] if whole else []
            least = int(matrix.indices.min(initial=least))
            width = max(width, matrix.shape[1] if matrix.nnz else 0)
    base = int(least > 0)

    def chunks(stream: IO[bytes]) -> Iterator[tuple[list[Array], Array]]:
        row = 0
        for matrix, targets in kept if whole else parts(stream):
            rows = np.repeat(np.arange(row, row + len(targets)), np.diff(matrix.indptr)[: len(targets)])
            row += len(targets)
            yield [rows, matrix.indices - base], matrix.data

    if any(isinstance(piece, list) for piece in pieces):  # of several targets
        texts = [",".join(f"{x:g}" for x in np.atleast_1d(np.asarray(sample))) for piece in pieces for sample in piece]
        column = Column(TEXT, *in_bytes([texts], "targets", limits))
    else:
        column = Column("float64", np.concatenate([np.empty(0), *pieces]))
    found = sum(map(len, pieces)), max(width - base, 0)
    sizes = found if shape is None else tuple(np.atleast_1d(np.asarray(shape, object)).tolist())
    with text_tables.reading(path) as stream:
        labels = Labels(_DIMS, {_DIMS[0]: column})
        yield text_tables.Stream("CSR", sizes, np.dtype(float), chunks(stream), labels)


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a line for each sample. Its target is its label, or else 0.

    Raises FormatError for a tensor that the text cannot represent.
    """
    fits = tensor.dtype.kind in "biuf" and tensor.dtype.itemsize <= 8
    check_representable(tensor, "svmlight", path, ranks=(2,), type_fits=fits)
    labels = None if tensor.dims is None else tensor.labels(0)
    targets = [0.0] * tensor.shape[0] if labels is None else labels.tolist()
    number = labels is None or labels.dtype.kind in "biuf"
    if len(targets) != tensor.shape[0] or not (number or all(map(_TARGETS.fullmatch, targets))):
        assert labels is not None
        what = f"targets are numbers, and the samples have labels of type {labels.dtype}; number them"
        raise FormatError(Problem(path, what))
    rows = tensor.without_map("CSR").convert("CSR")
    features, pointers, values = rows.arrays["indices_1"], rows.arrays["pointers_to_1"], rows.values
    values = values.astype(np.uint8) if values.dtype.kind == "b" else values
    with text_tables.writing(path, overwrite) as stream:
        for k, target in enumerate(targets):
            part = slice(int(pointers[k]), int(pointers[k + 1]))
            pairs = zip((features[part].astype(np.int64) + 1).tolist(), values[part].astype(str).tolist(), strict=True)
            stream.write(" ".join([str(target), *(f"{x}:{value}" for x, value in pairs)]).encode() + b"\n")


def _parse(text: bytes, path: str) -> tuple[Any, Any]:
    """The samples as a matrix of scipy whose features count from 0, and their targets. Raises ArrayError."""
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
