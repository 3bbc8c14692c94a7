"""Write tensors, whole or in pieces."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array, Pieces, one_piece
from ..containers.base import DEFAULT_STORAGE, ORDERS, GroupWriter, Storage, Writer, is_url
from ..containers.checksums import sealed, summed
from ..containers.interface import Container
from ..containers.replacing import Overwrite, refuse_existing
from ..engine.tree import Duplicates
from ..errors import (
    BinsparseError,
    ContainerError,
    DialectWarning,
    OptionError,
    PathExistsError,
    Problem,
    did_you_mean,
    warn,
    within_memory,
)
from ..formats.descriptor import VERSION
from ..formats.format import FormatLike
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress
from ..tensors.contents import Dimension
from ..tensors.encoding import check_header_size, encode_tensor
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor, inside
from ..thresholds import THRESHOLDS
from .interface import Foreign, refuse
from .kinds import Location, StoreLike, name_of, resolved, target_at
from .orders import Encode, other_orders
from .reading import opened, read


@within_memory
def write(
    path: StoreLike,
    tensor: Any,
    *,
    overwrite: Overwrite = False,
    kind: str | None = None,
    spec_version: str = VERSION,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    checksum: bool | None = None,
    narrow: bool = False,
    bitpacked: bool | Collection[str] = False,
    dictionary: bool = False,
    orders: Sequence[FormatLike] = (),
    convention: bool = False,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write a tensor. Its map, if any, is stored next to the descriptor; another system's file receives the entries.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        PATH[:GROUP], a URL, a Zarr store, an open group of h5py or zarr, or a mapping.
    tensor : Tensor or array
        A Tensor, or an array of another library that `as_tensor` accepts.
    overwrite : bool or 'file', default False
        True replaces an existing tensor. A file or folder with other contents is refused, and the error lists them,
        unless the path has a group: `PATH:/` is the root. "file" replaces the whole file or folder.
    kind : str, optional
        One of KINDS. By default, the suffix of the path decides.
    spec_version : str, default VERSION
        The version in the descriptor. Pass "0.1" for programs that read no other version.
    compression : str or mapping of str to str, optional
        One of blosc, small, zstd, gzip and none, for all arrays or by name. HDF5, NetCDF and NPZ store uncompressed
        arrays by default; Zarr uses blosc. "small" is zstd in Zarr and gzip in HDF5, and stores equal values as one.
        For blosc, small, and gzip in HDF5, three chunks of an array decide whether its bytes or bits are grouped.
    chunks, shards : int or mapping of str to int, optional
        Their lengths in items, for all arrays or by name. The defaults of Zarr are 2**16 and 2**20.
    checksum : bool, optional
        True also stores checksums of the header and of every array, so that `read` refuses a changed file.
    narrow : bool, default False
        Store index and pointer arrays as the smallest sufficient unsigned integers. They are read with that type.
    bitpacked : bool or collection of str, default False
        Store index and pointer arrays, or the integer arrays with these names, in the fewest possible bits. They are
        read with their original type. Other programs cannot read them.
    dictionary : bool, default False
        Store the values as a table of at most 65,536 distinct entries, and a code of one or two bytes for each. They
        are read as a dictionary. Other programs cannot read them. `bitpacked=True` also packs the codes.
    orders : sequence of str or Format, default ()
        Further formats, each with another order of the dimensions, in which the entries are stored again in groups
        such as `order_1_0`. A slice of the opened tensor reads the best of them. HDF5, NetCDF and Zarr have groups.
    convention : bool, default False
        Declare the Zarr convention of Binsparse in `zarr_conventions` of the group, which other programs may look for.
        It changes nothing for `read`. For Zarr alone.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.
    limits : Limits, optional
        The bounds that `read` will apply.
    **options
        Options of one kind of file. The module in `io/files` documents them under `write`.

    Raises
    ------
    FileExistsError
        The path exists, and `overwrite` is False.
    LimitError
        `read` would refuse the header.
    OptionError
        An option does not apply to this kind of file, or a dictionary is not smaller than the values.
    BinsparseError
        The kind of file cannot store the tensor. Nothing was changed.

    See Also
    --------
    read : Read a tensor into memory, and check everything.
    open : Open a tensor without reading its arrays.
    write_from : Write a stream of entries.

    Notes
    -----
    A local file or folder is replaced atomically; of a Zarr folder, only the folder of the group. In another store, the
    header is written last. A write into a group, an open group or a mapping keeps everything else there, and restores a
    mapping or an open group if it fails.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> sorted(store)
    ['binsparse', 'indices_1', 'pointers_to_1', 'values']
    """
    target = target_at(path, kind)
    full = isinstance(tensor, np.ndarray) and target.kind.dense and tensor.ndim
    format = ", ".join(["dense"] * tensor.ndim) if full else None
    tensor = as_tensor(tensor, format, copy=False, dims=dims, labels=labels)
    storage = Storage(compression, chunks, shards, checksum, convention=convention or None)
    functions = target.kind.functions
    if isinstance(functions, Container):
        refuse(target.path, write, **options)
        if not isinstance(spec_version, str):
            raise OptionError(f"a version is a string, got {spec_version!r:.40}")
        stored = _with_one_value(tensor) if storage.of("compression", "values") == "small" else tensor
        header, arrays = encode_tensor(stored, spec_version, narrow, bitpacked, dictionary)
        others = other_orders(stored, orders, spec_version, narrow, bitpacked, dictionary, limits)
        header |= {ORDERS: [*others]} if others else {}
        check_header_size(header, limits)
        write_arrays(target, header, arrays, orders=others, overwrite=overwrite, storage=storage, limits=limits)
        _close_unused(tensor)
        return
    if functions.write is None:
        raise OptionError(Problem(str(target.path), "this kind of file is read-only; choose another kind"))
    ours = {"narrow": narrow, "bitpacked": bitpacked, "dictionary": dictionary, "orders": orders}
    refuse(target.path, write, **{name: given or None for name, given in (ours | {"convention": convention}).items()})
    if "storage" in target.kind.writes:
        options |= {"storage": storage, "limits": limits}
    else:
        storage.refuse("this kind of file", but=target.kind.writes)
        options |= {"chunks": chunks}
    given = target.options(options, target.kind.writes)
    if lost := sorted(tensor.attributes.keys() - {*target.kind.attributes}):
        what = f"leaves out the attributes {', '.join(lost):.200}; write a container such as .h5 to keep them"
        warn(f"{target.path}: this kind of file {what}")
    functions.write(target.path, tensor.without_map(), overwrite=overwrite, **target.kind.options, **given)
    _close_unused(tensor)


