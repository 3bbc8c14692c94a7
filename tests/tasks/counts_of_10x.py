"""Select 10x counts in HDF5 by cell and gene, and write them as an `.h5ad` file."""

import h5py
import numpy as np
import scipy.sparse as sp

import binsparse_levels as bl

matrix = sp.random_array((6, 8), density=0.5, format="csc", rng=0).astype(bool).astype("i4")
with h5py.File("filtered_feature_bc_matrix.h5", "w") as file:  # as Cell Ranger 3 writes it
    group = file.create_group("matrix")
    group["data"], group["indices"], group["indptr"] = matrix.data, matrix.indices, matrix.indptr
    group["shape"] = matrix.shape
    group["barcodes"] = np.array([f"AAAC-{k}" for k in range(8)], "S")
    group["features/id"] = np.array([f"ENSG{k}" for k in range(6)], "S")

with bl.open("filtered_feature_bc_matrix.h5") as counts:
    cell = counts.sel(barcode="AAAC-3", feature=["ENSG1", "ENSG4"])
    assert cell.to_dense().tolist() == matrix.toarray()[[1, 4], 3].tolist()
    bl.write("cells.h5ad", counts.T)
assert bl.open("cells.h5ad").labels("obs")[:2].tolist() == ["AAAC-0", "AAAC-1"]
