"""The command diff: two tensors, entry by entry, in whatever files and formats they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.selection import match
from ..engine.tree import same
from ..errors import BinsparseError
from ..formats.format import coordinates
from ..io import read
from ..kernels import Array
from ..limits import Limits
from ..looking.entries import labelled, labels_of
from ..looking.tables import clipped
from ..tensors.changing import expanded
from ..tensors.tensor import Tensor
from ..tensors.validation import pad_of
from .arguments import LIMIT, argument, limits_of
from .looking import short
from .terminal import FAULTY_INPUT, OK, WrongCall, escaped, print_json, say, times, wrong_call_if

_LONGEST, _LINE = 60, 200  # characters of a value, and of a fact
_SIDES = ("first", "second")


def _diff(options: argparse.Namespace) -> int:
    """Status 1 means that the tensors differ, as for the program `diff`; a faulty input is a wrong call here."""
    if options.count < 0:
        raise WrongCall(f"--count: expected a number from 0 on, got {options.count}")
    first, second = (_read(path, limits_of(options)) for path in (options.first, options.second))
    facts, notes = _differences(first, second)
    differing = 0
    lines: list[dict[str, Any]] = []
    if first.shape == second.shape:
        differing, lines = _entries(first, second, options.count)
    equal = not facts and not differing
    if options.json:
        told = {"first": options.first, "second": options.second, "equal": equal}
        print_json(told | {"facts": facts, "notes": notes, "differing_entries": differing, "entries": lines})
        return OK if equal else FAULTY_INPUT
    for fact in facts:
        print(escaped(f"{fact['what']}: {fact['first']} | {fact['second']}"))
    known = labels_of(first if first.dims else second)
    for line in lines:
        place = ", ".join(map(short, labelled(line["coordinates"], known)))
        for sign, side in (("<", "first"), (">", "second")):
            if line[side] is not None:
                print(escaped(f"{sign} ({place}) {line[side]}"))
    for note in notes:
        say(f"note: {note['what']}: {note['first']} | {note['second']}")
    if differing > len(lines):
        say(f"{differing - len(lines):,} of {differing:,} entries that differ are not shown; pass --count")
    return OK if equal else FAULTY_INPUT


def _read(path: str, limits: Limits) -> Tensor:
    with wrong_call_if(BinsparseError, OSError, option=path):
        return read(path, limits=limits)


def _differences(first: Tensor, second: Tensor) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What differs beside the entries, and what only one of the tensors says, so that they are equal all the same."""
    facts: list[dict[str, str]] = []
    notes: list[dict[str, str]] = []
    pads = [pad_of(x.fill_value, x.dtype) for x in (first, second)]
    mine, others = _said(first), _said(second)
    for what in mine | others:
        pair = [x.get(what) for x in (mine, others)]
        told = {"what": what} | {name: clipped(x or "none", _LINE) for name, x in zip(_SIDES, pair, strict=True)}
        only_one = same(*pads) if what == "fill value" else None in pair
        if pair[0] != pair[1]:
            (notes if only_one else facts).append(told)
    for name, other in zip(first.dims or (), second.dims or (), strict=False):
        a, b = first.labels(name), second.labels(other)
        if a is not None and b is not None and not np.array_equal(a, b):
            count = min(len(a), len(b))
            at = int(np.argmax(np.append(a[:count] != b[:count], True)))
            ends = (str(x[at]) if at < len(x) else "none" for x in (a, b))
            told = {name: clipped(x, _LINE) for name, x in zip(_SIDES, ends, strict=True)}
            facts.append({"what": f"labels of {name}"} | told)
    return facts, notes


def _said(tensor: Tensor) -> dict[str, str | None]:
    fill = tensor.fill_value
    return {
        "shape": times(tensor.shape),
        "fill value": None if fill is None else str(fill),
        "dimensions": ", ".join(tensor.dims) if tensor.dims else None,
    }


def _entries(first: Tensor, second: Tensor, count: int) -> tuple[int, list[dict[str, Any]]]:
    """How many entries differ, and the first of them in order of their coordinates."""
    (mine, values), (others, other_values) = (_sorted(tensor) for tensor in (first, second))
    both = np.arange(min(len(values), len(other_values)))
    here, there = match(mine, others) if mine else (both, both)
    try:
        with np.errstate(invalid="ignore"):
            a, b = values[here], other_values[there]
            changed = ~((a == b) | ((a != a) & (b != b)))
    except TypeError:  # types that numpy does not compare
        changed = np.ones(len(here), bool)
    alone, new = np.ones(len(values), bool), np.ones(len(other_values), bool)
    alone[here] = new[there] = False
    alone[here[changed]] = True
    partner = np.full(len(values), -1)
    partner[here] = there
    changes = []
    for k in alone.nonzero()[0][:count].tolist():
        at = int(partner[k])
        changes.append((_place(mine, k), values[k], other_values[at] if at >= 0 else None))
    changes += [(_place(others, k), None, other_values[k]) for k in new.nonzero()[0][:count].tolist()]
    changes.sort(key=lambda line: line[0])
    told = [
        {"coordinates": list(at), "first": _text(left), "second": _text(right)} for at, left, right in changes[:count]
    ]
    return int(alone.sum() + new.sum()), told


def _sorted(tensor: Tensor) -> tuple[Sequence[Array], Array]:
    """All entries by their coordinates, without a structure and without a map."""
    whole = expanded(tensor)
    return (whole.without_map(coordinates(whole.ndim)) if whole.ndim else whole).unpack()


def _place(coords: Sequence[Array], k: int) -> tuple[int, ...]:
    return tuple(int(x[k]) for x in coords)


def _text(value: Any) -> str | None:
    return None if value is None else clipped(str(value), _LONGEST)


COMMANDS: dict[str, tuple[Any, ...]] = {
    "diff": (
        _diff, "compare two tensors by shape, fill value and entries, in whatever formats they are",
        argument("first", "PATH[:GROUP]", metavar="FIRST"), argument("second", "PATH[:GROUP]", metavar="SECOND"),
        argument("--count", "number of entries to show; 10 by default", type=int, default=10), LIMIT,
    ),
}  # fmt: skip
