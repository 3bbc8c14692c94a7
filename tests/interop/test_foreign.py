"""Objects of other libraries where a Tensor is expected, and what users of those libraries type."""

import builtins
import re
import sys

import h5py
import numpy as np
import pytest
import scipy.sparse
import sparse

import binsparse_levels as bl
from binsparse_levels.problems import EXTRAS

DENSE = np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0]])
OBJECTS = {
    "csr_array": lambda: scipy.sparse.csr_array(DENSE),
    "csc_matrix": lambda: scipy.sparse.csc_matrix(DENSE),
    "dok_array": lambda: scipy.sparse.dok_array(DENSE),
    "COO": lambda: sparse.COO.from_numpy(DENSE),
    "GCXS": lambda: sparse.GCXS.from_numpy(DENSE),
    "ndarray": lambda: DENSE,
    "torch": lambda: pytest.importorskip("torch").from_numpy(DENSE).to_sparse(),
    "graphblas": lambda: pytest.importorskip("graphblas").Matrix.from_dense(DENSE, missing_value=0),
    "protocol": lambda: Protocol(),
    "Tensor": lambda: bl.pack_dense(DENSE, "DCSR"),
}


class Protocol:
    def __binsparse_descriptor__(self):
        return bl.pack_dense(DENSE, "CSR").__binsparse_descriptor__()

    def __binsparse__(self):
        return bl.pack_dense(DENSE, "CSR").__binsparse__()


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_go_in_as_they_are(name, tmp_path):
    thing = OBJECTS[name]()
    bl.write(tmp_path / "a.h5", thing)
    assert np.array_equal(bl.read(tmp_path / "a.h5").to_dense(), DENSE)
    assert bl.as_tensor(thing, "csc").format.alias == "CSC"
    assert dict(bl.as_tensor(thing, attributes={"unit": "m"}).attributes) == {"unit": "m"}
    bl.write_all(tmp_path / "a.sscdf", {None: thing})
    assert np.array_equal(bl.read(tmp_path / "a.sscdf").to_dense(), DENSE)
    if name == "ndarray":
        return
    assert bl.advise(thing).entries == 4


def test_appending_takes_objects_too(tmp_path):
    bl.write(tmp_path / "a.h5", scipy.sparse.csr_array(DENSE))
    bl.append(tmp_path / "a.h5", sparse.COO.from_numpy(DENSE))
    assert np.array_equal(bl.read(tmp_path / "a.h5").to_dense(), np.concatenate([DENSE, DENSE]))


def test_the_nearest_format_is_kept():
    formats = {
        name: str(bl.as_tensor(OBJECTS[name]()).format) for name in ("csr_array", "csc_matrix", "COO", "ndarray")
    }
    assert formats == {"csr_array": "CSR", "csc_matrix": "CSC", "COO": "COOR", "ndarray": "COOR"}


class Streams:
    def __arrow_c_stream__(self, requested_schema=None):
        raise AssertionError


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ([1, 2], "got list; pass entries to pack"),
        (None, "got NoneType; pass entries to pack"),
        (Streams(), r"got [\w.]*Streams; call from_table"),
        (object(), "got object; pass"),
        (h5py.Empty("f"), r"got h5py[\w.]+Empty; call open or read"),
    ],
)
def test_what_does_not_go_in_is_told_with_its_type(thing, message):
    for call in (
        bl.as_tensor,
        lambda x: bl.write({}, x),
        lambda x: bl.append({}, x),
        lambda x: bl.write_all("a.sscdf", {None: x}),
    ):
        with pytest.raises(TypeError, match=message):
            call(thing)


def test_tables_are_told_what_to_call():
    frame = pytest.importorskip("pandas").DataFrame({"a": [1]})
    with pytest.raises(TypeError, match=r"got pandas(\.core\.frame)?\.DataFrame; call from_table\(table, dims="):
        bl.as_tensor(frame)
    with pytest.raises(TypeError, match=r"Series; call from_table\(.*\), or pass its to_numpy\(\)"):
        bl.pack_dense(np.eye(1), "CSR") * frame["a"]
    assert (bl.pack_dense(np.eye(1), "CSR") * frame["a"].to_numpy()).values.tolist() == [1]


def test_an_operator_of_another_library_is_told_what_to_call():
    matrix, tensor = scipy.sparse.csr_array(DENSE), bl.pack_dense(DENSE, "CSR")
    with pytest.raises(TypeError, match="as_tensor of the other operand"):
        matrix * tensor
    assert np.array_equal((bl.as_tensor(matrix) * tensor).to_dense(), DENSE**2)


def test_the_wrong_function_names_the_type_and_the_right_one():
    with pytest.raises(TypeError, match=r"got numpy\.ndarray; call as_tensor"):
        bl.from_scipy(DENSE)
    with pytest.raises(TypeError, match=r"got scipy\.sparse\._csr\.csr_array; call as_tensor"):
        bl.from_sparse(scipy.sparse.csr_array(DENSE))
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="call its to_sparse"):
        bl.from_torch(torch.eye(3))


@pytest.mark.parametrize("name", ["as_tensor", "asarray", "tensor", "from_dlpack"])
def test_torch_refuses_a_tensor_at_once(name):
    """Without the protocol of DLPack, it would read each cell alone."""
    torch = pytest.importorskip("torch")
    with pytest.raises(BufferError, match=r"use tensor\.to_dense"):
        getattr(torch, name)(bl.pack_dense(DENSE, "CSR"))


