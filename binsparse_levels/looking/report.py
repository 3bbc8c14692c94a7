"""The report on a tensor: one HTML page made of what notebooks show, and the faults of a damaged tensor.

A tensor in a file is read in parts where its levels allow it. The page has no scripts, and nothing is loaded. Text may
come from a file, so all of it is escaped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..containers.base import is_url
from ..errors import BinsparseError, LimitError, OptionError, PathMissingError, Problem, within_memory
from ..formats.descriptor import VERSION
from ..io import Place, describe
from ..io import open as open_tensor
from ..io.kinds import name_of, split_place
from ..levels import LEVELS
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.tensor import Tensor
from . import fibers
from .advice import MAX_RANK, advise
from .drawing import draw
from .entries import first_entries, labelled, labels_of
from .faults import all_faults, apart, faults_of
from .reported import Report
from .tables import as_html, clipped, escaped, size_of

_HEAD = 8  # entries that are listed
_FAULTS = 50  # faults that are listed
_ARRAYS = 32  # levels, and arrays, that are listed
_LONGEST = 4000  # characters of the attributes
_SIDE = 64  # cells along a side of the picture
_COMPARED = 6  # formats that are listed, beside the usual ones
_SORTED, _SORTS = 2**24, 2**27  # entries whose formats are compared, in seconds, and in a gigabyte of memory
_DRAWN = 2**26  # entries that are counted for the picture in half a minute

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
.bsp-report{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;overflow-wrap:anywhere}
.bsp-report section{overflow-x:auto}
.bsp-report h2{font-size:18px;margin:28px 0 10px}
.bsp-report table{border-collapse:collapse;font-size:14px;margin:0}
.bsp-report td,.bsp-report th{padding:4px 10px;border-bottom:1px solid color-mix(in srgb,currentColor 22%,transparent);
vertical-align:top;max-width:40em}
.bsp-report pre{white-space:pre-wrap}
.bsp-report .badge{border-radius:12px;padding:1px 12px;font-size:13px;color:#fff;background:#1a7f37;white-space:nowrap}
.bsp-report .badge.bad{background:#cf222e}
.bsp-report footer{font-size:13px;margin-top:36px}
"""
_PAGE = """
:root{color-scheme:light dark}
body{margin:0 auto;max-width:1120px;padding:20px;background:#fff;color:#1f2328}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}
"""
_SOUND, _FAULTY = '<span class="badge">✓ sound</span>', '<span class="badge bad">✗ faulty</span>'


@within_memory
def report(place: Place, *, limits: Limits = DEFAULT_LIMITS) -> Report:
    """The report on the tensor at PATH[:GROUP]. A damaged file gives a report that lists the faults.

    Raises PathMissingError, LimitError, and OptionError for a wrong call.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> report(store).faults
    ()
    """
    title = os.path.basename(name_of(place).rstrip("/"))
    try:
        stored = {name: info.nbytes for name, info in describe(place, limits=limits).arrays.items()}
        with open_tensor(place, limits=limits) as tensor:
            return report_on(tensor, title, stored, _where(place))
    except (PathMissingError, OptionError, LimitError):
        raise
    except BinsparseError as error:  # not even the header can be read
        faults = all_faults(place, error.problems, limits)
        return _paged(title, [("Faults", _faults(faults))], _where(place), faults)


def report_on(
    tensor: Tensor, title: str = "Tensor", stored: Mapping[str, int] | None = None, place: str = ""
) -> Report:
    """The report on a tensor. stored: the bytes of each array in its file. place: where the file is.

    Faults are listed, not raised. Raises LimitError where memory does not suffice.
    """
    if tensor._held.viewed:
        tensor = tensor.load()
    faults = faults_of(tensor)
    if not faults:
        try:
            return _paged(title, _sections(tensor, stored), place)
        except LimitError:
            raise
        except BinsparseError as error:  # such as values whose chunks are damaged
            faults = error.problems
    parts = [("Faults", _faults(faults)), ("Arrays", _arrays(tensor, stored)), *_attributes(tensor)]
    return _paged(title, parts, place, faults)


def _where(place: Place) -> str:
    """The path, and the size of a local file."""
    path, _ = split_place(place)
    if not isinstance(path, str) or is_url(path) or not os.path.isfile(path):
        return name_of(place)
    return f"{name_of(place)}, a file of {size_of(os.path.getsize(path))}"


def _paged(title: str, sections: Sequence[tuple[str, str]], place: str, faults: Sequence[Problem] = ()) -> Report:
    """The page of these sections: their titles, and HTML."""
    shown = escaped(clipped(title, 200))
    parts = [f"<h1>{shown} {_FAULTY if faults else _SOUND}</h1>"]
    parts += [f"<h2>{name}</h2>\n<section>{body}</section>\n" for name, body in sections]
    where = f"{escaped(clipped(place, 400))} · " if place else ""
    parts.append(f"<footer>{where}Binsparse {VERSION} · no scripts, nothing is loaded</footer>")
    piece = f'<div class="bsp-report"><style>{_STYLE}</style>{"".join(parts)}</div>'
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{shown}</title><style>{_PAGE}</style></head>\n<body>{piece}</body></html>\n"
    )
    return Report(title, page, piece, tuple(faults))


