"""Slice and multiply a stored tensor as a Dask array, and write the result."""

import numpy as np
import sparse

import binsparse_levels as bl

A = sparse.random((1000, 800), 0.01, random_state=0)
bl.write("a.zarr", bl.from_sparse(A, "CSR"))
array = bl.to_dask("a.zarr", chunks=(250, 800))
assert np.allclose((array[100:900] @ np.ones(800)).compute(), A[100:900] @ np.ones(800))
bl.from_dask(array * 2, "b.zarr", "CSC", memory=2**31)
assert bl.read("b.zarr").values.sum() == 2 * A.data.sum()