def test_attributes_come_along():
    given = {"unit": "m"}
    torch, graphblas = pytest.importorskip("torch"), pytest.importorskip("graphblas")
    made = [
        bl.from_numpy(DENSE, attributes=given),
        bl.from_scipy(scipy.sparse.csr_array(DENSE), attributes=given),
        bl.from_scipy(scipy.sparse.coo_array(DENSE), attributes=given),
        bl.from_sparse(sparse.COO.from_numpy(DENSE), attributes=given),
        bl.from_sparse(sparse.GCXS.from_numpy(DENSE), attributes=given),
        bl.from_gcxs(sparse.GCXS.from_numpy(DENSE.reshape(3, 2, 2)), attributes=given),
        bl.from_torch(torch.from_numpy(DENSE).to_sparse(), attributes=given),
        bl.from_graphblas(graphblas.Matrix.from_dense(DENSE), attributes=given),
        bl.pack_dense(DENSE, "sparse", map="(0 1)").with_attributes(given),
        bl.pack_dense(DENSE, "CSR", attributes={"other": 1}).with_attributes(given),
    ]
    assert all(dict(tensor.attributes) == given for tensor in made)
    assert not made[0].with_attributes(None).attributes
    with pytest.raises(bl.DescriptorError):
        made[0].with_attributes({"binsparse": 1})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", ["CSR", "CSC", "COO", "CSF", "DMATR"])
@pytest.mark.parametrize("iso", [False, True])
def test_copies_can_be_changed_in_place(format, iso, tmp_path):
    tensor = bl.pack(DENSE.nonzero(), 2.0 if iso else DENSE[DENSE.nonzero()], DENSE.shape, format, fill_value=0)
    bl.write(tmp_path / "a.h5", tensor)
    there = bl.read(tmp_path / "a.h5")
    before = there.to_dense()
    array = bl.to_scipy(there, copy=True)
    array *= 2
    assert np.array_equal(array.toarray(), 2 * before)
    listed = bl.to_sparse(there, copy=True)
    listed.data[...] = 7
    folded = bl.to_gcxs(there, copy=True)
    folded.data[...] = 7
    folded.indices[...] = 0
    assert np.array_equal(there.to_dense(), before)


def test_what_the_tensor_holds_is_read_only_and_what_a_conversion_makes_is_not():
    tensor = bl.pack_dense(DENSE, "CSR")
    with pytest.raises(ValueError, match="read-only"):
        bl.to_scipy(tensor).data[0] = 1
    turned = bl.to_scipy(tensor, "csc")
    turned.data[0] = turned.indices[0] = turned.indptr[0] = 0
    assert np.array_equal(tensor.to_dense(), DENSE)
    with pytest.raises(ValueError, match="read-only"):
        bl.to_scipy(bl.pack(DENSE.nonzero(), 2.0, DENSE.shape, "CSR")).data[0] = 1  # one value stands for all


def test_a_matrix_that_is_stored_by_rows_can_be_subscripted_in_scipy():
    for format in ("DCSR", "dense, bitmap(1)", "bitmap(2)", "hashed, sparse"):
        assert bl.to_scipy(bl.pack_dense(DENSE, format))[0, 1] == DENSE[0, 1]
    rows = bl.pack([[0, 2**40 - 1], [1, 2]], [1.0, 2.0], (2**40, 3), "DCSR")
    assert bl.to_scipy(rows).format == "coo"
    assert bl.to_scipy(bl.pack_dense(DENSE, "COO")).format == "coo"


def test_tensors_are_not_compared_by_identity():
    tensor = bl.pack_dense(DENSE, "CSR")
    for other in (tensor, bl.pack_dense(DENSE, "CSR"), DENSE, None):
        with pytest.raises(TypeError, match=r"numpy\.equal|is None"):
            tensor == other  # noqa: B015
        with pytest.raises(TypeError, match=r"numpy\.not_equal|is not None"):
            tensor != other  # noqa: B015
    assert {tensor: 1}[tensor] == 1
    assert len({tensor, bl.pack_dense(DENSE, "CSR")}) == 2


def test_coordinates_and_labels_are_told_what_to_do():
    with pytest.raises(bl.ArrayError, match=r"got shape \(4, 2\); pass coords\.T"):
        bl.pack(np.argwhere(DENSE), 1.0, DENSE.shape, "CSR")
    for labels in (["a", "b"], np.array(["2026-01-01"] * 2, "M8[D]"), np.array(["a", None])):
        with pytest.raises(bl.ArrayError, match="from_table"):
            bl.pack([labels, [0, 1]], 1.0, DENSE.shape, "CSR")


@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("scipy", "scipy", lambda: bl.to_scipy(bl.pack_dense(DENSE, "CSR"))),
        ("sparse", "sparse", lambda: bl.to_sparse(bl.pack_dense(DENSE, "CSR"))),
        ("torch", "torch", lambda: bl.to_torch(bl.pack_dense(DENSE, "CSR"))),
        ("graphblas", "graphblas", lambda: bl.to_graphblas(bl.pack_dense(DENSE, "CSR"))),
    ],
)
def test_a_missing_library_names_its_extra(module, extra, call, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.partition(".")[0] == module:
            raise ImportError(f"No module named {module!r}")
        return real(name, *rest)

    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=re.escape(f"; pip install {EXTRAS[extra]}")) as caught:
        call()
    assert isinstance(caught.value, bl.OptionError)


def test_other_libraries_are_told_what_to_call():
    xarray = pytest.importorskip("xarray")
    with pytest.raises(
        TypeError, match=r"got xarray\.core\.dataarray\.DataArray; call write_dataset, or pass the data"
    ):
        bl.as_tensor(xarray.DataArray(DENSE))
    dask = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match=r"got dask\.array\.core\.Array; call from_dask"):
        bl.as_tensor(dask.from_array(DENSE))
