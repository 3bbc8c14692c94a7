"""Save an xarray Dataset with a sparse variable, open it lazily, and select from it."""

import numpy as np
import sparse
import xarray as xr

import binsparse_levels as bl

a = sparse.random((365, 100, 200), 0.001, random_state=0)
days = np.arange("2021-01-01", "2022-01-01", dtype="M8[D]").astype("M8[ns]")
dataset = xr.Dataset({"a": (("time", "x", "y"), a)}, {"time": days})
bl.write_dataset("a.zarr", dataset, {"a": "CSF"})
opened = xr.open_dataset("a.zarr", engine="binsparse")
march = opened.sel(time="2021-03")
assert march.a.sum().data.todense() == a[59:90].sum()
assert opened.load().identical(dataset)
