"""What all commands say and how: tables, progress, JSON, messages, the exit status."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

OK, FAULTY_INPUT, WRONG_CALL = 0, 1, 2
PROGRAM = "binsparse-levels"


class WrongCall(Exception):
    """The call is wrong, whatever the input holds."""


@contextlib.contextmanager
def wrong_call_if(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors of these classes into WrongCall."""
    try:
        yield
    except errors as error:
        raise WrongCall(said(error)) from None


def said(error: Exception) -> str:
    return "; ".join(map(str, getattr(error, "problems", [error])))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: by rich if it is installed and standard output is a terminal, else as columns of plain text."""
    if sys.stdout.isatty():
        try:
            from rich import box
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            pass
        else:
            table = Table(*head, title=Text(title), title_justify="left", box=box.SIMPLE, show_header=bool(head))
            for row in rows:
                table.add_row(*(Text(cell) for cell in row))
            Console().print(table)
            return
    print(title)
    lines = [list(head), *rows] if head else list(rows)
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    for line in lines:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[..., None]]:
    """A function (stage, done, total) that draws a bar for each stage, if rich is installed and standard error is a
    terminal.
    """
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as bars:
                stages: dict[str, Any] = {}

                def show(stage: str, done: int = 0, total: int | None = None) -> None:
                    if stage not in stages:
                        stages[stage] = bars.add_task(stage, total=total)
                    bars.update(stages[stage], completed=done, total=total)

                yield show
            return
    yield lambda *_: None


def times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def escaped(text: str) -> str:
    """Text from a file, with control characters escaped, because a terminal obeys them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str) -> None:
    print(f"{PROGRAM}: {escaped(text)}", file=sys.stderr)


def fail(text: str, status: int) -> int:
    say(f"error: {text}")
    return status
