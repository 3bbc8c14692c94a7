"""Faults that were found by hostile use, each once."""

import ctypes
import gc
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile

import h5py
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DescriptorError,
    Format,
    FormatError,
    IncompleteError,
    LimitError,
    Limits,
    Sparse,
    Tensor,
    UnsafeError,
    append,
    concatenate,
    convert,
    from_binsparse,
    from_scipy,
    from_sparse,
    kernels,
    list_tensors,
    pack,
    pack_dense,
    read,
    repair,
    to_scipy,
    write,
)
from binsparse_levels.containers.replacing import clean_folder
from binsparse_levels.formats.descriptor import parse_descriptor
from binsparse_levels.formats.json import load_json
from binsparse_levels.io import describe, out_of_core


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_iso_with_duplicates_that_are_as_many_as_the_padding(duplicates):
    tensor = pack([[0, 0, 1]], 5, 3, "DVEC", duplicates=duplicates)
    assert tensor.to_dense().tolist() == [5, 5, 0]
    assert not tensor.iso


def test_iso_values_keep_their_width():
    tensor = pack([[0]], np.array(b"a", "V3"), 3, "CVEC", fill_value=np.void(b"xyz"))
    assert tensor.dtype == np.dtype("V3")
    assert tensor.to_dense().tobytes() == b"a\0\0xyzxyz"
    assert tensor.convert("dense").dtype == np.dtype("V3")


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
    ("dtype", "fill"), [("int64", 2**70), ("float32", 1e300), ("float16", 65536), ("float64", "1")]
)
def test_more_fill_values_that_the_type_cannot_hold(dtype, fill):
    with pytest.raises(ArrayError, match="fill_value"):
        pack([[0]], np.zeros(1, dtype), 3, "CVEC", fill_value=fill)


@pytest.mark.parametrize("dtype", ["M8[s]", "i4,f8"])
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


# Containers


def vector(value=1.0):
    return pack([[0, 2]], [value, 2.0], 4, "CVEC")


@pytest.mark.parametrize("options", [{"shards": 2**17}, {"kind": "zarr2", "chunks": 2**16}])
def test_a_missing_chunk_is_not_one_of_zeros(tmp_path, options):
    write(tmp_path / "a.zarr", pack([np.arange(200_000)], np.arange(200_000.0), 300_000, "CVEC"), **options)
    chunks = [name for name in glob.glob(f"{tmp_path}/a.zarr/values/**", recursive=True) if os.path.isfile(name)]
    os.remove(max(name for name in chunks if os.path.basename(name).isdigit()))
    with pytest.raises(IncompleteError):
        read(tmp_path / "a.zarr")


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("group", [":/", ":g"])
@pytest.mark.filterwarnings("ignore")
def test_metadata_that_were_consolidated(tmp_path, kind, group):
    path = f"{tmp_path}/a.zarr{group}"
    write(path, vector(1), kind=kind)
    zarr.consolidate_metadata(f"{tmp_path}/a.zarr")
    write(path, pack([[1], [1]], [7.0], (2, 2), "CSR"), kind=kind, overwrite=True)
    assert read(path).values.tolist() == [7]
    assert list_tensors(f"{tmp_path}/a.zarr") == [group[1:]]
    group_again = zarr.open_group(f"{tmp_path}/a.zarr", mode="r")
    assert "pointers_to_1" in (group_again if group == ":/" else group_again["g"])


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zzz"},
        {"compression": {"values": "zzz"}},
        {"compression": 5},
        {"chunks": -1},
        {"chunks": 0},
        {"chunks": "7"},
        {"chunks": 2.5},
        {"chunks": True},
        {"chunks": {"nope": 3}},
        {"shards": {"values": -8}},
        {"checksum": "yes"},
        {"checksum": 0},
        {"kind": ["zarr"]},
        {"kind": "hdf5"},
        {"spec_version": b"0.1"},
    ],
    ids=str,
)
def test_options_are_looked_at_before_anything_is_touched(options):
    store = MemoryStore()
    write(store, vector(1))
    with pytest.raises(TypeError):
        write(store, vector(2), overwrite=True, **options)
    assert read(store).values[0] == 1


