"""Read and open tensors; describe and list the tensors of a file."""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..arrays import LazyArray
from ..containers.base import ArrayInfo, Reader, is_url
from ..containers.replacing import same_folder
from ..engine.emission import Duplicates
from ..engine.parts import check_in_parts
from ..engine.tree import Tree
from ..errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DialectWarning,
    IncompleteError,
    Problem,
    raise_if,
    within_memory,
)
from ..formats.descriptor import Descriptor, parse_descriptor
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.encoding import encode_tensor
from ..tensors.held import Check
from ..tensors.origin import Origin
from ..tensors.tensor import Tensor
from .decoding import FileTensor, Keep, Loading, described, lazy_tensor
from .files.text_tables import Stream
from .kinds import Location, Place, claims_of_groups, name_of, refuse, resolved, split_place

_AT_ONCE = 2**20  # items that are checked at once
_SHOWN = 8  # names in an error


@runtime_checkable
class Grouped(Protocol):
    """A reader of a container with groups."""

    @property
    def group(self) -> Any: ...


@within_memory
def read(
    path: Place,
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
    path: PATH[:GROUP], a URL, a store of zarr's, an open group of h5py's or zarr's, or a mapping.
    lenient: repair a fixed list of deviations of other programs. Each repair is reported by a DialectWarning.
    check: as for Tensor.
    shape: the shape of a .tns file, which does not store it. By default, the largest coordinates give the shape.
    duplicates: as for `pack`, "error" by default. Text files may hold duplicates; other files only when read leniently.
    limits: bounds on sizes that a file may claim.
    options: options of one kind of file, such as `name` for sscdf or `order` for RawArray. The module in `io/files`
        documents them under `read`.

    Raises FileNotFoundError, or a BinsparseError that lists every fault.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.read(store).to_dense()[2].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    with _place(path, limits) as location:
        kind = location.kind
        if kind.tensors:
            asked = {"shape": shape, "duplicates": duplicates, **options, "lenient": lenient or None}
            asked |= {"check": check if check != "full" else None}
            tensor: Tensor = kind.part("read")(location.handle, limits=limits, **location.options(asked, kind.reads))
            return tensor
        refuse(location.path, shape=shape, duplicates=None if lenient else duplicates, **options)
        with same_folder(location.path) as unreplaced:
            try:
                with _reading(location, limits) as reader:
                    loading = Loading(reader, limits, lenient)
                    stored = loading.tensor(check, duplicates or "error")
            finally:
                if unreplaced is not None:  # arrays of two folders may contradict each other
                    unreplaced()
    for repair in loading.repairs:
        told = f"{location.path}: {repair}" if isinstance(location.path, str) else repair
        warnings.warn(told, DialectWarning, stacklevel=3)
    return stored


@within_memory
def open(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """Open a tensor without reading its arrays: only the header and the metadata are read, and compared.

    A selection reads, copies and checks the items that it needs. The file stays open while the tensor or a view of it
    exists. Do not change the file in place meanwhile. Writes of this package are safe, because they replace the file.
    A text file has no header, so it is read whole.

    In a `with` block, the file is closed at its end. After that, reading from the tensor or a view raises
    ContainerError; what `load` has read stays.

    Parameters
    ----------
    path : as for `read`.
    limits : as for `read`.

    Raises the errors of `read`.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> with bl.open(store) as tensor:
    ...     tensor[2, 0]
    np.float64(2.0)
    """
    with contextlib.ExitStack() as stack:
        location = stack.enter_context(_place(path, limits))
        kind = location.kind
        if kind.tensors and kind.part("looking") is None:
            return read(location, limits=limits)
        if kind.tensors:
            source = stack.enter_context(_looking(location, limits))
            keep = Keep((str(source.format), source.shape, source.values.shape))
            tensor = lazy_tensor(source, keep, limits)
        else:
            unreplaced = stack.enter_context(same_folder(location.path))
            loading = Loading(stack.enter_context(_reading(location, limits)), limits, False, unreplaced)
            keep, tensor = loading.keep, loading.lazy_tensor()
            if unreplaced is not None:
                unreplaced()
        stored = tensor._held.stored
        arrays: list[Any] = [*stored.tree.arrays.values(), stored.tree.values]
        if tensor._metadata.labels is not None:
            arrays += tensor._metadata.labels.arrays().values()
        stack.callback(_close, [weakref.ref(x) for x in arrays if isinstance(x, LazyArray)])
        stored.origin = _origin(location, keep)
        tensor._file = weakref.finalize(keep, stack.pop_all().close)
    return tensor


def _close(arrays: Sequence[weakref.ref[LazyArray]]) -> None:
    """Refuse to read these arrays from now on, if they are still there."""
    for array in arrays:
        if (there := array()) is not None:
            there.close()


def _origin(location: Location, keep: Keep) -> Origin | None:
    """Where another process finds the tensor; None for an open object.

    The token of a local file is what its system says of it, of a folder of the files right in it; of a file at a URL
    what the server says; of Zarr at a URL the checksum of the header, so new arrays of the same lengths under the same
    header are not noticed.
    """
    path = location.path
    if not isinstance(path, str):
        return None
    if is_url(path):
        token = location.version or f"{zlib.crc32(repr(keep.known).encode()):08x}"
    else:
        path = os.path.abspath(path)
        status = os.stat(path)
        token = _signature(status)
        if stat.S_ISDIR(status.st_mode):
            folder = os.path.join(path, location.group or "")
            files = [folder, *sorted(x.path for x in os.scandir(folder) if x.is_file())]
            token = " ".join(_signature(os.stat(file)) for file in files)
    return Origin(path if location.group is None else f"{path}:{location.group}", token)


def _signature(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


@contextlib.contextmanager
def streamed(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Stream | None]:
    """The entries of a text, which can be read within the block; None for what `open` opens."""
    with _place(path, limits) as location:
        streaming = location.kind.part("streaming")
        if streaming is None:
            yield None
            return
        with streaming(location.handle, limits=limits) as stream:
            yield stream


def _looking(location: Location, limits: Limits) -> contextlib.AbstractContextManager[FileTensor]:
    """Open a tensor in another system's file; the file stays open within the block."""
    options = location.options({}, location.kind.reads)
    looking: Callable[..., contextlib.AbstractContextManager[FileTensor]] = location.kind.part("looking")
    return looking(location.handle, limits=limits, **options)


def _reading(location: Location, limits: Limits) -> contextlib.AbstractContextManager[Reader]:
    reading: Callable[..., contextlib.AbstractContextManager[Reader]] = location.kind.part("reading")
    return reading(location.handle, location.group, limits)


@contextlib.contextmanager
def _place(path: Place, limits: Limits) -> Iterator[Location]:
    """The location of a tensor. Where there is none, the error of the block names those elsewhere in the file."""
    with resolved(path) as location:
        try:
            yield location
        except (ContainerError, IncompleteError) as error:
            if location.kind.tensors or is_url(location.path) or isinstance(path, Location):
                raise
            there = _elsewhere(path, location.group, limits)
            if not there:
                raise
            what = error.problems[0].message.partition(";")[0]
            raise type(error)(Problem(name_of(path), f"{what}; this file has {there}")) from None


def _elsewhere(path: Place, group: str | None, limits: Limits) -> str:
    """What a file without a tensor at this group has; empty where the group has one, or nothing is known."""
    whole = split_place(path)[0]
    try:
        names = list_tensors(whole, limits=limits)
        with resolved(whole, whole=True) as file, _reading(file, limits) as reader:
            if not isinstance(reader, Grouped):
                return ""
            members = sorted(reader.group.keys())
    except BinsparseError:
        return ""
    if names:
        return "" if (group or "/") in names else f"{_listed(names)}; open PATH:NAME"
    remedy = "open_dataset reads Datasets of xarray; after an interrupted write, write to another path"
    return f"{_listed(members)}, without a header of Binsparse; {remedy}" if members else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{name:.60}" for name in names[:_SHOWN]) + (f" … ({len(names)})" if len(names) > _SHOWN else "")


@within_memory
def read_all(path: Place, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, Tensor]:
    """Read all tensors of a file or store, by name: the groups of a container, or the objects of an sscdf file.

    The tensor at the root, or the primary object, is under None.

    Parameters
    ----------
    path, check, limits : as for `read`.

    Raises the errors of `read`.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> list(bl.read_all(store))
    [None]
    """
    with resolved(path, whole=True) as file:
        if file.kind.named:
            tensors: dict[str | None, Tensor] = file.kind.part("read_all")(file.handle, check=check, limits=limits)
            return tensors
        groups = [None if name == "/" else name for name in list_tensors(file, limits=limits)]
        return {group: read(file.within(group), check=check, limits=limits) for group in groups}


@contextlib.contextmanager
def open_reader(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Reader]:
    """Open the container at PATH[:GROUP] for reading.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> with open_reader(store) as reader:
    ...     list(reader.read_header()["binsparse"]["shape"])
    [3]
    """
    with resolved(path, whole=True) as location, _reading(location, limits) as reader:
        yield reader


class Description(NamedTuple):
    """A tensor by its metadata: the descriptor, the metadata of the arrays, the repairs that lenient reading made, and
    the fill value in its stored type.
    """

    descriptor: Descriptor
    arrays: Mapping[str, ArrayInfo]
    repairs: Sequence[str] = ()
    fill_value: Any = None


@within_memory
def describe(path: Place, *, lenient: bool = False, limits: Limits = DEFAULT_LIMITS) -> Description:
    """Describe the tensor at PATH[:GROUP] from its header, which is compared with the metadata of the arrays.

    No array is read but the fill value. A text file has no header, so it is read whole. lenient, limits: as for `read`.
    Raises the errors of `read`.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> describe(store).descriptor.shape
    (3, 4)
    """
    with _place(path, limits) as location:
        if location.kind.part("looking") is not None:
            refuse(location.path, lenient=lenient or None)
            with _looking(location, limits) as source:
                return Description(*described(source), fill_value=source.fill_value)
        if location.kind.tensors:
            tensor = read(location, lenient=lenient, limits=limits)
            header, arrays = encode_tensor(tensor)
            descriptor = parse_descriptor(header, limits)
            stored = {name: arrays[name] for name in descriptor.data_types}  # no labels, as of other kinds of files
            infos = {name: ArrayInfo(x.shape, x.dtype, x.nbytes) for name, x in stored.items()}
            return Description(descriptor, infos, fill_value=tensor.fill_value)
        with _reading(location, limits) as reader:
            loading = Loading(reader, limits, lenient)
            return Description(loading.descriptor, loading.described(), loading.repairs, loading.fill_value())


@within_memory
def list_tensors(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """List the groups of a file, a store or an open group that hold a tensor, as PATH:GROUP takes them. The root is
    "/".

    Only the presence of a header is checked.

    Parameters
    ----------
    path, limits : as for `read`.

    Raises the errors of `read` for the file itself.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (3,), "sparse"))
    >>> bl.list_tensors(store)
    ['/']
    """
    with resolved(path, whole=True) as file:
        if (list_groups := file.kind.part("list_groups")) is not None:
            claims = {"claims": claims_of_groups(file.kind.inner)} if file.kind.inner else {}
            return [name or "/" for name in list_groups(file.handle, limits, **claims)]
        if not file.kind.tensors:
            with _reading(file, limits) as reader:
                reader.read_header()
    return ["/"]


def check_lazy(tree: Tree, name: str, order: Sequence[int]) -> None:
    """Check arrays in a file as `read` does, before they are read in parts: their checksums, and the levels against
    each other.

    name: for errors. order: the tensor's dimension at each stored one. Raises ArrayError, ContainerError.
    """
    if not tree.lazy:
        return
    held: list[Any] = [*tree.arrays.values(), tree.values]
    for array in held:
        if isinstance(array, LazyArray):
            array.verify()
    problems = check_in_parts(tree, _AT_ONCE, order)
    raise_if(ArrayError, [Problem(f"{name}: {problem.path}", problem.message) for problem in problems])
