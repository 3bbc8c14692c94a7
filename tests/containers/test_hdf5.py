"""HDF5: damaged files, attributes that hold no header, links that lead out of a group."""

import h5py
import numpy as np
import pytest

from binsparse_levels import BinsparseError, ContainerError, UnsafeError, pack, pack_dense, read, write


@pytest.mark.parametrize("attribute", [h5py.Empty("S1"), h5py.Empty("f8"), [1, 2], 1j])
def test_attributes_that_are_no_header(tmp_path, attribute):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["binsparse"] = attribute
    with pytest.raises(ContainerError):
        read(tmp_path / "a.h5")


def test_damaged_files_are_errors_of_ours(tmp_path):
    path = tmp_path / "a.h5"
    write(path, pack_dense(np.arange(42.0).reshape(6, 7) % 5, "DCSR", fill_value=0))
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for cut in generator.integers(0, len(whole), 100):
        path.write_bytes(whole[:cut])
        with pytest.raises(BinsparseError):
            read(path)


@pytest.mark.parametrize(
    "group", ["soft", "soft/x", "external", "external/x", "dataset", "dataset/x", ".", "../x", "a/./b"]
)
@pytest.mark.parametrize("kind", ["hdf5", "netcdf"])
def test_writing_stays_in_its_file(tmp_path, group, kind):
    tensor = pack([[0]], [1.0], 3, "CVEC")
    write(f"{tmp_path}/other.h5:inner", tensor)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inside/values"] = [1]
        file["soft"] = h5py.SoftLink("/inside")
        file["external"] = h5py.ExternalLink("other.h5", "/inner")
        file["dataset"] = [1]
    before = [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]
    with pytest.raises((UnsafeError, ContainerError)):
        write(f"{tmp_path}/a.h5:{group}", tensor, overwrite=True, kind=kind)
    assert before == [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]
