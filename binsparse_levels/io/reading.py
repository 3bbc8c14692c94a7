"""Read and open tensors; list the tensors of a file."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..arrays import File, LazyArray
from ..containers.base import ORDERS, Reader, is_url, wrap_errors
from ..containers.interface import Container
from ..engine.tree import Duplicates
from ..errors import (
    ArrayError,
    BinsparseError,
    PathMissingError,
    Problem,
    TensorMissingError,
    did_you_mean,
    warn,
    within_memory,
)
from ..formats.extensions import PARTS
from ..limits import DEFAULT_LIMITS, Limits
from ..log import LOG
from ..tensors.backing import Check, TreeBacking
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor, inside
from .coordinates import add_coordinates
from .file_tensors import Loading, loaded_tensor, named, opened_tensor
from .interface import Foreign, Stream, refuse
from .kinds import Location, StoreLike, claims_in, resolved
from .orders import check_order, order_names, within
from .parts import joined_tensor

_MAX_NAMED = 5  # tensors in an error


@within_memory
def read(
    path: StoreLike,
    *,
    lenient: bool = False,
    check: Check = "full",
    shape: int | Sequence[int] | None = None,
    duplicates: Duplicates | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> Tensor:
    """Read a tensor into memory, and check everything.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        PATH[:GROUP], a URL, a Zarr store, an open group of h5py or zarr, or a mapping.
    lenient : bool, default False
        Repair a fixed list of deviations of other programs. Each repair is reported by a DialectWarning.
    check : {'full', 'trusted', 'none'}, default 'full'
        See Tensor.
    shape : int or sequence of int, optional
        The shape, for files without one: .tns, where the largest coordinates are the default, and weights of xESMF.
    duplicates : {'error', 'sum', 'first', 'last'}, optional
        Treatment of repeated coordinates; "error" by default. Files other than text may contain them only if read
        leniently.
    limits : Limits, optional
        Bounds on sizes that a file may claim.
    **options
        Options of one kind of file, such as `name` for sscdf or `order` for RawArray. The module in `io/files`
        documents them under `read`.

    Returns
    -------
    Tensor
        The tensor, in memory.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    BinsparseError
        The file is damaged; the message lists every fault.

    See Also
    --------
    open : Open a tensor without reading its arrays.
    read_all : Read all tensors of a file or store, by name.
    repair : Read a file leniently, and write the repaired tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.read(store).to_dense()[2].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    with contextlib.ExitStack() as closing:
        location = closing.enter_context(resolved(path, explain=name_tensors))
        if isinstance(functions := location.kind.functions, Foreign):
            given = {"shape": shape, "duplicates": duplicates, **options, "lenient": lenient or None}
            given = location.options(given | {"check": check if check != "full" else None}, location.kind.reads)
            return _read_foreign(functions, location.handle, given, limits, closing)
        refuse(location.path, read, shape=shape, duplicates=None if lenient else duplicates, **options)
        reader = closing.enter_context(functions.reading(location.handle, location.group, limits))
        loading = Loading(reader, limits, lenient, check)
        if PARTS in loading.descriptor.extra:
            stored, repairs = joined_at(location, loading, limits).load(), None
        else:
            source = loading.source()
            stored, repairs = loaded_tensor(source, limits, duplicates or "error", check), source.repairs
        if location.group:
            add_coordinates(stored, location)
    for repair in repairs or ():
        warn(f"{location.path}: {repair}" if isinstance(location.path, str) else repair)
    return stored


def _read_foreign(
    functions: Foreign, file: Any, given: dict[str, Any], limits: Limits, closing: contextlib.ExitStack
) -> Tensor:
    """A tensor of another system's file, in memory. given: the options of reading."""
    if functions.read is not None:
        return functions.read(file, limits=limits, **given)
    how = {name: given.pop(name) for name in ("duplicates", "check") if name in given}
    if functions.streaming is not None:
        stream = closing.enter_context(functions.streaming(file, whole=True, limits=limits, **given))
        return stream.tensor(limits, **how)
    assert functions.look is not None
    return loaded_tensor(functions.look(file, closing, limits=limits, **given), limits, **how)


