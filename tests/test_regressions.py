"""Faults that were found by hostile use, each once."""

import json
import time

import h5py
import numpy as np
import pytest

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DescriptorError,
    Format,
    FormatError,
    LimitError,
    Limits,
    Sparse,
    Tensor,
    UnsafeError,
    pack,
    pack_dense,
    read,
    write,
)
from binsparse_levels.containers.base import load_json
from binsparse_levels.descriptor import parse_descriptor


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_iso_with_duplicates_that_are_as_many_as_the_padding(duplicates):
    tensor = pack([[0, 0, 1]], 5, 3, "DVEC", duplicates=duplicates)
    assert tensor.to_dense().tolist() == [5, 5, 0]
    assert not tensor.iso


def test_iso_values_keep_their_width():
    tensor = pack([[0]], np.array("a", "U3"), 3, "CVEC", fill_value="xyz")
    assert tensor.dtype == np.dtype("U3")
    assert tensor.to_dense().tolist() == ["a", "xyz", "xyz"]
    assert tensor.convert("dense").dtype == np.dtype("U3")


@pytest.mark.parametrize(
    ("shape", "format"), [((0, 2**40), "DMATR"), ((5, 2**40), "sparse, dense"), ((5, 2**62, 2**62), "sparse, dense(2)")]
)
def test_nothing_under_a_huge_dense_dimension(shape, format):
    tensor = pack([[]] * len(shape), [], shape, format)
    assert len(tensor.unpack()[1]) == 0
    listed = tensor.convert(Format((Sparse(len(shape)),)))
    assert listed.equals(tensor)


def test_empty_arrays_that_numpy_does_not_have():
    with pytest.raises(LimitError):
        pack([[]] * 3, [], (0, 2**63 - 1, 2**63 - 1), "sparse(3)").to_dense()


def test_dense_arrays_of_rank_64():
    tensor = pack([[0]] * 64, [1.0], (1,) * 63 + (2,), "sparse(64)")
    assert tensor.to_dense().ravel().tolist() == [1, 0]
    assert len(pack([[0]] * 70, [1.0], (1,) * 70, "dense(70)", limits=Limits(rank=100)).unpack()[0]) == 70


def test_many_keys_of_which_the_last_is_there_twice():
    text = "{" + ", ".join(f'"{k}": 1' for k in range(70_000)) + ', "69999": 1}'
    begin = time.perf_counter()
    with pytest.raises(DescriptorError, match="69999"):
        load_json(text, Limits())
    assert time.perf_counter() - begin < 5


LEAF = {"level_desc": "element"}
HEADER = {"version": "0.1", "number_of_stored_values": 0, "data_types": {"values": "iso[float64]"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "custom", "custom": {"level": {"level_desc": "sparse", "rank": 10**30, "level": LEAF}}},
        {"format": "CVEC", "shape": [1], "custom": {"level": {"level_desc": "dense", "rank": 10**12, "level": LEAF}}},
        {"format": "custom", "tensor": None, "shape": [1]},
        {"format": "CVEC", "custom": None, "shape": [1]},
    ],
    ids=range(4),
)
@pytest.mark.parametrize("lenient", [False, True])
def test_hostile_descriptors(changes, lenient):
    with pytest.raises(BinsparseError):
        parse_descriptor({"binsparse": {**HEADER, **changes}}, Limits(), lenient=lenient)


@pytest.mark.parametrize(
    ("changes", "stored"),
    [
        ({"format": "DVEC", "shape": [2**62], "number_of_stored_values": 2**62}, [1.0]),
        ({"format": "DMATR", "shape": [2**40, 2**40]}, [1.0]),
        ({"format": "DVEC", "shape": [2], "data_types": {"values": "complex[float64]"}}, [1.0, 2.0, 3.0]),
        ({"format": "DVEC", "shape": [2], "data_types": {"values": "iso[float64]"}}, []),
    ],
    ids=range(4),
)
def test_hostile_values(tmp_path, changes, stored):
    header = {**HEADER, **changes}
    if "number_of_stored_values" not in changes:
        del header["number_of_stored_values"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["values"] = stored
        file.attrs["binsparse"] = json.dumps({"binsparse": header})
    for lenient in (False, True):
        with pytest.raises(BinsparseError):
            read(tmp_path / "a.h5", lenient=lenient)


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
def test_writing_stays_in_its_file(tmp_path, group):
    tensor = pack([[0]], [1.0], 3, "CVEC")
    write(f"{tmp_path}/other.h5:inner", tensor)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inside/values"] = [1]
        file["soft"] = h5py.SoftLink("/inside")
        file["external"] = h5py.ExternalLink("other.h5", "/inner")
        file["dataset"] = [1]
    before = [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]
    with pytest.raises((UnsafeError, ContainerError)):
        write(f"{tmp_path}/a.h5:{group}", tensor, overwrite=True)
    assert before == [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"binsparse": {}}, DescriptorError),
        ({"a": float("nan")}, DescriptorError),
        ({"a": {1}}, TypeError),
        ({"a": np.int64(1)}, TypeError),
        ({"a": "x" * 2**21}, LimitError),
        ([1], TypeError),
        ({1: 2}, TypeError),
    ],
    ids=range(7),
)
def test_attributes_that_no_container_would_give_back(attributes, error):
    with pytest.raises(error):
        pack([[0]], [1.0], 3, "CVEC", attributes=attributes)


def test_odd_attributes_come_back(tmp_path):
    attributes = {"surrogate": "\ud800", "empty": "", "": None, "deep": [[[[]]]], "number": 1e-300}
    write(tmp_path / "a.h5", pack([[0]], [1.0], 3, "CVEC", attributes=attributes))
    assert read(tmp_path / "a.h5").attributes == attributes


