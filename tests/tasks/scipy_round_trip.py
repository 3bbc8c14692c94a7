"""Save a scipy CSR matrix to HDF5, load it, and modify it."""

import scipy.sparse

import binsparse_levels as bl

A = scipy.sparse.random(1000, 800, 0.01, format="csr", rng=0)
bl.write("a.h5", A)
B = bl.to_scipy(bl.read("a.h5"), copy=True)
B *= 2
assert abs(B - 2 * A).max() == 0