def opened(path: StoreLike, limits: Limits, *, coordinates: bool = False) -> tuple[Tensor, Loading | None]:
    """The opened tensor, and its header with array metadata; None for a file of another system.

    coordinates: label it by the coordinates of the Dataset that it is a variable of.
    """
    with contextlib.ExitStack() as stack:
        location = stack.enter_context(resolved(path, explain=name_tensors))
        functions, loading, known = location.kind.functions, None, None
        if isinstance(functions, Foreign):
            if functions.look is None:
                LOG.debug("%s: read whole, because the kind %s cannot be sliced", location.path, location.name)
                return read(location, limits=limits), None
            source = functions.look(location.handle, stack, limits=limits, **location.options({}, location.kind.reads))
            if not source.lazy:
                LOG.debug("%s: read whole, because it has no array that can be sliced", location.path)
                return loaded_tensor(source, limits), None
        else:
            reader = stack.enter_context(functions.reading(location.handle, location.group, limits))
            loading = Loading(reader, limits)
            if PARTS in loading.descriptor.extra:
                tensor = joined_at(location, loading, limits)
                if coordinates and location.group:
                    add_coordinates(tensor, location)
                inside(tensor).backing.boxes.file = File(stack.pop_all().close)  # type: ignore[attr-defined]
                return tensor, loading
            source, known = loading.source(), loading.descriptor
        with named(source.names, source.label):
            tensor = opened_tensor(source, limits)
        stored = inside(tensor).backing.stored
        stored.origin = _origin(location, known or (stored.format, tensor.shape))
        if loading is not None and ORDERS in loading.descriptor.extra:
            names = order_names(loading.descriptor)
            stored.orders = [_opened_order(x, tensor, location, limits, stack) for x in names]
        if coordinates and location.group:
            add_coordinates(tensor, location)
        _close_with(tensor, stack.pop_all())
    return tensor, loading


def joined_at(location: Location, loading: Loading, limits: Limits) -> Tensor:
    """The tensor whose parts a header lists. They are opened when they are needed."""
    origin, path = _origin(location, loading.descriptor), location.path
    path = os.path.abspath(path) if isinstance(path, str) and not is_url(path) else path  # the folder may change
    opener = partial(_Part, replace(location, path=path), limits)
    return joined_tensor(loading.descriptor, opener, limits, origin)


@dataclass(frozen=True)
class _Part:
    """A function that opens a part of the tensor at a location, also in another process, and compares it with a header.

    expected: its shape, data type, fill value and number of entries.
    """

    location: Location
    limits: Limits
    group: str
    expected: tuple[str, ...]

    def __call__(self) -> Tensor:
        tensor = opened(within(self.location, self.group), self.limits)[0]
        held, count = inside(tensor).backing, self.expected[3]
        if isinstance(held, TreeBacking) and not held.tree.gaps and not held.tree.shares:  # else it takes reading
            count = str(held.positions())
        there = str(tensor.shape), str(tensor.dtype), str(tensor.fill_value), count  # NaN does not equal NaN
        if there != self.expected or tensor.structure is not None:
            what = f"expected a part with {', '.join(self.expected)}, got {', '.join(there)}; read it alone"
            raise ArrayError(Problem(self.group, what))
        return tensor

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self.location.path, str):
            return partial, (itself, self().load())
        return _Part, (replace(self.location, handle=self.location.path), self.limits, self.group, self.expected)


def itself(tensor: Tensor) -> Tensor:
    """The tensor: a function that opens what is in memory."""
    return tensor


def _opened_order(
    name: str, tensor: Tensor, location: Location, limits: Limits, stack: contextlib.ExitStack
) -> TreeBacking:
    """Another order of an opened tensor. The arguments are the variables of `opened`."""
    inner = within(location, name)
    reader = stack.enter_context(reader_of(inner, limits))
    with named({}, name):
        loading = Loading(reader, limits)
        other = opened_tensor(loading.source(), limits)
        check_order(other, tensor)
    stored = inside(other).backing.stored
    stored.origin = _origin(inner, loading.descriptor)
    return stored


def _close_with(tensor: Tensor, stack: contextlib.ExitStack) -> None:
    """Close the file when the last array of the tensor is deleted. After that, reading from an array fails."""
    state, file = inside(tensor), File(stack.close)
    columns = [] if (labels := state.metadata.labels) is None else labels.columns.values()
    arrays: list[Any] = [array for column in columns for array in (column.items, column.offsets)]
    for order in (state.backing.stored, *state.backing.stored.orders):
        arrays += [*order.tree.arrays.values(), order.tree.values, order.tree.of_codes.values]
    for array in arrays:
        if isinstance(array, LazyArray):
            array.file = file
    state.file = file.close


