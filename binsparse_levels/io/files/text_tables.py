"""Streams of text, perhaps compressed, read whole or in blocks, and tables of numbers."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import itertools
import os
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from ... import kernels
from ...arrays import Array
from ...containers.base import wrap_errors
from ...containers.direct import File
from ...containers.replacing import replacing
from ...engine.packing import RepeatedError, repeated
from ...errors import ArrayError, ContainerError, Problem, warn
from ...limits import INT64_MAX, Limits
from ...parallel import each, shares
from ...thresholds import THRESHOLDS
from ..interface import Stream as Stream

_LINE_BYTES = 2**5  # about the length of a line
_LINE_COST = 100  # of Python, as for `pays_off`
_END = 10  # of a line


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if it is gzip. Raises ContainerError for a truncated or damaged stream.

    Errors in the block about a repeated entry get coordinates as in the text, which count from 1.
    """
    with io.BufferedReader(File(path)) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            yield gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ContainerError(Problem(path, f"not a whole gzip file: {error}; fetch it again")) from None
        except RepeatedError as error:
            raise repeated([x + 1 for x in error.coords], ", counted from 1,") from None


def blocks(
    stream: IO[bytes], path: str, limits: Limits, *, whole: bool = False, numbers: bool = True
) -> Iterator[tuple[bytes, str]]:
    """The rest of a stream in blocks of whole lines, each with its place, for errors.

    whole: the caller keeps all blocks, so the limit of an array applies to their total size, after decompression.
    numbers: lines end with numbers, so a last line without an end may be truncated within a number.
    """
    rest, lines, size, more = b"", 0, 0, b" "
    while more:
        with wrap_errors(path):
            more = stream.read(THRESHOLDS.text_bytes)
        size += len(more)
        limits.hold("array_bytes", size if whole else len(rest) + len(more), path, "the size in bytes of the text")
        end = more.rfind(b"\n") + 1
        if not end and more:
            rest += more
            continue
        data, rest = b"".join((rest, memoryview(more)[:end])), more[end:]  # copied once
        if not more and numbers:
            warn_of_end(data, path)
        if data:
            yield data, f"{path}, after line {lines}" if lines else path
        lines += int(np.count_nonzero(np.frombuffer(data, np.uint8) == _END))


def read_line(stream: IO[bytes], path: str, limits: Limits) -> bytes:
    """A line of the head of a file, with its end. Raises LimitError for a line that exceeds the limit of a header."""
    with wrap_errors(path):
        line = stream.readline(limits.header_bytes + 1)
    limits.hold("header_bytes", len(line), path, "the length of a line before the entries")
    return line


def warn_of_end(data: bytes, path: str) -> None:
    """Warn of a last line without an end: a number that was truncated is still a number."""
    if data and data[-1:] not in (b"\n", b"\r"):
        what = "the last line has no end, so the file may be cut within a number; compare it with its source"
        warn(f"{path}: {what}")


@contextlib.contextmanager
def writing(path: str, overwrite: bool) -> Iterator[IO[bytes]]:
    """A stream that becomes the file if the block succeeds. It is compressed if the path ends with .gz."""
    with replacing(path, overwrite) as temporary, open(temporary, "wb") as raw:
        if path.lower().endswith(".gz"):
            # Without a name and a time in the header, equal tensors give equal bytes.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield raw


