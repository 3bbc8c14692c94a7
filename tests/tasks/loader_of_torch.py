"""Read batches of rows with the workers of a PyTorch DataLoader."""

import torch

import binsparse_levels as bl


class Rows(torch.utils.data.Dataset):
    def __init__(self, tensor):
        self.tensor = tensor

    def __len__(self):
        return len(self.tensor)

    def __getitem__(self, k):
        return torch.as_tensor(self.tensor[k].to_dense())


if __name__ == "__main__":
    bl.write("rows.h5", torch.eye(8).to_sparse_csr())
    with bl.open("rows.h5") as opened:
        loader = torch.utils.data.DataLoader(Rows(opened), batch_size=2, num_workers=1, multiprocessing_context="spawn")
        assert torch.equal(torch.cat(list(loader)), torch.eye(8))
