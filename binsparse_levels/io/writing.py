"""Write tensors, whole or in pieces."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy.typing as npt

from ..arrays import Pieces, one_piece
from ..containers.base import DEFAULT_STORAGE, Storage, Writer, is_url
from ..containers.checksums import sealed, summed, sums_of
from ..containers.replacing import refuse_existing
from ..engine.emission import Duplicates
from ..errors import (
    ContainerError,
    DialectWarning,
    OptionError,
    PathMissingError,
    Problem,
    within_memory,
)
from ..formats.descriptor import VERSION
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.encoding import hold_header
from ..tensors.tensor import Tensor
from .kinds import KINDS, Kind, Place, chosen, kind_at, kind_to_write, module_of, placed, refuse, split_place
from .reading import read


@within_memory
def write(
    path: Place,
    tensor: Tensor,
    *,
    overwrite: bool = False,
    kind: str | None = None,
    spec_version: str = VERSION,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    checksum: bool | None = None,
    narrow: bool = False,
    bitpacked: bool | Collection[str] = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write a tensor to PATH[:GROUP], into a store of zarr's, an open group of h5py's or zarr's, or a mapping; of one
    with a map the stored tensor, with the map beside its descriptor, or, to another system's file, its entries.

    kind: one of KINDS; the suffix of a path tells it where it is not given. spec_version: the version that the
    descriptor names; "0.1" is for programs that know no other. compression (gzip, zstd, none), chunks and shards (in
    items), checksum: as far as the container has them, for all arrays or by name; checksum=True also seals the header
    and every array, so that `read` refuses a file in which anything has changed; where they are not given, HDF5,
    NetCDF and NPZ hold plain arrays that anyone can read or map, and Zarr chunks of 2**16 items in shards of 2**20,
    with zstd and checksums. narrow: index and pointer arrays take the smallest unsigned integers that hold their
    numbers, and are read as such. bitpacked: index and pointer arrays, or the arrays of integers with these names,
    `values` among them, take as many bits as their numbers need, and are read as what they were; no other program
    reads them. options: what other systems' files have of their own, see `write` in the module in `files`.

    A file or local folder appears whole, in one step, or not at all; into another store the header is written last. A
    group is written into what is there, the rest of which is kept; an open group or a mapping, too, takes the tensor
    in and keeps the rest. What is not a path is as it was where the call fails. Raises FileExistsError for what is
    there, unless `overwrite`; BinsparseError for a tensor that the kind of file cannot hold, before anything is
    touched; LimitError for a header that `read` would refuse; TypeError for an option that the container does not
    have.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a Tensor, got {type(tensor).__name__}")
    place, group = split_place(path)
    found = KINDS[kind_to_write(place, kind)]
    check_folder(place)
    storage = Storage(compression, chunks, shards, checksum)
    if found.holds_tensors:
        refuse(place, narrow=narrow or None, bitpacked=bitpacked or None)
        given = placed(found, place, group, options)
        if "storage" in found.writes:
            given |= {"storage": storage, "limits": limits}
        else:
            storage.refuse("this kind of file", but=found.writes)
            given |= {"chunks": chunks} if chunks is not None else {}
        options = {**found.options, **chosen(place, given, found.writes)}
        _writer(found, place)(place, tensor.without_map(), overwrite=overwrite, **options)
        return
    refuse(place, **options)
    if not isinstance(spec_version, str):
        raise TypeError(f"a version is a string, got {spec_version!r:.40}")
    header, arrays = tensor._stored(spec_version, narrow=narrow, bitpacked=bitpacked)
    storage.check_names(arrays)
    hold_header(header, limits)
    header = sealed(header, sums_of(arrays)) if checksum else header
    write_arrays(path, header, arrays, overwrite=overwrite, kind=kind, storage=storage, limits=limits)


def write_pieces(
    path: Place,
    header: Mapping[str, Any],
    pieces: Mapping[str, Pieces],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    checksum: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """As `write`, of arrays that come in pieces."""
    check_target(path, overwrite=overwrite, kind=kind)
    storage = Storage(compression, chunks, shards, checksum)
    storage.check_names(pieces)
    hold_header(header, limits)
    sums: dict[str, int] = {}
    if checksum:
        pieces = {name: summed(name, x, sums) for name, x in pieces.items()}
    write_arrays(
        path,
        (lambda: sealed(header, sums)) if checksum else header,
        pieces,
        overwrite=overwrite,
        kind=kind,
        storage=storage,
        limits=limits,
    )


def check_target(path: Place, *, overwrite: bool, kind: str | None = None) -> None:
    """Raise what `write_pieces` would, as far as can be told before there is anything to write."""
    place, group = split_place(path)
    if KINDS[kind_to_write(place, kind)].holds_tensors:
        raise OptionError(Problem(str(place), "this kind of file is not written in pieces"))
    check_folder(place)
    if isinstance(place, str) and not is_url(place) and group is None:
        refuse_existing(place, overwrite)


def check_folder(place: Any) -> None:
    if isinstance(place, str) and not is_url(place):
        folder = os.path.dirname(os.path.realpath(place))
        if not os.path.isdir(folder):
            raise PathMissingError(Problem(folder, "no such folder"))


@within_memory
def write_all(
    path: Place,
    tensors: Mapping[str | None, Tensor],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write an sscdf file of several tensors by name, the primary object under None, in one step; options as for
    `write`. Into the groups of a container each is written on its own. Raises what `write` raises.
    """
    place, group = split_place(path)
    found = KINDS[kind_to_write(place, kind)]
    if not found.named:
        raise OptionError(
            Problem(str(place), "is no kind of file that holds several by name; write each to PATH:GROUP")
        )
    refuse(place, group=group)
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise TypeError(f"expected a mapping from names to tensors, got {tensors!r:.60}")
    check_folder(place)
    storage = Storage(compression, chunks)
    module_of(found).write_all(place, tensors, overwrite=overwrite, storage=storage, limits=limits, **found.options)


