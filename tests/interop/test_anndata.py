"""Tensors of any rank in AnnData, written and read by anndata itself."""

import subprocess
import sys
import warnings

import anndata
import h5py
import numpy as np
import pytest
import sparse
import zarr
from anndata.experimental import read_elem_lazy, read_lazy
from anndata.io import read_elem, write_elem

from binsparse_levels import (
    BinsparseError,
    IndexMap,
    OptionError,
    Tensor,
    list_tensors,
    pack,
    read,
    register_anndata,
    write,
)
from binsparse_levels import open as open_tensor

FILES = ["hdf5", "zarr2", "zarr3"]


@pytest.fixture(autouse=True)
def _registered():
    register_anndata()


def tensor(format="dense, sparse, sparse"):
    coords = np.array(np.unravel_index(np.arange(0, 24000, 7), (20, 30, 40)))
    return pack(coords, np.arange(3429.0), (20, 30, 40), format, attributes={"dims": ["obs", "gene", "time"]})


def saved(data, folder, kind, **options):
    path = str(folder / f"{kind}.{'h5ad' if kind == 'hdf5' else 'zarr'}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will be the default
        if kind == "hdf5":
            data.write_h5ad(path, **options)
        else:
            with anndata.settings.override(zarr_write_format=int(kind[-1])):
                data.write_zarr(path, **options)
    return path


def loaded(path):
    return anndata.read_h5ad(path) if path.endswith("ad") else anndata.read_zarr(path)


@pytest.mark.parametrize("kind", FILES)
def test_tensors_in_uns(tmp_path, kind):
    data = anndata.AnnData(shape=(20, 30))
    mapped = tensor("dense, sparse").with_map(IndexMap.grouping((20, 30, 40), [0, 1, 2], [1])) if False else tensor()
    data.uns = {"a": tensor(), "b": {"c": tensor("sparse(3)"), "d": mapped, "e": 3}}
    path = saved(data, tmp_path, kind)
    assert list_tensors(path) == ["uns/a", "uns/b/c", "uns/b/d"]
    found = loaded(path).uns
    assert found["b"]["e"] == 3
    for one, other in ((found["a"], tensor()), (found["b"]["c"], tensor("sparse(3)"))):
        assert isinstance(one, Tensor)
        assert one.equals(other)
        assert one.format == other.format
        assert one.attributes == other.attributes
    opened = open_tensor(f"{path}:uns/a")
    assert opened[3, 2:8].load().equals(tensor()[3, 2:8].load())
    assert read(f"{path}:uns/b/c").equals(tensor())
    again = saved(loaded(path), tmp_path / "..", kind)
    assert loaded(again).uns["a"].equals(tensor())
    copied = loaded(path)[:3].copy()
    assert copied.uns["a"].equals(tensor())
