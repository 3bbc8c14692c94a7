"""Reading and writing HDF5: round trips, groups, replacing in one step, and files that are not what they should be."""

import json
import os
import stat

import h5py
import numpy as np
import pytest
from helpers import kinds
from helpers.places import vector
from helpers.strategies import cases
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    Bitmap,
    ContainerError,
    Dense,
    DescriptorError,
    DialectWarning,
    Format,
    LimitError,
    Limits,
    Sparse,
    Tensor,
    UnsafeError,
    convert,
    pack,
    read,
    write,
)
from binsparse_levels import open as open_tensor
from binsparse_levels.containers.base import split_path
from binsparse_levels.io import describe

STORABLE = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("io")


def small(value=1.0, **options):
    return pack([[0, 2], [1, 0]], [value, 2.0], (3, 4), "CSR", **options)


@given(
    cases(kinds=(Dense, Sparse, kinds.Backwards, Bitmap), dtypes=STORABLE),
    st.booleans(),
    st.sampled_from([None, 0, 1]),
)
def test_what_is_written_is_read(folder, case, scalar, fill):
    values = case.values[0] if scalar and len(case.values) else case.values
    tensor = pack(
        case.coords, values, case.shape, case.format, fill_value=fill, attributes={"who": ["me", {"a": None}]}
    )
    write(folder / "a.h5", tensor, overwrite=True)
    again = read(folder / "a.h5")
    assert again.equals(tensor)
    assert again.format.canonical() == tensor.format.canonical()
    assert again.dtype == tensor.dtype
    assert again.iso == (tensor.iso and len(tensor.values) > 0)
    assert again.attributes == tensor.attributes
    assert (again.fill_value is None) == (fill is None)
    for name, array in tensor.arrays.items():
        assert np.array_equal(again.arrays[name], array)
        assert again.arrays[name].dtype == array.dtype
    found = describe(folder / "a.h5")
    assert found.descriptor.number_of_stored_values == len(tensor.values)
    assert {name: info.shape for name, info in found.arrays.items() if name in tensor.arrays} == {
        name: array.shape for name, array in tensor.arrays.items()
    }


def test_what_is_in_the_file(tmp_path):
    tensor = pack([[0, 2], [1, 0]], 1 + 2j, (3, 4), "CSC", fill_value=0)
    write(tmp_path / "a.h5", tensor)
    with h5py.File(tmp_path / "a.h5") as file:
        text = file.attrs["binsparse"]
        assert isinstance(text, str)
        assert json.loads(text) == {
            "binsparse": {
                "version": "0.1.0",
                "format": "CSC",
                "shape": [3, 4],
                "number_of_stored_values": 2,
                "data_types": {
                    "pointers_to_1": "int32",
                    "indices_1": "int32",
                    "values": "iso[complex[float64]]",
                    "fill_value": "complex[float64]",
                },
                "fill": True,
            }
        }
        assert file["values"][:].tolist() == [1, 2]
        assert file["pointers_to_1"].dtype == "<i4"
        assert file["indices_1"].chunks is None


def test_writing_twice_gives_the_same_bytes(tmp_path):
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, small())
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


# Paths and groups


def test_groups(tmp_path):
    path = f"{tmp_path}/a.h5"
    write(f"{path}:x", small(1))
    write(f"{path}:deep/er/y", small(2))
    write(f"{path}:/", small(3))
    for group, value in [("x", 1), ("/x", 1), ("deep/er/y", 2), ("/", 3)]:
        assert read(f"{path}:{group}").values[0] == value
    assert read(path).values[0] == 3
    with h5py.File(path, "a") as file:
        file["other"] = [1, 2, 3]
    with pytest.raises(FileExistsError):
        write(f"{path}:x", small(4))
    write(f"{path}:x", small(4).convert("COO"), overwrite=True)
    assert read(f"{path}:x").format == Format((Sparse(2),))
    with h5py.File(path) as file:
        assert set(file["x"]) == {"indices_0", "indices_1", "values"}
        assert file["other"][:].tolist() == [1, 2, 3]
    with pytest.raises(FileExistsError, match=r"'deep', 'other', 'x'.*overwrite='file'"):
        write(path, small(5), overwrite=True)
    write(path, small(5), overwrite="file")
    with h5py.File(path) as file:
        assert set(file) == {"pointers_to_1", "indices_1", "values"}
    for missing in ("z", "x/y", "values/a"):
        with pytest.raises(BinsparseError):
            read(f"{path}:{missing}")


