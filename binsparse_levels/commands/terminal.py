"""The output of all commands: tables, JSON, messages, exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..containers import replacing
from ..containers.base import split_path
from ..looking.tables import as_text
from ..system import STANDARD_OUTPUT

OK, FAULTY_INPUT, WRONG_CALL, INTERRUPTED = 0, 1, 2, 130
STATUSES = {
    OK: "success",
    FAULTY_INPUT: "a faulty or missing input",
    WRONG_CALL: "a wrong call, or a target that exists",
    INTERRUPTED: "interrupted by Ctrl-C",
}
PROGRAM = "binsparse-levels"
_MAX_LISTED = 5  # faults in a message
_LIMIT = re.compile(r"limits=Limits\((\w+)=…\)")


class WrongCall(Exception):
    """The call is wrong for every input."""


@contextlib.contextmanager
def wrong_call_if(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors of these classes into WrongCall."""
    try:
        yield
    except errors as error:
        raise WrongCall(error_text(error)) from None


def error_text(error: BaseException) -> str:
    """An error as text, with the remedies of the command line."""
    problems = list(map(str, getattr(error, "problems", [error])))
    left = len(problems) - _MAX_LISTED
    text = "; ".join([*problems[:_MAX_LISTED], f"and {left:,} more; `check` lists all"] if left > 0 else problems)
    return _as_options(text)


def _as_options(text: str) -> str:
    """A message with command-line options instead of arguments of functions."""
    for argument, option in (("overwrite=True", "--overwrite"), ("overwrite='file'", "--overwrite-file")):
        text = text.replace(argument, option)
    return _LIMIT.sub(r"--limit \1=…", text)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as columns of plain text."""
    print(title)
    for line in as_text(head, rows).splitlines():
        print(f"  {line}")


def write_text(options: argparse.Namespace, path: str, text: str, **facts: Any) -> None:
    """Write text to a path, or to standard output. facts: printed by --json in addition to the path."""
    if path in ("-", STANDARD_OUTPUT):
        if options.json:
            raise WrongCall("--json and - both write to standard output; omit one")
        print(text, end="")
        return
    replacing.write_text(path, text, options.overwrite)
    if options.json:
        print_json({"path": path, **facts})


def times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def escaped(text: str) -> str:
    """Text from a file, with control characters escaped, because a terminal executes them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count_of(faults: Sequence[Any]) -> str:
    return f"{len(faults)} fault{'s' * (len(faults) > 1)}"


def say(text: str) -> None:
    erased = "\r\x1b[K" if sys.stderr.isatty() else ""  # a bar may be on the line
    print(f"{erased}{PROGRAM}: {escaped(text)}", file=sys.stderr)


def fail(error: BaseException, status: int, *, json: bool = False, paths: Sequence[str] = ()) -> int:
    """Print an error as JSON on standard output, or as text on standard error, and return the status.

    paths: those of the call. The first is printed before an error that names none of them.
    """
    if json:
        faults = [{"path": x.path, "message": _as_options(x.message)} for x in getattr(error, "problems", ())]
        faults = faults or [{"path": "", "message": error_text(error)}]
        print_json({"path": next(iter(paths), None), "ok": False, "error": type(error).__name__, "problems": faults})
        return status
    text = error_text(error)
    named = not paths or any(split_path(path)[0] in text for path in paths)
    say(f"error: {text}" if named else f"error: {paths[0]}: {text}")
    return status
