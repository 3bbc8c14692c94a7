"""Read and open tensors, describe and list them."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..containers.base import (
    ArrayInfo,
    Reader,
)
from ..engine.emission import Duplicates
from ..errors import (
    BinsparseError,
    ContainerError,
    DialectWarning,
    Problem,
    within_memory,
)
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.index_map import IndexMap
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.tensor import Check, Tensor
from .decoding import Found, Loading, described, lazy_tensor
from .kinds import KINDS, Kind, Place, Split, chosen, kind_at, kind_of, module_of, placed, refuse, split_place


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
    """The tensor in PATH[:GROUP], in a store of zarr's, an open group of h5py's or zarr's, or in a mapping, copied into
    memory and checked in full; with the map that stands beside the descriptor.

    lenient: mend a fixed list of dialects that other programs write; each repair is told by a DialectWarning. check:
    as for Tensor. shape: of a .tns file, which names none; else its largest coordinates tell. duplicates: as for
    `pack`, "error" where it is not given; text files may have some, others only when read leniently. options: what
    other systems' files have of their own, such as the `name` of an object in an sscdf file, or `order` of RawArray;
    see `read` in the module in `files`.

    Raises FileNotFoundError, and BinsparseError of every kind with all that is wrong.
    """
    place, group = split_place(path)
    kind = KINDS[kind_at(place, group)]
    module = module_of(kind)
    if kind.holds_tensors:
        given = placed(kind, place, group, {"shape": shape, "duplicates": duplicates, **options})
        given |= {"lenient": lenient or None, "check": check if check != "full" else None}
        tensor: Tensor = module.read(place, limits=limits, **chosen(place, given, kind.reads))
        return tensor
    refuse(place, shape=shape, duplicates=None if lenient else duplicates, **options)
    with _one_folder(place), module.reading(place, group, limits) as reader:
        loading = Loading(reader, limits, lenient)
        found = loading.tensor(check, duplicates or "error")
    for repair in loading.repairs:
        warnings.warn(f"{place}: {repair}" if isinstance(place, str) else repair, DialectWarning, stacklevel=3)
    return found


@within_memory
def open(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """The tensor in PATH[:GROUP], of which only the header and the metadata of the arrays are read, and compared.

    What is asked of it, or of a view of it, is then read, copied and checked; the container stays open as long as it or
    a view is there. It has to stay as it is: a write of this package makes a new one. A text file has no header, and is
    read. Raises what `read` raises.
    """
    place, group = split_place(path)
    kind = KINDS[kind_at(place, group)]
    if kind.holds_tensors:
        return _opened(path, kind, place, group, limits)
    with contextlib.ExitStack() as stack:
        unreplaced = stack.enter_context(_same_folder(place))
        reader = stack.enter_context(module_of(kind).reading(place, group, limits))
        loading = Loading(reader, limits, False, unreplaced)
        tensor = loading.lazy_tensor()
        unreplaced()
        weakref.finalize(loading, stack.pop_all().close)
    return tensor


class _Open:
    """What closes a file when nobody asks it any more."""


def _opened(path: Place, kind: Kind, place: Any, group: str | None, limits: Limits) -> Tensor:
    """A tensor in another system's file; where the module cannot read it in parts, it is read."""
    if not hasattr(module_of(kind), "looking"):
        return read(path, limits=limits)
    keep = _Open()
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(_looking(kind, place, group, limits))
        tensor = lazy_tensor(found, keep)
        weakref.finalize(keep, stack.pop_all().close)
    return tensor


def _looking(kind: Kind, place: Any, group: str | None, limits: Limits) -> contextlib.AbstractContextManager[Found]:
    """A tensor in another system's file, as long as it is open."""
    given = chosen(place, placed(kind, place, group, {}), kind.reads)
    found: contextlib.AbstractContextManager[Found] = module_of(kind).looking(place, limits=limits, **given)
    return found


