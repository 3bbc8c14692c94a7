"""The command line. Data goes to standard output, messages to standard error."""

from __future__ import annotations

import argparse
import functools
import os
import re
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
    as_options,
    fail,
    reported,
    say,
)
from .errors import DialectWarning, did_you_mean, needing
from .plugins import load_plugins

_EPILOG = "exit status:\n" + "\n".join(f"  {status:<4} {meaning}" for status, meaning in STATUSES.items())
_JSON = flag("--json", "print one JSON object, also for an error; one for each PATH")
_QUIET = flag("--quiet", "print no warnings, notes and progress, only results and errors")


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
    as_json, quiet = "--json" in words, "--quiet" in words
    with warnings.catch_warnings():
        warnings.simplefilter("always", DialectWarning)
        warnings.showwarning = lambda message, *_: None if quiet else say(as_options(f"warning: {message}"))
        try:
            status = reported(_run, _parsed(words, as_json))
            print(end="", flush=True)  # also if standard output is closed
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except OSError as error:  # those of files are a BinsparseError
            return fail(WrongCall(f"{error.filename or 'standard output'}: {error.strerror}"), FAULTY_INPUT)
        except KeyboardInterrupt:
            return fail(WrongCall("interrupted"), INTERRUPTED, json=as_json)
    return status


def _run(options: argparse.Namespace) -> int:
    if options.plugin:
        load_plugins(*options.plugin)
    status: int = options.run(options)
    return status


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if choice := _CHOICE.fullmatch(message):
            before, given, choices = choice.groups()
            meant = did_you_mean(given, re.findall(r"[\w.-]+", choices))
            message = f"{before}invalid choice: {given!r}; {meant}choose from {choices}"
        raise WrongCall(f"{message}{'' if message.endswith('?') else ';'} see {self.prog} --help")


_CHOICE = re.compile(r"(.*)invalid choice: '(.*)' \((?:choose from )(.*)\)")  # a message of argparse


def _parsed(words: Sequence[str], as_json: bool) -> argparse.Namespace:
    """The parsed arguments. Prints errors and raises SystemExit, like argparse."""
    try:
        options, unknown = _parser().parse_known_args(words)
        if unknown:
            known = [name for action in options.parser._actions for name in action.option_strings]
            meant = did_you_mean(unknown[0].partition("=")[0], known)
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant and f'; {meant.strip()}'}")
        return options
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
    for name, (run, text, examples, *arguments) in _COMMANDS.items():
        shown = "examples:\n" + "\n".join(f"  {PROGRAM} {name} {example}".rstrip() for example in examples)
        command = commands.add_parser(name, help=text, description=text, epilog=shown, formatter_class=raw)
        command.set_defaults(run=run, parser=command)
        for words, options in (*arguments, _JSON, _QUIET):
            command.add_argument(words, **options)
    return parser


def _completion(options: argparse.Namespace) -> int:
    with needing("cli"):
        import shtab
    print(shtab.complete(_parser(), options.shell))
    return OK


# The function of each command, its description, examples without its name, and its arguments.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    **looking.COMMANDS,
    **converting.COMMANDS,
    **building.COMMANDS,
    **showing.COMMANDS,
    **warming.COMMANDS,
    "completion": (
        _completion, "print a completion script of commands and options for a shell",
        ["bash > ~/.local/share/bash-completion/completions/binsparse-levels"],
        argument("shell", "bash, zsh or tcsh", choices=["bash", "zsh", "tcsh"]),
    ),
}  # fmt: skip
