"""Read some rows of a large file, and close the file."""

import scipy.sparse

import binsparse_levels as bl

A = scipy.sparse.random(100_000, 1000, 0.01, format="csr", rng=0)
bl.write("a.h5", A)
with bl.open("a.h5") as tensor:
    rows = bl.to_scipy(tensor[500:510], "csr")
assert abs(rows - A[500:510]).max() == 0
