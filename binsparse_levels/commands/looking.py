"""The commands that inspect a file: info, list, check."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..containers.base import split_path
from ..errors import BinsparseError, LimitError, OptionError, PathMissingError, Problem, TensorMissingError
from ..formats.format import Format
from ..io import Description, describe, list_tensors, read
from ..io import open as open_tensor
from ..levels import places
from ..log import DEBUG, LOG
from ..looking.faults import all_faults, notes_on, order_faults
from ..looking.tables import clipped
from ..tensors.labels import KEY as LABELS
from .arguments import LENIENT, LIMIT, PATHS, argument, flag, limits_of
from .terminal import (
    FAULTY_INPUT,
    OK,
    WrongCall,
    as_options,
    count_of,
    error_name,
    escaped,
    for_each_path,
    print_json,
    say,
    table,
    times,
)


@contextlib.contextmanager
def _logged() -> Iterator[io.StringIO]:
    """The text of the log within the block."""
    text, level = io.StringIO(), LOG.level
    handler = logging.StreamHandler(text)
    LOG.addHandler(handler)
    LOG.setLevel(DEBUG)
    try:
        yield text
    finally:
        LOG.setLevel(level)
        LOG.removeHandler(handler)


def _why(options: argparse.Namespace) -> dict[str, list[str]]:
    """The log of opening a tensor, and of reading its middle slice along the first dimension."""
    if options.lenient:
        raise WrongCall("--why opens the file strictly; omit --lenient")
    with _logged() as opening:
        tensor = open_tensor(options.path, limits=limits_of(options))
    middle = tensor.shape[0] // 2 if tensor.shape else 0
    with tensor, _logged() as reading:
        (tensor[middle : middle + 1] if tensor.shape else tensor).load()
    texts = {"open": opening.getvalue(), f"slice [{middle}:{middle + 1}]": reading.getvalue()}
    return {part: (text or "nothing is read, because it is in memory").splitlines() for part, text in texts.items()}


def _info(options: argparse.Namespace) -> int:
    try:
        facts = describe(options.path, lenient=options.lenient, limits=limits_of(options))
    except TensorMissingError:
        if split_path(options.path)[1] is None and list_tensors(options.path, limits=limits_of(options)):
            return _list(options)
        raise
    for text in facts.repairs:
        if not options.quiet:
            say(f"warning: {text}")
    summary = _summary(options.path, facts)
    if options.why:
        summary["why"] = _why(options)
    if options.json:
        print_json(summary)
        return OK
    descriptor = facts.descriptor
    cells = descriptor.number_of_stored_values
    alias = descriptor.format.alias
    rows = [
        ["format", str(descriptor.format) + ("" if alias in (None, str(descriptor.format)) else f" ({alias})")],
        ["shape", times(summary["shape"])],
        ["stored values", "unknown" if cells is None else f"{cells:,}"],
        ["data type", str(descriptor.data_types["values"])],
        ["fill value", summary["fill_value"] or "none (treated as 0)"],
        ["structure", descriptor.structure or "none"],
        ["version", descriptor.version],
    ]
    if descriptor.map is not None:
        rows.insert(2, ["map", f"{descriptor.map}, stored in shape {times(descriptor.shape)}"])
    if summary["dimensions"] is not None:
        named = zip(summary["dimensions"], summary["shape"], strict=True)
        texts = [f"{d['name']} ({size:,}{', labels: ' + d['labels'] if d['labels'] else ''})" for d, size in named]
        rows.insert(2, ["dimensions", escaped(clipped(", ".join(texts), 400))])
    table(escaped(options.path), [], rows)
    table("level tree", [], _tree_rows(descriptor.format, descriptor.dims))
    arrays = [[name, x["data_type"], f"{x['length']:,}", f"{x['bytes']:,}"] for name, x in summary["arrays"].items()]
    table("arrays", ["array", "type", "length", "bytes"], [*arrays, ["all", "", "", f"{summary['bytes']:,}"]])
    if summary["attributes"]:
        print("attributes", escaped(json.dumps(summary["attributes"], ensure_ascii=False)))
    for part, lines in summary.get("why", {}).items():
        table(part, [], [[escaped(line)] for line in lines])
    return OK


def _summary(path: str, description: Description) -> dict[str, Any]:
    descriptor, map = description.descriptor, description.descriptor.map
    return {
        "path": str(path),
        "version": descriptor.version,
        "format": str(descriptor.format),
        "alias": descriptor.format.alias,
        "levels": [str(level) for level in descriptor.format.levels],
        "transpose": descriptor.format.transpose,
        "shape": descriptor.shape if map is None else map.shape,
        "stored_shape": descriptor.shape,
        "number_of_stored_values": descriptor.number_of_stored_values,
        "dimensions": _dimensions(descriptor.extra.get(LABELS)),
        "structure": descriptor.structure,
        "fill": descriptor.fill,
        "fill_value": None if description.fill_value is None else str(description.fill_value),
        "arrays": {
            name: {"data_type": str(descriptor.data_types[name]), "length": info.shape[0], "bytes": info.nbytes}
            for name, info in description.arrays.items()
        },
        "bytes": sum(info.nbytes for info in description.arrays.values()),
        "map": map and {"shape": list(map.shape), "digits": str(map)},
        "attributes": descriptor.user,
        "repairs": list(description.repairs),
    }


def _dimensions(header: Any) -> list[dict[str, Any]] | None:
    """The name of each dimension and the type of its labels, from the header; None if there are no names."""
    if header is None:
        return None
    return [{"name": name, "labels": type} for name, type in zip(header["dims"], header["labels"], strict=True)]


def _tree_rows(format: Format, dims: Sequence[int]) -> list[list[str]]:
    rows = []
    for depth, place in enumerate(places(format.levels, dims)):
        covered = format.order[place.depth : place.depth + place.level.rank]
        sizes = ", ".join(f"{k} (size {size:,})" for k, size in zip(covered, place.dims, strict=True))
        covers = f"dimension{'s' if len(covered) > 1 else ''} {sizes}" if covered else "no dimension"
        rows.append([f"{'  ' * depth}└ {place.level}", covers])
    return [*rows, [f"{'  ' * len(format.levels)}└ element", "values"]]


def _list(options: argparse.Namespace) -> int:
    """Print a line for each tensor in a file. The names of groups start at the root, even if a group is passed."""
    file, _ = split_path(options.path)
    listed: list[dict[str, Any]] = []
    rows = []
    for group in list_tensors(options.path, limits=limits_of(options)):
        place = file if group == "/" else f"{file}:{group}"
        try:
            facts = _summary(place, describe(place, limits=limits_of(options)))
        except BinsparseError as error:
            problems = list(map(str, error.problems))
            listed.append({"group": group, "error": error_name(error), "problems": problems})
            rows.append([escaped(group), "faulty", escaped(clipped(problems[0], 60)), "", ""])
        else:
            keys = ("shape", "format", "number_of_stored_values", "bytes")
            listed.append({"group": group} | {key: facts[key] for key in keys})
            shape, format, count, size = (facts[key] for key in keys)
            counted = "?" if count is None else f"{count:,}"
            rows.append([escaped(group), times(shape), clipped(format, 60), counted, f"{size:,}"])
    if options.json:
        print_json({"path": options.path, "tensors": listed})
    else:
        table(escaped(options.path), ["group", "shape", "format", "stored values", "bytes"], rows)
    return FAULTY_INPUT if any("error" in line for line in listed) else OK


def _check(options: argparse.Namespace) -> int:
    path = options.path
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    failed: dict[str, str] = {}
    try:
        tensor = read(options.path, lenient=options.lenient, limits=limits_of(options))
        problems = order_faults(options.path, tensor, options.lenient, limits_of(options))
        failed, notes = {"error": "ArrayError"} if problems else {}, notes_on(options.path, tensor, limits_of(options))
    except (OptionError, LimitError, PathMissingError, TensorMissingError):
        raise
    except BinsparseError as error:
        failed, problems = {"error": error_name(error)}, all_faults(options.path, error.problems, limits_of(options))
    if options.json:
        listed = {"problems": list(map(asdict, problems))} | ({"notes": list(map(asdict, notes))} if notes else {})
        print_json({"path": path, "ok": not problems} | failed | listed)
    elif problems:
        for text in map(as_options, map(str, problems)):
            print(escaped(text if text.startswith(path) else f"{path}: {text}"))
        say(f"error: {path}: {count_of(problems)}; write or fetch the file again, or try the command repair")
    elif not options.quiet:
        count = tensor.number_of_stored_values
        print(escaped(f"{path}: sound, {tensor.format}, {times(tensor.shape)}, {count:,} stored values"))
        for note in notes:
            print(escaped(f"{path}: note: {note}"))
    return FAULTY_INPUT if problems else OK


COMMANDS: dict[str, tuple[Any, ...]] = {
    "info": (
        for_each_path(_info), "describe a tensor from its header: format, level tree, shape, arrays",
        ["matrix.h5", "matrix.h5:group --why", "*.h5 --json"], PATHS, LENIENT, LIMIT,
        flag("--why", "also open the tensor, read a slice in its middle, and print how and why so"),
    ),
    "list": (
        _list, "list the tensors of a file: groups, shapes, formats", ["matrices.h5"],
        argument("path", "a file or a store", metavar="PATH"), LIMIT,
    ),
    "check": (
        for_each_path(_check), "read a tensor, check everything, and list its faults; --quiet lists nothing else",
        ["matrix.h5", "*.h5 --quiet"], PATHS, LENIENT, LIMIT,
    ),
}  # fmt: skip
