"""Read shuffled batches of rows with the workers of a PyTorch DataLoader."""

import torch

import binsparse_levels as bl

if __name__ == "__main__":
    bl.write("rows.h5", torch.eye(8).to_sparse_csr())
    batches = bl.batches("rows.h5", 2, format="torch", rows=True)
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    for batch, rows in loader:
        assert torch.equal(batch, torch.eye(8)[rows])
