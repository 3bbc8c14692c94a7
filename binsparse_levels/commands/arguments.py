"""The arguments of commands, and the parsing of their values."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from ..containers.objects.codecs import COMPRESSIONS
from ..errors import did_you_mean
from ..io.kinds import KINDS
from ..limits import Limits

BEST = "best"


def argument(name: str, text: str | None, **options: Any) -> tuple[str, dict[str, Any]]:
    return name, {"help": text, **options}


def flag(name: str, text: str) -> tuple[str, dict[str, Any]]:
    return argument(name, text, action="store_true")


def byte_count(text: str) -> int:
    number, unit = text[:-1], text[-1:].upper()
    scale = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(unit)
    try:
        return int(float(number) * scale) if scale else int(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number of bytes, such as 1500M or 2G, got {text!r}") from None


def integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers separated by commas, got {text!r}") from None


def limit_of(text: str) -> tuple[str, int]:
    """NAME=NUMBER."""
    name, _, number = text.partition("=")
    known = [field.name for field in fields(Limits)]
    if name not in known:
        raise argparse.ArgumentTypeError(
            f"there is no limit {name!r}; {did_you_mean(name, known)}choose from {', '.join(known)}"
        )
    return name, byte_count(number)


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits of a call."""
    return Limits(**dict(options.limits))


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


PATH = argument("path", "PATH[:GROUP]", metavar="PATH")
PATHS = argument("paths", "PATH[:GROUP]; one or more", metavar="PATH", nargs="+")
IN = argument("path", "PATH[:GROUP]", metavar="IN")
LENIENT = flag("--lenient", "repair known deviations of other programs, and warn about each")
LIMIT = argument(
    "--limit", "change a limit on resources, such as dense_bytes=100G; may be repeated", metavar="NAME=NUMBER",
    dest="limits", action="append", default=[], type=limit_of,
)  # fmt: skip
OVERWRITE = flag("--overwrite", "replace OUT if it exists")
OVERWRITE_FILE = argument(
    "--overwrite-file", "replace the whole file of OUT, with all its contents", dest="overwrite", action="store_const",
    const="file",
)  # fmt: skip
STORAGE: tuple[Any, ...] = (
    argument("--compression", "of the arrays; the default depends on the kind of file", choices=list(COMPRESSIONS)),
    argument("--chunks", "number of items of a chunk", type=int),
    argument("--shards", "number of items of a shard", type=int),
    argument("--checksum", "store checksums of the header and of every array", action="store_true", default=None),
)
WRITTEN: tuple[Any, ...] = (
    *STORAGE,
    argument("--kind", "kind of file; by default, the suffix of OUT selects it", choices=sorted(KINDS), metavar="KIND"),
    argument("--spec-version", "version in the descriptor, such as 0.1 for programs that read no other"),
)


def written_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `write`."""
    keys = ("compression", "chunks", "shards", "checksum", "kind", "spec_version")
    return {key: getattr(options, key) for key in keys if getattr(options, key) is not None}
