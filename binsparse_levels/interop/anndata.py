"""Tensors of any rank as elements of AnnData, in HDF5 and Zarr.

An element is a Binsparse tensor in a group, which every reader of Binsparse opens. anndata finds the functions below by
the type of an object in memory, and by the group's `encoding-type`. Its registry is private; a test detects changes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import h5py
import zarr

from ..errors import needing, within_memory
from ..io import open as open_tensor
from ..io import read, write
from ..io.files.anndata import ELEMENT, OBJECT
from ..tensors.tensor import Tensor
from .pydata_sparse import from_sparse, to_sparse

if TYPE_CHECKING:
    import sparse

_SPEC = {key: ELEMENT[key] for key in ("encoding-type", "encoding-version")}


@within_memory
def register_anndata() -> None:
    """Let anndata write and read tensors of any rank in `uns`, and since version 0.13.1 a COO of any rank in `obsm`.

    Afterwards `write_h5ad`, `write_zarr`, `read_h5ad`, `read_zarr` and `write_elem` accept a Tensor, and a COO of
    pydata/sparse if that is installed. Each is read back as the same type. `open("x.h5ad:uns/NAME")` opens such a
    tensor lazily. The only supported option of anndata is `compression="gzip"`. A second call has no effect, and a COO
    for which another package has registered a writer stays with that package.

    Without a call of this function, anndata refuses files with such elements.

    Raises
    ------
    OptionError
        Anndata is not installed, or its version has another registry.

    See Also
    --------
    read : Read a tensor into memory, and check everything.
    write : Write a tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import anndata, tempfile
    >>> bl.register_anndata()
    >>> data = anndata.AnnData(shape=(2, 3))
    >>> data.uns["counts"] = bl.pack([[0, 1], [2, 0], [1, 1]], [1.0, 2.0], (2, 3, 4), "dense, sparse, sparse")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data.write_h5ad(f"{folder}/a.h5ad")
    ...     anndata.read_h5ad(f"{folder}/a.h5ad").uns["counts"].shape
    ...     bl.open(f"{folder}/a.h5ad:uns/counts")[0, 2, 1]
    (2, 3, 4)
    np.float64(1.0)
    """
    with needing("anndata"):
        from anndata._io.specs.registry import _LAZY_REGISTRY, _REGISTRY
    writers: dict[type, Any] = {Tensor: _write_tensor}
    if importlib.util.find_spec("sparse"):
        import sparse

        writers[sparse.COO] = _write_coo
    for group in (h5py.Group, zarr.Group):
        for kind, writer in writers.items():
            if not _REGISTRY.has_write(group, kind, frozenset()):
                _REGISTRY.register_write(group, kind, _SPEC)(writer)
        _REGISTRY.register_read(group, _SPEC)(_read)
        _LAZY_REGISTRY.register_read(group, _SPEC)(_open)


def _write_tensor(
    place: Any, name: str, tensor: Tensor, *, _writer: Any, dataset_kwargs: Mapping[str, Any] | None = None
) -> None:
    """Write a tensor into a new group of an open group."""
    gzip = (dataset_kwargs or {}).get("compression") == "gzip"
    write(place.create_group(name), tensor, compression="gzip" if gzip and isinstance(place, h5py.Group) else None)


def _write_coo(place: Any, name: str, array: sparse.COO, **options: Any) -> None:
    _write_tensor(place, name, from_sparse(array), **options)
    place[name].attrs.update(ELEMENT)


def _read(group: Any, *, _reader: Any) -> Any:
    """The object in a group."""
    tensor = read(group)
    return to_sparse(tensor) if group.attrs.get(OBJECT) == ELEMENT[OBJECT] else tensor


def _open(group: Any, *, _reader: Any) -> Tensor:
    """The tensor in a group, lazily."""
    return open_tensor(group)
