"""sscdf: files by the real programs, round trips, what the NetCDF library sees, and files that are refused."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from helpers.golden import arrays_of
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    BinsparseError,
    ContainerError,
    DialectWarning,
    FormatError,
    LimitError,
    Limits,
    OptionError,
    Tensor,
    UnsafeError,
    cli,
    list_tensors,
    pack,
    read,
    read_all,
    write,
    write_all,
)
from binsparse_levels.io import describe
from binsparse_levels.io.files import sscdf
from binsparse_levels.tensors.encoding import encode_tensor

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "sscdf"
FILES = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))["files"]
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
KINDS = {"native": "sscdf", "json": "sscdf_json"}


def entries(tensor):
    coords, values = tensor.unpack()
    order = np.lexsort(coords[::-1]) if coords else slice(None)
    return [x[order] for x in coords], values[order]


# Files by the real programs


@pytest.mark.parametrize("entry", FILES, ids=lambda entry: entry["file"])
def test_reads_to_what_it_holds(entry, tmp_path):
    path = GOLDEN / entry["file"]
    expected = arrays_of(GOLDEN / entry["expect"])
    tensors = read_all(path)
    assert set(tensors) == {made["name"] for made in entry["objects"]}
    assert set(list_tensors(path)) == {made["name"] or "/" for made in entry["objects"]}
    for made in entry["objects"]:
        tensor = tensors[made["name"]]
        assert tensor.shape == tuple(made["shape"])
        assert tensor.dtype == np.dtype(made["datatype"].replace("fp", "float"))
        assert tensor.number_of_stored_values == made["nvals"]
        assert tensor.iso == made["iso"]
        assert tensor.attributes == ({"comment": made["comment"]} if made["comment"] else {})
        assert tensor.fill_value is None
        coords, values = entries(tensor)
        for x, name in zip(coords, ["rows", "cols"], strict=False):
            assert np.array_equal(x, expected[made["prefix"] + name])
        if made["nvals"]:
            assert values.tobytes() == expected[made["prefix"] + "vals"].astype(values.dtype).tobytes()
        assert read(path, name=made["name"]).equals(tensor)
    kind = "sscdf_json" if entry["file"].startswith("json") else "sscdf"
    write_all(tmp_path / "again.sscdf", tensors, kind=kind)
    assert_same_to_netcdf(tmp_path / "again.sscdf", path, tensors)
    for name, again in read_all(tmp_path / "again.sscdf").items():
        assert again.equals(tensors[name])
        assert (again.format, again.iso, again.attributes) == (
            tensors[name].format, tensors[name].iso, tensors[name].attributes,
        )  # fmt: skip


def assert_same_to_netcdf(ours, theirs, tensors):
    """The same attributes and variables, as far as arrays are no longer than they have to be."""
    with netCDF4.Dataset(ours) as a, netCDF4.Dataset(theirs) as b:
        for name, tensor in tensors.items():
            mine, other = (file if name is None else file.groups[name] for file in (a, b))
            assert {k: mine.getncattr(k) for k in mine.ncattrs()} == {k: other.getncattr(k) for k in other.ncattrs()}
            assert set(mine.variables) == set(other.variables)
            there = raw(other, "bitmap")[: tensor.size] != 0 if "bitmap" in mine.variables else None
            for variable in mine.variables:
                held, wanted = raw(mine, variable), raw(other, variable)
                assert mine[variable].dimensions == other[variable].dimensions
                assert held.dtype == wanted.dtype.newbyteorder("=")
                if wanted.ndim and tensor.format.levels[0].gaps | tensor.format.levels[-1].padded:
                    wanted = wanted[: tensor.size]
                if there is not None and variable == "values" and wanted.ndim:
                    wanted = np.where(there, wanted, wanted.dtype.type(0))
                assert np.array_equal(held, wanted, equal_nan=held.dtype.kind == "f")


def raw(group, variable):
    group[variable].set_auto_maskandscale(False)
    return np.asarray(group[variable][...])


# Round trips


@st.composite
def objects(draw, dialect):
    """A tensor of any format, type and shape that the dialect has."""
    layout = draw(st.sampled_from(list(sscdf.DIALECTS[dialect].values())))
    rank = layout.format.rank
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    cells = list(np.ndindex(*shape))
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=8)) if cells else []
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    numbers = draw(st.lists(st.integers(0, 100), min_size=len(chosen), max_size=len(chosen)))
    values = np.array(numbers).astype(dtype)
    special = [np.nan, -0.0, np.inf, 9.969209968386869e36] if dtype.kind == "f" else [0]
    if draw(st.booleans()):
        values = dtype.type(draw(st.sampled_from(special)))
    comment = draw(st.sampled_from([None, "a comment", "ünï — 稀疏", "x" * 70_000]))
    attributes = {} if comment is None else {"comment": comment}
    table = np.array(chosen, np.int64).reshape(len(chosen), rank).T
    return pack(table, values, shape, layout.format, attributes=attributes)


def assert_same(again, tensor):
    assert again.equals(tensor)
    assert again.dtype == tensor.dtype
    assert again.shape == tensor.shape
    assert again.attributes == tensor.attributes
    if tensor.ndim:
        assert again.format.canonical() == tensor.format.canonical()
        assert again.iso == (tensor.iso and len(tensor.values) > 0)
    assert again.values.tobytes() == tensor.values.tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sscdf")


@pytest.mark.parametrize("dialect", KINDS)
@given(data=st.data())
def test_what_is_written_is_read(folder, dialect, data):
    kind = KINDS[dialect]
    tensor, other, late = (data.draw(objects(dialect)) for _ in range(3))
    storage = data.draw(st.sampled_from([{}, {"compression": "none"}, {"compression": "gzip", "chunks": 3}]))
    write(folder / "one.sscdf", tensor, overwrite=True, kind=kind, **storage)
    assert_same(read(folder / "one.sscdf"), tensor)
    names = data.draw(st.lists(st.sampled_from(["A", "naïve", "with space", "m*1.2", "0"]), unique=True, min_size=1))
    tensors = {None: tensor} | dict.fromkeys(names, other)
    write_all(folder / "all.sscdf", tensors, overwrite=True, kind=kind, **storage)
    write(folder / "all.sscdf", late, name="late", kind=kind)
    write(folder / "all.sscdf", late, name=names[0], kind=kind, overwrite=True)
    again = read_all(folder / "all.sscdf")
    assert list(again) == [None, *names[1:], "late", names[0]] or set(again) == {None, *names, "late"}
    for name, wanted in {**tensors, "late": late, names[0]: late}.items():
        assert_same(again[name], wanted)
    found = describe(folder / "one.sscdf")
    again = read(folder / "one.sscdf")
    header, stored = encode_tensor(again)
    assert {name: str(made) for name, made in found.descriptor.data_types.items()} == header["binsparse"]["data_types"]
    assert found.descriptor.format == again.format
    assert found.descriptor.number_of_stored_values == len(again.values)
    assert {name: info.shape for name, info in found.arrays.items()} == {name: x.shape for name, x in stored.items()}
    with netCDF4.Dataset(folder / "all.sscdf", "a") as file:  # the library opens it, and adds to it
        for group in (file, *file.groups.values()):
            for variable in group.variables.values():
                assert not np.ma.is_masked(variable[...]) or variable.ndim
        file.createGroup("more").createVariable("x", "i4")[...] = 5
    assert set(read_all(folder / "all.sscdf")) == {None, *names, "late"}


def test_lazy_arrays_are_read_by_slices(tmp_path):
    tensor = pack([[0, 2, 5], [1, 0, 3]], [1.5, 2.5, 3.5], (6, 4), "CSR")
    write_all(tmp_path / "a.sscdf", {"A": tensor, "B": tensor.convert("bitmap(2)").astype(bool)})
    with contextlib.ExitStack() as closing:
        found = sscdf.look(str(tmp_path / "a.sscdf"), closing, group="A", limits=Limits())
        assert (found.format, found.shape) == (tensor.format, tensor.shape)
        assert len(found.arrays["pointers_to_1"]) == 7
        assert found.arrays["pointers_to_1"].dtype == np.uint64
        assert found.arrays["pointers_to_1"][2:4].tolist() == [1, 2]
        assert found.values[1:].tolist() == [2.5, 3.5]
    with contextlib.ExitStack() as closing:
        found = sscdf.look(str(tmp_path / "a.sscdf"), closing, group="B", limits=Limits())
        assert found.arrays["bitmap_0"].dtype == found.values.dtype == bool
        assert found.arrays["bitmap_0"][0:3].tolist() == found.values[0:3].tolist() == [False, True, False]


def test_several_tensors_are_written_as_one_is(tmp_path):
    mapped = pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "sparse", map="(0 1)")
    write_all(tmp_path / "a.sscdf", {None: mapped, "b": mapped})
    for found in read_all(tmp_path / "a.sscdf").values():
        assert found.to_dense().tolist() == mapped.to_dense().tolist()


def test_scalars(tmp_path):
    path = tmp_path / "a.sscdf"
    empty = Tensor("bitmap(0)", (), {"bitmap_0": [False]}, [1.5])
    full = Tensor("bitmap(0)", (), {"bitmap_0": [True]}, [1.5])
    write_all(path, {None: empty, "full": full, "plain": pack((), np.array([7], "u1"), (), "element")})
    with h5py.File(path) as file:
        assert [file.attrs["format"], file["full"].attrs["format"]] == [b"scalar_empty", b"scalar"]
        assert list(file.keys()) == ["full", "plain"]
        assert file["plain/value"].shape == ()
    tensors = read_all(path)
    assert tensors[None].number_of_stored_values == 0
    assert tensors[None].dtype == np.float64
    assert tensors["full"].format.levels == ()
    assert tensors["full"].equals(full)
    assert tensors["plain"].dtype == np.uint8


def test_a_value_that_is_the_fill_value_of_netcdf_does_not_show_as_missing(tmp_path):
    for k, (code, fill) in enumerate(netCDF4.default_fillvals.items()):
        if code in ("S1", "i1", "u1", "c8", "c16"):
            continue
        path = tmp_path / f"{k}.sscdf"
        write_all(
            path,
            {
                None: pack((), np.array([fill], code), (), "element"),
                "iso": pack([[0]], np.dtype(code).type(fill), 3, "CVEC"),
            },
        )
        with netCDF4.Dataset(path) as file:
            for variable in (file["value"], file["iso"]["values"]):
                assert not np.ma.is_masked(variable[...])
                assert variable[...] == np.dtype(code).type(fill)
        assert read(path).values[0] == np.dtype(code).type(fill)


def test_what_is_in_the_file(tmp_path):
    tensor = pack([[0, 2], [1, 0]], np.array([1, 2], "i4"), (3, 4), "CSC", attributes={"comment": "c"})
    write(tmp_path / "a.sscdf", tensor)
    with h5py.File(tmp_path / "a.sscdf") as file:
        assert dict(file.attrs) == {"version": b"1.0", "format": b"csc", "datatype": b"int32", "comment": b"c"}
        assert list(file) == ["indptr", "row_indices", "values", "nrows", "ncols"]
        assert file["indptr"].dtype == np.uint64
        assert file["indptr"].compression == "gzip"
        assert (file["nrows"][()], file["ncols"][()]) == (3, 4)
        assert file["row_indices"].attrs["_Netcdf4Dimid"] == 1
    write(tmp_path / "b.sscdf", tensor, kind="sscdf_json")
    with h5py.File(tmp_path / "b.sscdf") as file:
        assert json.loads(file.attrs["metadata"]) == {
            "version": "1.0",
            "format": "CSC",
            "shape": [3, 4],
            "data_types": {"pointers_0": "uint64", "indices_1": "uint64", "values": "int32"},
            "comment": "c",
        }
        assert file["values"].chunks is None


def test_rows_without_an_entry_are_left_out(tmp_path):
    arrays = {"indices_0": [0, 3], "pointers_to_1": [0, 0, 1], "indices_1": [2]}
    for kind, turned in (("DCSR", False), ("DCSC", True)):
        tensor = Tensor(kind, (5, 5), arrays, [1.5])
        write(tmp_path / f"{kind}.sscdf", tensor)
        assert read(tmp_path / f"{kind}.sscdf").equals(tensor)
        with h5py.File(tmp_path / f"{kind}.sscdf") as file:
            assert file["cols" if turned else "rows"][:].tolist() == [3]


# Names and groups


def test_a_path_names_an_object_as_a_name_does(tmp_path):
    path = tmp_path / "a.sscdf"
    one, two = pack([[0]], [1.5], 3, "CVEC"), pack([[1]], [2.5], 3, "DVEC")
    write(f"{path}:two", two)
    assert list_tensors(path) == ["two"]
    with pytest.raises(ContainerError, match=r"a.sscdf: is no sscdf object; those of the file: 'two'"):
        read(path)
    with pytest.raises(FileExistsError):
        write(path, one)
    write(path, one, name="one")
    assert read(f"{path}:two").equals(two)
    assert read(path, name="one").equals(one)
    with pytest.raises(FileExistsError):
        write(path, one, name="two")
    with pytest.raises(FileNotFoundError, match="no object of this name"):
        read(path, name="three")
    with pytest.raises(OptionError):
        read(f"{path}:one", name="two")
    write(path, one, overwrite=True)
    assert list(read_all(path)) == [None]


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "values", "nrows", "indptr", "indices_0", "_x", ".", "..", "x ", "e\u0301", "a\0", "\ud800", "ü" * 129],
)
def test_names_that_are_refused(tmp_path, name):
    with pytest.raises(FormatError, match="name"):
        write_all(tmp_path / "a.sscdf", {name: pack([[0]], [1.5], 3, "CVEC")})
    assert os.listdir(tmp_path) == []


def test_nothing_is_added_to_another_kind_of_file(tmp_path):
    tensor = pack([[0]], [1.5], 3, "CVEC")
    write(tmp_path / "a.h5", tensor)
    write(tmp_path / "b.sscdf", tensor, kind="sscdf_json")
    for name in ("a.h5", "b.sscdf"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ContainerError, match="no sscdf file of the native dialect"):
            write(tmp_path / name, tensor, name="A", kind="sscdf")
        assert (tmp_path / name).read_bytes() == before
    assert read(tmp_path / "a.h5").equals(tensor)


def test_the_content_tells_the_kind(tmp_path):
    tensor = pack([[0]], [1.5], 3, "CVEC")
    for kind in KINDS.values():
        write(tmp_path / "a.sscdf", tensor, kind=kind, overwrite=True)
        shutil.copyfile(tmp_path / "a.sscdf", tmp_path / "a.h5")
        assert read(tmp_path / "a.h5").equals(tensor)
        write_all(tmp_path / "b.sscdf", {"A": tensor}, kind=kind, overwrite=True)
        os.replace(tmp_path / "b.sscdf", tmp_path / "b.h5")
        assert read(tmp_path / "b.h5:A").equals(tensor)
    write(tmp_path / "c.sscdf", tensor, kind="hdf5")
    assert read(tmp_path / "c.sscdf").equals(tensor)
    write(tmp_path / "d.h5:group", tensor)
    assert list(read_all(tmp_path / "d.h5")) == ["group"]
    write(tmp_path / "d.h5:", tensor)
    assert read_all(tmp_path / "d.h5")[None].equals(tensor)


def test_the_command_line(tmp_path, capsys):
    source, path = str(GOLDEN / "native_comments_names.sscdf"), str(tmp_path / "a.h5")
    assert cli.main(["info", f"{source}:total"]) == 0
    assert cli.main(["check", source]) == 0
    assert "sound, bitmap(2), " in capsys.readouterr().out
    assert cli.main(["convert", f"{source}:naïve", path, "--format", "CSR"]) == 0
    assert cli.main(["convert", path, str(tmp_path / "b.sscdf"), "--format", "bitmap(2) @ 1, 0"]) == 0
    assert read(tmp_path / "b.sscdf").equals(read(source, name="naïve"))
    assert cli.main(["convert", path, f"{tmp_path / 'b.sscdf'}:other"]) == 0
    assert list_tensors(tmp_path / "b.sscdf") == ["/", "other"]
    assert cli.main(["convert", path, str(tmp_path / "c.sscdf"), "--format", "sparse, dense"]) == 2


# What cannot be said


def test_what_sscdf_cannot_say(tmp_path):
    path = tmp_path / "a.sscdf"
    square = pack([[1], [0]], [1.5], (3, 3), "CSR", structure="symmetric_lower")
    for tensor, message in (
        (pack([[0]] * 3, [1.5], (3, 3, 3), "sparse(3)"), "convert it to one of CSR; "),
        (pack([[0]] * 2, [1.5], (3, 3), "sparse, dense"), "convert it to one of CSR; "),
        (square, "cannot represent symmetric_lower"),
        (pack([[0]], [1.5], 3, "CVEC", fill_value=2), "cannot represent the fill value 2"),
        (pack([[0]], [1j], 3, "CVEC"), "has no complex128 values"),
        (pack([[0]], np.array([1], "f2"), 3, "CVEC"), "has no float16 values"),
        (pack([[0]], [1.5], 3, "CVEC", attributes={"comment": "a\0"}), "comment: NetCDF cannot store this text"),
    ):
        with pytest.raises(FormatError, match=message):
            write(path, tensor)
    with pytest.raises(FormatError, match="the json dialect has no"):
        write(path, pack([[0]], [1.5], 3, "bitmap"), kind="sscdf_json")
    for options in ({"narrow": True}, {"checksum": True}, {"compression": "zstd"}, {"chunks": {"nothing": 4}}):
        with pytest.raises(OptionError):
            write(path, pack([[0]], [1.5], 3, "CVEC"), **options)
    with pytest.raises(OptionError):
        write_all(tmp_path / "a.h5", {None: square})
    with pytest.raises(TypeError):
        write_all(path, {None: 5})
    with pytest.raises(FormatError, match="no tensors"):
        write_all(path, {})
    with pytest.raises(OptionError, match="lenient does not apply"):
        write(path, pack([[0]], [1.5], 3, "CVEC", fill_value=0)) or read(path, lenient=True)
    assert os.listdir(tmp_path) == ["a.sscdf"]


# Malformed files


def csr(**changes):
    """The arrays and attributes of a sound file, some changed; None takes one away."""
    parts = {
        "version": b"1.0", "format": b"csr", "datatype": b"fp64", "indptr": np.array([0, 2, 2, 3, 5], "u8"),
        "col_indices": np.array([1, 3, 0, 2, 4], "u8"), "values": np.arange(1.0, 6), "nrows": np.uint64(4),
        "ncols": np.uint64(5),
    }  # fmt: skip
    return parts | changes


def make(path, parts):
    with h5py.File(path, "w") as file:
        for name, part in parts.items():
            if part is None:
                continue
            if isinstance(part, (bytes, str, int)) or name in ("version", "metadata"):
                file.attrs[name] = np.bytes_(part) if isinstance(part, bytes) else part
            else:
                file.create_dataset(name, data=part)
    return path


BITMAP = {
    "format": b"bitmapr", "indptr": None, "col_indices": None, "bitmap": np.ones(20, "i1"), "values": np.ones(20),
}  # fmt: skip
HYPER = {"format": b"hypercsr", "indptr": np.array([0, 2, 3, 5], "u8"), "rows": np.array([0, 2, 3], "u8")}
COO = {"format": b"coor", "indptr": None, "col_indices": None, "rows": np.array([0, 0, 1, 2, 3], "u8"),
       "cols": np.array([1, 3, 0, 2, 4], "u8")}  # fmt: skip
VECTOR = {"format": b"sparse", "size": np.uint64(9), "indices": np.array([0, 3, 4, 5, 8], "u8")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": None}, "version: this attribute is missing"),
        ({"version": b"1.1"}, "version: expected 1.0, got '1.1'"),
        ({"version": 1}, "version: expected a string"),
        ({"format": None}, "format: this attribute is missing"),
        ({"format": b"CSR"}, "format: unknown 'CSR'"),
        ({"format": b"\xff"}, "format: not UTF-8"),
        ({"datatype": None}, "datatype: this attribute is missing"),
        ({"datatype": b"fc64"}, "datatype: unknown 'fc64'"),
        ({"datatype": b"int8"}, "values: declared int8, stored as float64"),
        ({"datatype": b"bool"}, "values: declared bool, stored as float64"),
        ({"comment": 5}, "comment: expected a string"),
        ({"indptr": None}, "indptr: / has no such array"),
        ({"values": None}, "values: / has no such array"),
        ({"nrows": None}, "nrows: / has no such array"),
        ({"nrows": np.array([4], "u8")}, r"nrows: expected a scalar, got shape \(1,\)"),
        ({"nrows": np.float64(4)}, "nrows: expected an integer type"),
        ({"nrows": np.int64(-4)}, r"nrows: -4 is not in 0"),
        ({"nrows": np.uint64(2**64 - 1)}, "nrows: 18446744073709551615 is not in 0"),
        ({"nrows": np.uint64(2**62)}, "indptr: expected a length of 4611686018427387905"),
        ({"indptr": np.array([0, 5], "u8")}, "indptr: expected a length of 5"),
        ({"indptr": np.array([1, 2, 2, 3, 5], "u8")}, r"indptr\[0\]: expected 0"),
        ({"indptr": np.array([0, 2, 1, 3, 5], "u8")}, r"indptr\[2\]: 1 is less"),
        ({"indptr": np.array([0, 2, 2**63, 3, 5], "u8")}, r"indptr\[3\]: 3 is less"),
        ({"col_indices": np.array([1, 5, 0, 2, 4], "u8")}, r"col_indices\[1\]: 5 is outside"),
        ({"col_indices": np.array([3, 1, 0, 2, 4], "u8")}, r"col_indices\[1\]: 1 does not come after"),
        ({"col_indices": np.array([1, 3, 0, 2, -1], "i4")}, r"col_indices\[4\]: -1 is outside"),
        ({"col_indices": np.array([1, 3, 0, 2, 4.0])}, "col_indices: expected an integer type"),
        ({"values": np.arange(4.0)}, "values: expected a length of 5"),
        ({"values": np.ones(1)}, "values: expected a length of 5"),
        ({"values": np.ones((1, 5))}, "values: expected one dimension"),
        ({"values": np.array(["a"] * 5, dtype="O")}, "values: declared fp64, stored as object"),
        ({**BITMAP, "bitmap": np.ones(19, "i1")}, "bitmap: expected a length of 20"),
        ({**BITMAP, "bitmap": np.full(20, 7, "i1")}, r"bitmap\[0\]: expected 0 or 1, got 7"),
        ({**BITMAP, "bitmap": np.ones(20, "i2")}, "bitmap: declared booleans, stored as int16"),
        ({**BITMAP, "bitmap": np.ones((4, 5), "i1")}, "bitmap: expected one dimension"),
        ({**BITMAP, "values": np.ones(19)}, "values: expected a length of 20"),
        ({**BITMAP, "nrows": np.uint64(2**32), "ncols": np.uint64(2**32)}, "bitmap: expected a length of 1844674407"),
        ({**BITMAP, "format": b"fullc", "values": np.ones(19)}, "values: expected a length of 20"),
        ({**HYPER, "rows": np.array([0, 2], "u8")}, "indptr: expected a length of 3"),
        ({**HYPER, "rows": np.array([0, 2, 2], "u8")}, r"rows\[2\]: 2 repeats"),
        ({**HYPER, "rows": np.array([0, 2, 4], "u8")}, r"rows\[2\]: 4 is outside"),
        ({**COO, "cols": np.array([3, 1, 0, 2, 4], "u8")}, r"rows\[1\]: 0, 1 does not come after"),
        ({**COO, "cols": np.array([1, 1, 0, 2], "u8")}, "cols: expected a length of 5"),
        ({**VECTOR, "indices": np.array([0, 3, 4, 5, 9], "u8")}, r"indices\[4\]: 9 is outside"),
        ({"format": b"scalar", "value": np.ones(1)}, "value: expected a scalar"),
        ({"format": b"scalar"}, "value: / has no such array"),
        ({"metadata": b"{"}, "not JSON"),
        ({"metadata": b"[]"}, "metadata: expected an object"),
        ({"metadata": b'{"version": 1.0}'}, "metadata.version: expected 1.0, got 1.0"),
    ],
)
def test_malformed_files(tmp_path, changes, message):
    path = make(tmp_path / "a.sscdf", csr(**changes))
    with pytest.raises(BinsparseError, match=message) as caught:
        read(path)
    assert all(problem.path.startswith(str(path)) for problem in caught.value.problems)


GOOD = {
    "version": "1.0",
    "format": "CSR",
    "shape": [4, 5],
    "data_types": {"pointers_0": "uint64", "indices_1": "uint64", "values": "float64"},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "csr"}, "metadata.format: unknown 'csr'"),
        ({"format": 5}, "metadata.format: unknown 5"),
        ({"shape": [4, -5]}, "metadata.shape: expected 2 integers"),
        ({"shape": [4]}, "metadata.shape: expected 2 integers"),
        ({"shape": None}, "metadata.shape: expected 2 integers"),
        ({"data_types": []}, "metadata.data_types: expected an object"),
        ({"data_types": {"values": "fp64"}}, "metadata.data_types.values: unknown 'fp64'"),
        ({"data_types": {"values": "float64", "pointers_0": "int32"}}, "pointers_0: declared int32, stored as uint64"),
        ({"data_types": {"values": "float64", "pointers_0": []}}, "metadata.data_types.pointers_0: unknown"),
        ({"comment": 5}, "metadata.comment: expected a string"),
        ({"iso_value": "5"}, "metadata.iso_value: expected a value of float64"),
        ({"iso_value": True}, "metadata.iso_value: expected a value of float64"),
        ({"iso_value": 2.5, "data_types": {"values": "int8"}}, "metadata.iso_value: 2.5 is no int8"),
        ({"iso_value": 10**30, "data_types": {"values": "uint64"}}, "metadata.iso_value: 1000000000000.* is no uint64"),
    ],
)
def test_malformed_metadata(tmp_path, changes, message):
    parts = {"pointers_0": csr()["indptr"], "indices_1": csr()["col_indices"], "values": csr()["values"]}
    sound = make(tmp_path / "a.sscdf", {"metadata": json.dumps(GOOD).encode(), **parts})
    assert read(sound).number_of_stored_values == 5
    make(sound, {"metadata": json.dumps(GOOD | changes).encode(), **parts})
    with pytest.raises(BinsparseError, match=message):
        read(sound)


def test_coordinates_by_the_names_of_the_text(tmp_path):
    head = GOOD | {"data_types": {"values": "float64"}}
    parts = {"values": csr()["values"], "rows": COO["rows"], "cols": COO["cols"]}
    made = make(tmp_path / "a.sscdf", {"metadata": json.dumps(head | {"format": "COO"}).encode(), **parts})
    assert read(made).unpack()[0][1].tolist() == [1, 3, 0, 2, 4]
    turned = {**parts, "rows": COO["cols"], "cols": COO["rows"]}
    make(made, {"metadata": json.dumps(head | {"format": "COOC", "shape": [5, 4]}).encode(), **turned})
    assert read(made).unpack()[0][0].tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"version": "1.0", "format": "csr"},
        {"nrows": np.int32(4), "col_indices": np.array([1, 3, 0, 2, 4], "i4")},
        {"values": np.arange(1.0, 6).astype(">f8"), "indptr": np.array([0, 2, 2, 3, 5], ">u8")},
        {"more": np.ones((2, 3))},
        {**BITMAP, "bitmap": np.ones(32, "i1"), "values": np.ones(64)},
        {**BITMAP, "datatype": b"bool", "values": np.full(20, -1, "i1")},
        {**HYPER, "nrows": np.uint64(2**61), "ncols": np.uint64(2**61)},
    ],
    ids=range(8),
)
def test_odd_but_sound_files(tmp_path, changes):
    tensor = read(make(tmp_path / "a.sscdf", csr(**changes)))
    assert tensor.number_of_stored_values in (5, 20)
    if tensor.dtype == bool:
        assert tensor.values.view(np.uint8).tolist() == [1] * 20


def test_an_empty_row_is_told(tmp_path):
    parts = csr(**HYPER, values=np.arange(3.0), col_indices=np.array([1, 3, 0], "u8"))
    parts["indptr"] = np.array([0, 2, 2, 3], "u8")
    make(tmp_path / "a.sscdf", parts)
    with pytest.warns(DialectWarning, match="indptr: a row or column without an entry is stored"):
        assert read(tmp_path / "a.sscdf").number_of_stored_values == 3


def test_nothing_is_followed_out_of_the_file(tmp_path):
    for k, link in enumerate([h5py.SoftLink("/values"), h5py.ExternalLink("b.h5", "/"), None]):
        path = make(tmp_path / f"{k}.sscdf", csr())
        with h5py.File(path, "a") as file:
            file["x"] = file if link is None else link
        for call in (read, read_all, list_tensors):
            with pytest.raises(UnsafeError, match="x: "):
                call(path)
    path = make(tmp_path / "external.sscdf", csr(values=None))
    with h5py.File(path, "a") as file:
        file.create_dataset("values", (5,), "f8", external=[("/etc/hostname", 0, 40)])
    with pytest.raises(UnsafeError, match="another file"):
        read(path)


def test_sizes_are_held_to_the_limits(tmp_path):
    path = make(tmp_path / "a.sscdf", csr(**BITMAP, nrows=np.uint64(2**20), ncols=np.uint64(2**20)) | {"values": None})
    with h5py.File(path, "a") as file:
        file.attrs["format"] = np.bytes_("fullr")
        file.create_dataset("values", (2**40,), "f8", chunks=(1024,))
    with pytest.raises(LimitError, match="values: the size in bytes is 8796093022208"):
        read(path)
    write(tmp_path / "b.sscdf", pack([[0]], [1.5], 3, "CVEC", attributes={"comment": "x" * 5000}))
    with pytest.raises(LimitError, match="comment: the length of the attribute"):
        read(tmp_path / "b.sscdf", limits=Limits(header_bytes=1000))
    with pytest.raises(LimitError, match="comment: the length of the attribute"):
        write(tmp_path / "c.sscdf", read(tmp_path / "b.sscdf"), limits=Limits(header_bytes=1000))
    assert not (tmp_path / "c.sscdf").exists()


@pytest.mark.parametrize("length", [0, 7, 100, 0.5, -1])
def test_a_file_that_is_cut(tmp_path, length):
    data = make(tmp_path / "a.sscdf", csr()).read_bytes()
    cut = data[: int(len(data) * length) if isinstance(length, float) else length]
    (tmp_path / "a.sscdf").write_bytes(cut)
    with pytest.raises(ContainerError):
        read(tmp_path / "a.sscdf")


def test_a_group_that_is_no_object(tmp_path):
    path = make(tmp_path / "a.sscdf", csr())
    with h5py.File(path, "a") as file:
        file.create_group("x/y")
    assert list(read_all(path)) == [None]
    with pytest.raises(ContainerError, match=r"a.sscdf:x: is no sscdf object"):
        read(path, name="x")
    make(tmp_path / "b.sscdf", {"version": b"1.0"})
    assert read_all(tmp_path / "b.sscdf") == {}


def test_any_byte_that_is_changed_is_refused_or_does_no_harm(tmp_path):
    data = bytearray(make(tmp_path / "a.sscdf", csr()).read_bytes())
    generator, whole, refused, kept = np.random.default_rng(0), read(tmp_path / "a.sscdf").to_dense(), 0, 0
    for _ in range(60):
        at, bit = int(generator.integers(len(data))), int(generator.integers(8))
        data[at] ^= 1 << bit
        (tmp_path / "a.sscdf").write_bytes(data)
        try:
            found = read(tmp_path / "a.sscdf")
        except BinsparseError:
            refused += 1
        else:
            found.check()
            kept += found.shape == whole.shape and np.array_equal(found.to_dense(), whole)
        data[at] ^= 1 << bit
    assert refused
    assert kept > 30  # most bytes are padding, or of names that nobody reads
