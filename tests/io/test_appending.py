"""Append and concatenate: iso values, stores overwritten in place, empty fibers, tiny chunks."""

import os

import numpy as np
import pytest
from zarr.storage import MemoryStore

from binsparse_levels import Tensor, append, concatenate, pack, pack_dense, read, write


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_iso_tensors_of_different_values_are_joined_with_all_of_them(tmp_path, suffix):
    values = [np.float64(5), np.float64(7), np.array([8.0])]
    names = [tmp_path / f"{k}{suffix}" for k in range(3)]
    for name, given in zip(names, values, strict=True):
        write(name, pack([[0], [1]], given, (2, 3), "CSR"))
    concatenate(names, tmp_path / f"all{suffix}")
    assert read(tmp_path / f"all{suffix}").values.tolist() == [5, 7, 8]
    for name in names[1:]:
        append(names[0], read(name))
    assert read(names[0]).values.tolist() == [5, 7, 8]
    concatenate(names[1:2] * 2, tmp_path / f"same{suffix}")
    assert read(tmp_path / f"same{suffix}").iso


def test_a_store_that_is_overwritten_in_place_is_read_first():
    store, tensor = MemoryStore(), pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(store, tensor)
    append(store, tensor)
    concatenate([store, store], store, overwrite=True)
    np.testing.assert_array_equal(read(store).to_dense(), np.tile(tensor.to_dense(), (4, 1)))


def test_a_joined_tensor_with_empty_fibers_can_be_read(tmp_path):
    arrays = {"indices_0": [0, 2], "pointers_to_1": [0, 0, 1], "indices_1": [3]}
    write(tmp_path / "a.h5", Tensor("sparse, sparse", (4, 5), arrays, [1.0]))
    concatenate([tmp_path / "a.h5"] * 2, tmp_path / "b.h5")
    assert read(tmp_path / "b.h5").unpack()[0][0].tolist() == [2, 6]


def test_a_folder_whose_chunks_are_tiny_is_written_anew(tmp_path):
    write(tmp_path / "a.zarr", pack([[0], [0]], [1.0], (1, 9000), "sparse(2)"))
    rest = pack([[0] * 9000, np.arange(9000)], np.arange(9000.0), (1, 9000), "sparse(2)")
    append(tmp_path / "a.zarr", rest)
    assert sum(len(names) for _, _, names in os.walk(tmp_path / "a.zarr")) < 20
    assert read(tmp_path / "a.zarr")[1:].equals(rest)


def test_a_folder_without_hard_links_is_copied(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    tensor = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(tmp_path / "a.zarr", tensor)
    monkeypatch.setattr(os, "link", refused)
    append(tmp_path / "a.zarr", tensor)
    assert read(tmp_path / "a.zarr").shape == (6, 4)
    assert os.listdir(tmp_path) == ["a.zarr"]