def parse_table(
    data: bytes, types: Sequence[str], comment: str, path: str, remedy: str = "correct this line"
) -> list[Array]:
    """The columns of a table of numbers separated by white space. types: of numpy (i8, u8, f8).

    Raises ArrayError with the line.
    """
    if kernels.pays_off(len(data) // _LINE_BYTES, _LINE_COST):
        with contextlib.suppress(ValueError, OverflowError):
            return _by_kernel(data, types, comment)
    rows = []
    for number, line in enumerate(data.split(b"\n"), 1):
        fields = line.partition(comment.encode())[0].split()
        place = f"{line.strip().decode('latin1')!r:.60}, line {number} of the numbers"
        if fields and len(fields) != len(types):
            what = f"{place}: expected {len(types)} numbers, got {len(fields)}; {remedy}"
            raise ArrayError(Problem(path, what))
        for text, dtype in zip(fields, types, strict=False):
            try:
                rows.append(_number(text, dtype))
            except (ValueError, OverflowError):
                what = f"{place}: {text.decode('latin1')!r:.40} is no number of type {np.dtype(dtype)}; {remedy}"
                raise ArrayError(Problem(path, what)) from None
    return [np.array(rows[k :: len(types)], dtype) for k, dtype in enumerate(types)]


def check_coordinates(columns: Sequence[Array], path: str, line: Callable[[int], str], shape: Any = None) -> None:
    """Raise ArrayError for coordinates that do not count from 1, or that exceed a shape. line: names that of a row."""
    for k, x in enumerate(columns):
        size = INT64_MAX if shape is None else min(shape[k], INT64_MAX)
        if len(x) and not 1 <= x.min() <= x.max() <= size:
            row = int(((x < 1) | (x > size)).argmax())
            what = f"coordinates count from 1{'' if shape is None else f' to {size}'}, got {x[row]}"
            raise ArrayError(Problem(path, f"{line(row)}: {what}; correct this line"))


def line_of(data: bytes, comment: str, row: int) -> str:
    """The name of a line with numbers."""
    lines = enumerate(data.split(b"\n"), 1)
    number, line = [x for x in lines if x[1].partition(comment.encode())[0].strip()][row]
    return f"{line.strip().decode('latin1')!r:.60}, line {number} of the numbers"


def _number(text: bytes, dtype: str) -> Any:
    """Parse a number of a type. Raises ValueError, OverflowError."""
    if b"_" in text:  # which Python accepts between digits
        raise ValueError
    return np.dtype(dtype).type(float(text) if dtype == "f8" else int(text))


def _by_kernel(data: bytes, types: Sequence[str], comment: str) -> list[Array]:
    """The columns of a table. Python parses what the kernel cannot round. Raises ValueError, OverflowError."""
    data = data if data.endswith(b"\n") else data + b"\n"
    of_floats, word = np.array([dtype == "f8" for dtype in types]), re.compile(rb"[^\s%s]*" % comment.encode())

    def parsed(span: tuple[int, int]) -> list[Array]:
        text = np.frombuffer(data, np.uint8)[slice(*span)]
        size = len(types), len(text) // (2 * len(types)) + 1  # rows, the last incomplete: unused pages cost nothing
        cells, doubts = np.empty(size, np.uint64), np.zeros(size, bool)
        rows, doubtful = kernels.text.parse_table(text, ord(comment), of_floats, _powers(), cells, doubts)
        if rows < 0:
            raise ValueError("a line has another number of fields")
        columns = [cells[k, :rows].view(dtype) for k, dtype in enumerate(types)]
        if any(dtype == "u8" and (x.view("i8") < 0).any() for x, dtype in zip(columns, types, strict=True)):
            raise ValueError("an unsigned number has a sign")
        for k, dtype in enumerate(types if doubtful else ()):
            for row in np.flatnonzero(doubts[k, :rows]):
                found = word.match(data, span[0] + int(cells[k, row]))
                columns[k][row] = _number(found.group() if found else b"", dtype)
        return columns

    ends = [data.find(b"\n", stop - 1) + 1 for _, stop in shares(len(data), 2)]
    parts = each(parsed, itertools.pairwise([0, *ends]))
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


@functools.cache
def _powers() -> Array:
    """The first 64 bits of each power of ten that the kernel needs."""
    firsts = []
    for exponent in range(kernels.text.MIN_POWER, kernels.text.MAX_POWER + 1):
        power = 10**exponent if exponent > 0 else (1 << 1300) // 10**-exponent
        firsts.append(power << 64 >> power.bit_length())
    return np.array(firsts, np.uint64)


def format_table(stream: IO[bytes], columns: Sequence[Array]) -> None:
    """Write columns as rows of text, floating-point numbers with the fewest digits that read back the same."""
    for begin in range(0, len(columns[0]) if columns else 0, THRESHOLDS.formatted_rows):
        stream.write(_rows([x[begin : begin + THRESHOLDS.formatted_rows] for x in columns]))


_forked = threading.Event()  # set in a fork of a process with threads of polars, which a call would wait for
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.set() if "polars" in sys.modules else None)


def _polars() -> Any:
    """The module polars, or None if it is not installed, or would wait for threads that a fork does not have."""
    try:
        import polars
    except ImportError:
        return None
    return None if _forked.is_set() else polars


def _rows(columns: Sequence[Array]) -> bytes:
    """The rows of a table as text, by polars if it is installed: it is twenty times as fast as numpy."""
    if (polars := _polars()) is None:
        texts = [x.astype(str).tolist() for x in columns]
        return "".join(" ".join(row) + "\n" for row in zip(*texts, strict=True)).encode()
    known = {str(k): x.astype(np.float32) if x.dtype == np.float16 else x for k, x in enumerate(columns)}
    polars.DataFrame(known).write_csv(made := io.BytesIO(), include_header=False, separator=" ")
    return made.getvalue()