@within_memory
def read_all(path: Place, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, Tensor]:
    """All tensors of a file or store by name: of the groups of a container, or of the objects of an sscdf file. The one
    at the root, the primary object, is under None. Raises what `read` raises.
    """
    place, _ = split_place(path)
    kind = KINDS[kind_of(place)]
    if kind.named:
        found: dict[str | None, Tensor] = module_of(kind).read_all(place, check=check, limits=limits)
        return found
    names = list_tensors(path, limits=limits)
    groups = {None if name == "/" else name: None if name == "/" else name for name in names}
    return {name: read(Split(place, group), check=check, limits=limits) for name, group in groups.items()}


def open_reader(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> contextlib.AbstractContextManager[Reader]:
    """The container at PATH[:GROUP], open for reading."""
    place, group = split_place(path)
    reader: contextlib.AbstractContextManager[Reader] = module_of(KINDS[kind_of(place)]).reading(place, group, limits)
    return reader


class Description(NamedTuple):
    """What a file says of a tensor: the descriptor, metadata of the arrays, what lenient reading had to mend, and
    the map through which it is stored.
    """

    descriptor: Descriptor
    arrays: Mapping[str, ArrayInfo]
    repairs: Sequence[str] = ()
    map: IndexMap | None = None


@within_memory
def describe(path: Place, *, lenient: bool = False, limits: Limits = DEFAULT_LIMITS) -> Description:
    """The descriptor in PATH[:GROUP], compared with the metadata of its arrays. No array is read, where there is a
    header to say what they are; a text file has none, and is read. Raises what `read` raises.
    """
    place, group = split_place(path)
    kind = KINDS[kind_at(place, group)]
    if hasattr(module_of(kind), "looking"):
        refuse(place, lenient=lenient or None)
        with _looking(kind, place, group, limits) as found:
            return Description(*described(found))
    if kind.holds_tensors:
        header, arrays = read(path, lenient=lenient, limits=limits)._stored()
        infos = {name: ArrayInfo(x.shape, x.dtype, x.nbytes) for name, x in arrays.items()}
        return Description(parse_descriptor(header, limits), infos)
    with module_of(kind).reading(place, group, limits) as reader:
        loading = Loading(reader, limits, lenient)
        return Description(loading.descriptor, loading.infos, loading.repairs, loading.map)


@within_memory
def list_tensors(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """The groups of a file, a store or an open group that hold a tensor, as PATH:GROUP takes them; the root is "/".

    Only that each has a header is looked at. Raises what `read` raises for the file itself.
    """
    place, _ = split_place(path)
    kind = kind_of(place)
    module = module_of(KINDS[kind])
    if hasattr(module, "list_groups"):
        more = (
            {"claims": [module_of(KINDS[other]).claims for other in ("bpcells", "anndata")]} if kind == "hdf5" else {}
        )
        return [name or "/" for name in module.list_groups(place, limits, **more)]
    if hasattr(module, "reading"):
        with module.reading(place, None, limits) as reader:
            reader.read_header()
    return ["/"]


@contextlib.contextmanager
def _one_folder(place: Any) -> Iterator[None]:
    """Raise ContainerError where another folder took the place of this one, since what was read may be of both."""
    with _same_folder(place) as unreplaced:
        try:
            yield
        except BinsparseError as error:
            unreplaced(error)
            raise
        unreplaced()


@contextlib.contextmanager
def _same_folder(place: Any) -> Iterator[Callable[..., None]]:
    """A function that raises ContainerError if another folder took the place of this one."""
    try:
        handle = os.open(place, os.O_RDONLY) if isinstance(place, str) and os.path.isdir(place) else None
    except OSError:  # a folder cannot be opened everywhere
        handle = None

    def unreplaced(error: Exception | None = None) -> None:
        if handle is not None and not (os.path.exists(place) and os.path.samestat(os.fstat(handle), os.stat(place))):
            raise ContainerError(Problem(place, "was replaced while it was read; read it again")) from error

    try:  # as long as it is open, no other folder gets its number
        yield unreplaced
    finally:
        if handle is not None:
            os.close(handle)
