"""What can be wrong: faults as data, each with its place, raised together as one family of exceptions."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar


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


# What Python and numpy say of sizes that are larger than they can count; what they can is a MemoryError.
_BEYOND_COUNTING = (
    "array is too big", "Maximum allowed", "iterator is too large", "negative dimensions are not allowed", "C ssize_t",
    "index-sized integer",
)  # fmt: skip


def refuse_memory(error: Exception, path: str = "") -> None:
    """Raise LimitError, with the place, for an error that says that something does not fit into memory."""
    beyond = isinstance(error, OverflowError | ValueError) and not isinstance(error, BinsparseError)
    if isinstance(error, MemoryError) or (beyond and any(part in str(error) for part in _BEYOND_COUNTING)):
        what = f"there is not enough memory: {error}; ask for a smaller part, or give the process more"
        raise LimitError(Problem(path, what)) from error


Public = TypeVar("Public", bound=Callable[..., Any])


def within_memory(public: Public) -> Public:
    """A public function, or every public member of a class, that raises LimitError for what does not fit into memory.

    A decorator, and the one place where that is done: whatever allocates and is called from outside has it.
    """
    made: Any = public
    if isinstance(public, type):
        for name, member in list(vars(public).items()):
            if name.startswith("_") and not name.endswith("_"):
                continue
            if isinstance(member, property) and member.fget:
                setattr(public, name, property(within_memory(member.fget), doc=member.__doc__))
            elif isinstance(member, classmethod | staticmethod):
                setattr(public, name, type(member)(within_memory(member.__func__)))
            elif isinstance(member, FunctionType):
                setattr(public, name, within_memory(member))
        return public

    if inspect.isgeneratorfunction(public):

        @functools.wraps(public)
        def made(*args: Any, **kwargs: Any) -> Any:
            try:
                yield from public(*args, **kwargs)
            except Exception as error:
                refuse_memory(error)
                raise

    elif getattr(public, "__name__", "") == "__getitem__":  # where a fifth of a microsecond counts

        @functools.wraps(public)
        def made(self: Any, key: Any) -> Any:
            try:
                return public(self, key)
            except Exception as error:
                refuse_memory(error)
                raise

    else:

        @functools.wraps(public)
        def made(*args: Any, **kwargs: Any) -> Any:
            try:
                return public(*args, **kwargs)
            except Exception as error:
                refuse_memory(error)
                raise

    return made  # type: ignore[no-any-return]


class DialectWarning(UserWarning):
    """Lenient reading mended something that the specification does not allow."""
