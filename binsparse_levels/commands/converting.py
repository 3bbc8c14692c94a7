"""The commands that write a new file from an existing one: convert, repair."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from ..building import convert
from ..building.tables import FILES
from ..building.to_file import drops_zeros
from ..engine.tree import Duplicates
from ..errors import ContainerError
from ..formats.format import FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, parse_map
from ..io import read, repair, write
from ..io.writing import free_location
from ..levels import LEVELS
from ..limits import Limits
from ..looking.advice import advise
from ..tensors.tensor import Tensor
from . import building
from .arguments import (
    BEST,
    IN,
    LENIENT,
    LIMIT,
    OVERWRITE,
    OVERWRITE_FILE,
    WRITTEN,
    argument,
    byte_count,
    flag,
    integers,
    limits_of,
    written_options,
)
from .terminal import OK, WrongCall, escaped, print_json, say, wrong_call_if

_DUPLICATES = get_args(Duplicates)  # the first is "error"


def _convert(options: argparse.Namespace) -> int:
    with wrong_call_if(ContainerError):  # before the source is read
        free_location(options.out, options.overwrite, options.kind)
    if building.is_table(options):
        building.convert_table(options, options.out)
    elif any(x is not None for x in (options.columns, options.nulls, options.values)):
        names = f"whose names end with {', '.join(FILES)}; omit them, or pass --separator for a text of another name"
        raise WrongCall(f"--columns, --nulls and --values are for tables, {names}")
    elif options.memory is not None:
        _convert_in_parts(options)
    else:
        _convert_in_memory(options)
    if options.json:
        print_json({"path": options.out})
    return OK


def _convert_in_parts(options: argparse.Namespace) -> None:
    in_memory = "lenient", "narrow", "bitpacked", "dictionary", "shape", "duplicates"
    if options.format == BEST or any(getattr(options, name) for name in in_memory):
        raise WrongCall(
            "--memory is compatible only with --format (not best), --map, --overwrite and storage options; omit others"
        )
    chosen = {
        "map": options.map,
        "memory": options.memory,
        "overwrite": options.overwrite,
        "limits": limits_of(options),
    }
    convert(options.path, options.out, options.format, progress=True, **chosen, **written_options(options))


def _convert_in_memory(options: argparse.Namespace) -> None:
    limits, chosen = limits_of(options), {"shape": options.shape, "duplicates": options.duplicates}
    tensor = read(options.path, lenient=options.lenient, limits=limits, **chosen)
    format, map = with_map(options.format, options.map)
    if format == BEST:
        specified = [name for name, kind in LEVELS.items() if kind.specified]  # which other programs also read
        format = advise(tensor, count=1, kinds=specified, compression=options.compression, limits=limits).best
        say(f"best format: {format}")
    if map is not None:
        tensor = _mapped(tensor, format, map, limits)
    elif format is not None:
        made = tensor.convert(format, limits=limits)
        tensor = made.drop_fill() if drops_zeros(options.path, tensor, made.format) else made
    storage = {"narrow": options.narrow, "bitpacked": options.bitpacked, "dictionary": options.dictionary}
    write(options.out, tensor, overwrite=options.overwrite, limits=limits, **storage, **written_options(options))


def _mapped(tensor: Tensor, format: FormatLike | None, map: str, limits: Limits) -> Tensor:
    chosen = parse_map(map, tensor.shape)
    format = coordinates(len(chosen.groups)) if format is None else format
    if chosen == IndexMap.transpose(tensor.shape):  # the identity
        return tensor.without_map(format, limits=limits)
    return tensor.convert(format, map=chosen, limits=limits)


def _repair(options: argparse.Namespace) -> int:
    arguments = {"duplicates": options.duplicates, "overwrite": options.overwrite, "limits": limits_of(options)}
    repairs = repair(options.path, options.out, **arguments)
    if options.json:
        print_json({"path": options.out, "repairs": repairs})
        return OK
    for text in repairs or ["no faults found"]:
        print(escaped(text))
    return OK


COMMANDS: dict[str, tuple[Any, ...]] = {
    "convert": (
        _convert, "convert a tensor, or a table of entries, from any kind of file to any other",
        IN, LENIENT, OVERWRITE, OVERWRITE_FILE, LIMIT,
        argument("out", "PATH[:GROUP], whose suffix selects the kind of file", metavar="OUT"),
        argument("--format", "such as CSR, or 'dense, sparse(2) @ 2, 0, 1', or best for the smallest"),
        argument("--map", "an index map, such as '0/2, 1/4, 0%%2, 1%%4' for blocks of 2 × 4; '0, 1' removes a map"),
        flag("--narrow", "store indices in the smallest integers that fit"),
        flag("--bitpacked", "store indices in as few bits as possible; only this package reads them"),
        flag("--dictionary", "store values as a table and codes of one or two bytes; only this package reads them"),
        argument("--memory", "convert in parts within this memory, such as 1G", type=byte_count),
        argument("--shape", "shape of a .tns file or a table, such as 125,1790,112765", type=integers),
        argument("--duplicates", "how to merge duplicates of text and tables; error by default", choices=_DUPLICATES),
        building.COLUMNS, building.NULLS, *building.TEXT, *WRITTEN,
    ),
    "repair": (
        _repair, "repair a file that a strict reader refuses: write a new file and list the repairs", IN,
        argument("out", "a new path; its suffix selects the kind of file", metavar="OUT"),
        argument("--duplicates", "how to merge duplicates; an error by default", choices=_DUPLICATES[1:]),
        OVERWRITE, OVERWRITE_FILE, LIMIT,
    ),
}  # fmt: skip
