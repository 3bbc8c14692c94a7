"""Read a region of a multi-resolution `.mcool` file by the names of its bins."""

import h5py
import numpy as np

import binsparse_levels as bl

with h5py.File("contacts.mcool", "w") as file:  # as cooler writes it
    group = file.create_group("resolutions/1000")
    group.attrs.update({"format": "HDF5::Cooler", "bin-type": "fixed", "storage-mode": "symmetric-upper"})
    group["chroms/name"], group["bins/chrom"] = np.array([b"chr1"]), np.zeros(3, "i4")
    group["bins/start"], group["bins/end"] = np.arange(3) * 1000, np.arange(1, 4) * 1000
    group["indexes/bin1_offset"], group["pixels/bin1_id"] = np.array([0, 2, 3, 3]), np.array([0, 0, 1])
    group["pixels/bin2_id"], group["pixels/count"] = np.array([0, 2, 1]), np.array([5, 7, 9], "i4")

with bl.open("contacts.mcool:resolutions/1000") as contacts:
    assert contacts.sel(bin="chr1:2000-3000", bin_2="chr1:0-1000") == 7
    assert contacts.sel(bin="chr1:0-1000").to_dense().tolist() == [5, 0, 7]
