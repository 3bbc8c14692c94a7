"""The laws of a kind of file, each a function of a file, and all of them in one call."""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..building import convert
from ..containers.interface import Container
from ..errors import BinsparseError, DialectWarning, FormatError, OptionError
from ..formats.format import coordinates
from ..io import KINDS, Foreign, Kind, StoreLike, describe, list_tensors, open, read, read_all, write
from ..io.kinds import resolved
from ..system import bounded_memory
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor
from .files import check_same, keys_of
from .kinds import MAX_BYTES, Held

_DENSE = 2**20  # cells that are compared one by one
_MISSING = "no such name"


@dataclass
class FileCase:
    """A file of a kind. expected: tensors by name, from its own program. folder: for copies."""

    name: str
    path: StoreLike
    expected: Mapping[str, Any]
    folder: str
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise OptionError(f"kind: unknown kind {self.name!r:.40}; call register_kind first")
        self.kind = KINDS[self.name]

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file by name, in memory."""
        return {name: read(self.place(name)) for name in list_tensors(self.path)}

    @property
    def in_files(self) -> bool:
        return isinstance(self.path, str | os.PathLike)

    def place(self, name: str) -> StoreLike:
        return f"{os.fspath(self.path)}:{name}" if self.in_files else self.path

    def target(self, name: str) -> str:
        """A path in the folder, with the suffix of the kind."""
        return os.path.join(self.folder, name + (*self.kind.suffixes, "")[0])


def check_same_labels(again: Tensor, tensor: Tensor) -> None:
    """Assert that two tensors have the same labels."""
    assert again.dims == tensor.dims, f"the dimensions have the names {again.dims}, not {tensor.dims}"
    for dim in tensor.dims or ():
        labels = [[] if (x := t.labels(dim)) is None else x.tolist() for t in (again, tensor)]
        assert labels[0] == labels[1], f"the labels of {dim} are others"


def _check_equal(again: Tensor, tensor: Tensor) -> None:
    check_same(again, tensor)
    check_same_labels(again, tensor)


def check_functions(case: FileCase) -> None:
    """`FUNCTIONS` has one reader, and it accepts the options that `reads` and `writes` name."""
    functions = case.kind.functions
    if isinstance(functions, Container):
        return
    readers = [x for x in (functions.look, functions.streaming, functions.read) if x is not None]
    assert len(readers) == 1, "FUNCTIONS has several readers or none; give one of look, streaming and read"
    ours = {"duplicates", "check"} if functions.read is None else set()  # options of the package, after a reader
    _check_options(readers[0], {"limits", *case.kind.reads} - ours)
    if functions.write is not None:
        _check_options(functions.write, {"overwrite", *case.kind.writes, *case.kind.options})


def _check_options(function: Callable[..., Any], names: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    if all(x.kind is not x.VAR_KEYWORD for x in parameters.values()):
        lacking = sorted(names - parameters.keys())
        assert not lacking, f"{function.__name__} lacks the keyword {', '.join(lacking)}"


def check_recognised(case: FileCase) -> None:
    """The file is recognised as of this kind, or as of one with the same reader."""
    for name in case.tensors:
        with resolved(case.place(name)) as location:
            found, known = _readers(location.kind.functions), _readers(case.kind.functions)
            assert found == known, f"{name} is recognised as {location.name}; see the marks of Kind, and claims"


def _readers(functions: Container | Foreign) -> tuple[Any, ...]:
    if isinstance(functions, Container):
        return (functions.reading,)
    return functions.look, functions.streaming, functions.read


def check_listed(case: FileCase) -> None:
    """Every name of `list_tensors` is read, opened and described, and `read_all` has the same names."""
    names = list_tensors(case.path)
    assert names, "list_tensors names nothing; see list_groups and claims"
    assert len({*names}) == len(names), "list_tensors lists a name twice"
    assert {*case.expected} <= {*names}, f"list_tensors lacks {sorted({*case.expected} - {*names})}"
    for name in names:
        tensor, described = case.tensors[name], describe(case.place(name)).descriptor
        shape = (described.map or described).shape
        assert shape == tensor.shape, f"describe has the shape {shape}, not {tensor.shape}"
    whole = read_all(case.path)
    assert ["/" if name is None else name for name in whole] == names, "read_all has other names than list_tensors"
    for name, tensor in zip(names, whole.values(), strict=True):
        _check_equal(tensor, case.tensors[name])


def check_expected(case: FileCase) -> None:
    """`read` returns the numbers that the program of the kind wrote, and its labels, if these are given."""
    for name, given in case.expected.items():
        found, wanted = case.tensors[name], as_tensor(given)
        _check_numbers(found, wanted)
        if wanted.dims is not None:
            check_same_labels(found, wanted)


def _check_numbers(again: Tensor, tensor: Tensor) -> None:
    """Assert that two tensors have the same numbers. Formats and stored zeros may differ."""
    assert again.shape == tensor.shape, f"the shape is {again.shape}, not {tensor.shape}"
    if tensor.size <= _DENSE:
        found, wanted = (x.to_dense(0) if x.fill_value is None else x.to_dense() for x in (again, tensor))
        assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc"), "the numbers are others"
    else:
        every = coordinates(tensor.ndim)
        assert again.convert(every).equals(tensor.convert(every)), "the numbers are others"


def check_opened(case: FileCase) -> None:
    """An opened tensor, loaded, is the tensor that `read` returns."""
    for name, tensor in case.tensors.items():
        with open(case.place(name)) as opened:
            assert (opened.shape, opened.dtype) == (tensor.shape, tensor.dtype), "open has another shape or type"
            _check_equal(opened.load(), tensor)


def check_slices(case: FileCase) -> None:
    """A slice of an opened tensor has the numbers and the labels of the same slice in memory."""
    for name, tensor in case.tensors.items():
        with open(case.place(name)) as opened:
            for key in keys_of(tensor.shape):
                found, wanted = opened[key], tensor[key]
                if isinstance(wanted, Tensor):
                    assert found.load().equals(wanted), f"[{key}] of the opened file is wrong"
                    check_same_labels(found, wanted)
                else:
                    assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc"), f"[{key}] is wrong"


def check_converted(case: FileCase) -> None:
    """A conversion to a file of this package keeps numbers and metadata."""
    for k, (name, tensor) in enumerate(case.tensors.items()):
        target = os.path.join(case.folder, f"converted{k}.h5")
        convert(case.place(name), target)
        _check_equal(read(target), tensor)


def check_written(case: FileCase) -> None:
    """`write` gives a file of the same numbers and labels, and replaces no file unless `overwrite` is passed.

    A kind without `write` refuses to write, and a kind may refuse a tensor that it cannot represent.
    """
    functions, target = case.kind.functions, case.target("written")
    tensor = next(iter(case.tensors.values()))
    if not case.in_files:
        return
    if isinstance(functions, Foreign) and functions.write is None:
        with _refused("a kind without write", OptionError):
            write(target, tensor, kind=case.name)
        return
    try:
        write(target, tensor, kind=case.name)
    except FormatError:
        assert not os.path.lexists(target), "a write that was refused has left a file"
        return
    again = read(target)
    _check_numbers(again, tensor)
    check_same_labels(again, tensor)
    with _refused("a path that exists", FileExistsError):
        write(target, tensor, kind=case.name)
    assert read(target).equals(again), "a write that was refused has changed the file"
    write(target, tensor, kind=case.name, overwrite=True)
    assert read(target).equals(again), "a file that replaces another has other numbers"


def check_refusals(case: FileCase) -> None:
    """A missing file, an unknown name and an unknown option are refused, with a remedy."""
    with _refused("an unknown option", OptionError):
        read(case.path, banana=1)
    if not case.in_files:
        return
    for call in (read, open):
        with _refused("a missing file", FileNotFoundError):
            call(os.path.join(case.folder, "missing", os.path.basename(case.path)))
        with _refused("an unknown name", BinsparseError):
            call(case.place(_MISSING))


@contextlib.contextmanager
def _refused(what: str, kind: type[Exception]) -> Iterator[None]:
    """Assert that the block raises a BinsparseError of this class, which names a remedy."""
    refusal: Exception | None = None
    try:
        yield
    except Exception as error:
        refusal = error
    assert refusal is not None, f"{what} is not refused"
    ours = isinstance(refusal, BinsparseError) and isinstance(refusal, kind)
    assert ours, f"{what} raises {type(refusal).__name__}: {refusal}; raise a BinsparseError that is {kind.__name__}"
    assert ";" in str(refusal), f"the error of {what} names no remedy: {refusal}"


def check_damaged(case: FileCase) -> None:
    """Truncated copies are read, or refused by a BinsparseError; so are folders without a file."""
    if not case.in_files:
        return
    for path, what in _damaged(os.fspath(case.path), case.folder):
        for call in (list_tensors, read, lambda path: open(path).load(), describe):
            try:
                call(path)
            except BinsparseError:
                continue
            except Exception as error:
                raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def _damaged(path: str, folder: str) -> Iterator[tuple[str, str]]:
    """Damaged copies of a file or a folder, and the damage of each."""
    copy = os.path.join(folder, "damaged", os.path.basename(path.rstrip("/")))
    os.mkdir(os.path.dirname(copy))
    if not os.path.isdir(path):
        size = os.path.getsize(path)
        for length in sorted({0, 1, size // 8, size // 2, size * 7 // 8, size - 1}):
            shutil.copyfile(path, copy)
            os.truncate(copy, length)
            yield copy, f"a file cut to {length} of {size} bytes"
        return
    files = [os.path.relpath(os.path.join(at, name), path) for at, _, names in os.walk(path) for name in names]
    for file in sorted(files)[:: max(len(files) // 8, 1)]:
        for change in (os.remove, lambda name: os.truncate(name, os.path.getsize(name) // 2)):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
            change(os.path.join(copy, file))
            yield copy, f"a folder whose {file} is missing or cut"


_LAWS: tuple[tuple[str, Callable[[FileCase], None]], ...] = (
    ("functions have their parameters", check_functions),
    ("the file is recognised", check_recognised),
    ("what is listed can be read", check_listed),
    ("read returns what was stored", check_expected),
    ("open equals read", check_opened),
    ("slices equal those in memory", check_slices),
    ("a conversion keeps everything", check_converted),
    ("write and read are inverse", check_written),
    ("refusals name a remedy", check_refusals),
    ("damage raises no foreign error", check_damaged),
)


def check_file_kind(kind: str, path: StoreLike, expected: Mapping[str, Any] | None = None) -> list[Held]:
    """Check all laws of a kind of file for a file of it, print a line for each law, and return these lines.

    Parameters
    ----------
    kind : str
        Its name in `KINDS`; see `register_kind`.
    path : str, PathLike, group, store or mapping
        A file, if possible one that the program of the kind wrote. It is not changed.
    expected : mapping, optional
        What the file contains, by the names of `list_tensors`: tensors, or arrays that `as_tensor` accepts, such as
        those of numpy and scipy.

    Raises
    ------
    AssertionError
        Some laws are broken. The message lists them.
    OptionError
        The kind is not registered.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels import testing
    >>> tensor = bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    >>> bl.write("law.mtx", tensor)
    >>> held = testing.check_file_kind("matrix_market", "law.mtx", {"/": tensor})  # doctest: +ELLIPSIS
    functions have their parameters      holds
    the file is recognised               holds
    what is listed can be read           holds
    ...
    """
    results: list[Held] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DialectWarning)
        case = FileCase(kind, path, expected or {}, folder)
        for name, law in _LAWS:
            problem = ""
            try:
                with bounded_memory(MAX_BYTES):  # a reader of a damaged file must not exhaust the memory
                    law(case)
            except Exception as error:
                said = f"{error}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                problem = " ".join(said.split())[:300] or "an assertion failed"
            results.append(Held(name, not problem, problem))
            print(results[-1])
    if broken := [str(x) for x in results if not x.holds]:
        raise AssertionError("\n".join([f"{kind}: {len(broken)} of {len(results)} laws are broken", *broken]))
    return results