# The sections


def _sections(tensor: Tensor, stored: Mapping[str, int] | None) -> list[tuple[str, str]]:
    """The sections of a sound tensor."""
    entries = tensor._held.count(tensor._pad())
    drawn = draw(apart(tensor), side=_SIDE) if entries <= _DRAWN else "The tensor has too many entries to draw here."
    levels = fibers.table(fibers.levels_of(tensor)[:_ARRAYS], tensor.stored.dims)
    return [
        ("Facts", _facts(tensor, entries)),
        ("Picture", drawn),
        ("Levels", as_html(*levels) + "<p>The limit is the information in the choice of the coordinates.</p>"),
        *([("Formats", _formats(tensor, entries))] if tensor.ndim and entries else []),
        ("First entries", _first(tensor)),
        ("Arrays", _arrays(tensor, stored)),
        *_attributes(tensor),
    ]


def _facts(tensor: Tensor, entries: int) -> str:
    format = str(tensor.format) if tensor.map is None else f"{tensor.stored.format} through {tensor.map}"
    dense = size_of(tensor.size * tensor.dtype.itemsize) if tensor.size < 10**30 else "beyond counting"
    facts = [
        ["shape", clipped(" × ".join(f"{size:,}" for size in tensor.shape) or "scalar", 400)],
        ["dimensions", clipped(", ".join(tensor.dims), 400) if tensor.dims else "no names"],
        ["format", clipped(format, 600)],
        ["entries", f"{entries:,}"],
        ["density", f"{entries / tensor.size if tensor.size else math.nan:.3g}"],
        ["type", clipped(tensor.dtype, 60) + ", iso" * tensor.iso],
        ["fill value", "none" if tensor.fill_value is None else clipped(tensor.fill_value, 40)],
        ["structure", tensor.structure or "none"],
        ["in memory", f"{size_of(tensor.nbytes)}, {tensor.nbytes / max(entries, 1):.3g} bytes an entry"],
        ["if dense", dense],
    ]
    return as_html([], facts)


def _formats(tensor: Tensor, entries: int) -> str:
    """What `advise` shows, of kinds that other programs read too."""
    rank = tensor.ndim
    if rank > MAX_RANK or entries > _SORTED or entries * math.comb(rank, rank // 2) > _SORTS:
        return "To compare formats, too many entries would be sorted here; call <code>advise</code>."
    specified = [name for name, kind in LEVELS.items() if kind.specified]
    return advise(apart(tensor), count=_COMPARED, kinds=specified)._repr_html_()


def _first(tensor: Tensor) -> str:
    names = tensor.dims or [f"dimension {k}" for k in range(tensor.ndim)]
    known = labels_of(tensor)
    rows = [
        [clipped(", ".join(labelled(coords, known)), 300), clipped(value, 60)]
        for coords, value in first_entries(tensor, _HEAD)
    ]
    return as_html([clipped(", ".join(names), 300), "value"], rows)


def _arrays(tensor: Tensor, stored: Mapping[str, int] | None) -> str:
    """The arrays in memory and in the file, and the chunks that are read at once."""
    tree = tensor._source
    head = ["array", "type", "items", "bytes in memory", *(["chunks", "bytes in the file"] if stored else [])]
    rows = []
    for name, array in [*list(tree.arrays.items())[:_ARRAYS], ("values", tree.values)]:
        count = 1 if tree.iso and name == "values" else len(array)
        row = [clipped(name, 80), clipped(array.dtype, 60), f"{count:,}", size_of(count * array.dtype.itemsize)]
        if stored:
            chunk = getattr(array, "chunk", 1)
            row.append("one piece" if chunk <= 1 else f"{-(-count // chunk):,} of {chunk:,} items")
            row.append(size_of(stored[name]) if name in stored else "")
        rows.append(row)
    return as_html(head, rows)


def _attributes(tensor: Tensor) -> Iterator[tuple[str, str]]:
    for title, held in (("Attributes", tensor.attributes), ("In the descriptor", tensor.descriptor_attributes)):
        if held:
            text: Any = json.dumps(dict(held), ensure_ascii=False, indent=1)
            yield title, f"<pre>{escaped(clipped(text, _LONGEST))}</pre>"


def _faults(faults: Sequence[Problem]) -> str:
    rows = [[clipped(x.path, 400), clipped(x.message, 1000)] for x in faults[:_FAULTS]]
    more = f"<p>… and {len(faults) - _FAULTS:,} more.</p>" if len(faults) > _FAULTS else ""
    return as_html(["place", "fault"], rows) + more
