"""Write a kind of file: HDF5 with several dense layers in a group, and the names of their rows."""

import h5py
import numpy as np

import binsparse_levels as bl
from binsparse_levels.io import Foreign, Kind, register_kind
from binsparse_levels.testing import check_file_kind


def claims(group):
    """The paths of the tensors in a group that is marked by the attribute `layered`."""
    return [f"layers/{name}" for name in group["layers"]]


def read(file, *, group=None, limits):
    """The layer at a path that `claims` has returned, below any group of the open file."""
    if group is None:
        raise bl.ContainerError("a file of layers has several tensors; read PATH:NAME, as list_tensors names them")
    above, _, name = f"/{group}".rpartition("/layers/")
    place = file[above or "/"]
    labels = {"row": place["rows"].asstr()[:].tolist()}
    return bl.from_numpy(place["layers"][name][:], dims=("row", "column"), labels=labels)


register_kind("layered", Kind(Foreign(read=read, claims=claims), reads=("group",), group=("layered",)))

cells = np.array([[0, 2.0], [1.0, 0]])
with h5py.File("a.h5", "w") as file:
    group = file.create_group("some/group")
    group.attrs["layered"], group["rows"] = True, ["x", "y"]
    group["layers/one"], group["layers/two"] = cells, 2 * cells

assert bl.list_tensors("a.h5") == ["some/group/layers/one", "some/group/layers/two"]
assert bl.open("a.h5:some/group/layers/two").sel(row="y").to_dense().tolist() == [2, 0]
check_file_kind("layered", "a.h5", {"some/group/layers/one": cells})
