"""The command line. Data goes to standard output, messages to standard error."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__
from .commands import building, converting, looking, showing, warming
from .commands.arguments import argument, flag
from .commands.terminal import (
    FAULTY_INPUT,
    INTERRUPTED,
    OK,
    PROGRAM,
    STATUSES,
    WRONG_CALL,
    WrongCall,
    fail,
    say,
)
from .errors import BinsparseError, DialectWarning, FormatError, OptionError, PathExistsError, within_memory
from .plugins import load_plugins

_EPILOG = "exit status:\n" + "\n".join(f"  {status:<4} {meaning}" for status, meaning in STATUSES.items())
_JSON = flag("--json", "print one JSON object, also for an error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Raises SystemExit for a wrong command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments of the command line; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    paths: list[str] = []
    as_json = "--json" in words
    with warnings.catch_warnings():
        warnings.simplefilter("always", DialectWarning)
        warnings.showwarning = lambda message, *_: say(f"warning: {message}")
        try:
            options = _parsed(words, as_json)
            if options.plugin:
                load_plugins(*options.plugin)
            given = vars(options)
            paths = [given[name] for name in ("path", "work", "out") if given.get(name)]
            status: int = within_memory(options.run)(options)
            print(end="", flush=True)  # also if standard output is closed
        except (WrongCall, OptionError, FormatError, PathExistsError, IndexError) as error:
            return fail(error, WRONG_CALL, json=as_json)
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except BinsparseError as error:
            return fail(error, FAULTY_INPUT, json=as_json, paths=paths)
        except OSError as error:  # those of files are a BinsparseError
            return fail(WrongCall(f"{error.filename or 'standard output'}: {error.strerror}"), FAULTY_INPUT)
        except KeyboardInterrupt:
            return fail(WrongCall("interrupted"), INTERRUPTED, json=as_json)
    return status


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongCall(f"{message}; see {self.prog} --help")


def _parsed(words: Sequence[str], as_json: bool) -> argparse.Namespace:
    """The parsed arguments. Prints errors and raises SystemExit, like argparse."""
    try:
        return _parser().parse_args(words)
    except WrongCall as error:
        raise SystemExit(fail(error, WRONG_CALL, json=as_json)) from None


@functools.cache  # a process may run many commands
def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    text = "Sparse tensors as trees of levels, in Binsparse files."
    parser = _Parser(prog=PROGRAM, description=text, epilog=_EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    loads = "load a plug-in, or a Python file, and run its code; may be repeated"
    parser.add_argument("--plugin", action="append", default=[], metavar="NAME", help=loads)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (run, text, *arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        for words, options in (*arguments, _JSON):
            command.add_argument(words, **options)
    return parser


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise WrongCall("completion requires shtab; pip install 'binsparse-levels[cli]'") from None
    print(shtab.complete(_parser(), options.shell))
    return OK


# The function of each command, its description, and its arguments.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    **looking.COMMANDS,
    **converting.COMMANDS,
    **building.COMMANDS,
    **showing.COMMANDS,
    **warming.COMMANDS,
    "completion": (
        _completion, "print a completion script of commands and options for a shell",
        argument("shell", "bash, zsh or tcsh", choices=["bash", "zsh", "tcsh"]),
    ),
}  # fmt: skip
