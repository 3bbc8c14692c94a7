"""Open matrices in `.npz` and `.mat` files of scipy, and convert them to Zarr."""

import numpy as np
import scipy.io
import scipy.sparse as sp

import binsparse_levels as bl

matrix = sp.random_array((40, 30), density=0.1, format="csr", rng=np.random.default_rng(0))
sp.save_npz("matrix.npz", matrix, compressed=False)
scipy.io.savemat("matrices.mat", {"A": matrix.tocsc(), "B": 2 * matrix.tocsc()})

assert np.array_equal(bl.open("matrix.npz")[10:12].to_dense(), matrix[10:12].toarray())
bl.convert("matrices.mat:B", "matrix.zarr", "CSR")
assert np.array_equal(bl.read("matrix.zarr").to_dense(), 2 * matrix.toarray())