def test_a_group_does_not_swallow_what_is_there(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["g/values"] = [1]
    with pytest.raises(FileExistsError, match="values"):
        write(f"{path}:g", small(), overwrite=True)
    with h5py.File(path) as file:
        assert file["g/values"][:].tolist() == [1]
        assert "binsparse" not in file["g"].attrs


def test_splitting_paths(tmp_path):
    (tmp_path / "a:b").touch()
    assert split_path(f"{tmp_path}/a:b") == (f"{tmp_path}/a:b", None)
    assert split_path("a.h5") == ("a.h5", None)
    assert split_path("a.h5:g/h") == ("a.h5", "g/h")
    assert split_path("a.h5:/") == ("a.h5", "")
    assert split_path("C:/a.h5") == ("C:/a.h5", None)
    assert split_path("s3://bucket/a.h5") == ("s3://bucket/a.h5", None)
    assert split_path(tmp_path) == (str(tmp_path), None)
    with pytest.raises(TypeError):
        split_path(b"a.h5")


# Replacing


def test_nothing_is_overwritten_unasked(tmp_path):
    write(tmp_path / "a.h5", small(1))
    with pytest.raises(FileExistsError):
        write(tmp_path / "a.h5", small(2))
    assert read(tmp_path / "a.h5").values[0] == 1
    write(tmp_path / "a.h5", small(2), overwrite=True)
    assert read(tmp_path / "a.h5").values[0] == 2
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("group", ["", ":g"])
def test_a_write_that_fails_leaves_the_old_file_or_none(tmp_path, monkeypatch, n, exists, group):
    """A fault at the n-th step, for every n."""
    path = f"{tmp_path}/a.h5{group}"
    if exists:
        write(path, small(1))
    steps = []

    def failing(function):
        def step(*args, **kwargs):
            steps.append(function)
            if len(steps) == n:
                raise OSError(28, "No space left on device")
            return function(*args, **kwargs)

        return step

    monkeypatch.setattr(h5py.Group, "create_dataset", failing(h5py.Group.create_dataset))
    monkeypatch.setattr(h5py.AttributeManager, "create", failing(h5py.AttributeManager.create))
    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    with pytest.raises(ContainerError, match="No space left"):
        write(path, small(2), overwrite=True)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["a.h5"] if exists else [])
    if exists:
        assert read(path).values[0] == 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.npz", "a.nc"])
@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_have_names_of_this_package(tmp_path, name, stored):
    dtype = np.dtype(np.float16 if stored == "float16" else getattr(pytest.importorskip("ml_dtypes"), stored))
    tensor = pack([[0, 1, 3], [1, 0, 2]], np.array([1, 2, 2.5], dtype), (4, 4), "CSR", fill_value=0)
    write(tmp_path / name, tensor)
    assert str(describe(tmp_path / name).descriptor.data_types["values"]) == f"binsparse_levels:{stored}"
    assert read(tmp_path / name).equals(tensor)
    with open_tensor(tmp_path / name) as opened:
        assert opened[1:].load().equals(tensor[1:].load())
        assert opened.dtype == dtype
        assert opened.sum(axis=0).tolist() == [2, 1, 2.5, 0]
    iso = Tensor("CVEC", 3, {"indices_0": np.array([0, 2])}, dtype.type(1))
    write(tmp_path / name, iso, overwrite=True)
    assert str(describe(tmp_path / name).descriptor.data_types["values"]) == f"iso[binsparse_levels:{stored}]"
    assert read(tmp_path / name).equals(iso)


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_are_multiplied(tmp_path, stored):
    dtype = np.dtype(np.float16 if stored == "float16" else getattr(pytest.importorskip("ml_dtypes"), stored))
    tensor = pack([[0, 1, 3], [1, 0, 2]], np.array([1, 2, 2.5], dtype), (4, 4), "CSR", fill_value=0)
    write(tmp_path / "a.h5", tensor)
    with open_tensor(tmp_path / "a.h5") as opened:
        assert (opened @ np.ones(4)).tolist() == [1, 2, 0, 2.5]
        assert (opened @ opened.T).to_dense().tolist() == np.diag([1, 4, 0, 6.25]).tolist()
        assert opened.max(axis=None) == 2.5


def test_types_that_binsparse_does_not_have_are_refused_before_anything_is_touched(tmp_path):
    write(tmp_path / "a.h5", small())
    before = (tmp_path / "a.h5").read_bytes()
    for dtype in (np.longdouble, "V3", "M8[s]", "i4,f8"):
        with pytest.raises(ArrayError, match="values"):
            write(tmp_path / "a.h5", pack([[0]], np.zeros(1, dtype), 3, "CVEC"), overwrite=True)
    assert (tmp_path / "a.h5").read_bytes() == before