def test_a_write_into_a_store_that_failed_can_be_tried_again(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr("binsparse_levels.containers.zarr.ZarrWriter.write_header", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(store, vector(1))
    write(store, vector(1))
    assert read(store).equals(vector(1))


def test_places_that_are_none(tmp_path):
    for place in (None, 5, object()):
        with pytest.raises(TypeError):
            write(place, vector())
        with pytest.raises(TypeError):
            read(place)
    with pytest.raises(TypeError):
        write(tmp_path / "a", vector(), kind="memory")
    write(f"{tmp_path}/a.zarr:g", vector())
    with pytest.raises(TypeError):
        write(f"{tmp_path}/a.zarr:h", vector(), kind="zarr2")
    for path in ("\ud800.h5", tmp_path / ("x" * 5000 + ".zarr")):
        with pytest.raises(ContainerError):
            write(path, vector())


def test_paths_of_any_bytes(tmp_path):
    for suffix in ("h5", "zarr", "npz", "bspnpy"):
        path = os.path.join(tmp_path, os.fsdecode(b"\xff.")) + suffix
        write(path, vector())
        write(path, vector(3), overwrite=True)
        assert read(path).values[0] == 3


@pytest.mark.parametrize("name", ["a.zarr", "a.bspnpy"])
def test_what_is_not_on_the_disk_is_not_written(tmp_path, monkeypatch, name):
    write(tmp_path / name, vector(1))

    def failing(*args):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output"):
            write(tmp_path / name, vector(2), overwrite=True)
    assert read(tmp_path / name).values[0] == 1
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_folders_are_exchanged_without_the_call_for_it(tmp_path, monkeypatch, n):
    write(tmp_path / "a.zarr", vector(1))
    calls, real = [], os.rename

    def rename(a, b):
        if ".part" in f"{a}{b}" and os.path.dirname(a) == str(tmp_path):
            calls.append(a)
            if len(calls) == n:
                raise OSError(5, "Input/output error")
        return real(a, b)

    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: object())
    monkeypatch.setattr(os, "rename", rename)
    if n == 3:  # there are two
        write(tmp_path / "a.zarr", vector(2), overwrite=True)
    else:
        with pytest.raises(OSError, match="Input/output"):
            write(tmp_path / "a.zarr", vector(2), overwrite=True)
    assert read(tmp_path / "a.zarr").values[0] == (2 if n == 3 else 1)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_fill_value_of_another_type():
    place = {}
    write(place, pack([[0]], np.ones(1, np.float32), 3, "CVEC", fill_value=0.5))
    place["binsparse"]["binsparse"]["data_types"]["fill_value"] = "float64"
    place["fill_value"] = np.array([0.1])
    with pytest.raises(ArrayError, match="fill_value"):
        read(place)
    with pytest.warns(UserWarning, match="fill_value"):
        assert read(place, lenient=True).fill_value == np.float32(0.1)


NPY_TEXTS = [
    b"{'descr': ('<f8',), 'shape': (2,), 'fortran_order': False}",
    b"{'descr': (), 'shape': (2,), 'fortran_order': False}",
    b"{'descr': '|S1', 'shape': (35184372088832,), 'fortran_order': False}",
    b"{'descr': '<f8', 'shape': (0, 99999999999999999999), 'fortran_order': False}",
    b"{'descr': '<f8', 'shape': (True,), 'fortran_order': False}",
    b"(" * 9000,
    b"'''",
    b" \n  {'descr': '<f8'",
    b"-" * 9000 + b"1",
]


@pytest.mark.parametrize("text", NPY_TEXTS, ids=range(len(NPY_TEXTS)))
def test_npy_headers_that_are_none(tmp_path, text):
    write(tmp_path / "a.bspnpy", vector())
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "a.bspnpy" / "values.npy").write_bytes(member)
    with pytest.raises(BinsparseError):
        read(tmp_path / "a.bspnpy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("binsparse.npy", member)
    with pytest.raises(BinsparseError):
        read(tmp_path / "a.npz")


def test_a_pipe_is_not_waited_for(tmp_path):
    write(tmp_path / "a.bspnpy", vector())
    (tmp_path / "a.bspnpy" / "values.npy").unlink()
    os.mkfifo(tmp_path / "a.bspnpy" / "values.npy")
    with pytest.raises(ContainerError):
        read(tmp_path / "a.bspnpy")


def test_zip_files_are_told_by_what_they_hold(tmp_path):
    write(tmp_path / "a.zarr.zip", vector())
    os.rename(tmp_path / "a.zarr.zip", tmp_path / "a.dat")
    assert read(tmp_path / "a.dat").equals(vector())
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme", "nothing")
    with pytest.raises(ContainerError, match="holds no tensor"):
        read(tmp_path / "b.zip")


def test_list_tensors_looks_for_a_header(tmp_path):
    (tmp_path / "x.bspnpy").write_text("")
    (tmp_path / "x.nc").write_bytes(b"CDF\x01" + bytes(100))
    for place in ({}, tmp_path / "x.bspnpy", tmp_path / "x.nc"):
        with pytest.raises(ContainerError):
            list_tensors(place)


# Other libraries


def test_what_other_libraries_do_not_have():
    for wrong in (np.eye(3), None, vector()):
        for call in (from_sparse, from_scipy):
            with pytest.raises(TypeError):
                call(wrong)
    for format in ("nope", "CSR", ""):
        with pytest.raises(FormatError):
            to_scipy(pack([[0], [0]], [1.0], (2, 2), "CSR"), format)
    with pytest.raises(FormatError):
        to_scipy(vector().astype(np.float16))


@pytest.mark.parametrize("case", ["text", "deep", "circular", "ragged", "masked", "letters"])
def test_the_protocol_with_hostile_objects(case):
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    circular: dict = {}
    circular["a"] = circular
    good = vector()
    arrays = dict(good.__binsparse__())

    class Other:
        def __binsparse_descriptor__(self):
            return {"text": "{}", "deep": deep, "circular": circular}.get(case, good.__binsparse_descriptor__())

        def __binsparse__(self):
            if case == "letters":
                return "ab"
            odd = {"ragged": [[1, 2], [3]], "masked": np.ma.masked_array([1.0, 2.0], [True, False])}
            return arrays | ({"values": odd[case]} if case in odd else {})

    with pytest.raises((BinsparseError, TypeError)):
        from_binsparse(Other())


# What hostile use of the board's kernels and of the seals found


@pytest.mark.parametrize(
    "kind", ["hdf5", "zarr", "zarr2", "npz", "directory", "rawarray_directory", "netcdf", "matrix_market"]
)
def test_an_empty_path_names_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").touch()
    with pytest.raises(ContainerError, match="empty path"):
        write("", pack([[0], [0]], [1.0], (2, 2), "CSR"), kind=kind, overwrite=True)
    assert os.listdir(tmp_path) == ["precious"]


@pytest.mark.parametrize("name", ["a.h5", "a.npz", "a.nc", "a.mtx", "a.zarr", "a.zarr.zip", "a.bspnpy", "a.bspra"])
@pytest.mark.parametrize("spelled", ["{}/", "missing/../{}"])
def test_what_is_there_is_there_however_it_is_spelled(tmp_path, name, spelled):
    first, second = (pack([[0], [0]], [x], (2, 2), "COO") for x in (1.0, 2.0))
    write(tmp_path / name, first)
    with pytest.raises((ContainerError, FileExistsError)):
        write(f"{tmp_path}/{spelled.format(name)}", second)
    assert read(tmp_path / name).equals(first)


def test_a_folder_of_others_is_not_replaced_however_it_is_spelled(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "precious").touch()
    for kind in ("zarr", "directory"):
        with pytest.raises(FileExistsError):
            write(f"{tmp_path}/x/../a.zarr", pack([[0]], [1.0], (2,), "CVEC"), kind=kind, overwrite=True)
    assert os.listdir(tmp_path / "a.zarr") == ["precious"]


@pytest.mark.parametrize("name", [".zattrs", "zarr.json", "a/.zgroup"])
def test_no_group_takes_the_name_of_what_zarr_keeps(tmp_path, name):
    tensor = pack([[0], [0]], [1.0], (2, 2), "CSR")
    write(tmp_path / "m.zarr", tensor)
    with pytest.raises(ContainerError, match="no group has the name"):
        write(f"{tmp_path}/m.zarr:{name}", tensor)
    assert read(tmp_path / "m.zarr").equals(tensor)


def test_a_seal_covers_the_types(tmp_path):
    write(tmp_path / "s.bspnpy", pack([[0, 1]], [1.5, 2.0], (2,), "CVEC"), checksum=True)
    file = tmp_path / "s.bspnpy" / "values.npy"
    file.write_bytes(file.read_bytes().replace(b"<f8", b"<i8"))
    with pytest.raises(ContainerError, match="values: is not what its checksum says"):
        read(tmp_path / "s.bspnpy", lenient=True)


def test_names_of_ours_are_no_attributes():
    with pytest.raises(DescriptorError, match="are the package's"):
        pack([[0]], [1.0], (1,), "CVEC", attributes={"binsparse_levels:sealed": 5})


@pytest.mark.parametrize("name", ["n.zarr", "n.zarr.zip", "n.h5"])
@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, np.int64])
def test_types_with_two_names_in_c(tmp_path, name, dtype):
    tensor = pack([[2**33], [3]], np.array([1], dtype), (2**62, 2**62), "COO")
    write(tmp_path / name, tensor, narrow=True)
    assert read(tmp_path / name).equals(tensor)


