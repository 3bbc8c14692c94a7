"""The exceptions, which contain problems, and the explanation of failed calls."""

import contextlib
import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, SimpleNamespace, UnionType
from typing import Any, TypeVar

from .problems import EXTRAS, OTHER_ARGUMENTS, OVERFLOW_MESSAGES, REMEDIES, in_file
from .problems import Problem as Problem
from .problems import did_you_mean as did_you_mean

_MAX_LISTED = 9  # problems in a message


class BinsparseError(ValueError):
    """Base class of all errors of this package.

    `problems` contains every fault, at least one. `str` has a line for each of the first, at most ten lines. `file` is
    the path of the file that they concern, or None; each line begins with it.

    Parameters
    ----------
    problems : Problem, str or iterable of Problem
        Every fault, at least one.

    See Also
    --------
    Problem : One fault and its location.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.pack([[0, 9]], [1.0, 2.0], (5,), "CVEC")
    ... except bl.BinsparseError as error:
    ...     print(error)
    ...     print(error.problems[0].path)
    coords[0][1]: 9 is outside dimension 0 of size 5
    coords[0][1]
    """

    problems: tuple[Problem, ...]
    file: str | None = None

    def __init__(self, problems: Problem | str | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem("", problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        left = len(self.problems) - _MAX_LISTED
        lines = [in_file(problem, self.file) for problem in self.problems[: _MAX_LISTED if left > 1 else None]]
        lines[-1] += advice_on(self)
        return "\n".join([*lines, f"… and {left:,} more, in the attribute `problems`"] if left > 1 else lines)


def advice_on(error: BinsparseError) -> str:
    """The remedy for faults of a file whose messages have none."""
    about_data = isinstance(error, ArrayError | DescriptorError | ContainerError | IncompleteError | UnsafeError)
    own = any("; " in x.message for x in error.problems)
    return "; if the file is damaged, write or fetch it again" if error.file and about_data and not own else ""


@contextlib.contextmanager
def about_file(file: str) -> Iterator[None]:
    """A block in which errors concern a file: they begin with its path, unless they name another file."""
    try:
        yield
    except BinsparseError as error:
        error.file = error.file or file
        raise


class DescriptorError(BinsparseError):
    """The JSON header is not a Binsparse descriptor.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.read({"binsparse": {"binsparse": {"version": "0.1.0", "format": "CSR"}}})
    ... except bl.DescriptorError as error:
    ...     print(error)
    shape: missing
    number_of_stored_values: missing; read(…, lenient=True) repairs it
    data_types: missing
    """


class ArrayError(BinsparseError):
    """Arrays, coordinates or values are missing, out of range, repeated, or of a wrong length or type.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.pack([[0, 0]], 1.0, 3, "CVEC")
    ... except bl.ArrayError as error:
    ...     print(error)
    coords: (0,) is given more than once; pass duplicates='sum', or 'first' or 'last', to merge them
    """


class FormatError(BinsparseError):
    """A format cannot be parsed, or it cannot represent the tensor.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.parse_format("dense, sparse @ 0, 0")
    ... except bl.FormatError as error:
    ...     print(error)
    'dense, sparse @ 0, 0': transpose: expected a permutation of 0 … 1, got [0, 0]
    """


class ContainerError(BinsparseError):
    """A file, folder, group or store cannot be read or written.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.read("missing.h5")
    ... except bl.ContainerError as error:
    ...     print(error)
    missing.h5: no such file; check the path
    """


class LimitError(BinsparseError):
    """A limit was exceeded. The message names the field of `Limits` to raise.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.
    Limits : Limits of a call.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.pack([[0]], 1.0, 10**9, "dense", limits=bl.Limits(dense_bytes=10**6))
    ... except bl.LimitError as error:
    ...     print(error)
    the size in bytes of the dense levels is 8000000000, more than the limit dense_bytes=1000000;
    pass limits=Limits(dense_bytes=…)
    """


class UnsafeError(BinsparseError):
    """A file requires an unsafe action, such as following a link out of its folder.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import os
    >>> bl.write("linked.bspnpy", bl.pack([[0, 2]], [1.0, 2.0], 3, "CVEC"))
    >>> os.replace("linked.bspnpy/values.npy", "elsewhere.npy")
    >>> os.symlink(os.path.abspath("elsewhere.npy"), "linked.bspnpy/values.npy")
    >>> try:
    ...     bl.read("linked.bspnpy")
    ... except bl.UnsafeError as error:
    ...     print(error.problems[0].message)
    a symbolic link is not followed
    """


class IncompleteError(BinsparseError):
    """A file is incomplete: chunks or the header are missing.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import shutil
    >>> bl.write("cut.zarr", bl.pack([[0, 2]], [1.0, 2.0], 3, "CVEC"))
    >>> shutil.rmtree("cut.zarr/values/c")
    >>> try:
    ...     bl.read("cut.zarr")
    ... except bl.IncompleteError as error:
    ...     print(error)
    cut.zarr: values: chunks are missing; if the file is damaged, write or fetch it again
    """


class PathMissingError(ContainerError, FileNotFoundError):
    """The path does not exist."""


class TensorMissingError(ContainerError):
    """The file or the group exists, and contains no tensor."""


class PathExistsError(ContainerError, FileExistsError):
    """The path exists, and `overwrite` is False."""


class LabelError(BinsparseError, KeyError):
    """No coordinate has this label.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import pyarrow
    >>> tensor = bl.from_table(pyarrow.table({"item": ["pen", "ink"], "value": [1.5, 2.5]}), ["item"], "value", "CVEC")
    >>> try:
    ...     tensor.sel(item="pens")
    ... except bl.LabelError as error:
    ...     print(error)
    item: no label 'pens'; did you mean 'pen'?
    """


class OptionError(BinsparseError, TypeError):
    """An option does not apply here, or its value has a wrong type.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.write("a.npz", bl.pack([[0]], 1.0, 3, "CVEC"), chunks=3)
    ... except bl.OptionError as error:
    ...     print(error)
    chunks: does not apply to NPZ; leave it out
    """


class PackageMissingError(OptionError, ImportError):
    """A library is not installed."""


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """Raise PackageMissingError if an import in the block fails. The message says how to install what is missing."""
    try:
        yield
    except ImportError as error:
        raise PackageMissingError(f"{error}; pip install {EXTRAS[extra]}") from error


def raise_if(error: type[BinsparseError], problems: Iterable[Problem]) -> None:
    """Raise `error` with all problems, if there are any."""
    faults = tuple(problems)
    if faults:
        raise error(faults)


def check_choice(name: str, given: Any, choices: Any) -> None:
    """Raise OptionError for an option that is none of the strings of a Literal."""
    allowed = typing.get_args(choices)
    if given not in allowed:
        *first, last = map(repr, allowed)
        hint = f"; {meant.strip()}" if (meant := did_you_mean(given, allowed)) else ""
        raise OptionError(Problem(name, f"expected {', '.join(first)} or {last}, got {given!r:.40}{hint}"))


def refuse_memory(error: Exception, path: str = "") -> None:
    """Raise LimitError if `error` means that there is not enough memory; else return."""
    overflow = isinstance(error, OverflowError | ValueError) and not isinstance(error, BinsparseError)
    if isinstance(error, MemoryError) or (overflow and any(part in str(error) for part in OVERFLOW_MESSAGES)):
        what = f"there is not enough memory: {error}; request a smaller part, or give the process more memory"
        raise LimitError(Problem(path, what)) from error


def _fits(value: Any, hint: Any) -> bool:
    """Return False if an annotation does not allow the value; True if that is unknown."""
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is typing.Literal:
        return type(value) in map(type, parts)
    if kind in (int, float):
        return hasattr(value, "__index__") or (kind is float and hasattr(value, "__float__"))
    if parts and hasattr(kind, "__iter__") and not hasattr(kind, "keys"):  # an array is not a Sequence, but is accepted
        ordered = hasattr(kind, "__getitem__")
        several = hasattr(value, "__getitem__" if ordered else "__iter__") and getattr(value, "ndim", 1) > 0
        text = isinstance(value, bytes if str in parts else str | bytes)
        return several and not text and not (ordered and isinstance(value, Mapping))
    try:
        return isinstance(value, kind)
    except TypeError:  # Any, a type variable, a protocol
        return True


def _refuse_arguments(error: Exception, public: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Raise OptionError if Python or a library raised `error`, and an argument contradicts its annotation."""
    if isinstance(error, ContainerError) and error.__cause__ is not None:  # the error of the read
        error = error.__cause__  # type: ignore[assignment]
    if isinstance(error, BinsparseError) or not isinstance(error, TypeError | AttributeError | ValueError | KeyError):
        return
    try:
        signature = inspect.signature(public)
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the message of Python names missing or unknown arguments
        known = set(inspect.signature(public).parameters)
        group = {"group"} if public.__name__ in ("open", "read") and len(args) > 1 else set()
        for name in (kwargs.keys() | group) - known:
            if meant := did_you_mean(OTHER_ARGUMENTS.get(name, name), known) or REMEDIES.get(name):
                what = f"is no argument; {meant}see help({public.__qualname__})"
                raise OptionError(Problem(name, what)) from error
        return
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variadic or parameter.annotation is parameter.empty:
            continue
        annotated = SimpleNamespace(__annotations__={name: parameter.annotation})
        try:
            hint = typing.get_type_hints(annotated, vars(sys.modules[public.__module__]))[name]
        except (NameError, TypeError):  # a name that only type checkers import
            continue
        if not _fits(value, hint):
            made = parameter.annotation == "Tensor" and hasattr(value, "dtype")
            see = f"{'pass from_numpy(array), or format= to a sum; ' if made else ''}see help({public.__qualname__})"
            what = f"expected {parameter.annotation}, got {value!r:.40}; {see}"
            raise OptionError(Problem(name, what)) from error


def _explain(error: Exception, public: Callable[..., Any], args: Any, kwargs: Any) -> None:
    refuse_memory(error)
    _name_file(error, public, args)
    _refuse_arguments(error, public, args, kwargs)


def _name_file(error: Exception, public: Callable[..., Any], args: Any) -> None:
    """Name the file of an opened tensor in the error about one of its arrays."""
    if not isinstance(error, BinsparseError) or error.file is not None:
        return
    array = error.problems[0].path.partition("[")[0]
    for file, arrays in filter(None, (getattr(value, "_stored_at", None) for value in args)):
        if array in arrays and array not in inspect.signature(public).parameters:  # else the argument is at fault
            error.file = file


Public = TypeVar("Public", bound=Callable[..., Any])


def within_memory(public: Public) -> Public:
    """Decorate a public function, or all public members of a class.

    They raise LimitError if there is not enough memory, and OptionError if they failed and the type of an argument
    contradicts its annotation. Arguments are checked only after a failure, so that calls that work are not refused.

    Every public function that allocates has this decorator. No other code handles a lack of memory.
    """
    if isinstance(public, type):
        for name, member in list(vars(public).items()):
            if name.startswith("_") and not name.endswith("_"):
                continue
            if isinstance(member, property) and member.fget:
                setattr(public, name, property(within_memory(member.fget), doc=member.__doc__))
            elif isinstance(member, classmethod | staticmethod):
                setattr(public, name, type(member)(within_memory(member.__func__)))
            elif isinstance(member, FunctionType):
                member.__qualname__ = f"{public.__name__}.{name}"  # of a function of a module too
                setattr(public, name, within_memory(member))
        return public

    @functools.wraps(public)
    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            return public(*args, **kwargs)
        except Exception as error:
            _explain(error, public, args, kwargs)
            raise

    @functools.wraps(public)
    def generated(*args: Any, **kwargs: Any) -> Any:
        try:
            yield from public(*args, **kwargs)
        except Exception as error:
            _explain(error, public, args, kwargs)
            raise

    return generated if inspect.isgeneratorfunction(public) else made  # type: ignore[return-value]


class DialectWarning(UserWarning):
    """Lenient reading repaired a deviation from the specification.

    See Also
    --------
    read : Read a tensor into memory, and check everything.
    repair : Read a file leniently, and write the repaired tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import warnings
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2]], [1.0, 2.0], 3, "CVEC"))
    >>> store["binsparse"]["binsparse"]["shape"] = [3.0]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", bl.DialectWarning)
    ...     bl.read(store, lenient=True).shape
    (3,)
    >>> print(caught[0].message)
    shape[0]: 3.0 is not written as an integer
    """


def warn(message: str, category: type[Warning] = DialectWarning) -> None:
    """Warn at the line that called the package."""
    ours, frame, level = (__name__.partition(".")[0], "contextlib", "functools"), sys._getframe().f_back, 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