def test_permissions_and_links_are_kept(tmp_path):
    write(tmp_path / "a.h5", small())
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(os.stat(tmp_path / "a.h5").st_mode) == 0o666 & ~umask
    os.chmod(tmp_path / "a.h5", 0o640)
    os.symlink(tmp_path / "a.h5", tmp_path / "link.h5")
    write(tmp_path / "link.h5", small(7), overwrite=True)
    assert (tmp_path / "link.h5").is_symlink()
    assert read(tmp_path / "a.h5").values[0] == 7
    assert stat.S_IMODE(os.stat(tmp_path / "a.h5").st_mode) == 0o640


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.h5").mkdir()
    for path, error in [
        ("folder.h5", ContainerError),
        ("none/a.h5", FileNotFoundError),
        ("a.xyz", ContainerError),
        ("a", ContainerError),
    ]:
        for overwrite in (False, True):
            with pytest.raises(error):
                write(tmp_path / path, small(), overwrite=overwrite)
    with pytest.raises(TypeError):
        write(tmp_path / "a.h5", np.eye(3).tolist())


# Files that are not what they should be


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.h5")
    for content in (b"", b"hello", b"\x89HDF\r\n\x1a\n", b"\x1f\x8b garbage"):
        (tmp_path / "a.h5").write_bytes(content)
        with pytest.raises(ContainerError):
            read(tmp_path / "a.h5")
    with pytest.raises(ContainerError):
        read(tmp_path)
    write(tmp_path / "b.h5", small())
    with pytest.raises(TypeError, match="shape does not apply"):
        read(tmp_path / "b.h5", shape=(3, 4))


def test_the_content_says_what_a_file_is(tmp_path):
    write(tmp_path / "a.h5", small())
    os.rename(tmp_path / "a.h5", tmp_path / "a.mtx")
    assert read(tmp_path / "a.mtx").equals(small())


def spoil(path, name, change):
    with h5py.File(path, "a") as file:
        array = file[name][...]
        del file[name]
        change(file, name, array)


def external(file, name, array):
    file.create_dataset(name, array.shape, array.dtype, external=[("other.bin", 0, array.nbytes)])


def virtual(file, name, array):
    layout = h5py.VirtualLayout(array.shape, array.dtype)
    layout[:] = h5py.VirtualSource("other.h5", name, array.shape)
    file.create_virtual_dataset(name, layout)


def link(kind):
    def change(file, name, array):
        file["real"] = array
        file[name] = h5py.ExternalLink("other.h5", "/real") if kind == "external" else h5py.SoftLink("/real")

    return change


def stored(value, **options):
    return lambda file, name, array: file.create_dataset(name, data=value(array), **options)


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("indices_1", external, UnsafeError),
        ("indices_1", virtual, UnsafeError),
        ("indices_1", link("soft"), UnsafeError),
        ("indices_1", link("external"), UnsafeError),
        ("indices_1", lambda file, name, array: file.create_group(name), ContainerError),
        ("indices_1", lambda file, name, array: None, ArrayError),
        ("indices_1", stored(lambda x: x[:-1]), ArrayError),
        ("indices_1", stored(lambda x: x.reshape(1, -1)), ArrayError),
        ("indices_1", stored(lambda x: x[0]), ArrayError),
        ("indices_1", stored(lambda x: x.astype(float)), ArrayError),
        ("indices_1", stored(lambda x: x.astype(np.int64)), ArrayError),
        ("indices_1", stored(lambda x: x + 100), ArrayError),
        ("indices_1", stored(lambda x: np.array(["a", "b"], "S1")), ArrayError),
        ("values", stored(lambda x: x.astype("f4")), ArrayError),
        ("values", stored(lambda x: np.array([b"x", b"yy"], h5py.string_dtype())), ArrayError),
        ("values", lambda file, name, array: file.create_dataset(name, (2**40,), "f8"), ArrayError),
        ("values", lambda file, name, array: file.create_dataset(name, data=h5py.Empty("f8")), ArrayError),
    ],
    ids=range(17),
)
def test_arrays_that_are_not_what_the_descriptor_says(tmp_path, name, change, error):
    path = tmp_path / "a.h5"
    write(path, small())
    spoil(path, name, change)
    with pytest.raises(error):
        read(path)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("options", [{}, {"chunks": (1,)}, {"compression": "gzip", "chunks": (2,)}])
