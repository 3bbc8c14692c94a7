"""The commands that explain: advise, draw, report, formats, completion."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..errors import FormatError, OptionError
from ..formats.format import ALIASES, SYNONYMS
from ..io import read
from ..levels import LEVELS
from ..levels.base import MAX_RANK, Level
from ..looking.advice import advise
from ..looking.report import report
from .arguments import LENIENT, LIMIT, OVERWRITE, PATH, argument, format_of, integers, limits_of, names
from .terminal import (
    FAULTY_INPUT,
    OK,
    WrongCall,
    count_of,
    escaped,
    print_json,
    progress_bars,
    say,
    table,
    tell_written,
    write_text,
    wrong_call_if,
)

_PIXELS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps")
_NOTES = (
    "names may be in any case; COO lists all coordinates, and CSF has a sparse level for each, at any rank",
    "notation: levels from the outermost in, each with its rank in parentheses unless it is 1, then @ and the",
    "transpose, such as 'dense, sparse(2) @ 2, 0, 1': stored dimension k is dimension transpose[k] of the tensor",
    "map: the stored dimensions, each of one digit or more: '0/2, 1/4, 0%2, 1%4' (blocks of 2 × 4) or '2, (0 1)'",
    "k is the coordinate in dimension k, k/s%r its digit (k // s) % r, and k/s its most significant digit",
)


def _advise(options: argparse.Namespace) -> int:
    _svg(options.picture or "")
    with progress_bars() as step:
        step("reading")
        limits = limits_of(options)
        tensor = read(options.path, lenient=options.lenient, limits=limits)
        step("counting")
        with wrong_call_if(IndexError, option="--slices-by"), wrong_call_if(FormatError):
            arguments = {"slices_by": options.slices_by, "count": options.count, "kinds": options.kinds}
            arguments |= {"stored": options.stored, "formats": options.format}
            advice = advise(tensor, limits=limits, **arguments)
    if options.picture is not None:
        write_text(options, options.picture, advice.draw())
    if not options.json:
        print(escaped(str(options.path)))
        print(advice)
        return OK
    formats = [
        {"format": str(c), "bytes": c.nbytes, "slice_bytes": c.slice_nbytes}
        | {"readers": c.readers, "refused": c.refused}
        for _, c, _ in advice.rows()
    ]
    counts = [{"dimensions": part, "distinct": count} for part, count in advice.counts.items()]
    told = {"shape": advice.shape, "entries": advice.entries, "formats": formats, "counts": counts}
    print_json({"path": str(options.path), **told})
    return OK


def _draw(options: argparse.Namespace) -> int:
    _svg(options.out)
    tensor = read(options.path, lenient=options.lenient, limits=limits_of(options)).without_map()
    with wrong_call_if(IndexError, OptionError, option="--dimensions"):
        drawn = tensor.draw(options.dimensions)
    write_text(options, options.out, drawn)
    tell_written(options, options.out)
    return OK


def _svg(path: str) -> None:
    if path.lower().endswith(_PIXELS):
        raise WrongCall(f"{path}: pictures are SVG; give a path that ends with .svg")


def _report(options: argparse.Namespace) -> int:
    with progress_bars() as step:
        step("counting")
        made = report(options.path, limits=limits_of(options))
    out = options.output or f"{os.path.splitext(os.path.basename(options.path.rstrip('/')))[0]}.html"
    faults = [str(fault) for fault in made.faults]
    if os.path.exists(out) and os.path.exists(options.path) and os.path.samefile(out, options.path):
        raise WrongCall(f"{out}: holds the tensor itself; name another file for the page")
    write_text(options, out, made.html)
    tell_written(options, out, faults=faults)
    if faults and not options.json:
        say(f"error: {options.path}: {count_of(faults)}; the report lists them")
    return FAULTY_INPUT if faults else OK


def _formats(options: argparse.Namespace) -> int:
    aliases = []
    for name, format in ALIASES.items():
        spelled = ", ".join(map(str, format.levels))
        if format.transpose is not None:
            spelled += " @ " + ", ".join(map(str, format.transpose))
        aliases.append([name, spelled, ", ".join(old for old, new in SYNONYMS.items() if new == name)])
    kinds = [_kind(kind) for kind in LEVELS.values()]
    if options.json:
        heads = ("kind", "rank", "read_by", "stores")
        predefined = [{"name": name, "format": spelled, "also": also} for name, spelled, also in aliases]
        print_json({"kinds": [dict(zip(heads, row, strict=True)) for row in kinds], "formats": predefined})
        return OK
    table("level kinds", ["kind", "rank", "read by", "what it stores"], kinds)
    table("predefined formats", ["name", "levels @ transpose", "also read as"], aliases)
    for note in _NOTES:
        print(note)
    return OK


def _kind(kind: type[Level]) -> list[str]:
    least, most = kind.min_rank, kind.max_rank
    rank = str(least) if least == most else f">= {least}" if most >= MAX_RANK else f"{least} to {most}"
    stores = (kind.__doc__ or "").strip().partition("\n")[0]
    return [kind.kind, rank, "all programs" if kind.specified else "this package", stores]


COMMANDS: dict[str, tuple[Any, ...]] = {
    "advise": (
        _advise, "list the formats that take the fewest bytes, without packing any",
        PATH, LENIENT, OVERWRITE, LIMIT,
        argument("--slices-by", "rank by the bytes that slices of this dimension read", type=int, metavar="DIMENSION"),
        argument("--count", "number of formats to list; 10 by default", type=int, default=10),
        argument("--kinds", "use only these level kinds, such as dense,sparse", type=names),
        argument("--format", "to compare with; may be repeated", action="append", type=format_of),
        argument("--stored", "rank sizes in memory, or in files", choices=["memory", "narrow", "bitpacked"],
                 default="memory"),
        argument("--picture", "also draw the table into an SVG file", metavar="OUT"),
    ),
    "draw": (
        _draw, "draw a small tensor as its level tree, or a large tensor as a spy plot, into an SVG file",
        PATH, LENIENT, OVERWRITE, LIMIT,
        argument("out", "an SVG file, or -", metavar="OUT"),
        argument("--dimensions", "one or two dimensions of a spy plot, such as 0,2", type=integers),
    ),
    "report": (
        _report, "write an HTML page about a tensor: levels, entries, formats, faults", PATH, OVERWRITE, LIMIT,
        argument("-o", "an HTML file, or -; by default, PATH with the suffix .html in this folder", metavar="OUT",
                 dest="output"),
    ),
    "formats": (_formats, "list the level kinds, the predefined formats, and the notation"),
}  # fmt: skip
