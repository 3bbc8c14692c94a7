"""The commands that write a new file from an existing one: convert, repair."""

from __future__ import annotations

import argparse
import os
from typing import Any, get_args

from ..building import convert
from ..building.tables import FILES
from ..building.to_file import drops_zeros
from ..containers.base import split_path
from ..engine.tree import Duplicates
from ..errors import ContainerError
from ..formats.format import FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, parse_map
from ..io import describe, read, repair, write
from ..io.writing import free_location
from ..levels import LEVELS
from ..limits import Limits
from ..looking.advice import advise
from ..looking.tables import clipped
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
from .terminal import OK, WrongCall, escaped, note, print_json, wrong_call_if

_DUPLICATES = get_args(Duplicates)  # the first is "error"


def _convert(options: argparse.Namespace) -> int:
    with wrong_call_if(ContainerError):  # before the source is read
        target = free_location(options.out, options.overwrite, options.kind)
    before = _file_size(options.path)
    if building.is_table(options):
        format = building.convert_table(options, options.out)
    elif any(x is not None for x in (options.columns, options.nulls, options.values)):
        names = f"whose names end with {', '.join(FILES)}; omit them, or pass --separator for a text of another name"
        raise WrongCall(f"--columns, --nulls and --values are for tables, {names}")
    elif options.memory is not None:
        format = _convert_in_parts(options)
    else:
        format = _convert_in_memory(options)
    format, after = target.name if target.kind.foreign else format, _file_size(options.out)
    if options.json:
        print_json({"path": options.out, "format": format, "bytes": after, "source_bytes": before})
    sizes = ["" if size is None else f"{size:,} bytes" for size in (before, after)]
    source = f"{options.path} ({sizes[0]})" if sizes[0] else options.path
    note(options, f"{source} → {options.out} ({', '.join(filter(None, [clipped(format, 80), sizes[1]]))})")
    return OK


def _file_size(path: str) -> int | None:
    """The bytes of a local file or folder, with all of its groups; None for another place."""
    path = split_path(path)[0]
    if not os.path.isdir(path):
        return os.path.getsize(path) if os.path.exists(path) else None
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def _convert_in_parts(options: argparse.Namespace) -> str:
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
    chosen |= {"progress": not options.quiet, **written_options(options)}
    convert(options.path, options.out, options.format, **chosen)
    return str(options.format or describe(options.out, limits=limits_of(options)).descriptor.format)


def _convert_in_memory(options: argparse.Namespace) -> str:
    limits, chosen = limits_of(options), {"shape": options.shape, "duplicates": options.duplicates}
    tensor = read(options.path, lenient=options.lenient, limits=limits, **chosen)
    format, map = with_map(options.format, options.map)
    if format == BEST:
        specified = [name for name, kind in LEVELS.items() if kind.specified]  # which other programs also read
        format = advise(tensor, count=1, kinds=specified, compression=options.compression, limits=limits).best
    if map is not None:
        tensor = _mapped(tensor, format, map, limits)
    elif format is not None:
        made = tensor.convert(format, limits=limits)
        tensor = made.drop_fill() if drops_zeros(options.path, tensor, made.format) else made
    storage = {"narrow": options.narrow, "bitpacked": options.bitpacked, "dictionary": options.dictionary}
    write(options.out, tensor, overwrite=options.overwrite, limits=limits, **storage, **written_options(options))
    return tensor.notation


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
        ["matrix.mtx matrix.h5 --format CSR", "matrix.h5 matrix.zarr --format best --compression small",
         "rows.csv tensor.h5 --columns i,j,value --duplicates sum", "large.h5 turned.zarr --format CSC --memory 1G"],
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
        _repair, "repair a file that a strict reader refuses: write a new file and list the repairs",
        ["faulty.h5 repaired.h5"], IN,
        argument("out", "a new path; its suffix selects the kind of file", metavar="OUT"),
        argument("--duplicates", "how to merge duplicates; an error by default", choices=_DUPLICATES[1:]),
        OVERWRITE, OVERWRITE_FILE, LIMIT,
    ),
}  # fmt: skip
