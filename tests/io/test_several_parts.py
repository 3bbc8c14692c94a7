"""Tensors of several parts: stores that grow, and files that are read as one."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil

import numpy as np
import pytest
import scipy.sparse
import zarr
from helpers import strategies
from helpers.growth import ROWS, appended, grown, numbered, row
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.cli import main
from binsparse_levels.limits import DEFAULT_LIMITS
from binsparse_levels.looking.faults import all_faults, faults_of
from binsparse_levels.system import resident

SYMMETRIC = bl.pack([[0, 1, 2]] * 2, [1.0] * 3, (3, 3), "CSR", structure="symmetric_lower")


@st.composite
def growing(draw):
    """The parts of a tensor: each with the axis along which it is appended."""
    first = draw(testing.tensors(kinds=testing.PLAIN, structures=False).filter(lambda tensor: 0 < tensor.ndim < 4))
    parts, shape = [(first, 0)], list(first.shape)
    for _ in range(draw(st.integers(1, 3))):
        axis = draw(st.integers(0, first.ndim - 1))
        size = draw(st.integers(0, 3))
        cells = list(np.ndindex(*shape[:axis], size, *shape[axis + 1 :]))
        chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=6)) if cells else []
        values = np.array(draw(st.lists(st.integers(0, 9), min_size=len(chosen), max_size=len(chosen)))).astype(
            first.dtype
        )
        coords = np.array(chosen, np.int64).reshape(-1, first.ndim).T
        format = draw(testing.formats(min_rank=first.ndim, max_rank=first.ndim, kinds=testing.PLAIN))
        new = (*shape[:axis], size, *shape[axis + 1 :])
        parts.append((bl.pack(coords, values, new, format, fill_value=first.fill_value), axis))
        shape[axis] += size
    return parts


@given(data=st.data(), parts=growing())
def test_a_store_that_grows_is_the_tensor_of_its_parts(data, parts, tmp_path_factory):
    """After each append: slices, sums, products and entries are those of numpy; then compacted, too."""
    place = str(tmp_path_factory.mktemp("parts") / data.draw(st.sampled_from(["a.zarr", "a.zarr:g/h"])))
    (first, _), *others = parts
    bl.write(place, first)
    dense = first.to_dense()
    for part, axis in others:
        bl.append(place, part, axis=axis, part=True)
        dense = np.concatenate([dense, part.to_dense()], axis)
        opened = bl.open(place)
        key = data.draw(strategies.keys(dense.shape))
        got = opened[key]
        np.testing.assert_array_equal(got.to_dense() if isinstance(got, bl.Tensor) else got, dense[key])
    assert opened.shape == dense.shape
    np.testing.assert_array_equal(bl.read(place).to_dense(), dense)
    if dense.dtype.kind in "iuf" and not first.fill_value:
        along = data.draw(st.integers(0, dense.ndim - 1))
        exact = dense.sum(along, dtype=np.float64 if dense.dtype.kind == "f" else None)
        np.testing.assert_allclose(np.asarray(opened.sum(along), np.float64), exact)
        letters = "ijkl"[: dense.ndim]
        vector = np.arange(1.0, dense.shape[-1] + 1)
        expected = np.einsum(f"{letters},{letters[-1]}->{letters[:-1]}", dense.astype(float), vector)
        np.testing.assert_allclose(bl.einsum(f"{letters},{letters[-1]}->{letters[:-1]}", opened, vector), expected)
    assert opened.T.equals(bl.read(place).T)
    assert pickle.loads(pickle.dumps(opened)).equals(opened)
    assert list(map(len, opened.unpack()[0])) == [opened.nnz] * opened.ndim
    format = data.draw(st.sampled_from([None, f"sparse({dense.ndim})"]))
    memory = data.draw(st.sampled_from([None, resident() + 2**30]))
    bl.compact(place, format, memory=memory, grace=data.draw(st.sampled_from([0, 60])))
    again = bl.open(place)
    assert [(x.origin, x.shape) for x in again.parts] == [((0,) * dense.ndim, dense.shape)]
    np.testing.assert_array_equal(again.to_dense(), dense)
    assert not all_faults(place, (), DEFAULT_LIMITS)


@given(data=st.data())
def test_several_files_are_one_tensor(data, tmp_path_factory):
    """Slabs of a tensor in any containers and formats, along any dimension, and one of them in parts itself."""
    whole = data.draw(testing.tensors(kinds=testing.PLAIN, structures=False).filter(lambda tensor: 0 < tensor.ndim < 4))
    folder, axis = tmp_path_factory.mktemp("several"), data.draw(st.integers(0, whole.ndim - 1))
    ends = [0, *sorted(data.draw(st.lists(st.integers(0, whole.shape[axis]), max_size=3))), whole.shape[axis]]
    places = []
    for k, (start, stop) in enumerate(itertools.pairwise(ends)):
        place = data.draw(
            st.sampled_from([f"{folder}/{k}{x}" for x in (".h5", ".h5:g", ".zarr", ".npz", ".nc")] + [{}])
        )
        slab = whole[(slice(None),) * axis + (slice(start, stop),)]
        formats = testing.formats(min_rank=whole.ndim, max_rank=whole.ndim, kinds=testing.PLAIN)
        bl.write(place, slab.load(data.draw(formats)))
        places.append(place)
    opened, dense = bl.open(places, axis=axis), whole.to_dense()
    key = data.draw(strategies.keys(dense.shape))
    got = opened[key]
    np.testing.assert_array_equal(got.to_dense() if isinstance(got, bl.Tensor) else got, dense[key])
    assert opened.dtype == whole.dtype
    np.testing.assert_array_equal(opened.to_dense(), dense)
    target = f"{folder}/all.zarr"
    bl.write(target, opened)
    np.testing.assert_array_equal(bl.read(target).to_dense(), dense)


def test_a_hundred_shards_of_scipy_are_one_tensor(tmp_path):
    shards = [scipy.sparse.random(7, 30, 0.2, "csr", random_state=k) for k in range(100)]
    for k, shard in enumerate(shards):
        scipy.sparse.save_npz(tmp_path / f"{k:03}.npz", shard)
    opened, whole = bl.open(f"{tmp_path}/*.npz"), scipy.sparse.vstack(shards)
    assert opened.shape == (700, 30)
    assert len(opened.parts) == 100
    np.testing.assert_array_equal(opened[350:372].to_dense(), whole[350:372].toarray())
    np.testing.assert_allclose(opened @ np.arange(30.0), whole @ np.arange(30.0))
    bl.write_from(opened, tmp_path / "a.h5", opened.shape, "CSC", memory=resident() + 2**30)
    np.testing.assert_array_equal(bl.read(tmp_path / "a.h5").to_dense(), whole.toarray())


def test_a_file_of_several_files_may_have_parts_itself(tmp_path):
    grown(tmp_path / "a.zarr", 3)
    bl.write(tmp_path / "b.h5", numbered(7))
    places = [tmp_path / x for x in ("b.h5", "a.zarr", "b.h5")]
    dense = bl.open(places).to_dense()
    np.testing.assert_array_equal(bl.open(places).sum(1), dense.sum(1))
    np.testing.assert_array_equal(bl.open(places)[5:0:-2, ::-1].sum(1), dense[5:0:-2].sum(1))
    np.testing.assert_array_equal(bl.open(places)[:, [0, 0]] @ np.ones(2), 2 * dense[:, 0])


def test_views_have_no_parts_and_their_parts_are_checked(tmp_path):
    grown(tmp_path / "a.zarr", 3)
    opened = bl.open(tmp_path / "a.zarr")
    assert opened.T.parts == opened[1:].parts == ()
    (tmp_path / "a.zarr" / opened.parts[2].group / "values/zarr.json").unlink()
    assert [x for x in faults_of(opened[1:]) if "part 2" in x.path]


def test_an_open_group_of_zarr_grows(tmp_path):
    grown(tmp_path / "a.zarr", 0)
    group = zarr.open_group(tmp_path / "a.zarr")
    bl.append(group, numbered(1), part=True)
    group.attrs["other"] = 1
    bl.append(group, numbered(2))
    assert appended(tmp_path / "a.zarr") == [0.0, 1.0, 2.0]
    bl.compact(group, grace=0)
    group.attrs["other"] = 2
    assert appended(tmp_path / "a.zarr") == [0.0, 1.0, 2.0]


def test_an_hour_opens_its_file(tmp_path):
    hours = np.arange("2026-01-01", "2026-01-03", dtype="M8[h]").astype("M8[s]")
    for k, hour in enumerate(hours):
        tensor = bl.pack([[0], [k % 4]], [float(k)], (1, 4), "CSR")
        bl.write(tmp_path / f"{k:02}.h5", tensor.with_labels({"hour": [hour]}, dims=["hour", "station"]))
    opened = bl.open(f"{tmp_path}/*.h5", axis="hour")
    for name in os.listdir(tmp_path):
        if name != "30.h5":
            os.truncate(tmp_path / name, 100)
    assert opened.sel(hour=hours[30]).to_dense().tolist() == [0, 0, 30, 0]
    with pytest.raises(bl.BinsparseError):
        opened.sel(hour=hours[31]).load()


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_files_that_do_not_follow_each_other_are_refused(tmp_path, suffix):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    bl.write(first, ROWS)
    for other, why in [
        (row("w")[:, :2], "has size 2 in dimension 1"),
        (row("w").astype("float32"), "dtype"),
        (bl.pack([[0], [0]], [1], (1, 3), "CSR", fill_value=7), "fill value"),
        (row("w").with_labels({"item": ["a", "b", "d"]}), "has other labels of dimension 'item'"),
        (row("w").with_labels({"user": None}), "has no labels of dimension 'user'"),
    ]:
        bl.write(second, other, overwrite=True)
        with pytest.raises(bl.BinsparseError, match=why):
            bl.open([first, second])
    with pytest.raises(FileNotFoundError, match="no file matches"):
        bl.open(f"{tmp_path}/*.nc")
    with pytest.raises(bl.OptionError, match="at least one"):
        bl.open([])
    bl.write(second, SYMMETRIC, overwrite=True)
    with pytest.raises(bl.FormatError, match="expand_structure"):
        bl.open([second, second])


def test_labels_of_the_axis_are_appended_and_the_others_compared(tmp_path):
    place = tmp_path / "a.zarr"
    bl.write(place, ROWS)
    bl.append(place, row("w"), part=True)
    bl.append(place, row("x")[:, :].load(), axis="user")
    bl.append(
        place, bl.pack_dense([[1]] * 4, "CSR", labels={1: ["d"], 0: [*"uvwx"]}, dims=["user", "item"]), axis="item"
    )

    def wide(users):
        return bl.pack_dense([[0] * 4] * len(users), "CSR", labels={0: users, 1: [*"abcd"]}, dims=["user", "item"])

    opened = bl.open(place)
    assert opened.labels("user").tolist() == ["u", "v", "w", "x"]
    assert opened.labels("item").tolist() == ["a", "b", "c", "d"]
    assert opened.sel(user="w").to_dense().tolist() == [5, 0, 0, 1]
    assert opened[1:3, ::-1].labels("item").tolist() == ["d", "c", "b", "a"]
    before = opened.shape
    for other, why in [
        (wide(["w"]), "would be there twice"),
        (row("y").with_labels({"item": [*"abd"]}), "has size 3 in dimension 1"),
        (bl.pack_dense([[1, 2, 3, 4]], "CSR"), "has no labels"),
    ]:
        with pytest.raises(bl.BinsparseError, match=why):
            bl.append(place, other)
    bl.append(place, wide(["w", "z"]), existing="skip")
    assert bl.open(place).shape == (before[0] + 1, before[1])
    bl.compact(place)
    assert bl.open(place).labels("user").tolist() == [*"uvwxz"]


def test_what_has_no_parts_is_refused(tmp_path):
    table = [
        ("a.h5", {}, ROWS, "this kind of file has no parts"),
        ("a.zarr.zip", {}, ROWS, "this kind of file has no parts"),
        ("b.zarr", {"orders": ["CSC"]}, ROWS, "other orders"),
        ("c.zarr", {"bitpacked": True}, ROWS, "packed arrays"),
        ("d.zarr", {}, SYMMETRIC, "a structure"),
        ("e.zarr", {}, bl.pack_dense(np.eye(3), "sparse", map="(0 1)"), "a map"),
        ("f.zarr", {"kind": "zarr2"}, ROWS, "metadata of Zarr 2 has no parts"),
    ]
    for name, options, tensor, why in table:
        bl.write(tmp_path / name, tensor, **options)
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(bl.BinsparseError, match=why):
            bl.append(
                tmp_path / name, tensor.with_labels({"user": ["p", "q"]}) if tensor is ROWS else tensor, part=True
            )
        assert sorted(os.listdir(tmp_path)) == before
        assert bl.read(tmp_path / name).equals(tensor)
    bl.write(tmp_path / "g.zarr", ROWS)
    with pytest.raises(bl.OptionError, match="has one part"):
        bl.compact(tmp_path / "g.zarr")
    bl.append(tmp_path / "g.zarr", row("w"), part=True)
    with pytest.raises(bl.OptionError, match="goes on with parts"):
        bl.append(tmp_path / "g.zarr", row("x"), part=False)


def test_other_programs_refuse_a_store_with_parts_and_open_its_parts(tmp_path):
    bl.write(tmp_path / "a.zarr", ROWS)
    bl.append(tmp_path / "a.zarr", row("w"), part=True)
    header = json.loads((tmp_path / "a.zarr/zarr.json").read_text())["attributes"]["binsparse"]
    assert header["binsparse"]["format"] == "custom"
    assert header["binsparse"]["custom"]["level"]["level_desc"] == "binsparse_levels:parts"
    first, second = (part["group"] for part in header["binsparse_levels:parts"]["parts"])
    assert bl.read(tmp_path / f"a.zarr:{second}").to_dense().tolist() == [[5, 0, 0]]
    assert bl.read(tmp_path / f"a.zarr:{first}").to_dense().tolist() == ROWS.to_dense().tolist()
    assert bl.list_tensors(tmp_path / "a.zarr") == ["/"]
    bl.write(tmp_path / "a.zarr", ROWS, overwrite=True)
    assert not [name for name in os.listdir(tmp_path / "a.zarr") if name.startswith("part_")]


def test_a_damaged_list_of_parts_is_an_error(tmp_path):
    grown(tmp_path / "a.zarr", 2)
    text = (tmp_path / "a.zarr/zarr.json").read_text()
    for change, why in [
        (lambda parts: parts["parts"][1].update(origin=[0, 0]), "parts overlap"),
        (lambda parts: parts["parts"][1].update(group=parts["parts"][2]["group"]), "occurs twice"),
        (lambda parts: parts["parts"][1].update(origin=[3, 0]), "not within the shape"),
        (lambda parts: parts["parts"][1].update(group="../x"), "not the name of a part"),
        (lambda parts: parts["parts"][1].update(shape=[1]), "expected 2 dimensions"),
        (lambda parts: parts["parts"][1].update(shape=[1, 3.5]), "expected integers"),
        (lambda parts: parts["parts"].pop(), "values in all"),
        (lambda parts: parts.pop("parts"), "no list of parts"),
        (lambda parts: parts["parts"][1].update(labels=7), "no list of parts"),
        (lambda parts: parts.update(fill_value="zz"), "no list of parts"),
        (lambda parts: parts.update(parts=7), "no list of parts"),
        (lambda parts: parts.update(removed=7), "no list of parts"),
    ]:
        node = json.loads(text)
        change(node["attributes"]["binsparse"]["binsparse_levels:parts"])
        (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(node))
        with pytest.raises(bl.BinsparseError, match=why):
            bl.open(tmp_path / "a.zarr")
    node = json.loads(text)
    for part, count in zip(node["attributes"]["binsparse"]["binsparse_levels:parts"]["parts"], [0, 0, 2], strict=True):
        part["number_of_stored_values"] = count
    (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(node))
    with pytest.raises(bl.ArrayError, match="expected a part"):
        bl.open(tmp_path / "a.zarr")[2].load()
    node = json.loads(text)
    node["attributes"]["binsparse"]["binsparse"]["structure"] = "symmetric_lower"
    (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(node))
    with pytest.raises(bl.DescriptorError, match="a tensor with parts has none"):
        bl.open(tmp_path / "a.zarr")
    (tmp_path / "a.zarr/zarr.json").write_text(text)
    part = bl.open(tmp_path / "a.zarr").parts[1].group
    bl.write(tmp_path / f"a.zarr:{part}", bl.pack_dense(np.eye(2), "CSR"), overwrite=True)
    with pytest.raises(bl.ArrayError, match=f"{part}: expected a part"):
        bl.read(tmp_path / "a.zarr")
    shutil.rmtree(tmp_path / "a.zarr" / part)
    assert bl.open(tmp_path / "a.zarr")[2].to_dense().tolist() == [0, 0, 2]
    with pytest.raises(bl.BinsparseError, match=part):
        bl.open(tmp_path / "a.zarr")[1].load()
    assert any(part in str(fault) for fault in all_faults(tmp_path / "a.zarr", (), DEFAULT_LIMITS))
    assert main(["check", str(tmp_path / "a.zarr")]) == 1


def test_readers_go_on_while_it_is_compacted(tmp_path):
    place = tmp_path / "a.zarr"
    grown(place, 3)
    opened = bl.open(place)
    expected = opened.to_dense()
    reader = bl.open(place)
    bl.compact(place)
    bl.append(place, numbered(4))
    np.testing.assert_array_equal(reader.to_dense(), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bl.open(place)))[:4].to_dense(), expected)
    late = bl.open(place)
    bl.compact(place, grace=0)
    assert len([name for name in os.listdir(place) if name.startswith("part_")]) == 1
    np.testing.assert_array_equal(bl.open(place)[:4].to_dense(), expected)
    with pytest.raises(bl.BinsparseError):
        late[1:3].load()


def test_a_closed_tensor_is_not_read(tmp_path):
    grown(tmp_path / "a.zarr", 2)
    with bl.open(tmp_path / "a.zarr") as opened:
        row = opened[1:2]
        opened[2].load()
    with pytest.raises(bl.ContainerError, match="closed"):
        row.load()


@pytest.mark.parametrize("option", [{"bitpacked": True}, {"map": "(0 1)"}])
def test_a_tree_that_cannot_grow_does_not_replace_parts(tmp_path, option):
    grown(tmp_path / "a.zarr", 2)
    with pytest.raises(bl.FormatError, match="has no parts; write it again without"):
        bl.compact(tmp_path / "a.zarr", **option)
    assert bl.open(tmp_path / "a.zarr").to_dense().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 2]]


def test_a_header_that_another_program_writes_is_no_other_content(tmp_path):
    bl.write(tmp_path / "a.zarr", ROWS)
    (tmp_path / "a.zarr/zarr.json.8ab8b3711e3d.part").write_bytes(b"half")
    bl.convert(tmp_path / "a.zarr", tmp_path / "b.h5")
    bl.write(tmp_path / "a.zarr", ROWS, overwrite=True)
    (tmp_path / "a.zarr/mine.part").write_bytes(b"of the user")
    with pytest.raises(bl.errors.PathExistsError, match=r"mine\.part"):
        bl.write(tmp_path / "a.zarr", ROWS, overwrite=True)
