"""The commands that look at a file: info, list, head, check."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from ..containers.base import split_path
from ..errors import BinsparseError, LimitError, OptionError, PathMissingError, Problem
from ..formats.format import Format
from ..io import Description, describe, list_tensors, read
from ..io import open as open_tensor
from ..levels import places
from ..looking.entries import first_entries, labelled, labels_of
from ..looking.faults import all_faults
from ..looking.fibers import facts_of, levels_of
from ..looking.fibers import table as level_table
from ..looking.tables import clipped
from ..tensors.labels import KEY as LABELS
from .arguments import LENIENT, LIMIT, PATH, argument, flag, limits_of
from .terminal import FAULTY_INPUT, OK, WrongCall, count_of, escaped, print_json, say, table, times, wrong_call_if

_LONGEST = 40  # characters of a label or a value
_LINES = 1000  # entries that are aligned together


def _info(options: argparse.Namespace) -> int:
    try:
        facts = describe(options.path, lenient=options.lenient, limits=limits_of(options))
    except PathMissingError:
        raise
    except BinsparseError:
        groups = [] if split_path(options.path)[1] else _groups(options.path)
        if not groups or "/" in groups:
            raise
        return _print_groups(options, groups)  # no group was named
    for text in facts.repairs:
        say(f"warning: {text}")
    summary = _summary(options.path, facts)
    levels = []
    if options.levels:
        with open_tensor(options.path, limits=limits_of(options)) as tensor:
            levels = levels_of(tensor)
        summary["levels_of"] = list(map(facts_of, levels))
    if options.json:
        print_json(summary)
        return OK
    descriptor = facts.descriptor
    cells = descriptor.number_of_stored_values
    alias = descriptor.format.alias
    rows = [
        ["format", str(descriptor.format) + ("" if alias in (None, str(descriptor.format)) else f" ({alias})")],
        ["shape", times(summary["shape"])],
        ["stored values", "unknown" if cells is None else str(cells)],
        ["data type", str(descriptor.data_types["values"])],
        ["fill value", summary["fill_value"] or "none, which is 0 where a number is needed"],
        ["structure", descriptor.structure or "none"],
        ["version", descriptor.version],
    ]
    if descriptor.map is not None:
        rows.insert(2, ["map", f"{descriptor.map}, stored in shape {times(descriptor.shape)}"])
    if summary["dimensions"] is not None:
        named = zip(summary["dimensions"], summary["shape"], strict=True)
        told = [f"{d['name']} ({size}{', labels: ' + d['labels'] if d['labels'] else ''})" for d, size in named]
        rows.insert(2, ["dimensions", escaped(clipped(", ".join(told), 400))])
    table(escaped(str(options.path)), [], rows)
    table("level tree", [], _tree_rows(descriptor.format, descriptor.dims))
    if options.levels:
        table("levels in numbers", *level_table(levels))
    arrays = [
        [name, str(descriptor.data_types[name]), *map(str, (*a.shape, a.nbytes))] for name, a in facts.arrays.items()
    ]
    total = str(summary["bytes"])
    table("arrays", ["array", "type", "length", "bytes"], [*arrays, ["all", "", "", total]])
    if summary["attributes"]:
        print("attributes", escaped(json.dumps(summary["attributes"], ensure_ascii=False)))
    return OK


def _summary(path: str, description: Description) -> dict[str, Any]:
    descriptor = description.descriptor
    return {
        "path": str(path),
        "version": descriptor.version,
        "format": str(descriptor.format),
        "alias": descriptor.format.alias,
        "levels": [str(level) for level in descriptor.format.levels],
        "transpose": descriptor.format.transpose,
        "shape": descriptor.shape if descriptor.map is None else descriptor.map.shape,
        "stored_shape": descriptor.shape,
        "number_of_stored_values": descriptor.number_of_stored_values,
        "dimensions": _dimensions(descriptor.beside.get(LABELS)),
        "structure": descriptor.structure,
        "fill": descriptor.fill,
        "fill_value": None if description.fill_value is None else str(description.fill_value),
        "arrays": {
            name: {"data_type": str(descriptor.data_types[name]), "length": info.shape[0], "bytes": info.nbytes}
            for name, info in description.arrays.items()
        },
        "bytes": sum(info.nbytes for info in description.arrays.values()),
        "map": None if descriptor.map is None else descriptor.map.header(),
        "attributes": descriptor.user,
        "repairs": list(description.repairs),
    }


def _dimensions(header: Any) -> list[dict[str, Any]] | None:
    """The name of each dimension, and the type of its labels, from the header; None without names."""
    if header is None:
        return None
    return [{"name": name, "labels": type} for name, type in zip(header["dims"], header["labels"], strict=True)]


def _tree_rows(format: Format, dims: Sequence[int]) -> list[list[str]]:
    rows = []
    for depth, place in enumerate(places(format.levels, dims)):
        covered = format.order[place.depth : place.depth + place.level.rank]
        sizes = ", ".join(f"{k} (size {size})" for k, size in zip(covered, place.dims, strict=True))
        said = f"dimension{'s' if len(covered) > 1 else ''} {sizes}" if covered else "no dimension"
        rows.append([f"{'  ' * depth}└ {place.level}", said])
    return [*rows, [f"{'  ' * len(format.levels)}└ element", "values"]]


def _groups(path: str) -> list[str]:
    try:
        return list_tensors(path)
    except BinsparseError:  # the first error says more
        return []


def _list(options: argparse.Namespace) -> int:
    return _print_groups(options, list_tensors(options.path, limits=limits_of(options)))


def _at(path: str, group: str) -> str:
    return path if group == "/" else f"{path}:{group}"


def _print_groups(options: argparse.Namespace, groups: Sequence[str]) -> int:
    """Print a line for each tensor in a file."""
    told: list[dict[str, Any]] = []
    rows = []
    for group in groups:
        try:
            facts = _summary(options.path, describe(_at(options.path, group), limits=limits_of(options)))
        except BinsparseError as error:
            problems = list(map(str, error.problems))
            told.append({"group": group, "error": type(error).__name__, "problems": problems})
            rows.append([escaped(group), "faulty", escaped(clipped(problems[0], 60)), "", ""])
        else:
            wanted = ("shape", "format", "number_of_stored_values", "bytes")
            told.append({"group": group} | {name: facts[name] for name in wanted})
            shape, format, count, size = (facts[name] for name in wanted)
            counted = "?" if count is None else f"{count:,}"
            rows.append([escaped(group), times(shape), clipped(format, 60), counted, f"{size:,}"])
    if options.json:
        print_json({"path": str(options.path), "tensors": told})
    else:
        table(escaped(str(options.path)), ["group", "shape", "format", "stored values", "bytes"], rows)
    return FAULTY_INPUT if any("error" in line for line in told) else OK


def _head(options: argparse.Namespace) -> int:
    if options.count < 1:
        raise WrongCall(f"--count: expected a number from 1 on, got {options.count}")
    with wrong_call_if(OptionError), open_tensor(options.path, limits=limits_of(options)) as tensor:
        names = tensor.dims or tuple(f"dimension {k}" for k in range(tensor.ndim))
        known = labels_of(tensor)
        entries = first_entries(tensor, options.count)
        if options.json:
            listed = [_as_json(coords, value, known) for coords, value in entries]
            print_json({"path": str(options.path), "dimensions": list(names), "entries": listed})
            return OK
        rows = ([*(short(x) for x in labelled(coords, known)), short(value)] for coords, value in entries)
        table(escaped(str(options.path)), [*map(short, names), "value"], list(islice(rows, _LINES)))
        while some := list(islice(rows, _LINES)):
            table("", [], some)
    return OK


def _as_json(coords: Sequence[int], value: Any, known: Sequence[Any]) -> dict[str, Any]:
    entry = {"coordinates": list(coords), "value": str(value)}
    return entry if all(x is None for x in known) else entry | {"labels": labelled(coords, known)}


def short(item: Any) -> str:
    """A label or a value in a table."""
    return escaped(clipped(str(item), _LONGEST))


def _check(options: argparse.Namespace) -> int:
    path = str(options.path)
    problems: tuple[Problem, ...] = ()
    failed: dict[str, str] = {}
    try:
        tensor = read(options.path, lenient=options.lenient, limits=limits_of(options))
    except (OptionError, LimitError, PathMissingError):
        raise
    except BinsparseError as error:
        failed, problems = {"error": type(error).__name__}, all_faults(options.path, error.problems, limits_of(options))
    if options.json:
        print_json({"path": path, "ok": not problems} | failed | {"problems": list(map(asdict, problems))})
    elif problems:
        for text in map(str, problems):
            print(escaped(text if text.startswith(path) else f"{path}: {text}"))
        say(f"error: {path}: {count_of(problems)}")
    else:
        count = tensor.number_of_stored_values
        print(escaped(f"{path}: sound, {tensor.format}, {times(tensor.shape)}, {count} stored values"))
    return FAULTY_INPUT if problems else OK


COMMANDS: dict[str, tuple[Any, ...]] = {
    "info": (
        _info, "describe a tensor from its header: format, level tree, shape, arrays", PATH, LENIENT, LIMIT,
        flag("--levels", "also read the arrays: fibers, their lengths, and the information limit of each level"),
    ),
    "list": (
        _list, "list the tensors of a file: groups, shapes, formats",
        argument("path", "a file or a store", metavar="PATH"), LIMIT,
    ),
    "head": (
        _head, "print the first stored entries, with their labels if there are any", PATH, LIMIT,
        argument("--count", "number of entries; 10 by default", type=int, default=10),
    ),
    "check": (_check, "read a tensor, check everything, and list its faults", PATH, LENIENT, LIMIT),
}  # fmt: skip
