"""Tensors of any rank in AnnData, written and read by anndata itself."""

import json
import subprocess
import sys
import warnings
from importlib.metadata import version

import anndata
import h5py
import numpy as np
import pytest
import sparse
import zarr
from anndata.experimental import read_elem_lazy, read_lazy
from anndata.io import read_elem, write_elem

from binsparse_levels import (
    DescriptorError,
    DialectWarning,
    IndexMap,
    OptionError,
    Tensor,
    list_tensors,
    pack,
    read,
    register_anndata,
    to_sparse,
    write,
)
from binsparse_levels import open as open_tensor
from binsparse_levels.tensors.tensor import inside

# Of anndata 0.13 with pandas 3.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")

VERSION = tuple(map(int, version("anndata").split(".")[:3]))
FILES = ["hdf5", "zarr2", "zarr3"]


@pytest.fixture(autouse=True)
def _registered():
    register_anndata()


def tensor(format="dense, sparse, sparse"):
    coords = np.array(np.unravel_index(np.arange(0, 24000, 7), (20, 30, 40)))
    return pack(coords, np.arange(3429.0), (20, 30, 40), format, attributes={"dims": ["obs", "gene", "time"]})


def saved(data, folder, kind, **options):
    path = str(folder / f"{kind}.{'h5ad' if kind == 'hdf5' else 'zarr'}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will be the default
        if kind == "hdf5":
            data.write_h5ad(path, **options)
        else:
            with anndata.settings.override(zarr_write_format=int(kind[-1])):
                data.write_zarr(path, **options)
    return path


def loaded(path):
    return anndata.read_h5ad(path) if path.endswith("ad") else anndata.read_zarr(path)


def uns(**elements):
    data = anndata.AnnData(shape=(20, 30))
    data.uns.update(elements)
    return data


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", FILES)
def test_tensors_in_uns(tmp_path, kind):
    map = IndexMap.grouping((20, 30, 40), [2, 0, 1], [1])
    mapped = pack([[0, 39], [599, 0]], [1.0, 2.0], map.stored_shape, "CSR").with_map(map)
    elements = {"c": tensor("sparse(3)"), "d": mapped, "e": 3}
    path = saved(uns(a=tensor(), b=elements), tmp_path, kind)
    assert list_tensors(path) == ["uns/a", "uns/b/c", "uns/b/d"]
    found = loaded(path).uns
    assert found["b"]["e"] == 3
    assert found["b"]["d"].map == map
    for one, other in ((found["a"], tensor()), (found["b"]["c"], elements["c"]), (found["b"]["d"], elements["d"])):
        assert isinstance(one, Tensor)
        assert one.equals(other)
        assert (one.format, one.attributes) == (other.format, other.attributes)
    opened = open_tensor(f"{path}:uns/a")
    assert opened[3, 2:8].load().equals(tensor()[3, 2:8].load())
    assert read(f"{path}:uns/b/c").equals(tensor())
    (tmp_path / "again").mkdir()
    assert loaded(saved(loaded(path), tmp_path / "again", kind)).uns["a"].equals(tensor())
    assert loaded(path)[:3].copy().uns["a"].equals(tensor())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", FILES)
def test_coo_arrays_are_coo_arrays_again(tmp_path, kind):
    arrays = [sparse.random(shape, density=0.2, random_state=0) for shape in ((5,), (5, 6), (5, 6, 7), (2, 3, 4, 5))]
    filled = sparse.COO([[0, 1], [2, 0], [1, 1]], [1, 2], shape=(2, 3, 4), fill_value=9)
    path = saved(uns(**{f"a{k}": array for k, array in enumerate([*arrays, filled])}, t=tensor()), tmp_path, kind)
    found = loaded(path).uns
    for k, array in enumerate([*arrays, filled]):
        assert isinstance(found[f"a{k}"], sparse.COO)
        assert found[f"a{k}"].fill_value == array.fill_value
        assert (found[f"a{k}"].todense() == array.todense()).all()
        assert (to_sparse(read(f"{path}:uns/a{k}")).todense() == array.todense()).all()
    assert isinstance(found["t"], Tensor)


@pytest.mark.sampled(2)
@pytest.mark.skipif(VERSION < (0, 13, 1), reason="anndata holds no such arrays")
@pytest.mark.parametrize("kind", FILES)
def test_coo_arrays_of_any_rank_in_obsm(tmp_path, kind):
    data, array = anndata.AnnData(shape=(20, 30)), sparse.random((20, 6, 4), density=0.1, random_state=0)
    data.obsm["times"] = array
    path = saved(data, tmp_path, kind)
    assert (loaded(path).obsm["times"].todense() == array.todense()).all()
    assert (loaded(path)[3:5].obsm["times"].todense() == array[3:5].todense()).all()
    assert (to_sparse(open_tensor(f"{path}:obsm/times")[3]).todense() == array[3].todense()).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", FILES)
def test_backed_and_lazy_readers(tmp_path, kind, monkeypatch):
    path = saved(uns(a=tensor(), c=to_sparse(tensor())), tmp_path, kind)
    lazy = read_lazy(path)
    assert lazy.uns["a"].equals(tensor())
    assert isinstance(lazy.uns["c"], sparse.COO)
    if kind == "hdf5":
        backed = anndata.read_h5ad(path, backed="r")
        assert backed.uns["a"].equals(tensor())
        backed.file.close()
    file = h5py.File(path) if kind == "hdf5" else zarr.open_group(path, mode="r")
    for name in ("uns/a", "uns/c"):
        found = read_elem_lazy(file[name])
        assert isinstance(found, Tensor)
        assert inside(found).source.lazy
        assert (found[3].load().to_dense() == tensor()[3].to_dense()).all()


def test_elements_are_written_again_and_compressed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for gzip in ({}, {"compression": "gzip"}):
            write_elem(file, "a", tensor(), dataset_kwargs=gzip)
            assert file["a/values"].compression == gzip.get("compression")
            assert read_elem(file["a"]).equals(tensor())
        assert dict(file["a"].attrs)["encoding-type"] == "binsparse"


def test_a_tensor_that_this_package_wrote_beside_stays_readable(tmp_path):
    path = saved(uns(a=tensor()), tmp_path, "hdf5")
    write(f"{path}:uns/a", tensor("sparse(3)"), kind="hdf5", overwrite=True)
    assert loaded(path).uns["a"].format == tensor("sparse(3)").format


def test_a_damaged_element_is_told_with_its_place(tmp_path):
    path = saved(uns(a=tensor()), tmp_path, "hdf5")
    with h5py.File(path, "r+") as file:
        file["uns/a/indices_1"][0] = 99
    with pytest.raises(Exception, match=r"indices_1\[0\]: 99 is outside dimension 1.*|.*uns/a"):
        loaded(path)


def test_the_registry_of_anndata_is_as_expected():
    """It is private. Where this fails, `register_anndata` has to follow."""
    from anndata._io.specs.registry import _LAZY_REGISTRY, _REGISTRY, IOSpec

    register_anndata()
    spec = IOSpec("binsparse", "0.1.0")
    for group in (h5py.Group, zarr.Group):
        assert _REGISTRY.has_read(group, spec)
        assert _LAZY_REGISTRY.has_read(group, spec)
        for kind in (Tensor, sparse.COO):
            assert _REGISTRY.has_write(group, kind, frozenset())
            assert _REGISTRY.write_specs[kind] == spec


def test_a_writer_of_another_package_is_kept(monkeypatch):
    """ehrdata registered one for COO between its versions 0.3 and 0.4."""
    from anndata._io.specs.registry import _REGISTRY, IOSpec

    def theirs(place, name, array, *, _writer, dataset_kwargs=None):
        raise NotImplementedError

    writers = {key: x for key, x in _REGISTRY.write.items() if key[1] is not sparse.COO}
    monkeypatch.setattr(_REGISTRY, "write", writers)
    monkeypatch.setattr(
        _REGISTRY, "write_specs", {k: x for k, x in _REGISTRY.write_specs.items() if k is not sparse.COO}
    )
    for group in (h5py.Group, zarr.Group):
        _REGISTRY.register_write(group, sparse.COO, IOSpec("ehrdata-coo", "0.1.0"))(theirs)
    register_anndata()
    assert _REGISTRY.write[h5py.Group, sparse.COO, frozenset()].__wrapped__ is theirs
    assert _REGISTRY.write_specs[Tensor].encoding_type == "binsparse"


@pytest.mark.parametrize("name", ["a.h5", "a.zarr"])
def test_arrays_of_ehrdata_are_read_leniently(tmp_path, name):
    """ehrdata 0.4 stores a COO as a Binsparse tensor, whose descriptor deviates twice."""
    array = sparse.random((5, 6, 4), density=0.2, random_state=0)
    file = h5py.File(tmp_path / name, "w") if name == "a.h5" else zarr.open_group(tmp_path / name, mode="w")
    group = file.create_group("obsm/_ed_ondisk_X")
    types = {f"indices_{k}": "int64" for k in range(3)} | {"values": "float64"}
    header = {"version": "0.1", "format": "COO", "shape": array.shape, "number_of_stored_values": array.nnz}
    group.attrs["binsparse"] = json.dumps(header | {"data_types": types, "fill": True})
    group.attrs["ehrdata-encoding-type"] = "ehrdata-coo"
    parts = dict(zip(types, (*array.coords, array.data), strict=True)) | {"fill_value": np.zeros(1)}
    for key, part in parts.items():
        group[key] = part
    if name == "a.h5":
        file.close()
    place = f"{tmp_path / name}:obsm/_ed_ondisk_X"
    assert list_tensors(tmp_path / name) == ["obsm/_ed_ondisk_X"]
    with pytest.raises(DescriptorError, match="lenient=True"):
        read(place)
    with pytest.warns(DialectWarning) as warned:
        found = read(place, lenient=True)
    assert any("format: COO has two dimensions, got [5, 6, 4]" in str(x.message) for x in warned)
    assert (to_sparse(found) == array).all()


@pytest.mark.slow
def test_nothing_is_registered_by_an_import():
    code = """
import binsparse_levels.interop.anndata, sys
assert "anndata" not in sys.modules
import anndata, binsparse_levels, h5py
from anndata._io.specs.registry import _REGISTRY
assert binsparse_levels.Tensor not in _REGISTRY.write_specs
binsparse_levels.register_anndata()
assert binsparse_levels.Tensor in _REGISTRY.write_specs
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_anndata_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata._io.specs.registry", None)
    with pytest.raises(OptionError, match="pip install anndata"):
        register_anndata()
