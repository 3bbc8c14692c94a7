"""What all commands say and how: tables, progress, JSON, messages, the exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..containers import replacing
from ..containers.base import split_path
from ..errors import ContainerError
from ..looking.tables import as_text
from ..system import STANDARD_OUTPUT

OK, FAULTY_INPUT, WRONG_CALL, INTERRUPTED = 0, 1, 2, 130
STATUSES = {
    OK: "success; diff: both tensors are equal",
    FAULTY_INPUT: "a faulty or missing input; diff: the tensors differ",
    WRONG_CALL: "a wrong call, or a target that exists; diff: also a faulty or missing input",
    INTERRUPTED: "interrupted by Ctrl-C",
}
PROGRAM = "binsparse-levels"
_LISTED = 5  # faults in a message
_LIMIT = re.compile(r"limits=Limits\((\w+)=…\)")


class WrongCall(Exception):
    """The call is wrong, whatever the input holds."""


@contextlib.contextmanager
def wrong_call_if(*errors: type[Exception], option: str = "") -> Iterator[None]:
    """Turn errors of these classes into WrongCall. option: what the message begins with."""
    try:
        yield
    except errors as error:
        text = said(error).removeprefix(option.lstrip("-") + ": ")
        raise WrongCall(f"{option}: {text}" if option and option not in text else text) from None


def said(error: BaseException) -> str:
    """An error as text, whose remedies are those of the command line."""
    problems = list(map(str, getattr(error, "problems", [error])))
    left = len(problems) - _LISTED
    text = "; ".join([*problems[:_LISTED], f"and {left:,} more; `check` lists all"] if left > 0 else problems)
    return _as_options(text)


def _as_options(text: str) -> str:
    """A message with options of the command line in place of arguments of functions."""
    for argument, option in (("overwrite=True", "--overwrite"), ("overwrite='file'", "--overwrite-file")):
        text = text.replace(argument, option)
    return _LIMIT.sub(r"--limit \1=…", text)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as columns of plain text."""
    if title:
        print(title)
    for line in as_text(head, rows).splitlines():
        print(f"  {line}")


def _show(bars: Any, stages: dict[str, Any], stage: str, done: int = 0, total: int | None = None) -> None:
    """Move the bar of a stage. stages: the bars that were begun."""
    if stage not in stages:
        for task in bars.tasks:
            if task.total is None:
                bars.update(task.id, total=1, completed=1)
        stages[stage] = bars.add_task(stage, total=total)
    done, total = (1, 1) if total == 0 else (done, total)  # nothing to do is done
    bars.update(stages[stage], completed=done, total=total)


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[..., None]]:
    """A function (stage, done, total) that draws a bar for each stage, if rich is installed and standard error is a
    terminal. A stage without a total moves until the next begins.
    """
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as bars:
                yield partial(_show, bars, {})
            return
    yield lambda *_: None


def is_standard(path: str | None) -> bool:
    """Whether a path means standard output."""
    return path in ("-", STANDARD_OUTPUT)


def write_text(options: argparse.Namespace, path: str, text: str) -> None:
    """Write text to a path, or to standard output."""
    if is_standard(path):
        if options.json:
            raise WrongCall("--json and - both write to standard output; leave one out")
        print(text, end="")
        return
    with wrong_call_if(ContainerError):
        replacing.write_text(path, text, options.overwrite)


def tell_written(options: argparse.Namespace, path: str, **facts: Any) -> None:
    """Tell that a file was written. facts: more to tell with --json."""
    if not is_standard(path):
        tell(options, {"path": path, "bytes": size_at(path), **facts}, f"wrote {path}")


def size_at(path: str) -> int | None:
    """The bytes of a local file or folder; None of what is elsewhere."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(map(os.path.getsize, files)) if files else None


def times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def escaped(text: str) -> str:
    """Text from a file, with control characters escaped, because a terminal obeys them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count_of(faults: Sequence[Any]) -> str:
    return f"{len(faults)} fault{'s' * (len(faults) > 1)}"


def say(text: str) -> None:
    print(f"{PROGRAM}: {escaped(text)}", file=sys.stderr)


def tell(options: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    """Say what was done: as JSON with --json, as text at a terminal, and else not at all."""
    if options.json:
        print_json(facts)
    elif sys.stderr.isatty():
        say(text)


def fail(error: BaseException, status: int, *, json: bool = False, paths: Sequence[str] = ()) -> int:
    """Say an error, as JSON on standard output, or else on standard error behind the path that it is about.

    paths: those of the call. An error that names none of them is about the first.
    """
    if json:
        faults = [{"path": x.path, "message": _as_options(x.message)} for x in getattr(error, "problems", ())]
        faults = faults or [{"path": "", "message": said(error)}]
        print_json({"path": next(iter(paths), None), "ok": False, "error": type(error).__name__, "problems": faults})
        return status
    text = said(error)
    named = not paths or any(split_path(path)[0] in text for path in paths)
    say(f"error: {text}" if named else f"error: {paths[0]}: {text}")
    return status