def test_arrays_however_they_are_stored(tmp_path, order, options):
    path = tmp_path / "a.h5"
    write(path, small())
    for name in ("values", "indices_1"):
        spoil(path, name, stored(lambda x: x.astype(x.dtype.newbyteorder(order)), **options))
    again = read(path)
    assert again.equals(small())
    assert again.dtype.isnative


@pytest.mark.parametrize("text", [b"fixed", "array", "object", 5, "missing", "{", "x" * 2**21])
def test_headers_that_are_stored_otherwise(tmp_path, text):
    path = tmp_path / "a.h5"
    write(path, small())
    with h5py.File(path, "a") as file:
        header = file.attrs["binsparse"]
        del file.attrs["binsparse"]
        if text == b"fixed":
            file.attrs["binsparse"] = np.bytes_(header)
        elif text == "array":
            file.attrs["binsparse"] = np.array([header], h5py.string_dtype())
        elif text != "missing":
            file.attrs.create("binsparse", text, dtype=h5py.string_dtype() if isinstance(text, str) else None)
    if text in (b"fixed", "array"):
        assert read(path).equals(small())
    else:
        with pytest.raises((ContainerError, DescriptorError, LimitError)):
            read(path)


def test_what_is_read_is_bounded(tmp_path):
    write(tmp_path / "a.h5", small())
    with pytest.raises(LimitError, match="array_bytes=10"):
        read(tmp_path / "a.h5", limits=Limits(array_bytes=10))


def test_damaged_chunks_are_an_error(tmp_path):
    path = tmp_path / "a.h5"
    write(path, small())
    spoil(path, "values", stored(lambda x: x, chunks=(2,), fletcher32=True))
    with h5py.File(path) as file:
        offset = file["values"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(ContainerError, match="values"):
        read(path)


def test_dcsr_with_an_empty_row_is_custom(tmp_path):
    arrays = {"indices_0": [0, 1, 2], "pointers_to_1": [0, 1, 1, 2], "indices_1": [3, 1]}
    tensor = Tensor("DCSR", (3, 4), arrays, [1.0, 2.0])
    write(tmp_path / "a.h5", tensor)
    assert describe(tmp_path / "a.h5").descriptor.name is None
    again = read(tmp_path / "a.h5")
    assert again.equals(tensor)
    assert again.arrays["pointers_to_1"].tolist() == [0, 1, 1, 2]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        header = json.loads(file.attrs["binsparse"])
        del header["binsparse"]["custom"]
        header["binsparse"]["format"] = "DCSR"
        file.attrs["binsparse"] = json.dumps(header)
    with pytest.raises(ArrayError, match="DCSR has no fibers without an entry"):
        read(tmp_path / "a.h5")


# Cases that hostile use found


HEADER = {"version": "0.1", "number_of_stored_values": 0, "data_types": {"values": "iso[float64]"}}


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


def test_a_fill_value_of_another_type():
    place = {}
    write(place, pack([[0]], np.ones(1, np.float32), 3, "CVEC", fill_value=0.5))
    place["binsparse"]["binsparse"]["data_types"]["fill_value"] = "float64"
    place["fill_value"] = np.array([0.1])
    with pytest.raises(ArrayError, match="fill_value"):
        read(place)
    with pytest.warns(UserWarning, match="fill_value"):
        assert read(place, lenient=True).fill_value == np.float32(0.1)


@pytest.mark.parametrize(("declared", "stored"), [("int8", np.array([np.nan])), ("float32", np.array([2**53 + 1]))])
def test_what_does_not_fit_is_not_read_leniently(declared, stored):
    place = {}
    write(place, pack([[0]], np.ones(1, declared), (1,), "CVEC"))
    place["values"] = stored
    with pytest.raises(ArrayError, match="do not fit the declared"):
        read(place, lenient=True)


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
def test_a_conversion_names_what_it_leaves_out(tmp_path, name):
    tensor = pack([[0]], [1.0], 3, "CVEC")
    write(tmp_path / name, tensor)
    convert(tmp_path / name, tmp_path / "b.h5")
    write(f"{tmp_path}/{name}:right_side", tensor)
    write(f"{tmp_path}/{name}:x", tensor)
    with pytest.warns(DialectWarning, match=r"has right_side, x in addition to its tensor.*list_tensors"):
        convert(tmp_path / name, tmp_path / "b.h5", overwrite=True)
    convert(f"{tmp_path}/{name}:x", tmp_path / "c.h5")
    assert read(tmp_path / "b.h5").equals(tensor)