@within_memory
def repair(
    path: Place, out: Place, *, duplicates: Duplicates | None = None, limits: Limits = DEFAULT_LIMITS
) -> list[str]:
    """Read leniently what a strict reader refuses, write it to a new file, and tell what was mended.

    Mended are entries out of order, duplicates in the way that is named, integers stored wider or narrower than
    declared, and the dialects of other programs: nothing that would have to be invented. Raises what `read` and `write`
    raise.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DialectWarning)
        text = KINDS[kind_at(*split_place(path))].holds_tensors
        tensor = read(path, lenient=not text, duplicates=duplicates, limits=limits)
    write(out, tensor, limits=limits)
    return [str(found.message) for found in caught if issubclass(found.category, DialectWarning)]


def write_arrays(
    path: Place,
    header: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    arrays: Mapping[str, npt.NDArray[Any] | Pieces],
    *,
    overwrite: bool = False,
    kind: str | None = None,
    storage: Storage = DEFAULT_STORAGE,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a header and the arrays that it names into a container, as they are; see `write`. A header may be made when
    the arrays are written.
    """
    place, group = split_place(path)
    found = KINDS[kind_to_write(place, kind)]
    opened: contextlib.AbstractContextManager[Writer] = module_of(found).writing(
        place, group, overwrite, limits, storage, **found.options
    )
    try:
        with opened as writer:
            for name, array in arrays.items():
                writer.write(name, array if isinstance(array, Pieces) else one_piece(array))
            # last, for it tells that all arrays are there
            writer.write_header(header() if callable(header) else header)
    except RuntimeError as error:  # so the HDF5 libraries say that the disk is full
        raise ContainerError(Problem(str(place), f"cannot be written: {error}")) from error


def _writer(kind: Kind, place: Any) -> Any:
    module = module_of(kind)
    if not hasattr(module, "write"):
        raise OptionError(Problem(str(place), "this kind of file is only read"))
    return module.write
