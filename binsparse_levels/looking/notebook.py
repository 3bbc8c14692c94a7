"""The HTML of a tensor in a notebook: a table of facts, its levels, and a picture. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from ..levels.positions import cells
from ..tensors.contents import labels_of
from ..tensors.tensor import Tensor, inside
from .drawing import draw
from .tables import clipped, escaped

_DRAWN = 2**22  # the most stored values; they take a tenth of a second
_WRAPPED = "white-space: pre-wrap; overflow-wrap: anywhere"
_HEAD = '<th style="text-align: left; white-space: nowrap; padding: 1px 16px 1px 0">'
_CELL = '<td style="text-align: left; overflow-wrap: anywhere; padding: 1px 0">'


def html_of(tensor: Tensor) -> str:
    """The HTML of `Tensor._repr_html_`: facts; next to them the levels as text that wraps, and a picture that scrolls.

    No array is read; a tensor in a file and a view have no picture.
    """
    backing = inside(tensor).backing
    unread = backing.viewed or backing.lazy
    drawn = "" if unread or tensor.number_of_stored_values > _DRAWN else draw(tensor)
    levels = repr(tensor).partition("\n")[2]
    right = f'<pre style="{_WRAPPED}; margin: 4px 0">{escaped(levels)}</pre>' if levels else ""
    right += f'<div style="overflow-x: auto">{drawn}</div>' if drawn else ""
    right = f'<div style="flex: 1 1 320px; min-width: 0">{right}</div>' if right else ""
    rows = (f"<tr>{_HEAD}{name}</th>{_CELL}{escaped(clipped(fact, 200))}</td></tr>" for name, fact in _facts(tensor))
    facts = f'<div style="max-width: 100%"><table>{"".join(rows)}</table></div>'
    return f'<div style="display: flex; flex-wrap: wrap; gap: 4px 24px">{facts}{right}</div>'


def text_of(tensor: Tensor) -> str:
    """The representation of a tensor as HTML."""
    return f'<pre style="{_WRAPPED}">{escaped(repr(tensor))}</pre>'


def _facts(tensor: Tensor) -> Iterator[tuple[str, str]]:
    """Facts that are known without reading, by name. A view and a tensor of parts do not count their entries."""
    backing, names = inside(tensor).backing, tensor.dims
    yield "shape", (" × ".join(map(str, tensor.shape)) or "scalar") + (f" ({', '.join(names)})" if names else "")
    yield "dtype", f"{tensor.dtype}"
    how = f", {len(tensor.parts)} parts" if tensor.parts else ", a view" if backing.viewed else ""
    yield "format", f"{backing.format}{how}"
    if backing.map is not None:
        yield "map", f"{backing.map}"
    if not backing.viewed:
        tree = backing.stored.tree
        count = backing.positions() if backing.lazy else tensor.number_of_stored_values
        yield "stored values", f"{count:,}" + (", all equal" if tree.iso else "")
        if tensor.size and not (backing.lazy and (backing.map is not None or tree.gaps or tree.shares)):
            yield "density", f"{count / cells(tensor.shape):.3g}"
        yield "bytes", f"{tensor.nbytes:,}"
        if backing.structure is not None:
            yield "structure", backing.structure
    yield "fill value", "none, treated as 0" if tensor.fill_value is None else f"{tensor.fill_value}"
    if labelled := [str(name) for k, name in enumerate(names or ()) if labels_of(tensor, k) is not None]:
        yield "labels", ", ".join(labelled)
