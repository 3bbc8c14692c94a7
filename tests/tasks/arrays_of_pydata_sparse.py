"""Slice an array of rank 3 in a `.npz` file of pydata/sparse, and convert it to HDF5."""

import numpy as np
import sparse

import binsparse_levels as bl

array = sparse.random((40, 6, 5), density=0.1, random_state=0)
sparse.save_npz("array.npz", sparse.GCXS.from_coo(array, compressed_axes=[0]), compressed=False)

part = bl.to_sparse(bl.open("array.npz")[10:12])
assert np.array_equal(part.todense(), array[10:12].todense())
bl.convert("array.npz", "array.h5", "CSF")
assert np.array_equal(bl.read("array.h5").to_dense(), array.todense())