def test_threads_write_netcdf():
    code = """
import sys, threading
from binsparse_levels import pack, write
tensor = pack([range(500)], 1.0, (500,), "CVEC")
work = lambda k: [write(f"{sys.argv[1]}/{k}.nc", tensor, overwrite=True) for _ in range(10)]
threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    with tempfile.TemporaryDirectory() as folder:
        assert subprocess.run([sys.executable, "-c", code, folder]).returncode == 0


def test_what_cannot_be_cleaned_is_told(tmp_path):
    (tmp_path / ".x.0-0123abcd.part").touch()
    (tmp_path / f".{'y' * 200}.999999999-0123abcd.part.old").mkdir()
    outcomes = dict(clean_folder(str(tmp_path)))
    assert sorted(outcomes.values()) == ["kept, its own name was cut short", "removed"]
    with pytest.raises(ContainerError, match="cannot be cleaned"):
        clean_folder("\0")


def test_a_boolean_array_of_any_bits_is_a_pattern():
    mask = np.array([0, 2, 0, 255], np.uint8).view(bool)
    assert pack_dense(np.arange(4.0), "CVEC", pattern=mask).arrays["indices_0"].tolist() == [1, 3]


@pytest.mark.parametrize("count", [1, 2])
def test_one_value_for_all_and_the_last_of_duplicates(monkeypatch, count):
    monkeypatch.setattr(kernels, "_FEW", -1)
    monkeypatch.setattr(kernels, "_WORTH_LOADING", -1)
    tensor = pack([[0] * count + [0]], 5, (count + 1,), "dense", duplicates="last")
    assert tensor.to_dense().tolist() == [5] + [0] * count


def test_pointers_of_uint64_into_dense_dimensions():
    tensor = pack([[0, 1], [1, 2]], [1.0, 2.0], (2, 3), "DCSR")
    other = Tensor("DCSR", (2, 3), {k: x.astype(np.uint64) for k, x in tensor.arrays.items()}, tensor.values)
    assert other.convert("DMATR").values.tolist() == [0, 1, 0, 0, 0, 2]


def test_faults_behind_pointers_of_few_bits():
    indices = np.arange(300)
    indices[200] = 999
    arrays = {"pointers_to_1": np.array([0, 100, 120], np.int8), "indices_1": indices}
    with pytest.raises(ArrayError, match=r"(?s)pointers_to_1\[2\].*indices_1\[200\]: 999 is outside"):
        Tensor("dense, sparse", (2, 300), arrays, 1.0)


def test_zero_keeps_its_sign():
    values = pack([[0]], -0.0, (3,), "dense").values
    assert np.signbit(values).tolist() == [True, False, False]


@pytest.mark.parametrize(("declared", "stored"), [("int8", np.array([np.nan])), ("float32", np.array([2**53 + 1]))])
def test_what_does_not_fit_is_not_read_leniently(declared, stored):
    place = {}
    write(place, pack([[0]], np.ones(1, declared), (1,), "CVEC"))
    place["values"] = stored
    with pytest.raises(ArrayError, match="cannot"):
        read(place, lenient=True)


def test_text_is_repaired_too(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1.5\n1 1 2.5\n")
    repair(tmp_path / "a.mtx", tmp_path / "out.h5", duplicates="sum")
    assert read(tmp_path / "out.h5").values.tolist() == [4.0]


def narrow_file(path, coords, shape, format):
    tensor = pack(coords, np.arange(1.0, len(coords[0]) + 1), shape, format)
    write(path, tensor, narrow=True)
    return tensor.to_dense(), (read(path), binsparse_levels.open(path))


NARROW_KEYS = [
    (slice(None), slice(300, 900)), (slice(2, 5), slice(None, None, 3)), slice(None, None, 400), [3, 9],
    (slice(None), slice(300, None, 7)), (slice(3, 150),), (slice(None), [299, 300, 301, 811]),
]  # fmt: skip


@pytest.mark.parametrize("key", NARROW_KEYS, ids=str)
@pytest.mark.parametrize("format", ["CSR", "sparse(2)", "sparse, sparse"])
def test_views_of_indices_of_one_byte(tmp_path, format, key):
    few = np.arange(0, 1000, 5)
    for k, coords in enumerate([(few % 20, few), (np.repeat(np.arange(20), 20), np.tile(np.arange(20), 20))]):
        dense, tensors = narrow_file(tmp_path / f"{k}.h5", coords, (900, 1000), format)
        for tensor in tensors:
            np.testing.assert_array_equal(tensor[key].to_dense(), dense[key])


def test_unsigned_indices_beyond_what_floats_count():
    indices = {"indices_0": np.array([2**60, 2**60 + 1], np.uint64), "indices_1": np.zeros(2, np.uint64)}
    tensor = Tensor("sparse(2)", (2**62, 1), indices, [1.0, 2.0])
    assert tensor[[2**60 + 1, 2**60 + 3], :].values.tolist() == [2]


@pytest.mark.parametrize("format", ["CSR", "CSC", "sparse(2)", "dense(2)"])
def test_steps_that_numpy_cannot_count(format):
    dense = np.arange(1.0, 13).reshape(3, 4)
    tensor = pack_dense(dense, format)
    for key in (slice(None, None, 2**100), (slice(None), slice(3, None, -(2**64))), ([2, 0], slice(1, None, 2**63))):
        np.testing.assert_array_equal(tensor[key].to_dense(), dense[key])


def test_an_empty_view_of_a_negative_step_has_no_negative_coordinate():
    assert pack_dense(np.ones((1, 20)), "CSC")[:, -21 :: -(2**66)].load().shape == (1, 0)


def test_many_values_by_indices_of_several_types():
    indices = {"indices_0": np.arange(200, dtype=np.uint8), "indices_1": np.arange(200, dtype=">u8")}
    tensor = Tensor("sparse(2)", (200, 300), indices, np.arange(200.0))
    rows = np.tile(np.arange(200), 3)
    assert tensor[rows, rows].tolist() == rows.tolist()


def test_an_index_of_lists_of_different_lengths():
    with pytest.raises(IndexError):
        pack_dense(np.eye(3), "CSR")[[0, [1, 2]]]


def test_what_lies_in_the_wrong_triangle_of_a_file_is_no_entry(tmp_path, monkeypatch):
    write(tmp_path / "a.bspnpy", pack([[1, 2], [0, 0]], [1.0, 2.0], (3, 3), "CSR", structure="symmetric_lower"))
    np.save(tmp_path / "a.bspnpy" / "indices_1.npy", np.array([2, 0], np.int32))
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 1)
    for use in (lambda x: binsparse_levels.open(x)[:2].load(), lambda x: convert(x, tmp_path / "b.h5", memory=1)):
        with pytest.raises(ArrayError, match="triangle"):
            use(tmp_path / "a.bspnpy")


@pytest.mark.parametrize(
    ("name", "at", "number"),
    [("indices_1", 7, 2**32), ("pointers_to_1", -1, 9), ("pointers_to_1", 0, -3), ("indices_0", 3, -1)],
)
@pytest.mark.parametrize("format", [None, "CSC"])
def test_blocks_are_checked_as_they_are_stored(tmp_path, monkeypatch, name, at, number, format):
    tensor = pack([np.repeat(np.arange(10), 4), np.arange(40) % 20], np.arange(40.0), (10, 20), "sparse, sparse")
    arrays = {key: x.astype(np.int64) for key, x in tensor.arrays.items()}
    write(tmp_path / "a.bspnpy", Tensor("sparse, sparse", (10, 20), arrays, tensor.values))
    arrays[name][at] += number
    np.save(tmp_path / "a.bspnpy" / f"{name}.npy", arrays[name])
    for size in (4, 7, 30):
        monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree, size=size: size)
        with pytest.raises(ArrayError, match=name):
            convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=1)
    assert os.listdir(tmp_path) == ["a.bspnpy"]


def test_slabs_of_an_empty_file(tmp_path):
    write(tmp_path / "a.h5", pack([[], []], [], (5, 6), "CSR"))
    assert [part for part, _ in binsparse_levels.open(tmp_path / "a.h5").slabs(1, max_bytes=1000)] == [range(6)]


@pytest.mark.parametrize("format", ["sparse(2)", "sparse, sparse", "CSC"])
def test_slabs_are_as_small_as_was_asked_for(tmp_path, format):
    coords = np.unravel_index(np.arange(0, 10_000, 7), (100, 100))
    tensor = pack(coords, np.ones(len(coords[0]), np.int8) * np.arange(len(coords[0])) % 7, (100, 100), format)
    write(tmp_path / "a.h5", tensor, narrow=True)
    for opened in (read(tmp_path / "a.h5"), binsparse_levels.open(tmp_path / "a.h5")):
        for dimension in (0, 1):
            slabs = list(opened.slabs(dimension, max_bytes=1000))
            assert max(slab.nbytes for _, slab in slabs) <= 1000
            whole = np.concatenate([slab.to_dense() for _, slab in slabs], dimension)
            np.testing.assert_array_equal(whole, tensor.to_dense())


def test_slabs_count_the_pointers_below_sparse_fibers():
    tensor = pack([np.arange(100)] * 3, np.ones(100) * np.arange(100), (100, 1000, 100), "sparse, dense, sparse")
    for dimension in range(3):
        assert max(slab.nbytes for _, slab in tensor.slabs(dimension, max_bytes=500_000)) <= 500_000


def test_slabs_along_a_dimension_that_no_memory_counts():
    tensor = pack([np.arange(100), np.arange(100) << 40], np.ones(100) * np.arange(100), (100, 2**50), "sparse(2)")
    slabs = list(tensor.slabs(1, max_bytes=1000))
    assert len(slabs) < 10
    assert sum(slab.number_of_stored_values for _, slab in slabs) == 100


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


def test_a_store_is_converted_in_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 3)
    store, tensor = MemoryStore(), pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(store, tensor)
    convert(store, tmp_path / "a.h5", "CSC", memory=1)
    assert read(tmp_path / "a.h5").equals(tensor)


def test_a_missing_chunk_that_only_zarr_reads_is_told_by_a_part_too(tmp_path):
    write(tmp_path / "a.zarr", pack_dense(np.arange(1.0, 13).reshape(3, 4), "CSR"), kind="zarr2", chunks=4)
    os.unlink(tmp_path / "a.zarr" / "values" / "1")
    opened = binsparse_levels.open(tmp_path / "a.zarr")
    for use in (opened.load, opened[1].load, lambda: opened[1, 1]):
        with pytest.raises(IncompleteError):
            use()


def test_the_checksum_of_a_whole_member_is_looked_at(tmp_path):
    write(tmp_path / "a.npz", pack_dense(np.arange(1.0, 10_001).reshape(100, 100), "CSR"))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[raw.index(np.array([9000.0, 9001]).tobytes())] ^= 1
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(ContainerError):
        binsparse_levels.open(tmp_path / "a.npz").load()


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


@pytest.mark.parametrize("target", ["there.h5", "missing/a.h5", "a.mtx"])
def test_a_target_that_cannot_be_is_told_before_anything_is_done(tmp_path, monkeypatch, target):
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 3)
    monkeypatch.setattr(out_of_core, "_ordered", lambda *_: pytest.fail("worked in vain"))
    for name in ("a.h5", "there.h5"):
        write(tmp_path / name, pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    with pytest.raises(BinsparseError):
        convert(tmp_path / "a.h5", tmp_path / target, memory=1)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "there.h5"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file on which nothing can be written")
def test_scratch_files_on_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 3)
    monkeypatch.setattr(out_of_core._Plan, "file", lambda self, name: "/dev/full")
    write(tmp_path / "a.h5", pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    for format in ("CSR", "CSC"):
        with pytest.raises(ContainerError, match="cannot be written"):
            convert(tmp_path / "a.h5", tmp_path / "b.h5", format, memory=1)
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files")
def test_a_source_is_closed_when_it_has_been_converted(tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 3)
    write(tmp_path / "a.h5", pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    convert(tmp_path / "a.h5", tmp_path / "b.h5", "CSC", memory=1)
    gc.collect()
    assert str(tmp_path / "a.h5") not in [os.path.realpath(f"/proc/self/fd/{k}") for k in os.listdir("/proc/self/fd")]


def test_a_seal_is_looked_at_before_parts_are_used(tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_core, "_block_size", lambda memory, tree: 3)
    tensor = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    for name in ("a.bspnpy", "b.bspnpy"):
        write(tmp_path / name, tensor, checksum=True)
    convert(tmp_path / "a.bspnpy", tmp_path / "c.h5", "CSC", memory=1)
    np.save(tmp_path / "b.bspnpy" / "values.npy", np.arange(11.0))
    uses = (
        lambda b: convert(b, tmp_path / "d.h5", "CSC", memory=1),
        lambda b: concatenate([tmp_path / "a.bspnpy", b], tmp_path / "d.h5"),
        lambda b: append(b, tensor),
    )
    for use in uses:
        with pytest.raises(ContainerError, match="checksum"):
            use(tmp_path / "b.bspnpy")
    assert sorted(os.listdir(tmp_path)) == ["a.bspnpy", "b.bspnpy", "c.h5"]


@pytest.mark.parametrize("options", [{}, {"chunks": 1}, {"kind": "zarr2"}], ids=str)
def test_names_of_zarr_arrays_that_begin_alike(tmp_path, options):
    tensor = pack([np.array([0, 1])] * 12, [1.0, 2.0], (2,) * 12, "sparse(12)")
    for place in (tmp_path / "a.zarr.zip", zarr.storage.MemoryStore()):
        write(place, tensor, **options)
        assert read(place).equals(tensor)
        sizes = {name: info.nbytes for name, info in describe(place).arrays.items()}
        assert sizes["indices_1"] == sizes["indices_11"]