def _with_one_value(tensor: Tensor) -> Tensor:
    """The tensor, iso if all values have the same bits: NaN equals itself, 0.0 differs from -0.0."""
    values, step = np.ascontiguousarray(tensor.values), THRESHOLDS.checked_items
    words = values.view(f"u{min(values.itemsize, 8)}").reshape(len(values), max(values.itemsize // 8, 1))
    alike = all((words[at : at + step] == words[0]).all() for at in range(0, len(words), step))
    return tensor.with_values(values[0]) if alike and len(values) and not tensor.iso else tensor


def _close_unused(tensor: Tensor) -> None:
    """Close the file of an opened tensor whose entries are in memory, after loading its labels."""
    if inside(tensor).file is not None and not inside(tensor).backing.lazy:
        tensor.load()


def write_arrays(
    path: StoreLike,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array | Pieces],
    *,
    orders: Mapping[str, Encode] = MappingProxyType({}),
    overwrite: Overwrite = False,
    kind: str | None = None,
    storage: Storage = DEFAULT_STORAGE,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a header and the arrays that it names into a container, unchanged.

    orders: functions that return the header and arrays of further groups, by name. The other parameters and the errors
    are those of `write`.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> header = {"version": "0.1", "format": "DVEC", "shape": [2], "number_of_stored_values": 2}
    >>> store = {}
    >>> write_arrays(store, {"binsparse": header | {"data_types": {"values": "float64"}}}, {"values": np.ones(2)})
    >>> bl.read(store).values.tolist()
    [1.0, 1.0]
    """
    target = target_at(path, kind)
    container = _of_pieces(target)
    storage.check_names(arrays)
    if orders and container.list_groups is None:
        raise OptionError(Problem(str(target.path), "this kind of file has no groups for orders; choose another"))
    writing = container.writing(target.path, target.group, overwrite, limits, storage, **target.kind.options)
    try:
        with writing as writer:
            last = _write_all_arrays(writer, header, arrays, storage)
            for name, encode in orders.items():
                assert isinstance(writer, GroupWriter)
                inner = writer.within(name)
                inner.write_header(_write_all_arrays(inner, *encode(), storage))
            # The header comes last: it marks everything as complete.
            writer.write_header(last)
    except RuntimeError as error:  # of the HDF5 libraries if the disk is full
        raise ContainerError(Problem(str(target.path), f"cannot be written: {error}; is the disk full?")) from error


def _write_all_arrays(
    writer: Writer, header: Mapping[str, Any], arrays: Mapping[str, Array | Pieces], storage: Storage
) -> Mapping[str, Any]:
    """Write the arrays of a tensor. Return its header, which contains their checksums if there are any."""
    sums: dict[str, int] = {}
    for name, array in arrays.items():
        pieces = array if isinstance(array, Pieces) else one_piece(array)
        writer.write(name, summed(name, pieces, sums) if storage.checksum else pieces)
    return sealed(header, sums) if storage.checksum else header


def write_pieces(
    path: StoreLike,
    header: Mapping[str, Any],
    pieces: Mapping[str, Pieces],
    *,
    progress: Progress | None = None,
    overwrite: Overwrite = False,
    kind: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """`write_arrays` for the header of a tensor. options: the fields of Storage. progress: called for each piece."""
    check_header_size(header, limits)
    total, done = sum(x.length for x in pieces.values()), 0

    def report(piece: Array) -> Array:
        nonlocal done
        done += len(piece)
        if progress is not None:
            progress("writing", done, total)
        return piece

    if progress is not None:
        pieces = {name: x.mapped(report, 1, x.dtype) for name, x in pieces.items()}
    storage = _storage(path, options)
    write_arrays(path, header, pieces, overwrite=overwrite, kind=kind, storage=storage, limits=limits)


def _storage(path: StoreLike, options: Mapping[str, Any]) -> Storage:
    """The storage of pieces. Raises OptionError for other options, such as `narrow`."""
    known = {field.name for field in fields(Storage)}
    for name in options.keys() - known:
        remedy = did_you_mean(name, known).strip() or "leave it out"
        raise OptionError(Problem(str(path), f"{name} does not apply to a tensor written in pieces; {remedy}"))
    return Storage(**options)


def free_location(path: StoreLike, overwrite: Overwrite, kind: str | None = None) -> Location:
    """The location of a tensor to write. Raises PathExistsError for an existing file or folder, OptionError."""
    target = target_at(path, kind)
    if isinstance(target.path, str) and not is_url(target.path) and target.group is None:
        functions = target.kind.functions
        refuse_existing(target.path, overwrite, functions.others if isinstance(functions, Container) else None)
    return target


def check_target(path: StoreLike, *, overwrite: Overwrite, kind: str | None = None, **options: Any) -> None:
    """Raise the errors of a write in pieces that are known before there are pieces."""
    _storage(path, options)
    target = free_location(path, overwrite, kind)
    if not formats_in_pieces(target):
        _of_pieces(target)
    if target.group and not overwrite and not is_url(str(target.path)):
        there = None
        with contextlib.suppress(BinsparseError):
            there, _ = opened(path, DEFAULT_LIMITS)
        if there is not None:
            raise PathExistsError(Problem(name_of(path), "has a tensor; pass overwrite=True"))


def formats_in_pieces(target: Location) -> tuple[str, ...]:
    """The formats in which a file of another system is written in pieces; none for a container, which takes any."""
    functions = target.kind.functions
    return functions.in_pieces if isinstance(functions, Foreign) else ()


def _of_pieces(target: Location) -> Container:
    if isinstance(functions := target.kind.functions, Container):
        return functions
    raise OptionError(Problem(str(target.path), "this kind of file cannot be written in pieces; choose another"))


@within_memory
def write_all(
    path: StoreLike,
    tensors: Mapping[str | None, Any],
    *,
    overwrite: Overwrite = False,
    kind: str | None = None,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write several tensors by name into one sscdf file, atomically; the primary object is under None.

    For other containers, write each tensor to PATH:GROUP.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        Path of the file.
    tensors : mapping of str to Tensor
        A tensor for each name.
    overwrite : bool or 'file', default False
        True replaces an existing tensor; see `write`.
    kind : str, optional
        Kind of the file; by default the suffix decides.
    compression : str or mapping of str to str, optional
        Compression of all arrays, or by name; see `write`.
    chunks : int or mapping of str to int, optional
        Length of chunks in items, for all arrays or by name.
    limits : Limits, optional
        Bounds on the resources of this call.

    Raises
    ------
    BinsparseError
        See `write`.

    See Also
    --------
    read_all : Read all tensors of a file or store, by name.
    write : Write a tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.write_all("a.sscdf", {None: bl.pack([[0]], [1.0], 3, "CVEC"), "ones": bl.pack_dense([1, 1], "DVEC")})
    >>> list(bl.read_all("a.sscdf"))
    [None, 'ones']
    """
    target = target_at(path, kind)
    functions = target.kind.functions
    if not isinstance(functions, Foreign) or functions.write_all is None:
        what = "this kind of file does not contain several tensors by name; write each to PATH:GROUP"
        raise OptionError(Problem(str(target.path), what))
    refuse(target.path, (), group=target.group)
    if not isinstance(tensors, Mapping):
        raise OptionError(f"expected a mapping from names to tensors, got {tensors!r:.60}")
    tensors = {name: as_tensor(tensor, copy=False).without_map() for name, tensor in tensors.items()}
    given = {"storage": Storage(compression, chunks), "limits": limits, **target.kind.options}
    functions.write_all(target.path, tensors, overwrite=overwrite, **given)


@within_memory
def repair(
    path: StoreLike,
    out: StoreLike,
    *,
    duplicates: Duplicates | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
) -> list[str]:
    """Read a file leniently, write the repaired tensor to a new file, and return the list of repairs.

    It repairs the order of entries, duplicates according to `duplicates`, integers stored wider or narrower than
    declared, and the deviations of other programs. No data is invented.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        The faulty file; see `read`.
    out : str, PathLike, group, store or mapping
        The new file; see `write`.
    duplicates : {'error', 'sum', 'first', 'last'}, optional
        How to merge repeated coordinates: "sum", "first" or "last". By default they raise ArrayError.
    overwrite : bool or 'file', default False
        Replace what is at `out`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    list of str
        The repairs, one text each.

    Raises
    ------
    BinsparseError
        See `read` and `write`.

    See Also
    --------
    read : Read a tensor into memory, and check everything.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> source, target = {}, {}
    >>> bl.write(source, bl.pack([[0, 2]], [1.0, 2.0], (3,), "sparse"))
    >>> source["indices_0"] = source["indices_0"][::-1].copy()
    >>> bl.repair(source, target)
    ['entries: not in order, sorted']
    """
    with warnings.catch_warnings(record=True) as caught, resolved(path) as location:
        warnings.simplefilter("always", DialectWarning)
        tensor = read(location, lenient=not location.kind.foreign, duplicates=duplicates, limits=limits)
    write(out, tensor, overwrite=overwrite, limits=limits)
    return [str(found.message) for found in caught if issubclass(found.category, DialectWarning)]