def _origin(location: Location, known: object) -> Origin | None:
    """The origin of a tensor for other processes; None for an open object. known: the metadata of the tensor.

    The token of a local file comes from its status, that of a folder from the files directly in it, that of a file at a
    URL from the server. The token of Zarr at a URL is a checksum of the header, so it does not detect new arrays of the
    same lengths under the same header.
    """
    path = location.path
    if not isinstance(path, str):
        return None
    if is_url(path):
        token = location.version or f"{zlib.crc32(repr(known).encode()):08x}"
    else:
        path = os.path.abspath(path)
        files = [path]
        with wrap_errors(path):
            if os.path.isdir(path):
                folder = os.path.join(path, location.group or "")
                files = [folder, *sorted(x.path for x in os.scandir(folder) if x.is_file())]
            token = " ".join(f"{x.st_ino}-{x.st_size}-{x.st_mtime_ns}" for x in map(os.stat, files))
    return Origin(path if location.group is None else f"{path}:{location.group}", token)


@contextlib.contextmanager
def streamed(path: StoreLike, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Stream | None]:
    """The entries of a text, which can be read within the block; None for files that `open` opens."""
    with resolved(path) as location:
        functions = location.kind.functions
        if not isinstance(functions, Foreign) or functions.streaming is None:
            yield None
            return
        with functions.streaming(location.handle, limits=limits) as stream:
            yield stream


def reader_of(location: Location, limits: Limits) -> contextlib.AbstractContextManager[Reader]:
    functions = location.kind.functions
    assert isinstance(functions, Container)
    return functions.reading(location.handle, location.group, limits)


@within_memory
def read_all(path: StoreLike, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, Tensor]:
    """Read all tensors of a file or store, by name: the groups of a container, or the objects of an sscdf file.

    The tensor at the root, or the primary object, is under None.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        See `read`.
    check : {'full', 'trusted', 'none'}, default 'full'
        See `read`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    dict of str to Tensor
        The tensors by name.

    Raises
    ------
    BinsparseError
        See `read`.

    See Also
    --------
    write_all : Write several tensors by name into one sscdf file, atomically.
    read : Read a tensor into memory, and check everything.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> list(bl.read_all(store))
    [None]
    """
    with resolved(path, whole=True) as file:
        groups = [None if name == "/" else name for name in list_tensors(file, limits=limits)]
        return {group: read(file.within(group), check=check, limits=limits) for group in groups}


@contextlib.contextmanager
def open_reader(path: StoreLike, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Reader]:
    """Open the container at PATH[:GROUP] for reading.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> with open_reader(store) as reader:
    ...     list(reader.read_header()["binsparse"]["shape"])
    [3]
    """
    with resolved(path, whole=True) as location, reader_of(location, limits) as reader:
        yield reader


@within_memory
def list_tensors(path: StoreLike, *, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """List the groups with a tensor in a file, a store or an open group, for use in PATH:GROUP. The root is "/".

    Only the presence of a header is checked.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        See `read`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    list of str
        The names of the groups, sorted.

    Raises
    ------
    BinsparseError
        See `read`, for the file itself.

    See Also
    --------
    read_all : Read all tensors of a file or store, by name.
    open : Open a tensor without reading its arrays.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> bl.list_tensors(store)
    ['/']
    """
    with resolved(path, whole=True) as file:
        functions, names = file.kind.functions, [""]
        if isinstance(functions, Foreign):
            if functions.list_groups is not None:
                names = [*functions.list_groups(file.handle, limits)]
        elif functions.list_groups is not None:
            names = functions.list_groups(file.handle, limits, claims_in(file.kind.inner))
        else:
            with reader_of(file, limits) as reader:
                reader.read_header()
    return [name or "/" for name in names]


def name_tensors(location: Location, error: BinsparseError) -> None:
    """Add the tensors of the file to the error about a missing one."""
    if not isinstance(error, TensorMissingError | PathMissingError):
        return
    file, groups = location.path, list[str]()
    if isinstance(file, str) and not is_url(file):  # a listing of a remote store may take long
        with contextlib.suppress(BinsparseError):
            groups = list_tensors(file)
    places = [file if group == "/" else f"{file}:{group}" for group in groups[:_MAX_NAMED]]
    meant = did_you_mean(location.group, groups) if location.group else ""
    remedy = f"{meant}pass {' or '.join(places)}" if places else "check the path"
    error.problems = tuple([Problem(x.path, f"{x.message}; {remedy}") for x in error.problems])


def warn_of_others(place: StoreLike) -> None:
    """Warn if a local file contains more than the tensor at its root, which a conversion leaves out."""
    with resolved(place) as location:
        path, functions = location.path, location.kind.functions
        if location.group is not None or not isinstance(functions, Container) or not isinstance(path, str):
            return
        others = [] if is_url(path) or functions.others is None else sorted(functions.others(path))
    if others:
        what = f"{path}: has {', '.join(others):.200} in addition to its tensor, which are left out"
        remedy = f"convert {path}:NAME for a tensor that list_tensors names"
        warn(f"{what}; {remedy}")
