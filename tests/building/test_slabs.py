"""Slabs as chunks of `write_from`, and matrices of AnnData that are written in pieces."""

import itertools
import os
from pathlib import Path

import anndata
import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.thresholds import using_thresholds

# Of anndata 0.13 with pandas 3.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")


def few(entries):
    """So many entries fit into memory, and into a piece."""
    return using_thresholds(step_entries=entries, piece_items=max(entries - 1, 1))


def labelled(draw, tensor):
    """The tensor with names of all dimensions, and labels of some, or with none."""
    if draw(st.booleans()):
        return tensor
    dims = list("abc"[: tensor.ndim])
    labels = {dim: [f"{dim}{k}" for k in range(size)] for dim, size in zip(dims, tensor.shape, strict=True)}
    chosen = draw(st.lists(st.sampled_from(dims), unique=True))
    return tensor.with_labels({dim: labels[dim] for dim in chosen}, dims=dims)


def parts_of(draw, size):
    """Ranges of coordinates that follow each other, in any order."""
    cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))})
    return draw(st.permutations([range(a, b) for a, b in itertools.pairwise(cuts)]))


@given(data=st.data())
def test_slabs_are_the_whole(data):
    """Along any dimension, in any order, with and without labels, with a fill value, of a size that is not given."""
    draw = data.draw
    whole = draw(testing.tensors(kinds=testing.PLAIN, max_rank=3, structures=False))
    assume(whole.ndim)
    whole = labelled(draw, whole)
    axis = draw(st.integers(0, whole.ndim - 1))
    parts = parts_of(draw, whole.shape[axis])
    assume(parts and len(parts[0]))
    shape = [None if k == axis and draw(st.booleans()) else size for k, size in enumerate(whole.shape)]
    chunks = [(part, whole[(*[slice(None)] * axis, slice(part.start, part.stop))]) for part in parts]
    format, target = draw(testing.formats(min_rank=whole.ndim, max_rank=whole.ndim, kinds=testing.PLAIN)), {}
    with few(draw(st.sampled_from([1, 2, 5, 100]))):
        bl.write_from(chunks, target, shape, format, memory=1, fill_value=whole.fill_value)
    found = bl.read(target)
    np.testing.assert_array_equal(found.to_dense(), whole.to_dense())
    assert found.dims == whole.dims
    for dim in whole.dims or ():
        assert repr(found.labels(dim)) == repr(whole.labels(dim))


def test_slabs_as_the_method_yields_them(tmp_path):
    tensor = bl.from_scipy(scipy.sparse.random_array((40, 30), density=0.2, format="csr", rng=0))
    bl.write(tmp_path / "a.h5", tensor)
    with bl.open(tmp_path / "a.h5") as opened:
        for axis in (0, 1):
            chunks = ((part, np.log1p(slab)) for part, slab in opened.slabs(axis, max_bytes=1000))
            bl.write_from(chunks, tmp_path / f"b{axis}.h5", opened.shape, "CSC")
            assert bl.read(tmp_path / f"b{axis}.h5").equals(np.log1p(tensor).convert("CSC"))


