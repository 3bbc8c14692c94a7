"""The commands that explain: advise, sweep, draw, report, formats."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import Any

from ..formats.format import ALIASES, SYNONYMS
from ..io import open as open_tensor
from ..io import read
from ..levels import LEVELS
from ..levels.base import MAX_RANK, Level
from ..looking.advice import advise
from ..looking.report import report_on
from .arguments import LENIENT, LIMIT, OVERWRITE, PATH, argument, integers, limits_of, names
from .terminal import (
    FAULTY_INPUT,
    OK,
    WrongCall,
    count_of,
    escaped,
    is_standard_output,
    print_json,
    say,
    table,
    write_text,
)


def _advise(options: argparse.Namespace) -> int:
    limits = limits_of(options)
    tensor = read(options.path, lenient=options.lenient, limits=limits)
    chosen = {"slices_by": options.slices_by, "count": options.count, "kinds": options.kinds, "formats": options.format}
    advice = advise(tensor, compression=options.compression, limits=limits, **chosen)
    if not options.json:
        print(escaped(options.path))
        print(advice)
        return OK
    formats = [
        {"format": str(c), "bytes": c.nbytes, "slice_bytes": c.slice_nbytes}
        | {"compressed_bytes": advice.compressed(c), "readers": c.readers, "refused": c.refused}
        for _, c, _ in advice.rows()
    ]
    counts = [{"dimensions": part, "distinct": count} for part, count in advice.counts.items()]
    facts = {"shape": advice.shape, "entries": advice.entries, "formats": formats, "counts": counts}
    print_json({"path": options.path, **facts})
    return OK


def _sweep(options: argparse.Namespace) -> int:
    from ..looking.sweep import MEASURED, sweep  # other commands do not import numba

    chosen = {"repeat": options.repeat, "threads": options.threads}
    found = sweep(options.path, options.format, options.measure or MEASURED, **chosen)
    if options.json:
        print_json({"path": options.path, "rows": list(map(asdict, found.rows)), "record": dict(found.record)})
    else:
        print(found)
    return OK


def _draw(options: argparse.Namespace) -> int:
    if not is_standard_output(options.out) and not options.out.lower().endswith(".svg"):
        raise WrongCall(f"{options.out}: unknown suffix; draw writes SVG, so choose a name that ends with .svg, or -")
    tensor = read(options.path, lenient=options.lenient, limits=limits_of(options))
    write_text(options, options.out, tensor.without_map().draw(options.dimensions))
    return OK


def _report(options: argparse.Namespace) -> int:
    title = os.path.basename(options.path.rstrip("/"))
    with open_tensor(options.path, limits=limits_of(options)) as tensor:
        made = report_on(tensor, title)
    out = options.output or f"{os.path.splitext(title)[0]}.html"
    if os.path.exists(out) and os.path.exists(options.path) and os.path.samefile(out, options.path):
        raise WrongCall(f"{out}: is the file of the tensor; choose another file for the page")
    write_text(options, out, made.html, faults=list(map(str, made.faults)))
    if made.faults and not options.json:
        say(f"error: {options.path}: {count_of(made.faults)}; the report lists them")
    return FAULTY_INPUT if made.faults else OK


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
    table("level kinds", ["kind", "rank", "read by", "description"], kinds)
    table("predefined formats", ["name", "levels @ transpose", "also read as"], aliases)
    return OK


def _kind(kind: type[Level]) -> list[str]:
    least, most = kind.min_rank, kind.max_rank
    rank = str(least) if least == most else f">= {least}" if most >= MAX_RANK else f"{least} to {most}"
    stores = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return [kind.kind, rank, "all programs" if kind.specified else "this package", stores]


COMMANDS: dict[str, tuple[Any, ...]] = {
    "advise": (
        _advise, "list the formats that take the fewest bytes, without packing the tensor",
        ["matrix.h5", "matrix.mtx --kinds dense,sparse --count 3"], PATH, LENIENT, LIMIT,
        argument(
            "--slices-by", "rank by the bytes that slices of this dimension read; its number or name",
            type=lambda text: int(text) if text.lstrip("-").isdecimal() else text, metavar="DIMENSION",
        ),
        argument("--count", "number of formats to list; 10 by default", type=int, default=10),
        argument("--kinds", "use only these level kinds, such as dense,sparse", type=names),
        argument("--format", "to compare with; may be repeated", action="append"),
        argument("--compression", "rank by the estimated bytes in a file with this compression, such as small"),
    ),
    "sweep": (
        _sweep, "store a tensor in formats, and measure bits and times",
        ["matrix.h5 --format CSR --format 'dense, mask'", "matrix.h5 --format CSR --measure 'ij,j->i' --threads 1,2"],
        PATH,
        argument("--format", "such as CSR; may be repeated", action="append", required=True),
        argument("--measure", "such as bits, or ij,j->i; may be repeated", action="append", default=[]),
        argument("--repeat", "rounds", type=int, default=5),
        argument("--threads", "numbers of threads, such as 1,2, each with its own rows", type=integers),
    ),
    "draw": (
        _draw, "draw a small tensor as its level tree, or a large tensor as a spy plot, into an SVG file",
        ["matrix.h5 matrix.svg", "tensor.h5 tensor.svg --dimensions 0,2"], PATH, LENIENT, OVERWRITE, LIMIT,
        argument("out", "an SVG file, or -", metavar="OUT"),
        argument("--dimensions", "one or two dimensions of a spy plot, such as 0,2", type=integers),
    ),
    "report": (
        _report, "write an HTML page about a tensor: levels, entries, formats, faults",
        ["matrix.h5", "matrix.h5 -o page.html --overwrite"], PATH, OVERWRITE, LIMIT,
        argument("-o", "an HTML file, or -; by default, PATH with the suffix .html in this folder", metavar="OUT",
                 dest="output"),
    ),
    "formats": (_formats, "list the level kinds, and the predefined formats", [""]),
}  # fmt: skip