def test_a_header_is_written_only_if_it_can_be_read(tmp_path):
    tensor = pack([[0]], [1.0], 3, "CVEC", attributes={"a": "x" * (2**20 - 20)})
    with pytest.raises(LimitError, match="header_bytes"):
        write(tmp_path / "a.h5", tensor)
    write(tmp_path / "b.h5", tensor, limits=Limits(header_bytes=2**21))
    assert read(tmp_path / "b.h5", limits=Limits(header_bytes=2**21)).equals(tensor)
    (tmp_path / "b.h5").unlink()
    assert not list(tmp_path.iterdir())


def test_structures_without_entries():
    for format in ("sparse, dense", "dense(2)"):
        tensor = pack([[], []], 2.0, (2, 2), format, structure="symmetric_lower")
        assert tensor.convert("CSR").to_dense().tolist() == [[0, 0], [0, 0]]


def test_a_fill_value_that_its_mirror_image_differs_from():
    tensor = pack([[1], [0]], [5.0], (3, 3), "COOR", structure="skew_symmetric_lower", fill_value=1.0)
    assert tensor.to_dense()[0].tolist() == [1, -5, 1]
    with pytest.raises(FormatError, match="other triangle"):
        tensor.convert("DMATR")
    assert tensor.convert("CSR").equals(tensor)


@pytest.mark.parametrize(
    ("dtype", "fill"), [("int64", 2**70), ("float32", 1e300), ("float16", 65536), ("float64", "1"), ("U2", "abc")]
)
def test_more_fill_values_that_the_type_cannot_hold(dtype, fill):
    with pytest.raises(ArrayError, match="fill_value"):
        pack([[0]], np.zeros(1, dtype), 3, "CVEC", fill_value=fill)


@pytest.mark.parametrize("dtype", ["S5", "U3", "M8[s]", "i4,f8"])
def test_pack_dense_of_other_types(dtype):
    array = np.zeros(4, dtype)
    array[1] = np.ones((), dtype) if dtype != "M8[s]" else np.datetime64(5, "s")
    tensor = pack_dense(array, "CVEC", fill_value=None)
    assert tensor.number_of_stored_values == 1
    assert np.array_equal(tensor.to_dense(), array)
    assert not tensor.equals(pack([[1]], [1.0], 4, "CVEC"))


def test_arrays_that_are_none():
    ragged = [[1, 2], [3]]
    for call in (
        lambda: pack([ragged, ragged], [1], (3, 3), "CSR"),
        lambda: pack([[0], [1]], ragged, (3, 3), "CSR"),
        lambda: Tensor("CVEC", 3, {"indices_0": ragged}, [1]),
        lambda: pack([[0]], [1.0], 3, "CVEC").astype(object),
    ):
        with pytest.raises(ArrayError):
            call()


# Text files

REAL = "%%MatrixMarket matrix coordinate real general\n3 3 1\n"
INTEGER = REAL.replace("real", "integer")


@pytest.mark.parametrize(
    "text",
    [
        REAL + "1 1 1.5D2\n",
        REAL + "1 1 0x10\n",
        REAL + "1 1 1,5\n",
        REAL + "1 1 1.5 junk\n",
        REAL + "1 1 1.5 7\n",
        REAL + '1 1 "1.5"\n',
        INTEGER + "1 1 1e3\n",
        INTEGER + "1 1 1.5\n",
        REAL.replace("real", "pattern") + "1 1 5\n",
        REAL.replace("3 3 1", "3 3 100000000000") + "1 1 1\n",
        "%%MatrixMarket matrix array real symmetric\n90000 90000\n1\n",
    ],
    ids=range(11),
)
def test_numbers_are_read_whole_or_not_at_all(tmp_path, text):
    (tmp_path / "a.mtx").write_text(text)
    with pytest.raises(ArrayError):
        read(tmp_path / "a.mtx")


def test_complex_infinities_and_zeros(tmp_path):
    values = np.array([complex(1, np.inf), complex(-0.0, -0.0), complex(np.nan, 1)])
    write(tmp_path / "a.mtx", pack([[0, 1, 2], [0, 1, 2]], values, (3, 3), "COOR"))
    assert read(tmp_path / "a.mtx").values.tobytes() == values.tobytes()


def test_the_diagonal_is_not_mirrored(tmp_path):
    tensor = pack([[0, 0], [0, 1]], [3.0, 4.0], (2, 2), "COOR", structure="skew_symmetric_upper")
    write(tmp_path / "a.mtx", tensor)
    assert np.array_equal(read(tmp_path / "a.mtx").to_dense(), tensor.to_dense())
    with pytest.raises(FormatError, match="unsigned"):
        write(tmp_path / "b.mtx", tensor.astype(np.uint8))


def test_what_text_would_round(tmp_path):
    with pytest.raises(FormatError):
        write(tmp_path / "a.tns", pack([[0]], np.array([2**64 - 1], np.uint64), 3, "CVEC"))
    for name, dtype in [("a.tns", np.longdouble), ("a.mtx", np.longdouble), ("a.mtx", np.clongdouble)]:
        with pytest.raises(FormatError):
            write(tmp_path / name, pack([[0], [0]], np.ones(1, dtype), (3, 3), "COO"))


def test_names_of_any_length(tmp_path):
    path = tmp_path / ("ü" * 125 + ".h5")
    write(path, pack([[0]], [1.0], 3, "CVEC"))
    assert read(path).values.tolist() == [1]
    with pytest.raises(ContainerError):
        read("a\0b.h5")
