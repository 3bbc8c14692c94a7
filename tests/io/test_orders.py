"""Several orders of one tensor in one place."""

from __future__ import annotations

import itertools
import logging
import pickle

import h5py
import numpy as np
import pytest
import zarr
from helpers import strategies
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.cli import main
from binsparse_levels.io import describe
from binsparse_levels.looking.faults import order_faults

MATRIX = bl.pack_dense([[0, 2, 0], [3, 0, 4], [0, 0, 5], [6, 0, 0]], "CSR", labels={1: ["a", "b", "c"]})
PLACES = ("a.h5", "a.h5:group", "a.nc", "a.nc:group", "a.zarr", "a.zarr:inner/group", "a.zarr.zip")


def groups(place, name="order_1_0"):
    """The tensor and its order, as `list_tensors` names them."""
    _, _, group = place.partition(":")
    return [f"{group}/{name}".lstrip("/"), group or "/"]


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return str(tmp_path / request.param)


@given(data=st.data(), case=strategies.cases(max_rank=3))
def test_every_order_answers_as_the_tensor(data, case, tmp_path_factory):
    """A slice is the oracle's, from whichever order; each order is a tensor by itself."""
    rank = len(case.shape)
    assume(rank > 1)
    orders = [x for x in itertools.permutations(range(rank)) if x != case.format.order]
    drawn = data.draw(st.lists(st.sampled_from(orders), unique=True, min_size=1, max_size=3))
    levels = testing.formats(min_rank=rank, max_rank=rank, kinds=(bl.Dense, bl.Sparse))
    formats = [bl.Format(data.draw(levels).levels, order) for order in drawn]
    tensor = bl.pack(case.coords, case.values, case.shape, case.format)
    place = str(tmp_path_factory.mktemp("orders") / data.draw(st.sampled_from(["a.h5", "a.zarr"])))
    bl.write(place, tensor, orders=formats)
    dense = tensor.to_dense()
    key = data.draw(strategies.keys(case.shape))
    with bl.open(place) as opened:
        got = opened[key]
        assert np.array_equal(got.to_dense() if isinstance(got, bl.Tensor) else got, dense[key])
    for name in bl.list_tensors(place):
        assert np.array_equal(bl.read(f"{place}:{name}").to_dense(), dense)
    assert order_faults(place, tensor, False, bl.Limits()) == ()


def test_the_log_has_the_order_of_a_slice(place, caplog):
    bl.write(place, MATRIX, orders=["CSC"])
    opened = bl.open(place)
    for key, order in ((np.s_[1:2], "CSR"), (np.s_[:, 1:2], "CSC")):
        with caplog.at_level(logging.DEBUG, "binsparse_levels"):
            opened[key].load()
        assert any(line.startswith(f"orders: {order}, because") for line in caplog.messages)
        caplog.clear()


def test_a_slice_reads_the_order_of_its_dimension(place):
    bl.write(place, MATRIX, orders=["CSC"])
    assert set(groups(place)) <= set(bl.list_tensors(place.partition(":")[0]))
    with bl.open(place) as opened:
        assert str(opened[:, 1:3].format) == "CSC"
        assert str(opened[1:3].format) == str(opened.format) == "CSR"
        assert str(opened[:, 1:3][0:2].format) == "CSC"
        assert opened.sel(dim_1=["c", "a"]).load().equals(MATRIX[:, [2, 0]])
        assert opened[:, 1:].labels(1).tolist() == ["b", "c"]
        assert pickle.loads(pickle.dumps(opened[:, 1:3])).equals(MATRIX[:, 1:3])
        opened.load()
        assert str(opened[:, 1:3].format) != "CSC"  # in memory there is one order


def test_slabs_along_another_dimension_read_its_order(tmp_path):
    place = str(tmp_path / "a.h5")
    bl.write(place, MATRIX, orders=["CSC"])
    with bl.open(place) as opened:
        slabs = list(opened.slabs(1, max_bytes=60))
        assert {str(slab.format) for _, slab in slabs} == {"CSC"}
        assert sum(len(part) for part, _ in slabs) == 3
        for part, slab in slabs:
            assert slab.equals(MATRIX[:, part.start : part.stop])


def test_an_order_is_packed_like_the_tensor(place):
    bl.write(place, MATRIX, orders=["CSC"], checksum=True, narrow=True, bitpacked=["indices_1"])
    for name in groups(place):
        descriptor = describe(f"{place.partition(':')[0]}:{name}").descriptor
        assert descriptor.data_types["indices_1"].wrapper
        assert descriptor.data_types["pointers_to_1"].dtype == np.uint8


