"""The output of all commands: tables, JSON, messages, exit status."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..containers import replacing
from ..containers.base import split_path
from ..errors import BinsparseError, FormatError, OptionError, PathExistsError, advice_on, within_memory
from ..looking.tables import as_text
from ..problems import in_file
from ..system import STANDARD_OUTPUT
from ..tensors.late_imports import functions
from ..tensors.tensor import Tensor

OK, FAULTY_INPUT, WRONG_CALL, INTERRUPTED = 0, 1, 2, 130
STATUSES = {
    OK: "success",
    FAULTY_INPUT: "a faulty or missing input",
    WRONG_CALL: "a wrong call, or a target that exists",
    INTERRUPTED: "interrupted by Ctrl-C",
}
PROGRAM = "binsparse-levels"
_MAX_LISTED = 5  # faults in a message

# Arguments of functions in messages, and the options of the command line.
_OPTIONS = [
    (re.compile(pattern), option)
    for pattern, option in {
        r"limits=Limits\((\w+)=…\)": r"--limit \1=…",
        r"read\(…, lenient=True\)": "--lenient",
        "overwrite='file'": "--overwrite-file",
        r"\b(overwrite|lenient|narrow|bitpacked|dictionary|checksum)=True": r"--\1",
        r"\b(duplicates|nulls|kind|shape|memory|columns|compression)='?([\w…]+)'?": r"--\1 \2",
        r"\blist_tensors\b": "`list`",
    }.items()
]


class WrongCall(Exception):
    """The call is wrong for every input."""


@contextlib.contextmanager
def wrong_call_if(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors of these classes into WrongCall."""
    try:
        yield
    except errors as error:
        raise WrongCall(error_text(error)) from None


def error_name(error: BaseException) -> str:
    """The name of the class of an error; for a class that is not public, of its public base."""
    public = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == BinsparseError.__module__]
    return public[0] if public else type(error).__name__


def error_text(error: BaseException) -> str:
    """An error as text, with the remedies of the command line."""
    if not isinstance(error, BinsparseError):
        return as_options(str(error))
    first, *others = error.problems
    problems = [in_file(first, error.file), *map(str, others)]
    left = len(problems) - _MAX_LISTED
    text = "; ".join([*problems[:_MAX_LISTED], f"and {left:,} more; `check` lists all"] if left > 0 else problems)
    return as_options(text + advice_on(error))


def as_options(text: str) -> str:
    """A message with command-line options instead of arguments of functions. Calls are marked as Python."""
    for pattern, option in _OPTIONS:
        text = pattern.sub(option, text)
    return _calls().sub(r"\g<0> in Python", text)


@functools.cache
def _calls() -> re.Pattern[str]:
    """Calls of public functions and of methods, which may be chained, and names with an underscore, in a message."""
    names = sorted({*functions(), *(name for name in dir(Tensor) if name[0] != "_")})
    called, named = "|".join(names), "|".join(name for name in names if "_" in name)
    call = r"\([^()]*\)"
    return re.compile(rf"(?<![\w.`])(?:(?:{called}){call}(?:\.\w+{call})*+|(?:{named})\b(?![(=]))(?! \(?in Python)")


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as columns of plain text."""
    print(title)
    for line in as_text(head, rows).splitlines():
        print(f"  {line}")


def is_standard_output(path: str) -> bool:
    """Return True for a path that stands for standard output."""
    return path in ("-", STANDARD_OUTPUT)


def write_text(options: argparse.Namespace, path: str, text: str, **facts: Any) -> None:
    """Write text to a path, or to standard output. facts: printed by --json in addition to the path."""
    if is_standard_output(path):
        if options.json:
            raise WrongCall("--json and - both write to standard output; omit one")
        print(text, end="")
        return
    replacing.write_text(path, text, options.overwrite)
    if options.json:
        print_json({"path": path, **facts})


def times(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "scalar"


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


def reported(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command, report its error if it fails, and return the exit status."""
    given = vars(options)
    paths = [given[name] for name in ("path", "work", "out") if given.get(name)]
    try:
        return within_memory(run)(options)
    except (WrongCall, OptionError, FormatError, PathExistsError, IndexError) as error:
        return fail(error, WRONG_CALL, json=options.json)
    except BinsparseError as error:
        return fail(error, FAULTY_INPUT, json=options.json, paths=paths)


def for_each_path(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command for several paths. After an error, it continues with the next path."""

    def run_each(options: argparse.Namespace) -> int:
        each = [argparse.Namespace(**vars(options), path=path) for path in options.paths]
        return max(reported(run, one) for one in each)

    return run_each


def note(options: argparse.Namespace, text: str) -> None:
    """A message that --quiet and --json omit."""
    if not options.quiet and not options.json:
        say(text)


def fail(error: BaseException, status: int, *, json: bool = False, paths: Sequence[str] = ()) -> int:
    """Print an error as JSON on standard output, or as text on standard error, and return the status.

    paths: those of the call. The first is printed before an error that names none of them.
    """
    if json:
        faults = [{"path": x.path, "message": as_options(x.message)} for x in getattr(error, "problems", ())]
        faults = faults or [{"path": "", "message": error_text(error)}]
        print_json({"path": next(iter(paths), None), "ok": False, "error": error_name(error), "problems": faults})
        return status
    text = error_text(error)
    named = not paths or any(split_path(path)[0] in text for path in paths)
    say(f"error: {text}" if named else f"error: {paths[0]}: {text}")
    return status
