"""The command diff: two tensors, entry by entry, in whatever files and formats they are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..engine.selection import match
from ..engine.tree import same
from ..errors import BinsparseError
from ..formats.format import coordinates
from ..io import read
from ..kernels import Array
from ..looking.drawing import clipped
from ..tensors.tensor import Tensor
from .arguments import argument
from .terminal import FAULTY_INPUT, OK, WrongCall, escaped, print_json, say, times, wrong_call_if

_LONGEST = 60  # characters of a value


def _diff(options: argparse.Namespace) -> int:
    """Status 1 means that the tensors differ, as for the program `diff`; a faulty input is a wrong call here."""
    if options.count < 0:
        raise WrongCall(f"--count: expected a number from 0 on, got {options.count}")
    first, second = _read(options.first), _read(options.second)
    facts = list(_facts(first, second))
    differing = 0
    lines: list[dict[str, Any]] = []
    if first.shape == second.shape:
        differing, lines = _entries(first, second, options.count)
    equal = not facts and not differing
    if options.json:
        told = {"first": options.first, "second": options.second, "equal": equal}
        print_json(told | {"facts": facts, "differing_entries": differing, "entries": lines})
        return OK if equal else FAULTY_INPUT
    for fact in facts:
        print(escaped(f"{fact['what']}: {fact['first']} | {fact['second']}"))
    for line in lines:
        for sign, side in (("<", "first"), (">", "second")):
            if line[side] is not None:
                print(escaped(f"{sign} ({', '.join(map(str, line['coordinates']))}) {line[side]}"))
    if differing > len(lines):
        say(f"{differing - len(lines):,} of {differing:,} entries that differ are not shown; pass --count")
    return OK if equal else FAULTY_INPUT


def _read(path: str) -> Tensor:
    with wrong_call_if(BinsparseError, OSError, option=path):
        return read(path)


def _facts(first: Tensor, second: Tensor) -> Iterator[dict[str, str]]:
    """What differs beside the entries."""
    fills = first.fill_value, second.fill_value
    alike = fills[0] is fills[1] or (None not in fills and same(*fills))
    if first.shape != second.shape:
        yield {"what": "shape", "first": times(first.shape), "second": times(second.shape)}
    if not alike:
        said = ["none" if fill is None else clipped(str(fill), _LONGEST) for fill in fills]
        yield {"what": "fill value", "first": said[0], "second": said[1]}


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
    found = []
    for k in alone.nonzero()[0][:count].tolist():
        at = int(partner[k])
        found.append((_place(mine, k), values[k], other_values[at] if at >= 0 else None))
    found += [(_place(others, k), None, other_values[k]) for k in new.nonzero()[0][:count].tolist()]
    found.sort(key=lambda line: line[0])
    told = [
        {"coordinates": list(at), "first": _text(left), "second": _text(right)} for at, left, right in found[:count]
    ]
    return int(alone.sum() + new.sum()), told


def _sorted(tensor: Tensor) -> tuple[Sequence[Array], Array]:
    """All entries by their coordinates, without a structure and without a map."""
    whole = tensor.expand_structure()
    return (whole.without_map(coordinates(whole.ndim)) if whole.ndim else whole).unpack()


def _place(coords: Sequence[Array], k: int) -> tuple[int, ...]:
    return tuple(int(x[k]) for x in coords)


def _text(value: Any) -> str | None:
    return None if value is None else clipped(str(value), _LONGEST)


COMMANDS: dict[str, tuple[Any, ...]] = {
    "diff": (
        _diff, "compare two tensors by shape, fill value and entries, in whatever formats they are",
        argument("first", "PATH[:GROUP]", metavar="FIRST"), argument("second", "PATH[:GROUP]", metavar="SECOND"),
        argument("--count", "number of entries to show; 10 by default", type=int, default=10),
    ),
}  # fmt: skip
