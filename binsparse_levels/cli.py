"""The command line. Data goes to standard output, messages to standard error.

Exit status: 0 for success, 1 for a faulty input, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from . import __version__
from .building import convert
from .building.tables import FILES
from .commands import building
from .commands.arguments import BEST, argument, byte_count, flag, format_of, integers, names
from .commands.terminal import (
    FAULTY_INPUT,
    OK,
    PROGRAM,
    WRONG_CALL,
    WrongCall,
    escaped,
    fail,
    print_json,
    progress_bars,
    said,
    say,
    table,
    times,
    wrong_call_if,
)
from .containers.replacing import clean_folder
from .engine.emission import Duplicates
from .errors import BinsparseError, ContainerError, DialectWarning, FormatError, OptionError, within_memory
from .formats.format import ALIASES, SYNONYMS, Format, coordinates
from .formats.index_map import KEY, IndexMap, parse_map
from .io import Description, describe, read, repair, write
from .io import open as open_tensor
from .levels import LEVELS, places
from .plugins import load_plugins
from .tensors import labels
from .tensors.advice import advise

_DUPLICATES = get_args(Duplicates)  # the first is "error"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Parameters
    ----------
    arguments: the words of the command line; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("always", DialectWarning)
        warnings.showwarning = lambda message, *_: say(f"warning: {message}")
        try:
            if options.plugin:
                load_plugins(*options.plugin)
            status: int = within_memory(options.run)(options)
        except (WrongCall, OptionError) as error:
            return fail(said(error), WRONG_CALL)
        except BrokenPipeError:  # the reader of our output has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except (BinsparseError, OSError) as error:
            return fail(said(error), FAULTY_INPUT)
        except KeyboardInterrupt:
            return fail("interrupted", 130)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Sparse tensors as trees of levels, in Binsparse files.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    loads = "load a plug-in and run its code; may be repeated"
    parser.add_argument("--plugin", action="append", default=[], metavar="NAME", help=loads)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (run, text, *given) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        for words, options in given:
            command.add_argument(words, **options)
    return parser


# The commands


def _info(options: argparse.Namespace) -> int:
    found = describe(options.path, lenient=options.lenient)
    for text in found.repairs:
        say(f"warning: {text}")
    summary = _summary(options.path, found)
    if options.json:
        print_json(summary)
        return OK
    descriptor = found.descriptor
    cells = descriptor.number_of_stored_values
    alias = descriptor.format.alias
    rows = [
        ["format", str(descriptor.format) + ("" if alias is None else f" ({alias})")],
        ["shape", times(descriptor.shape)],
        ["stored values", "unknown" if cells is None else str(cells)],
        ["data type", str(descriptor.data_types["values"])],
        ["fill value", "in the array fill_value" if descriptor.fill else "none"],
        ["structure", descriptor.structure or "none"],
        ["version", descriptor.version],
    ]
    if found.map is not None:
        rows.insert(2, ["map", f"{found.map}, of a tensor of shape {times(found.map.shape)}"])
    table(escaped(str(options.path)), [], rows)
    table("level tree", [], _tree_rows(descriptor.format, descriptor.dims))
    arrays = [
        [name, str(descriptor.data_types[name]), *map(str, (*a.shape, a.nbytes))] for name, a in found.arrays.items()
    ]
    total = str(summary["bytes"])
    table("arrays", ["array", "type", "length", "bytes"], [*arrays, ["all", "", "", total]])
    if summary["attributes"]:
        print("attributes", escaped(json.dumps(summary["attributes"], ensure_ascii=False)))
    return OK


def _summary(path: str, found: Description) -> dict[str, Any]:
    descriptor = found.descriptor
    return {
        "path": str(path),
        "version": descriptor.version,
        "format": str(descriptor.format),
        "alias": descriptor.format.alias,
        "levels": [str(level) for level in descriptor.format.levels],
        "transpose": descriptor.format.transpose,
        "shape": descriptor.shape,
        "number_of_stored_values": descriptor.number_of_stored_values,
        "structure": descriptor.structure,
        "fill": descriptor.fill,
        "arrays": {
            name: {"data_type": str(descriptor.data_types[name]), "length": info.shape[0], "bytes": info.nbytes}
            for name, info in found.arrays.items()
        },
        "bytes": sum(info.nbytes for info in found.arrays.values()),
        "map": None if found.map is None else found.map.header(),
        "attributes": {key: value for key, value in descriptor.user.items() if key not in (KEY, labels.KEY)},
        "repairs": list(found.repairs),
    }


def _tree_rows(format: Format, dims: Sequence[int]) -> list[list[str]]:
    rows = []
    for depth, place in enumerate(places(format.levels, dims)):
        covered = format.order[place.depth : place.depth + place.level.rank]
        sizes = ", ".join(f"{k} (size {size})" for k, size in zip(covered, place.dims, strict=True))
        said = f"dimension{'s' if len(covered) > 1 else ''} {sizes}" if covered else "no dimension"
        rows.append([f"{'  ' * depth}└ {place.level}", said])
    return [*rows, [f"{'  ' * len(format.levels)}└ element", "values"]]


def _check(options: argparse.Namespace) -> int:
    path = str(options.path)
    try:
        tensor = read(options.path, lenient=options.lenient)
    except OptionError:
        raise
    except BinsparseError as error:
        if options.json:
            problems = [asdict(problem) for problem in error.problems]
            print_json({"path": path, "ok": False, "error": type(error).__name__, "problems": problems})
            return FAULTY_INPUT
        for problem in error.problems:
            print(escaped(f"{path}: {problem}"))
        count = len(error.problems)
        return fail(f"{path}: {count} fault{'s' * (count > 1)}", FAULTY_INPUT)
    if options.json:
        print_json({"path": path, "ok": True, "problems": []})
    else:
        count = tensor.number_of_stored_values
        print(escaped(f"{path}: sound, {tensor.format}, {times(tensor.shape)}, {count} stored values"))
    return OK


def _convert(options: argparse.Namespace) -> int:
    best, format = options.format == BEST, options.format
    if building.is_table(options.path):
        return building.convert_table(options)
    if options.columns is not None:
        raise WrongCall(f"--columns are those of a table, which ends with {', '.join(FILES)}; leave them out")
    if options.memory is not None:
        in_memory = (options.lenient, options.narrow, options.bitpacked, options.shape, options.duplicates, options.map)
        if best or any(in_memory):
            raise WrongCall("--memory goes with --format (but not best) and --overwrite; leave the other options out")
        open_tensor(options.path)  # a faulty source is not a wrong call
        given = {"memory": options.memory, "overwrite": options.overwrite}
        with progress_bars() as progress, wrong_call_if(FormatError, ContainerError):
            convert(options.path, options.out, format, progress=progress, **given)
        return OK
    with progress_bars() as step:
        step("reading")
        tensor = read(options.path, lenient=options.lenient, shape=options.shape, duplicates=options.duplicates)
        if best:
            step("counting")
            specified = [name for name, kind in LEVELS.items() if kind.specified]  # which other programs read too
            format = advise(tensor, count=1, kinds=specified).best
            say(f"best format: {format}")
        with wrong_call_if(FormatError, ContainerError):
            if options.map is not None:
                step(f"packing through {options.map}")
                chosen = parse_map(options.map, tensor.shape)
                format = format or coordinates(len(chosen.groups))
                straight = chosen == IndexMap.transpose(tensor.shape)
                whole = tensor.expand_structure()
                tensor = whole.without_map(format) if straight else whole.convert(format, map=chosen)
            elif format is not None:
                step(f"packing as {format}")
                tensor = tensor.convert(format)
            step("writing")
            write(options.out, tensor, overwrite=options.overwrite, narrow=options.narrow, bitpacked=options.bitpacked)
    return OK


def _advise(options: argparse.Namespace) -> int:
    with progress_bars() as step:
        step("reading")
        tensor = read(options.path, lenient=options.lenient)
        step("counting")
        with wrong_call_if(IndexError, FormatError):
            advice = advise(tensor, slices_by=options.slices_by, count=options.count, kinds=options.kinds)
    if options.picture is not None:
        _write_text(options.picture, advice.draw(), overwrite=options.overwrite)
    if options.json:
        found = [
            {"format": str(c.format), "bytes": c.nbytes, "slice_bytes": c.slice_nbytes, "readers": c.readers}
            for _, c, _ in advice.rows()
        ]
        counts = [{"dimensions": part, "distinct": count} for part, count in advice.counts.items()]
        told = {"shape": advice.shape, "entries": advice.entries, "formats": found, "counts": counts}
        print_json({"path": str(options.path), **told})
    else:
        print(escaped(str(options.path)))
        print(advice)
    return OK


def _draw(options: argparse.Namespace) -> int:
    tensor = read(options.path, lenient=options.lenient).without_map()
    with wrong_call_if(IndexError):
        drawn = tensor.draw(options.dimensions)
    _write_text(options.out, drawn, overwrite=options.overwrite)
    return OK


def _write_text(path: str, text: str, *, overwrite: bool) -> None:
    with wrong_call_if(OSError), open(path, "w" if overwrite else "x", encoding="utf-8") as file:
        file.write(text)


def _repair(options: argparse.Namespace) -> int:
    mended = repair(options.path, options.out, duplicates=options.duplicates)
    for text in mended or ["no faults found"]:
        print(escaped(text))
    return OK


def _clean(options: argparse.Namespace) -> int:
    for folder in options.folders:
        for path, outcome in clean_folder(folder):
            print(escaped(f"{path}: {outcome}"))
    return OK


def _formats(options: argparse.Namespace) -> int:
    kinds = [[x.kind, f">= {x.min_rank}", (x.__doc__ or "").strip().partition("\n")[0]] for x in LEVELS.values()]
    table("level kinds", ["kind", "rank", "what it stores"], kinds)
    synonyms = {name: [old for old, new in SYNONYMS.items() if new == name] for name in ALIASES}
    rows = []
    for name, format in ALIASES.items():
        spelled = ", ".join(map(str, format.levels))
        if format.transpose is not None:
            spelled += " @ " + ", ".join(map(str, format.transpose))
        rows.append([name, spelled, ", ".join(synonyms[name])])
    table("predefined formats", ["name", "levels @ transpose", "also read as"], rows)
    print("names may be in any case; COO lists all coordinates, and CSF has a sparse level for each, at any rank")
    print("notation: levels from the outermost in, each with its rank in parentheses unless it is 1, then @ and the")
    print("transpose, such as 'dense, sparse(2) @ 2, 0, 1': stored dimension k is dimension transpose[k] of the tensor")
    print("map: the stored dimensions, each of one digit or more: '0/2, 1/4, 0%2, 1%4' (blocks of 2 × 4) or '2, (0 1)'")
    print("k is the coordinate in dimension k, k/s%r its digit (k // s) % r, and k/s its most significant digit")
    return OK


_PATH = argument("path", "PATH[:GROUP]", metavar="PATH")
_IN = argument("path", "PATH[:GROUP]", metavar="IN")
_LENIENT = flag("--lenient", "repair known deviations of other programs, and warn about each")
_JSON = flag("--json", "print one JSON object")
_OVERWRITE = flag("--overwrite", "replace OUT if it exists")

# The function of each command, its description, and its arguments.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    "info": (
        _info, "describe a tensor from its header: format, level tree, shape, bytes per array", _PATH, _LENIENT, _JSON,
    ),
    "convert": (
        _convert, "convert a tensor, or a table of entries, from any kind of file to any other",
        _IN, _LENIENT, _OVERWRITE,
        argument("out", "PATH[:GROUP]; its suffix selects the kind of file", metavar="OUT"),
        argument("--format", "such as CSR, or 'dense, sparse(2) @ 2, 0, 1', or best for the smallest", type=format_of),
        argument("--map", "an index map, such as '0/2, 1/4, 0%%2, 1%%4' for blocks of 2 × 4; '0, 1' removes a map"),
        flag("--narrow", "store indices in the smallest integers that hold them"),
        flag("--bitpacked", "store indices in as few bits as possible; only this package reads them"),
        argument("--memory", "convert in parts, within this memory, such as 1G, as for a table", type=byte_count),
        argument("--shape", "shape of a .tns file or a table, such as 125,1790,112765", type=integers),
        argument("--duplicates", "how to merge duplicates of text and tables; error by default", choices=_DUPLICATES),
        building.COLUMNS,
    ),
    **building.COMMANDS,
    "check": (_check, "read a tensor, check everything, and list every fault", _PATH, _LENIENT, _JSON),
    "advise": (
        _advise, "list the formats that take the fewest bytes, without packing any", _PATH, _LENIENT, _JSON, _OVERWRITE,
        argument("--slices-by", "rank by the bytes that slices of this dimension read", type=int, metavar="DIMENSION"),
        argument("--count", "number of formats to list; 10 by default", type=int, default=10),
        argument("--kinds", "use only these level kinds, such as dense,sparse", type=names),
        argument("--picture", "also draw the table into an SVG file", metavar="OUT"),
    ),
    "draw": (
        _draw, "draw a small tensor as its level tree, or a large tensor as a spy plot, into an SVG file",
        _PATH, _LENIENT, _OVERWRITE,
        argument("out", "an SVG file", metavar="OUT"),
        argument("--dimensions", "one or two dimensions of a spy plot, such as 0,2", type=integers),
    ),
    "repair": (
        _repair, "repair a file that a strict reader refuses: write a new file and list the repairs", _IN,
        argument("out", "a new path; its suffix selects the kind of file", metavar="OUT"),
        argument("--duplicates", "how to merge duplicates; an error by default", choices=_DUPLICATES[1:]),
    ),
    "clean": (
        _clean, "remove temporary files that interrupted writes left behind",
        argument("folders", None, metavar="FOLDER", nargs="+"),
    ),
    "formats": (_formats, "list the level kinds, the predefined formats, and the notation"),
}  # fmt: skip
