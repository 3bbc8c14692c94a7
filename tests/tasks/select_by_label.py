"""Select cells and genes of a large `.h5ad` file by name."""

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp

import binsparse_levels as bl

cells = anndata.AnnData(sp.random_array((50, 20), density=0.2, format="csr", rng=np.random.default_rng(0)))
cells.obs_names, cells.var_names = (
    pd.Index([f"cell {k}" for k in range(50)]),
    pd.Index([f"gene {k}" for k in range(20)]),
)
cells.write_h5ad("cells.h5ad")

with bl.open("cells.h5ad") as opened:
    part = opened.sel(obs=["cell 7", "cell 3"], var=["gene 1", "gene 2"]).load()
assert np.array_equal(part.to_dense(), cells[["cell 7", "cell 3"], ["gene 1", "gene 2"]].X.toarray())
