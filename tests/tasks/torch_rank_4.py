"""Save a sparse PyTorch tensor of rank 4 to Zarr, and load it."""

import torch

import binsparse_levels as bl

tensor = torch.rand(4, 5, 6, 7, generator=torch.Generator().manual_seed(0)).relu().sub(0.5).relu().to_sparse()
bl.write("a.zarr", tensor)
back = bl.to_torch(bl.read("a.zarr"))
assert torch.equal(back.to_dense(), tensor.to_dense())
