"""What can be wrong: faults as data, each with its place, raised together as one family of exceptions."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where (`custom.level.rank`, `indices_1[1234]`) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)  # a terminal would obey some of them


class BinsparseError(ValueError):
    """Base of all errors of this package. `problems` is never empty; `str` gives a line for each."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Problem | str | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem("", problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class DescriptorError(BinsparseError):
    """The JSON header is not a Binsparse descriptor."""


class ArrayError(BinsparseError):
    """Arrays, coordinates or values that do not fit: missing, of a wrong length or type, out of range, repeated."""


class FormatError(BinsparseError):
    """A format that cannot be read as one, or a tensor that a format cannot hold."""


class ContainerError(BinsparseError):
    """The container (file, group) is not what it should be."""


class LimitError(BinsparseError):
    """A limit was passed; the message names the field of `Limits` that raises it."""


class UnsafeError(BinsparseError):
    """The file asks for something that a file must not ask for."""


class IncompleteError(BinsparseError):
    """The file was not written to its end."""


class PathMissingError(ContainerError, FileNotFoundError):
    """Nothing is there to be read."""


class PathExistsError(ContainerError, FileExistsError):
    """Something is there already, and overwriting was not asked for."""


class OptionError(BinsparseError, TypeError):
    """An option that does not apply here."""


def raise_if(error: type[BinsparseError], problems: Iterable[Problem]) -> None:
    """Raise `error` with all the problems, if there are any."""
    found = tuple(problems)
    if found:
        raise error(found)


class DialectWarning(UserWarning):
    """Lenient reading mended something that the specification does not allow."""
