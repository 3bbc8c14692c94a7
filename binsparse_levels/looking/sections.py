"""The sections of a report: each is HTML made of a tensor and of what a pass over its entries has counted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..engine.tree import Tree
from ..errors import Problem
from ..formats.descriptor import VERSION
from ..levels import LEVELS
from ..tensors.tensor import Tensor
from . import page
from .advice import MAX_RANK, Candidate, advise
from .counting import Places, Spread
from .drawing import clipped, escaped
from .entries import labelled, labels_of
from .faults import apart
from .fibers import LevelStatistics, levels_of
from .page import bar, cell, figure, grid, section, size_of

_AT_ONCE = 2**20  # entries that are counted at once
_HEAD = 8  # entries that are listed
_FAULTS = 50  # faults that are listed
_LONGEST = 4000  # characters of the attributes
_LEVELS = 16  # levels that are listed
_COMPARED = 6  # formats that are listed, beside the usual ones
_SORTED, _SORTS = 2**24, 2**27  # entries whose formats are compared, in seconds, and in a gigabyte of memory
_COUNTED = 2**26  # entries that are counted in half a minute; of more, some parts
_MARK = {True: '<span class="badge">✓ sound</span>', False: '<span class="badge bad">✗ faulty</span>'}


def all_of(title: str, tensor: Tensor, stored: Mapping[str, int] | None, place: str) -> str:
    """The page of a sound tensor. stored: the bytes of each array in its file. place: where the file is."""
    return _head(title, tensor, True) + "".join(_sections(tensor, stored)) + _foot(place)


def beside_faults(
    title: str, tensor: Tensor, faults: Sequence[Problem], stored: Mapping[str, int] | None, place: str
) -> str:
    """The page of a faulty tensor: its faults, and what its header tells."""
    parts = [_head(title, tensor, False), section("Faults", _listed(faults)), section("Levels", _levels(tensor, None))]
    return "".join([*parts, _on_disk(tensor, stored), _attributes(tensor), _foot(place)])


def of_faults(title: str, faults: Sequence[Problem], place: str) -> str:
    """The page of a file whose header cannot be read."""
    return f"<h1>{escaped(clipped(title, 200))} {_MARK[False]}</h1>{section('Faults', _listed(faults))}{_foot(place)}"


def _listed(faults: Sequence[Problem]) -> str:
    rows = [
        f"<tr>{cell(f'<code>{escaped(clipped(x.path, 400))}</code>')}{cell(escaped(clipped(x.message, 1000)))}</tr>"
        for x in faults[:_FAULTS]
    ]
    more = f"<p>… and {len(faults) - _FAULTS:,} more.</p>" if len(faults) > _FAULTS else ""
    return page.table(_heads("place", "fault"), rows) + more


def _head(title: str, tensor: Tensor, sound: bool) -> str:
    text = str(tensor.stored.format)
    mapped = "" if tensor.map is None else f", map <code>{escaped(clipped(str(tensor.map), 300))}</code>"
    name = escaped(clipped(title, 200))
    return f"<h1>{name} {_MARK[sound]}</h1><p>Format <code>{escaped(clipped(text, 600))}</code>{mapped}</p>"


def _sections(tensor: Tensor, stored: Mapping[str, int] | None) -> Iterator[str]:
    tensor = apart(tensor)
    where, spread, first = Places(tensor.shape), Spread(), None
    for coords, values in tensor._held.blocks(tensor._pad(), _AT_ONCE, _COUNTED):
        where.add(coords)
        spread.add(values)
        if first is None:
            first = [x[:_HEAD].copy() for x in (*coords, values)]
    fibers = levels_of(tensor)
    values = tensor._source.values
    entries = len(values) if len(values) > _COUNTED else spread.count
    formats, why = _formats(tensor, entries)
    yield _verdict(tensor, formats)
    yield _cards(tensor, entries, formats)
    if entries > spread.count:
        yield f"<p>Places and values below are those of {spread.count:,} entries, in parts of the whole.</p>"
    yield section("Levels", _levels(tensor, fibers))
    yield section("Positions from level to level", _positions(fibers))
    yield section("Entries along each dimension", _marginals(tensor, where))
    yield section("Fiber lengths", grid(map(_lengths, [x for x in fibers if not x.computed][:_LEVELS])))
    yield section("Gaps between coordinates", grid(map(_gaps, [x for x in fibers if not x.computed][:_LEVELS])))
    yield section("Pairs of dimensions", _pairs(tensor, where))
    yield section("Formats", _format_table(tensor, formats) + why)
    yield section("Values", _values(tensor, spread, first or [np.empty(0)]))
    yield _on_disk(tensor, stored)
    yield _attributes(tensor)


def _verdict(tensor: Tensor, formats: Sequence[Candidate]) -> str:
    if not formats:
        return ""
    best, now = formats[0], tensor.nbytes
    if best.nbytes > 0.98 * now:
        return '<p class="note">No format takes noticeably fewer bytes in memory than this one.</p>'
    saved = f"{size_of(now - best.nbytes)} ({100 * (1 - best.nbytes / now):.0f} %) fewer bytes in memory"
    return f'<p class="note">{saved} as <code>{escaped(clipped(str(best.format), 300))}</code>.</p>'


def _cards(tensor: Tensor, entries: int, formats: Sequence[Candidate]) -> str:
    names = [""] * 12 if tensor.dims is None else [f"{_name(tensor, k)} " for k in range(min(tensor.ndim, 12))]
    sizes = (f"{name}{size:,}" for name, size in zip(names, tensor.shape, strict=False))
    shape = " × ".join(sizes) + " × …" * (tensor.ndim > 12)
    fill = "none" if tensor.fill_value is None else clipped(tensor.fill_value, 40)
    facts = [
        ("entries", f"{entries:,}"),
        ("density", f"{_ratio(entries, tensor.size):.3g}"),
        ("type", clipped(tensor.dtype, 60) + ", iso" * tensor.iso),
        ("fill value", fill),
        ("in memory", size_of(tensor.nbytes)),
        ("bytes an entry", f"{_ratio(tensor.nbytes, entries):.3g}"),
        ("if dense", size_of(tensor.size * tensor.dtype.itemsize) if tensor.size < 10**30 else "beyond counting"),
    ]
    if tensor.structure is not None:
        facts.append(("structure", tensor.structure))
    if formats:
        facts.append(("smallest format", f"{clipped(formats[0].format, 60)}, {size_of(formats[0].nbytes)}"))
    cards = [f'<div class="wide"><small>shape</small><b>{escaped(shape or "scalar")}</b></div>']
    for name, text in facts:
        wide = ' class="wide"' if len(text) > 16 else ""
        cards.append(f"<div{wide}><small>{name}</small><b>{escaped(text)}</b></div>")
    return f'<div class="cards">{"".join(cards)}</div>'


def _levels(tensor: Tensor, fibers: Sequence[LevelStatistics] | None) -> str:
    """The level table. fibers: where they are known."""
    source, format = tensor._source, tensor.stored.format
    total = max(_bytes(source.arrays.values()) + _value_bytes(source), 1)
    rows = []
    for k, place in enumerate(source.places[:_LEVELS]):
        covered = format.order[place.depth : place.depth + place.level.rank][:12]
        sizes = ", ".join(f"{_name(tensor.stored, d)} ({size:,})" for d, size in zip(covered, place.dims, strict=False))
        names = [spec.name for spec in place.arrays.values()]
        held = [(name, source.arrays[name]) for name in names if name in source.arrays]
        arrays = [f"<code>{escaped(name)}</code> <small>{x.dtype}[{len(x):,}]</small>" for name, x in held]
        style = "key" if names else "key computed"
        size = _bytes(x for _, x in held)
        counts = [""] * 3 if fibers is None else _numbers(fibers[k])
        rows.append(
            f"<tr>{cell(f'<span class={style!r}></span><code>{escaped(clipped(place.level, 60))}</code>')}"
            f"{cell(escaped(sizes))}{cell(counts[0], 'n wide-only')}{cell(counts[1], 'n')}"
            f"{cell('<br>'.join(arrays) or 'computed', 'wide-only')}{cell(size_of(size), 'n')}"
            f"{cell(counts[2], 'n wide-only')}{cell(bar(size / total), 'narrow wide-only')}</tr>"
        )
    if len(source.places) > _LEVELS:
        rows.append(f"<tr>{cell(f'… and {len(source.places) - _LEVELS} more')}</tr>")
    size, key = _value_bytes(source), '<span class="key values"></span>values'
    dtype = escaped(clipped(source.values.dtype, 60))
    described = f"<code>values</code> <small>{dtype}[{len(source.values):,}]</small>"
    rows.append(
        f"<tr>{cell(key)}{cell('')}"
        f"{cell('', 'n wide-only')}{cell('', 'n')}{cell(described, 'wide-only')}{cell(size_of(size), 'n')}"
        f"{cell('', 'n wide-only')}{cell(bar(size / total), 'narrow wide-only')}</tr>"
    )
    heads = _heads(
        "level", "dimension (size)", ("fibers", "n wide-only"), ("positions", "n"), ("arrays", "wide-only"),
        ("bytes", "n"), ("limit", "n wide-only"), ("", "narrow wide-only"),
    )  # fmt: skip
    said = "<p>The limit is the information in the choice of the stored coordinates: codes of any choice take more.</p>"
    return page.table(heads, rows) + (said if fibers is not None else "")


def _numbers(level: LevelStatistics) -> list[str]:
    """The numbers of a level in the level table: fibers, positions, limit."""
    return [f"{level.positions:,}", f"{level.children:,}", size_of(level.limit / 8)]


def _positions(fibers: Sequence[LevelStatistics]) -> str:
    """The positions of the levels as bars, whose widths are logarithms, and how many times more each has."""
    shown = fibers[:_LEVELS]
    top = max([math.log10(x.children + 1) for x in shown], default=0) or 1
    rows = []
    for x in shown:
        style = "computed" if x.computed else "stored"
        share = 100 * math.log10(x.children + 1) / top
        mean, level = _mean(x.children, x.positions), escaped(clipped(x.level, 60))
        rows.append(f"<p><code>{level}</code>: {mean} for each fiber</p>")
        rows.append(f'<div class="{style}" style="width:{share:.1f}%"></div><p>{x.children:,}</p>')
    said = "<p>Widths are logarithms of the numbers.</p>"
    return f'{said}<div class="tree">{"".join(rows)}</div>' if rows else ""


def _marginals(tensor: Tensor, where: Places) -> str:
    figures, known = [], labels_of(tensor)
    for k, (bins, step) in enumerate(zip(where.bins, where.steps, strict=True)):
        said = f"{step:,} coordinates a bar" if step > 1 else "a bar for each coordinate"
        name, label = _name(tensor, k), f"entries along {_name(tensor, k)}"
        drawn = page.histogram(bins.tolist(), *_ends(tensor.shape[k], known[k]), label)
        figures.append(figure(escaped(name), f"{said}, up to {int(bins.max(initial=0)):,} entries", drawn))
    left = tensor.ndim - len(figures)
    return grid(figures) + (f"<p>… and {left} more dimensions.</p>" if left else "")


def _ends(size: int, labels: Any) -> tuple[str, str]:
    """The first and the last coordinate of a dimension, by their labels where they have them."""
    ends = (0, max(size - 1, 0))
    if labels is None:
        return f"{ends[0]:,}", f"{ends[1]:,}"
    first, last = (clipped(labels[k], 24) if k < len(labels) else f"{k:,}" for k in ends)
    return first, last


def _lengths(fibers: LevelStatistics) -> str:
    counts = fibers.lengths.tolist()
    used = counts[: max((k for k, count in enumerate(counts) if count), default=0) + 1]
    empty = 100 * _ratio(counts[0], fibers.positions)
    said = (
        f"{fibers.positions:,} fibers, {_mean(fibers.listed, fibers.positions)} on average, "
        f"{fibers.longest:,} at most, {empty:.0f} % empty, half up to {fibers.quantile(0.5):,}; "
        "each bar doubles the length"
    )
    drawn = page.histogram(used, "0", f"{fibers.longest:,}", "fiber lengths")
    return figure(f"<code>{escaped(clipped(fibers.level, 60))}</code>", said, drawn)


def _gaps(level: LevelStatistics) -> str:
    counts = [] if level.gaps is None else level.gaps[1:].tolist()
    used = counts[: max((k for k, count in enumerate(counts) if count), default=-1) + 1]
    if not used:
        return ""
    alone = 100 * _ratio(used[0], level.listed)
    drawn = page.histogram(used, "1", f"{2 ** len(used) - 1:,}", "gaps between coordinates")
    name = f"<code>{escaped(clipped(level.level, 60))}</code>"
    return figure(name, f"{alone:.0f} % follow the one before; each bar doubles the gap", drawn)


def _pairs(tensor: Tensor, where: Places) -> str:
    figures = []
    for (a, b), counts in where.pairs.items():
        down, across = _name(tensor, a), _name(tensor, b)
        most = int(counts.max(initial=0))
        said = f"up to {most:,} entries a cell of {counts.shape[0]} × {counts.shape[1]}; shades are logarithmic"
        drawn = page.shaded(counts, f"entries by {down} and {across}") if counts.size else ""
        figures.append(figure(f"{escaped(down)} ↓ {escaped(across)} →", said, drawn))
    return grid(figures)


def _formats(tensor: Tensor, entries: int) -> tuple[list[Candidate], str]:
    """Formats from the smallest on, and why there are none."""
    rank = tensor.ndim
    if not rank or not entries:
        return [], ""
    if rank > MAX_RANK or entries > _SORTED or entries * math.comb(rank, rank // 2) > _SORTS:
        return [], "<p>To compare formats, too many entries would be sorted here; call <code>advise</code>.</p>"
    specified = [name for name, kind in LEVELS.items() if kind.specified]  # which other programs read too
    advice = advise(apart(tensor), count=_COMPARED, kinds=specified)
    own = Candidate(tensor.stored.format, tensor.nbytes, _value_bytes(tensor._source), None)
    others = {c.format.canonical(): c for c in (*advice.candidates, *advice.compared)}
    if tensor.map is None:
        others.pop(own.format.canonical(), None)
    return sorted([own, *others.values()], key=lambda c: c.nbytes), ""


def _format_table(tensor: Tensor, formats: Sequence[Candidate]) -> str:
    if not formats:
        return ""
    smallest = max(formats[0].nbytes, 1)
    longest = min(formats[-1].nbytes, 3 * smallest) or 1
    rows = []
    for c in formats:
        rest = c.nbytes - c.values_nbytes
        me = ' class="me"' if c.format is tensor.stored.format else ""
        beyond = "…" if c.nbytes > longest else ""
        bars = bar(min(rest / longest, 0.9), "two") + bar(min(c.values_nbytes / longest, max(0.9 - rest / longest, 0)))
        name = f"<code>{escaped(clipped(c.format, 300))}</code>{' ← this one' if me else ''}"
        rows.append(
            f"<tr{me}>{cell(name)}{cell(size_of(c.nbytes), 'n')}"
            f"{cell(f'{c.nbytes / smallest:.2f}', 'n')}{cell(bars + beyond, 'chart wide-only')}</tr>"
        )
    key = '<span class="key two"></span>indices and pointers <span class="key"></span>values'
    said = "<p>This format, and formats of levels that all programs read:</p>"
    heads = [*_heads("format", ("bytes", "n"), ("ratio", "n")), cell(key, "chart wide-only", "th")]
    return said + page.table(heads, rows)


def _values(tensor: Tensor, spread: Spread, first: Sequence[Any]) -> str:
    kind = tensor.dtype.kind
    facts = []
    if spread.least is not None and kind != "b":
        summary = (("least", spread.least), ("greatest", spread.greatest), ("mean", spread.mean))
        facts += [(name, f"{value:.4g}") for name, value in summary]
    if kind in "biufc":
        facts += [("explicit zeros", f"{spread.zeros:,}"), ("negative", f"{spread.negative:,}")]
    if kind in "fc":
        facts += [("NaN", f"{spread.nans:,}"), ("infinite", f"{spread.infinite:,}")]
    if kind == "c":
        facts = [(f"{name} (absolute)" if name in ("least", "greatest", "mean") else name, x) for name, x in facts]
    cards = "".join(f"<div><small>{name}</small><b>{text}</b></div>" for name, text in facts if text != "0")
    there = spread.exponents()
    drawn = ""
    if len(there) > 1 and kind != "b":
        width = -(-len(there) // 64)
        counts = [sum(map(spread.of, islice(there, k, k + width))) for k in range(0, len(there), width)]
        ends = (f"{2.0 ** (there[0] - 1):.3g}", f"{2.0 ** min(there[-1], 1023):.3g}")
        what = "each bar doubles the absolute value" if width == 1 else f"a bar for {width} binary exponents"
        drawn = figure("magnitudes", what, page.histogram(counts, *ends, "magnitudes of the values"))
    names = clipped(", ".join(_name(tensor, k) for k in range(tensor.ndim)), 300)
    *coords, values = first
    rows, known = [], labels_of(tensor)
    for k, value in enumerate(values):
        place = clipped(", ".join(labelled([int(x[k]) for x in coords], known)), 300)
        rows.append(f"<tr>{cell(escaped(place))}{cell(escaped(clipped(value, 60)), 'v')}</tr>")
    heads = _heads(escaped(names), ("value", "v"))
    cards = f'<div class="cards">{cards}</div>' if cards else ""
    entries = f'<p>The first entries:</p><div class="short">{page.table(heads, rows)}</div>' if rows else ""
    return cards + drawn + entries


def _on_disk(tensor: Tensor, stored: Mapping[str, int] | None) -> str:
    """The arrays in the file: bytes, and the chunks that are read at once."""
    tree = tensor._source
    if stored is None:
        return ""
    arrays: dict[str, Any] = {**tree.arrays, "values": tree.values}
    total = max(sum(stored.values()), 1)
    rows = []
    for name, size in islice(stored.items(), 64):
        chunk = getattr(arrays.get(name), "chunk", 1)
        length = len(arrays[name]) if name in arrays else 1
        chunks = "one piece" if chunk <= 1 else f"{-(-length // chunk):,} of {chunk:,} items"
        rows.append(
            f"<tr>{cell(f'<code>{escaped(clipped(name, 80))}</code>')}{cell(f'{length:,}', 'n')}{cell(chunks, 'n')}"
            f"{cell(size_of(size), 'n')}{cell(bar(size / total), 'narrow wide-only')}</tr>"
        )
    heads = _heads("array", ("items", "n"), ("chunks", "n"), ("bytes in the file", "n"), ("", "narrow wide-only"))
    smaller = tensor.nbytes / total
    said = f"<p>{size_of(total)} in the file, {size_of(tensor.nbytes)} in memory: {smaller:.2f} × as many.</p>"
    return section("On disk", page.table(heads, rows) + said)


def _attributes(tensor: Tensor) -> str:
    body = ""
    for name, held in (("", tensor.attributes), ("Inside the descriptor:", tensor.descriptor_attributes)):
        if held:
            text = json.dumps(dict(held), ensure_ascii=False, indent=1)
            body += (f"<p>{name}</p>" if name else "") + f"<pre>{escaped(clipped(text, _LONGEST))}</pre>"
    return section("Attributes", body)


def _foot(place: str) -> str:
    where = f"{escaped(clipped(place, 400))} · " if place else ""
    return f"<footer>{where}Binsparse {VERSION} · no scripts, nothing is loaded</footer>"


# What they are made of


def _bytes(arrays: Iterable[Any]) -> int:
    """The bytes of arrays in memory."""
    return sum(len(x) * x.dtype.itemsize for x in arrays)


def _value_bytes(tree: Tree) -> int:
    return (1 if tree.iso else len(tree.values)) * tree.values.dtype.itemsize


def _name(tensor: Tensor, k: int) -> str:
    return f"dimension {k}" if tensor.dims is None else clipped(tensor.dims[k], 40)


def _heads(*heads: str | tuple[str, str]) -> list[str]:
    """Cells of the head of a table, from their text, with their style where they have one."""
    return [cell(head, "", "th") if isinstance(head, str) else cell(*head, "th") for head in heads]


def _mean(part: int, whole: int) -> str:
    mean = _ratio(part, whole)
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}"


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
