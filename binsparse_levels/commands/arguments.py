"""The arguments of commands, and how their words become values."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import FormatError
from ..formats.format import parse_format

BEST = "best"


def argument(name: str, text: str | None, **options: Any) -> tuple[str, dict[str, Any]]:
    return name, {"help": text, **options}


def flag(name: str, text: str) -> tuple[str, dict[str, Any]]:
    return argument(name, text, action="store_true")


def format_of(text: str) -> str:
    try:
        if text != BEST:
            parse_format(text, rank=2)  # the tensor tells the rank of COO and CSF
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


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


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
