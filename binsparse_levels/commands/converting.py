"""The commands that write tensors of others: convert, repair."""

from __future__ import annotations

import argparse
import time
from typing import Any, get_args

from ..building import convert
from ..building.columns import FILES
from ..containers.base import is_url
from ..containers.replacing import refuse_existing
from ..engine.emission import Duplicates
from ..errors import BinsparseError, ContainerError, FormatError, OptionError, PathExistsError, Problem
from ..formats.format import FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, parse_map
from ..io import describe, read, repair, write
from ..io import open as open_tensor
from ..io.kinds import resolved, target_at
from ..levels import LEVELS
from ..limits import Limits
from ..looking.advice import advise
from ..looking.tables import size_of
from ..tensors.changing import expanded
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
    format_of,
    integers,
    limits_of,
    written_options,
)
from .terminal import (
    OK,
    WrongCall,
    escaped,
    print_json,
    progress_bars,
    say,
    size_at,
    tell,
    wrong_call_if,
)

_DUPLICATES = get_args(Duplicates)  # the first is "error"


def _convert(options: argparse.Namespace) -> int:
    began, out = time.monotonic(), options.out
    _look_at_target(options, out)
    if building.is_table(options.path):
        building.convert_table(options, out)
    elif options.columns is not None or options.nulls is not None:
        raise WrongCall(f"--columns and --nulls are for tables, which end with {', '.join(FILES)}; leave them out")
    elif options.memory is not None:
        _convert_in_parts(options, out)
    else:
        _convert_in_memory(options, out)
    seconds, size = round(time.monotonic() - began, 2), size_at(out)
    facts = {"path": out, "bytes": size, "seconds": seconds}
    tell(options, facts, f"{out}{'' if size is None else ', ' + size_of(size)}, in {seconds} s")
    return OK


def _look_at_target(options: argparse.Namespace, out: str) -> None:
    """Raise the errors of the target that are known before the source is read."""
    with wrong_call_if(ContainerError, OptionError):
        target = target_at(out, options.kind)
    if options.overwrite:
        return
    if not is_url(target.path) and target.group is None:
        refuse_existing(target.path, False)
    elif _holds_tensor(out, limits_of(options)):
        raise PathExistsError(Problem(out, "already exists; pass overwrite=True"))


def _holds_tensor(place: str, limits: Limits) -> bool:
    try:
        describe(place, limits=limits)
    except BinsparseError:  # nothing is there, or the write will say what is wrong with it
        return False
    return True


def _convert_in_parts(options: argparse.Namespace, out: str) -> None:
    best, format = options.format == BEST, options.format
    in_memory = (options.lenient, options.narrow, options.bitpacked, options.shape, options.duplicates, options.map)
    if best or any(in_memory):
        raise WrongCall(
            "--memory goes with --format (but not best), --overwrite and how arrays are stored; leave out the others"
        )
    limits = limits_of(options)
    with resolved(options.path) as source:
        text = source.kind.part("streaming") is not None  # which is read once
    if not text:
        open_tensor(options.path, limits=limits)  # a faulty source is not a wrong call
    wrong = (FormatError,) if text else (FormatError, ContainerError)
    arguments = {"memory": options.memory, "overwrite": options.overwrite, "limits": limits, **written_options(options)}
    with progress_bars() as progress, wrong_call_if(*wrong):
        convert(options.path, out, format, progress=progress, **arguments)


def _convert_in_memory(options: argparse.Namespace, out: str) -> None:
    format, map = options.format, options.map
    if format is not None:
        with wrong_call_if(FormatError):
            format, map = with_map(format, map)
    limits, chosen = limits_of(options), {"shape": options.shape, "duplicates": options.duplicates}
    with progress_bars() as step:
        step("reading")
        tensor = read(options.path, lenient=options.lenient, limits=limits, **chosen)
        if format == BEST:
            step("counting")
            specified = [name for name, kind in LEVELS.items() if kind.specified]  # which other programs read too
            format = advise(tensor, count=1, kinds=specified, limits=limits).best
            say(f"best format: {format}")
        with wrong_call_if(FormatError, ContainerError):
            if format is not None or map is not None:
                step("packing")
                tensor = _packed(tensor, format, map, limits)
            step("writing")
            how = {"narrow": options.narrow, "bitpacked": options.bitpacked, **written_options(options)}
            write(out, tensor, overwrite=options.overwrite, limits=limits, **how)


def _packed(tensor: Tensor, format: FormatLike | None, map: str | None, limits: Limits) -> Tensor:
    if map is None:
        return tensor if format is None else tensor.convert(format, limits=limits)
    chosen, whole = parse_map(map, tensor.shape), expanded(tensor)
    format = coordinates(len(chosen.groups)) if format is None else format
    if chosen == IndexMap.transpose(tensor.shape):
        return whole.without_map(format, limits=limits)
    return whole.convert(format, map=chosen, limits=limits)


def _repair(options: argparse.Namespace) -> int:
    arguments = {"duplicates": options.duplicates, "overwrite": options.overwrite, "limits": limits_of(options)}
    mended = repair(options.path, options.out, **arguments)
    if options.json:
        print_json({"path": options.out, "repairs": mended})
        return OK
    for text in mended or ["no faults found"]:
        print(escaped(text))
    return OK


COMMANDS: dict[str, tuple[Any, ...]] = {
    "convert": (
        _convert, "convert a tensor, or a table of entries, from any kind of file to any other",
        IN, LENIENT, OVERWRITE, OVERWRITE_FILE, LIMIT,
        argument("out", "PATH[:GROUP], whose suffix selects the kind of file", metavar="OUT"),
        argument("--format", "such as CSR, or 'dense, sparse(2) @ 2, 0, 1', or best for the smallest", type=format_of),
        argument("--map", "an index map, such as '0/2, 1/4, 0%%2, 1%%4' for blocks of 2 × 4; '0, 1' removes a map"),
        flag("--narrow", "store indices in the smallest integers that hold them"),
        flag("--bitpacked", "store indices in as few bits as possible; only this package reads them"),
        argument("--memory", "convert in parts, within this memory, such as 1G, as for a table", type=byte_count),
        argument("--shape", "shape of a .tns file or a table, such as 125,1790,112765", type=integers),
        argument("--duplicates", "how to merge duplicates of text and tables; error by default", choices=_DUPLICATES),
        building.COLUMNS, building.NULLS, *WRITTEN,
    ),
    "repair": (
        _repair, "repair a file that a strict reader refuses: write a new file and list the repairs", IN,
        argument("out", "a new path; its suffix selects the kind of file", metavar="OUT"),
        argument("--duplicates", "how to merge duplicates; an error by default", choices=_DUPLICATES[1:]),
        OVERWRITE, OVERWRITE_FILE, LIMIT,
    ),
}  # fmt: skip
