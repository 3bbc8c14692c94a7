"""Text of svmlight and LIBSVM: a line for each sample, its target, then `feature:value` in order; perhaps compressed.

The targets become labels of the samples. Features count from 1, or in a file that has a feature 0 from there, as
scikit-learn takes them. `qid:` and comments are left out.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from ...arrays import Array
from ...engine.emission import Duplicates
from ...errors import ArrayError, FormatError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import Column, Labels
from ...tensors.packing import sorted_tensor
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from . import text_tables

__all__ = ["read", "streaming", "write"]

_DIMS = ("sample", "feature")
_LEFT_OUT = re.compile(rb"#[^\n]*|[ \t]qid:\S*|^[ \t]+|\r$", re.MULTILINE)
_FEATURE = re.compile(rb"[ \t]\d{1,15}:")
_SAMPLE = re.compile(rb"[-+.\w]+([ \t]+\d{1,15}:[-+.\w]+)*[ \t]*")


def read(
    path: str,
    *,
    shape: int | Sequence[int] | None = None,
    duplicates: Duplicates = "error",
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """The samples as CSR. shape: by default, the largest feature gives its width. Raises ArrayError, ContainerError."""
    with text_tables.reading(path) as stream:
        data = text_tables.read_rest(stream, path, limits)
    parts = list(_parts(io.BytesIO(data), path, limits)) or [_parse(b"", path)]
    targets, counts, features, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    features -= features.min(initial=1) > 0
    whole = (len(targets), int(features.max(initial=-1)) + 1) if shape is None else shape
    arrays = {"pointers_to_1": np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), "indices_1": features}
    made = sorted_tensor("CSR", whole, arrays, values, duplicates=duplicates, limits=limits)
    return made._labelled(Labels(_DIMS, {_DIMS[0]: Column("float64", targets)}))


@contextlib.contextmanager
def streaming(path: str, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[text_tables.Stream]:
    """The samples, which can be read within the block. The text is read twice: first for its targets and its shape."""
    pieces, least, last = [np.empty(0)], 1, -1
    with text_tables.reading(path) as stream:
        for targets, _, features, _ in _parts(stream, path, limits):
            pieces.append(targets)
            least, last = int(features.min(initial=least)), int(features.max(initial=last))
    base = int(least > 0)

    def chunks(stream: IO[bytes]) -> Iterator[tuple[list[Array], Array]]:
        row = 0
        for _, counts, features, values in _parts(stream, path, limits):
            rows = np.repeat(np.arange(row, row + len(counts)), counts)
            row += len(counts)
            yield [rows, features - base], values

    targets = np.concatenate(pieces)
    labels = Labels(_DIMS, {_DIMS[0]: Column("float64", targets)})
    with text_tables.reading(path) as stream:
        shape = len(targets), max(last + 1 - base, 0)
        yield text_tables.Stream("CSR", shape, np.dtype(float), chunks(stream), labels)


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a line for each sample. Its target is its label, or else 0.

    Raises FormatError for a tensor that the text cannot represent.
    """
    fits = tensor.dtype.kind in "biuf" and tensor.dtype.itemsize <= 8
    check_representable(tensor, "svmlight", path, ranks=(2,), type_fits=fits)
    labels = None if tensor.dims is None else tensor.labels(0)
    if labels is not None and (labels.dtype.kind not in "biuf" or len(labels) != tensor.shape[0]):
        what = f"targets are numbers, and the samples have labels of type {labels.dtype}; number them"
        raise FormatError(Problem(path, what))
    targets = np.zeros(tensor.shape[0]) if labels is None else labels
    rows = tensor.without_map("CSR").convert("CSR")
    features, pointers, values = rows.arrays["indices_1"], rows.arrays["pointers_to_1"], rows.values
    values = values.astype(np.uint8) if values.dtype.kind == "b" else values
    with text_tables.writing(path, overwrite) as stream:
        for k, target in enumerate(targets):
            part = slice(int(pointers[k]), int(pointers[k + 1]))
            pairs = zip((features[part].astype(np.int64) + 1).tolist(), values[part].astype(str).tolist(), strict=True)
            stream.write(" ".join([str(target.item()), *(f"{x}:{value}" for x, value in pairs)]).encode() + b"\n")


def _parts(stream: IO[bytes], path: str, limits: Limits) -> Iterator[tuple[Array, Array, Array, Array]]:
    for text, place in text_tables.blocks(stream, path, limits):
        yield _parse(text, place)


def _parse(text: bytes, path: str) -> tuple[Array, Array, Array, Array]:
    """The targets, the number of features of each sample, the features and their values. Raises ArrayError."""
    lines = [line for line in _LEFT_OUT.sub(b"", text).split(b"\n") if line.strip()]
    counts = np.fromiter((line.count(b":") for line in lines), np.int64, len(lines))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of numpy for what is no number
            numbers = np.fromstring(b" ".join(lines).replace(b":", b" ").decode("latin1"), sep=" ")
    except (DeprecationWarning, ValueError):
        numbers = np.empty(0)
    features = sum(len(_FEATURE.findall(line)) for line in lines)
    if features != counts.sum() or len(numbers) != len(lines) + 2 * features:  # then so in every line
        bad = next((line for line in lines if not _SAMPLE.fullmatch(line)), b"")
        raise ArrayError(Problem(path, f"expected a target and feature:value, got {bad!r:.60}; correct this line"))
    at = np.concatenate([np.zeros(1, np.int64), np.cumsum(1 + 2 * counts)])[:-1]
    rest = np.delete(numbers, at)
    return numbers[at], counts, rest[::2].astype(np.int64), rest[1::2]