@pytest.mark.sampled(2)
def test_appending_writes_all_orders_again(place):
    bl.write(place, MATRIX, orders=["CSC"], checksum=True)
    bl.append(place, MATRIX)
    assert main(["check", place]) == 0
    with bl.open(place) as opened:
        assert str(opened[:, 1].format) == "CVEC"
        assert np.array_equal(opened[:, 1:].to_dense(), np.tile(MATRIX.to_dense(), (2, 1))[:, 1:])
        assert opened.labels(1).tolist() == ["a", "b", "c"]
    assert bl.read(place).shape == (8, 3)


@pytest.mark.sampled(2)
def test_a_tensor_without_orders_replaces_all(place):
    bl.write(place, MATRIX, orders=["CSC"])
    bl.write(place, MATRIX, orders=["DCSC"], overwrite=True)
    assert bl.open(place)[:, 1:].format.levels[0].kind == "sparse"
    bl.write(place, MATRIX, overwrite=True)
    assert groups(place)[0] not in bl.list_tensors(place.partition(":")[0])


@pytest.mark.parametrize("make", [lambda path: h5py.File(path / "a.h5", "w").create_group("g"), zarr.create_group])
def test_an_open_group(make, tmp_path):
    group = make(tmp_path) if make is not zarr.create_group else make(zarr.storage.MemoryStore())
    group.attrs["more"] = 1
    bl.write(group, MATRIX, orders=["CSC"])
    refusing = bl.Format(bl.parse_format("dense, n_of_m(n=1, m=4)").levels, (1, 0))  # a column with two entries
    with pytest.raises(bl.FormatError):
        bl.write(group, MATRIX, orders=[refusing], overwrite=True)
    assert str(bl.open(group)[:, 1:].format) == "CSC"
    bl.write(group, MATRIX, overwrite=True)
    assert "order_1_0" not in list(group)
    assert group.attrs["more"] == 1


@pytest.mark.parametrize("orders", [["CSR"], ["CSC", "DCSC"], "CSC", ["sparse"], ["DVEC"], [3]])
def test_orders_that_are_refused(orders, tmp_path):
    with pytest.raises((bl.OptionError, bl.FormatError, TypeError), match=r"order|dimensions|format"):
        bl.write(tmp_path / "a.h5", MATRIX, orders=orders)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("place", ["a.npz", "a.bspnpy", "a.mtx", "a.ra"])
def test_files_without_groups_have_one_order(place, tmp_path):
    with pytest.raises(bl.OptionError):
        bl.write(tmp_path / place, MATRIX, orders=["CSC"])
    assert not (tmp_path / place).exists()


def test_a_map_has_one_order(tmp_path):
    with pytest.raises(bl.OptionError, match="map"):
        bl.write(tmp_path / "a.h5", MATRIX.convert("sparse(2)", map="1, 0"), orders=["CSC"])


def _other_entries(file):
    file["order_1_0/values"][0] = 9


def _unsorted(file):
    file["order_1_0/indices_1"][:] = file["order_1_0/indices_1"][:][::-1]


@pytest.mark.parametrize(("change", "what"), [(_other_entries, "other entries"), (_unsorted, "indices_1")])
def test_check_compares_the_orders(change, what, tmp_path, capsys):
    place = tmp_path / "a.h5"
    bl.write(place, MATRIX, orders=["CSC"])
    with h5py.File(place, "r+") as file:
        change(file)
    assert main(["check", str(place)]) == 1
    assert f"order_1_0: {'has ' * (what[0] == 'o')}{what}" in capsys.readouterr().out


def _missing(file):
    del file["order_1_0"]


def _no_header(file):
    del file["order_1_0"].attrs["binsparse"]


def _no_list(file):
    file.attrs["binsparse"] = file.attrs["binsparse"].replace('["order_1_0"]', '"order_1_0"')


def _another(file):
    del file["order_1_0"]
    bl.write(file.create_group("order_1_0"), bl.pack_dense([[1, 2]], "CSC"))


@pytest.mark.parametrize("change", [_missing, _no_header, _no_list, _another])
def test_a_damaged_order_is_an_error_of_open(change, tmp_path):
    place = tmp_path / "a.h5"
    bl.write(place, MATRIX, orders=["CSC"])
    with h5py.File(place, "r+") as file:
        change(file)
    with pytest.raises(bl.BinsparseError, match="order"):
        bl.open(place)
    assert bl.read(place).equals(MATRIX)