def test_labels_place_slabs_where_they_are_numbered():
    """With `dims`, labels of a slab say where it belongs."""
    whole = bl.pack_dense([[1, 2], [0, 3], [4, 0]], "CSR").with_labels({"u": list("xyz")}, dims=["u", "i"])
    target = {}
    chunks = [(range(2), whole[:2]), (range(2, 3), whole[2:])]
    bl.write_from(chunks, target, whole.shape, "CSR", dims=["u", "i"], labels={"u": list("zyx")})
    assert bl.read(target).to_dense().tolist() == [[4, 0], [0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("chunks", "shape", "told"),
    [
        ([(range(2), (3, 2))], (4, 2), "no slab"),  # of another size than the range
        ([(range(2), (2, 2))], (None, None), "pass the sizes"),
        ([(range(2), (2, 4)), (range(2), (4, 2))], (4, 4), "no slab"),  # along two dimensions
        ([(range(3, 5), (2, 2))], (4, 2), "outside dimension 0"),
    ],
)
def test_slabs_that_do_not_fit(chunks, shape, told):
    given = [(part, bl.pack_dense(np.ones(size), "CSR")) for part, size in chunks]
    with pytest.raises(bl.BinsparseError, match=told):
        bl.write_from(given, target := {}, shape, "CSR", **({"dims": ["a", "b"]} if None in shape else {}))
    assert not target


def test_slabs_with_labels_and_a_gap_are_refused():
    whole = bl.pack_dense(np.eye(4), "CSR").with_labels({"u": list("abcd")}, dims=["u", "i"])
    with pytest.raises(bl.ArrayError, match="does not follow another"):
        bl.write_from([(range(2, 4), whole[2:])], target := {}, (4, 4), "CSR")
    assert not target


def test_slabs_far_from_the_origin():
    """Coordinates of a slab may have 32 bits, and those of the whole 64."""
    slab = bl.pack_dense(np.ones((2, 3)), "CSR")
    for start in (2**31 - 1, 2**31):
        bl.write_from([(range(start, start + 2), slab)], target := {}, (2**34, 3), "COO")
        assert bl.read(target).unpack()[0][0].tolist() == [start] * 3 + [start + 1] * 3


def test_a_slab_given_twice_with_other_labels_is_refused():
    one, other = (bl.pack_dense([[1, 2]], "CSR").with_labels({"u": [x]}, dims=["u", "i"]) for x in "ab")
    with pytest.raises(bl.ArrayError, match="does not follow another"):
        bl.write_from([(range(1), one), (range(1), other)], target := {}, (2, 2), "CSR", duplicates="sum")
    assert not target


# AnnData

PLACES = ["a.h5ad", "a.h5ad:layers/m", "a.zarr:X", "a.zarr:layers/m"]


def read_by_anndata(place):
    """The matrix in a place of a file, as anndata reads it."""
    path, _, group = str(place).partition(":")
    found = (anndata.read_zarr if path.endswith(".zarr") else anndata.read_h5ad)(path)
    return found.layers["m"] if group == "layers/m" else found.X


@given(data=st.data())
def test_any_stream_into_anndata(tmp_path_factory, data):
    """In pieces and whole, of any format of two dimensions, from entries, slabs or a file."""
    draw = data.draw
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    cells = draw(st.lists(st.sampled_from(list(np.ndindex(*shape))), unique=True, max_size=20))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "bool"]))
    values = np.arange(1, len(cells) + 1).astype(dtype)
    coords = np.array(cells, np.int64).reshape(-1, 2).T
    tensor = bl.pack(coords, values, shape, draw(st.sampled_from(["COO", "CSR", "CSC", "DCSC"])))
    format = draw(testing.formats(min_rank=2, max_rank=2, kinds=testing.PLAIN))
    assume(not format.padded)
    folder = tmp_path_factory.mktemp("anndata")
    place = f"{folder}/{draw(st.sampled_from(PLACES))}"
    source = draw(st.sampled_from(["entries", "slabs", "file", "map"]))
    kind, through = {"kind": "anndata"}, draw(st.sampled_from([None, "1, 0"]))
    assume(through is None or shape[0] != shape[1])
    with few(draw(st.sampled_from([1, 2, 5, 100]))):
        if source == "entries":
            chunks = [(coords[:, k : k + 3], values[k : k + 3]) for k in range(0, len(values), 3)]
            bl.write_from(chunks, place, shape, format, memory=1, dtype=dtype, map=through, **kind)
        elif source == "slabs":
            chunks = [(range(k, k + 1), tensor[k : k + 1]) for k in range(shape[0])]
            bl.write_from(chunks, place, shape, format, memory=1, **kind)
        else:
            bl.write(f"{folder}/b.h5", tensor if source == "file" else tensor.convert("COO", map="1, 0"))
            chosen = format if source == "file" else draw(st.sampled_from([None, "CSR"]))
            bl.convert(f"{folder}/b.h5", place, chosen, memory=2**33, **kind)
    found = read_by_anndata(place)
    assert found.dtype == dtype
    turned = format.order == (1, 0) and source != "map" and not (source == "entries" and through)
    assert found.format == ("csc" if turned else "csr")
    np.testing.assert_array_equal(found.toarray(), tensor.to_dense())
    assert bl.open(place).equals(tensor)
    assert not any(".d" in name for name in os.listdir(folder))


def test_names_of_streams_and_of_opened_matrices(tmp_path):
    cells, genes = [f"cell {k}" for k in range(7)], [f"gene {k}" for k in range(5)]
    dense = np.arange(35).reshape(7, 5) % 3
    tensor = bl.pack_dense(dense, "CSR").with_labels({"obs": cells, "var": genes}, dims=["obs", "var"])
    with few(4):
        bl.write_from(tensor.slabs(0, max_bytes=100), tmp_path / "a.h5ad", tensor.shape, "CSR", memory=1)
        bl.write(f"{tmp_path}/a.h5ad:layers/m", bl.open(tmp_path / "a.h5ad"))
        bl.convert(f"{tmp_path}/a.h5ad", tmp_path / "b.h5ad", "CSC", memory=2**33)
    one, other = (anndata.read_h5ad(tmp_path / name) for name in ("a.h5ad", "b.h5ad"))
    for found in (one, other):
        assert [*found.obs_names] == cells
        assert [*found.var_names] == genes
    for found in (one.X, one.layers["m"], other.X):
        np.testing.assert_array_equal(found.toarray(), dense)


def test_genes_by_cells_are_transposed_in_pieces(tmp_path):
    tensor = bl.pack_dense(np.arange(12).reshape(3, 4), "CSR")
    tensor = tensor.with_labels({"gene": list("abc"), "barcode": list("wxyz")}, dims=["gene", "barcode"])
    with few(2), pytest.warns(UserWarning, match="transposed"):
        bl.write_from(tensor.slabs(1, max_bytes=60), tmp_path / "a.h5ad", tensor.shape, "CSR", memory=1)
    found = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert [*found.obs_names], [*found.var_names] == (list("wxyz"), list("abc"))
    np.testing.assert_array_equal(found.X.toarray(), tensor.to_dense().T)


def test_what_anndata_cannot_store_in_pieces_leaves_the_file(tmp_path):
    place = f"{tmp_path}/a.h5ad"
    bl.write(place, bl.pack_dense(np.eye(3), "CSR"))
    before = Path(place).read_bytes()
    chunks = [((np.arange(3), np.arange(3), np.arange(3)), np.ones(3))] * 4
    diagonal = [((np.arange(3), np.arange(3)), np.ones(3))] * 4
    with few(2):
        with pytest.raises(bl.FormatError, match="CSR or CSC"):
            bl.write_from(chunks, f"{place}:layers/m", (3, 3, 3), "CSF", memory=1, duplicates="sum")
        with pytest.raises(FileExistsError):  # before the stream is read
            bl.write_from(iter(lambda: 1 / 0, 0), f"{place}:X", (3, 3), "CSR", memory=1)
        with pytest.raises(bl.FormatError, match="obs has 3 names"):  # after all
            bl.write_from(diagonal, f"{place}:layers/m", (4, 3), "CSR", memory=1, duplicates="sum")
    assert Path(place).read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5ad"]
