"""Add matrices to AnnData files in HDF5 and Zarr, and a tensor of rank 3 to `uns`."""

import anndata
import numpy as np
import scipy.sparse

import binsparse_levels as bl

A = scipy.sparse.random(100, 50, 0.1, format="csr", rng=0)
names = [f"cell {k}" for k in range(100)]
for path in ("cells.h5ad", "cells.zarr"):
    bl.write(path, bl.from_scipy(A).with_attributes({"row_names": names}), kind="anndata")
    bl.write(f"{path}:layers/double", bl.from_scipy((2 * A).tocsc()), kind="anndata")
    assert abs(bl.to_scipy(bl.open(f"{path}:X")[7:9], "csr") - A[7:9]).max() == 0
cells = anndata.read_h5ad("cells.h5ad")
assert abs(anndata.read_zarr("cells.zarr").layers["double"] - 2 * cells.X).max() == 0

bl.register_anndata()
cells.uns["tensor"] = bl.pack_dense(np.eye(12).reshape(3, 4, 12), "dense, sparse, sparse")
cells.write_h5ad("cells.h5ad")
assert bl.open("cells.h5ad:uns/tensor")[2, 3, 11] == 1
assert anndata.read_h5ad("cells.h5ad").uns["tensor"].shape == (3, 4, 12)
