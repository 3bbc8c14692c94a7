"""The report on a tensor: one HTML page with the tables and pictures of notebooks, or with the faults of the tensor.

A tensor in a file is read in parts if its levels allow it. The page has no scripts, and loads nothing. All text is
escaped, because it may come from a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..containers.replacing import write_text
from ..errors import Problem
from ..formats.descriptor import VERSION
from ..tensors.tensor import Tensor, inside
from . import fibers
from .drawing import draw
from .faults import faults_of, unloaded
from .notebook import text_of
from .tables import as_html, clipped, escaped

_FAULTS = 50  # faults that are listed
_LEVELS = 32  # levels that are listed
_LONGEST = 4000  # characters of the attributes
_SIDE = 64  # cells along a side of the picture
_DRAWN = 2**26  # entries that are counted for the picture in half a minute

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
.bsp-report{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;overflow-wrap:break-word}
.bsp-report section{overflow-x:auto}
.bsp-report h2{font-size:18px;margin:28px 0 10px}
.bsp-report table{border-collapse:collapse;font-size:14px;margin:0}
.bsp-report td,.bsp-report th{padding:4px 10px;border-bottom:1px solid color-mix(in srgb,currentColor 22%,transparent);
vertical-align:top;max-width:40em}
.bsp-report pre{white-space:pre-wrap}
.bsp-report .badge{border-radius:12px;padding:1px 12px;font-size:13px;color:#fff;background:#1a7f37;white-space:nowrap}
.bsp-report .badge.bad{background:#cf222e}
.bsp-report footer{font-size:13px;margin-top:36px}
@media(max-width:640px){
.bsp-report table,.bsp-report tbody,.bsp-report tr{display:block}
.bsp-report tr{padding:6px 0;border-bottom:1px solid currentColor}
.bsp-report tr:has(th){display:none}
.bsp-report td{display:flex;justify-content:space-between;gap:16px;padding:1px 0;border:0;overflow-wrap:anywhere}
.bsp-report td::before{content:attr(data-head);overflow-wrap:normal;opacity:.8}
.bsp-report .spy{max-width:100%;height:auto}
}
"""
_PAGE = """
:root{color-scheme:light dark}
body{margin:0 auto;max-width:1120px;padding:20px;background:#fff;color:#1f2328}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}
"""
_SOUND, _FAULTY = '<span class="badge">✓ sound</span>', '<span class="badge bad">✗ faulty</span>'


@dataclass(frozen=True, repr=False)
class Report:
    """A page about a tensor. A notebook shows it, and `write` makes a file of it. It has no scripts, and loads nothing.

    Parameters
    ----------
    title : str
        The name of the tensor.
    html : str
        The whole page.
    piece : str
        The part of the page that a notebook shows, with its style.
    faults : tuple of Problem
        The faults of the tensor; none if it is sound.
    """

    title: str
    html: str
    piece: str
    faults: tuple[Problem, ...]

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page into a file, atomically.

        Parameters
        ----------
        path : str or PathLike
            Path of the file.
        overwrite : bool, default False
            Replace an existing file.

        Raises
        ------
        FileExistsError
            The file exists, and `overwrite` is False.
        ContainerError
            The file cannot be written.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack([[0, 2]], [1.0, 2.0], 3, "CVEC").report().write("page.html")
        """
        write_text(path, self.html, overwrite)

    def __repr__(self) -> str:
        return f"<Report on {self.title}; write(path) makes a page of it>"

    def _repr_html_(self) -> str:
        return self.piece


def report_on(tensor: Tensor, title: str = "Tensor") -> Report:
    """Make the page of `Tensor.report`. Faults are listed, not raised. Raises LimitError if memory does not suffice."""
    if inside(tensor).backing.viewed:
        tensor = tensor.load()
    if faults := faults_of(tensor):
        return _paged(title, [("Format", text_of(tensor)), *_attributes(tensor)], faults)
    return _paged(title, _sections(tensor))


def _sections(tensor: Tensor) -> list[tuple[str, str]]:
    """The titles and the HTML of the sections of a sound tensor."""
    entries = inside(tensor).backing.count(inside(tensor).pad)
    drawn = draw(unloaded(tensor), side=_SIDE) if entries <= _DRAWN else "The tensor has too many entries to draw here."
    levels = fibers.table(fibers.levels_of(tensor)[:_LEVELS], tensor.stored.dims)
    sizes = f"In memory: {tensor.nbytes:,} bytes, {tensor.nbytes / max(entries, 1):.3g} an entry. "
    limit = "The limit is the smallest number of bytes that can encode the stored coordinates."
    return [
        ("Format", text_of(tensor)),
        ("Picture", drawn),
        ("Levels", f"{as_html(*levels, named=True)}<p>{sizes}{limit}</p>"),
        *_attributes(tensor),
    ]


def _attributes(tensor: Tensor) -> Iterator[tuple[str, str]]:
    for title, found in (("Attributes", tensor.attributes), ("In the descriptor", tensor.descriptor_attributes)):
        if found:
            text = json.dumps(dict(found), ensure_ascii=False, indent=1)
            yield title, f"<pre>{escaped(clipped(text, _LONGEST))}</pre>"


def _listed(faults: Sequence[Problem]) -> str:
    rows = [[clipped(x.path, 400), clipped(x.message, 1000)] for x in faults[:_FAULTS]]
    more = f"<p>… and {len(faults) - _FAULTS:,} more.</p>" if len(faults) > _FAULTS else ""
    return as_html(["place", "fault"], rows, named=True) + more


def _paged(title: str, sections: Sequence[tuple[str, str]], faults: Sequence[Problem] = ()) -> Report:
    """The page of these sections, after the faults."""
    shown = escaped(clipped(title, 200))
    parts = [f"<h1>{shown} {_FAULTY if faults else _SOUND}</h1>"]
    if faults:
        sections = [("Faults", _listed(faults)), *sections]
    parts += [f"<h2>{name}</h2>\n<section>{body}</section>\n" for name, body in sections]
    parts.append(f"<footer>Binsparse {VERSION} · no scripts, nothing is loaded</footer>")
    piece = f'<div class="bsp-report"><style>{_STYLE}</style>{"".join(parts)}</div>'
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{shown}</title><style>{_PAGE}</style></head>\n<body>{piece}</body></html>\n"
    )
    return Report(title, page, piece, tuple(faults))
