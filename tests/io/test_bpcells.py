"""BPCells matrices: held to files by the real writer, both ways; what does not fit is refused. AnnData and 10x."""

import contextlib
import itertools
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse
from helpers.golden import arrays_of, names_of
from helpers.strategies import cases
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    Dense,
    FormatError,
    LimitError,
    Limits,
    OptionError,
    Sparse,
    UnsafeError,
    append,
    list_tensors,
    pack,
    pack_dense,
    parallel,
    read,
    read_all,
    write,
)
from binsparse_levels.formats import bitpacked
from binsparse_levels.io import describe
from binsparse_levels.io.files import bpcells
from binsparse_levels.thresholds import THRESHOLDS

GOLDEN = Path(__file__).parents[1] / "data" / "bpcells" / "matrices"
CASES = json.loads((GOLDEN / "manifest.json").read_text())
PACKED = GOLDEN / "n129_uint_packed_row_dir" / "mat"
counter = itertools.count()


@pytest.fixture(params=CASES, ids=lambda case: case["case"])
def case(request, monkeypatch):
    for quirk in request.param["quirks"]:
        if quirk.startswith("offset_increment="):
            monkeypatch.setattr(bpcells, "_WRAP", int(quirk.partition("=")[2]))
    return request.param


def target(case):
    path = GOLDEN / case["case"] / case["path"]
    return f"{path}:{case['group']}" if case["group"] else str(path)


def expected(case):
    return arrays_of(GOLDEN / case["case"] / "expected.npz")


def same(found, array):
    """Equal as bits: there are NaN, and zeros with a sign."""
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_a_file_is_what_was_written(case):
    held = expected(case)
    with contextlib.ExitStack() as closing:
        matrix = bpcells.look(str(GOLDEN / case["case"] / case["path"]), closing, group=case["group"], limits=Limits())
        assert matrix.shape == tuple(held["shape"])
        assert matrix.format == {"row": "CSR", "col": "CSC"}[case["storage_order"]]
        for dim, names in (("row", "row_names"), ("column", "col_names")):
            labels = None if matrix.labels is None else matrix.labels.columns.get(dim)
            assert ([] if labels is None else labels.array().tolist()) == held[names].tolist()
        assert np.array_equal(matrix.arrays["pointers_to_1"][:], held["indptr"])
        generator = np.random.default_rng(0)
        for stored, array in ((matrix.arrays["indices_1"], held["indices"]), (matrix.values, held["data"])):
            assert stored.shape == (len(stored),) == array.shape
            same(stored[:], array)
            for _ in range(5):
                a, b = sorted(generator.integers(0, len(array) + 1, 2))
                same(stored[a:b], array[a:b])


def test_it_is_read_and_written_as_it_was(case, tmp_path):
    held = expected(case)
    if case["case"].startswith("idxwidths"):
        with pytest.raises(ArrayError, match="more than once"):
            read(target(case))
    tensor = read(target(case), duplicates="first" if case["case"].startswith("idxwidths") else None)
    tensor.check()
    made = getattr(scipy.sparse, f"{'csr' if case['storage_order'] == 'row' else 'csc'}_array")
    if "unsorted rows" not in case["quirks"]:
        assert names_of(tensor) == [held["row_names"].tolist(), held["col_names"].tolist()]
        same(tensor.values, held["data"])
    elif tensor.shape[0] < 1000:
        theirs = made((held["data"], held["indices"].astype(np.int64), held["indptr"].astype(np.int64)), tensor.shape)
        assert np.array_equal(tensor.to_dense(), theirs.toarray())
    if "ulong" in case["version"]:
        with pytest.raises(FormatError, match="integers in 0"):
            write(tmp_path / "again", tensor, kind="bpcells")
        return
    packed, version = not case["version"].startswith("un"), int(case["version"][-1])
    options = {"kind": "bpcells", "packed": packed, "version": version}
    if case["path"] == "mat":
        write(tmp_path / "again", tensor, **options)
        for file in (GOLDEN / case["case"] / "mat").iterdir():
            sorted_now = "unsorted rows" in case["quirks"] and file.name.startswith(("idxptr", "index", "val"))
            if not sorted_now and not (0 in tensor.shape and file.name == "idxptr"):
                assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
        assert sorted(os.listdir(tmp_path / "again")) == sorted(os.listdir(GOLDEN / case["case"] / "mat"))
        again = read(tmp_path / "again")
    else:
        place = str(tmp_path / "again.h5") + f":{case['group']}" * (case["group"] != "/")
        write(place, tensor, **options, chunks=case["chunk"], gzip=case["gzip"] or None)
        same_group(target(case).rpartition(":")[0], str(tmp_path / "again.h5"), case["group"])
        again = read(place)
    assert again.equals(tensor)
    assert again.attributes == tensor.attributes
    assert (again.dtype, again.format) == (tensor.dtype, tensor.format)


def same_group(ours, theirs, group):
    """The same datasets, down to the bytes of their chunks."""
    keys = "shape", "maxshape", "chunks", "compression", "compression_opts", "shuffle", "fletcher32"
    with h5py.File(ours) as a, h5py.File(theirs) as b:
        a, b = a[group], b[group]
        assert set(a) == set(b)
        assert dict(a.attrs) == dict(b.attrs)
        for name in a:
            assert a[name].id.get_type().equal(b[name].id.get_type())
            for key in keys:
                assert getattr(a[name], key) == getattr(b[name], key), (name, key)
            assert a[name][...].tolist() == b[name][...].tolist() or a[name].dtype.kind == "f"
            chunks: list[list] = [[], []]
            for dataset, found in zip((a[name], b[name]), chunks, strict=True):
                if dataset.chunks:
                    dataset.id.chunk_iter(lambda info, found=found: found.append(info.chunk_offset))
                found[:] = [dataset.id.read_direct_chunk(offset) for offset in found]
            assert chunks[0] == chunks[1]


NUMBERS = ["bool", "uint8", "int32", "int64", "uint32", "float16", "float32", "float64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("matrices")


@given(
    cases(max_rank=2, dtypes=NUMBERS, kinds=(Dense, Sparse)).filter(lambda case: case.format.rank == 2),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from(["a", "a.h5", "a.h5:b/c"]),
)
def test_round_trip(folder, case, packed, version, name):
    values = abs(case.values) if case.values.dtype.kind == "i" else case.values
    tensor = pack(case.coords, values, case.shape, case.format)
    number = next(counter)
    write(folder / f"{number}{name}", tensor, kind="bpcells", packed=packed, version=version)
    again = read(folder / f"{number}{name}")
    assert np.array_equal(again.to_dense(), tensor.to_dense())
    assert str(again.format) == ("CSC" if case.format.order == (1, 0) else "CSR")
    assert again.dtype == {"f": np.float32 if values.itemsize < 8 else np.float64}.get(values.dtype.kind, np.uint32)


def test_threads_and_many_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "thread_bytes", 1000)
    generator = np.random.default_rng(0)
    coords = [generator.integers(0, 300, 20000), generator.integers(0, 500, 20000)]
    values = generator.geometric(0.4, 20000).astype(np.uint32)
    tensor = pack(coords, values, (300, 500), "CSR", duplicates="sum")
    written = []
    for count in (1, 3):
        path = tmp_path / f"of{count}"
        with parallel.using_threads(count):
            write(path, tensor, kind="bpcells")
            assert read(path).equals(tensor)
        written.append({file.name: file.read_bytes() for file in path.iterdir()})
    assert written[0] == written[1]


# What cannot be written


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (pack([[0]], [1.0], 2, "sparse"), "cannot represent tensors of 1 dimensions"),
        (pack([[0], [0]], [1j], (2, 2), "CSR"), "no complex128 values"),
        (pack([[0], [0]], [-1], (2, 2), "CSR"), "integers in 0"),
        (pack([[0], [0]], [2**32], (2, 2), "CSR"), "integers in 0"),
        (pack([[0], [0]], [1.0], (2, 2**33), "CSR"), "no dimension above"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", fill_value=2), "the fill value 2"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", structure="symmetric_lower"), "cannot represent symmetric_lower"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", attributes={"row_names": ["a"]}), "expected none or 2"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", attributes={"row_names": "ab"}), "expected a list of texts"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", attributes={"column_names": ["a", "b\n"]}), r"col_names\[1\]"),
        (pack([[0], [0]], [1.0], (2, 2), "CSR", attributes={"column_names": ["a", "b\r"]}), r"col_names\[1\]"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path, tensor, message):
    for name in ("a", "a.h5"):
        with pytest.raises(FormatError, match=message):
            write(tmp_path / name, tensor, kind="bpcells")
    assert not os.listdir(tmp_path)


def test_options(tmp_path):
    tensor = pack_dense(np.eye(3), "CSR")
    for name, wrong in [
        ("a", {"version": 3}), ("a", {"version": True}), ("a", {"gzip": 4}), ("a", {"chunks": 10}),
        ("a", {"narrow": True}), ("a.h5", {"chunks": 0}), ("a.h5", {"chunks": {"val": 3}}),
        ("a.h5", {"gzip": 10}), ("a.h5", {"shards": 3}),
        ("a", {"colour": "red"}), ("a", {"bitpacked": True}), ("a", {"compression": "gzip"}),
    ]:  # fmt: skip
        with pytest.raises(OptionError):
            write(tmp_path / name, tensor, kind="bpcells", **wrong)
    with pytest.raises(OptionError, match="read-only"):
        write(tmp_path / "a.cool", tensor, kind="cooler")
    with pytest.raises(OptionError, match="colour"):
        write(tmp_path / "a.npz", tensor, colour="red")
    with pytest.raises(OptionError, match="packed"):
        write(tmp_path / "a.h5", tensor, packed=True)
    assert not os.listdir(tmp_path)


def test_overwriting(tmp_path):
    one, other = (
        pack_dense(np.eye(size, dtype=dtype), format, fill_value=None)
        for size, dtype, format in ((3, np.float64, "CSR"), (4, np.uint32, "CSC"))
    )
    for name in ("a", "a.h5", "b.h5:c"):
        write(tmp_path / name, one, kind="bpcells")
        with pytest.raises(FileExistsError):
            write(tmp_path / name, other, kind="bpcells")
        assert read(tmp_path / name).equals(one)
        write(tmp_path / name, other, kind="bpcells", overwrite=True)
        assert read(tmp_path / name).equals(other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("")
    with pytest.raises(FileExistsError, match="not overwritten"):
        write(tmp_path / "mine", one, kind="bpcells", overwrite=True)
    with h5py.File(tmp_path / "b.h5", "a") as file:
        file["d/val"] = 3
    with pytest.raises(FileExistsError, match="no array of a matrix"):
        write(f"{tmp_path}/b.h5:d", one, kind="bpcells", overwrite=True)
    write(f"{tmp_path}/b.h5:e", one)  # ours beside theirs
    assert read(f"{tmp_path}/b.h5:c").equals(other)
    assert read(f"{tmp_path}/b.h5:e").equals(one)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.h5", "b.h5", "mine"]


# What cannot be read


def damaged(tmp_path, changes, source=PACKED):
    """A copy of a folder in which these files are replaced, by bytes or by a function of what was there."""
    path = tmp_path / f"damaged{next(counter)}"
    shutil.copytree(source, path)
    for name, change in changes.items():
        file = path / name
        if change is None:
            file.unlink()
        else:
            file.write_bytes(change(file.read_bytes()) if callable(change) else change)
    return path


def words(*numbers, of="<u4"):
    return {"<u4": b"UINT32v1", "<u8": b"UINT64v1"}[of] + np.array(numbers, of).tobytes()


def set_word(at, number, of="<u4"):
    def change(data):
        array = np.frombuffer(data[8:], of).copy()
        array[at] = number
        return data[:8] + array.tobytes()

    return change


FAULTS = {
    "version of another program": ({"version": b"packed-uint-matrix-v3\n"}, "version: expected packed"),
    "experiment": ({"version": b"packed-uint-matrix-v9999\n"}, "an experiment, which only BPCells itself reads"),
    "fragments": ({"version": b"packed-fragments-v2\n"}, "fragments are no matrix"),
    "version in two lines": ({"version": b"packed-uint-matrix-v2\n\n"}, "expected one line, got 2"),
    "no version": ({"version": b""}, "expected one line, got 0"),
    "order": ({"storage_order": b"diagonal\n"}, "storage_order: expected row or col"),
    "no order": ({"storage_order": b""}, "storage_order: expected row or col"),
    "a file is missing": ({"row_names": None}, "row_names: no such file"),
    "no header": ({"index_data": b"UINT"}, "index"),
    "other type": ({"index_data": lambda data: b"UINT64v1" + data[8:]}, "index"),
    "other byte order": ({"index_data": lambda data: b"TNIU1v23" + data[8:]}, "index_data: expected a file"),
    "one size": ({"shape": words(16)}, "shape: expected 2 sizes, got 1"),
    "other shape": ({"shape": words(17, 40)}, "idxptr: expected a length of 18 for shape 17 × 40, got 17"),
    "smaller shape": ({"shape": words(16, 2)}, r"index\[1\]: 3 is outside dimension 1 of size 2"),
    "pointers from 1": ({"idxptr": set_word(0, 1, "<u8")}, "idxptr: goes from 1"),
    "pointers far away": ({"idxptr": set_word(-1, 2**40, "<u8")}, "index_idx: expected a length of"),
    "pointers beyond int64": (
        {"idxptr": set_word(-1, 2**64 - 1, "<u8")},
        "index_idx: expected a length of 1441151880758",
    ),
    "pointers into padding": ({"idxptr": set_word(-1, 120, "<u8")}, r"idxptr\[16\]: .*"),
    "pointers decrease": ({"idxptr": set_word(3, 1000, "<u8")}, r"idxptr\[\d+\]"),
    "names": ({"row_names": b"a\nb\n"}, "row_names: expected none or 16 names, got 2"),
    "names that are no text": ({"col_names": b"\xff\n" * 40}, "col_names: not UTF-8"),
    "idx from 4": ({"index_idx": set_word(0, 4)}, "index: the chunks 0 … 1 are at words 4 …"),
    "idx too short": ({"val_idx": words(0)}, "val_idx: expected a length of 3, got 1"),
    "idx decreases": ({"val_idx": set_word(1, 2000)}, "val: chunk 0: expected 0 … 32 times four words, got 2000"),
    "idx beyond the words": ({"val_idx": set_word(2, 60)}, "val: the chunks 0 … 1 are at words 0 … 60"),
    "odd width": ({"index_idx": set_word(1, 3)}, "index: chunk 0: expected 0 … 32 times four words, got 3"),
    "width 33": ({"index_idx": set_word(1, 132)}, "index: chunk 0: expected 0 … 32 times four words, got 132"),
    "no offsets": ({"index_idx_offsets": words(0, of="<u8")}, "index_idx_offsets: expected a length of 2 … 2"),
    "offsets of columns": ({"index_idx_offsets": words(0, 1, 3, of="<u8")}, "index_idx_offsets: expected a length of"),
    "offsets end elsewhere": ({"index_idx_offsets": words(0, 2, of="<u8")}, "expected to go from 0 to 3"),
    "no starts": ({"index_starts": words(0)}, "index: its first numbers of chunks end at 1, before 2"),
    "words cut": ({"index_data": lambda data: data[:-4]}, "index: the chunks 0 … 1 are at words"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(tmp_path, fault):
    changes, message = FAULTS[fault]
    with pytest.raises(BinsparseError, match=message):
        read(damaged(tmp_path, changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": b"left over"},
        {"index_data": lambda data: data + bytes(99)},
        {"val_idx_offsets": lambda data: data + b"odd"},
        {"index_starts": lambda data: data + bytes(8)},
        {"storage_order": b"row\r\nand more\r\n"},
        {"version": b"packed-uint-matrix-v2\r\n"},
        {"version": b"packed-uint-matrix-v2"},
    ],
)
def test_what_does_no_harm_is_read(tmp_path, changes):
    path = damaged(tmp_path, {}) if "unknown" in changes else damaged(tmp_path, changes)
    (path / "unknown").write_bytes(b"left over")
    assert read(path).equals(read(PACKED))


def test_any_damage_is_refused_or_read_as_numbers(tmp_path):
    generator = np.random.default_rng(0)
    path = damaged(tmp_path, {})
    names = sorted(file.name for file in path.iterdir())
    refused = 0
    for _ in range(400):
        name = names[generator.integers(len(names))]
        file = path / name
        before = file.read_bytes()
        if not before:
            continue
        data = bytearray(before)
        if generator.random() < 0.3:
            del data[generator.integers(len(data)) :]
        else:
            data[generator.integers(len(data))] = generator.integers(256)
        file.write_bytes(data)
        try:
            read(path, duplicates="first").check()
        except BinsparseError:
            refused += 1
        file.write_bytes(before)
    assert refused > 100


def test_nothing_is_followed_and_limits_hold(tmp_path):
    path = damaged(tmp_path, {})
    (path / "val_data").unlink()
    (path / "val_data").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeError, match="symbolic link"):
        read(path)
    (path / "val_data").unlink()
    os.mkfifo(path / "val_data")
    with pytest.raises(ContainerError, match="no such file"):
        read(path)
    with pytest.raises(LimitError, match="array_bytes=100"):
        read(PACKED, limits=Limits(array_bytes=100))
    many = pack([np.zeros(2000, int), np.arange(2000)], np.ones(2000, np.uint32), (1, 2000), "CSR")
    write(tmp_path / "many", many, kind="bpcells")  # ones take no words at all
    with pytest.raises(LimitError, match="index: the size in bytes is 8000"):
        read(tmp_path / "many", limits=Limits(array_bytes=7999))
    with pytest.raises(OptionError):
        read(PACKED, shape=(3, 3))
    with pytest.raises(ContainerError, match="has no groups"):
        read(f"{PACKED}:group")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "version").write_text("7\n")
    with pytest.raises(ContainerError, match="expected packed"):
        read(tmp_path / "folder")


def in_hdf5(tmp_path, change=None, **types):
    """The same matrix in HDF5, its arrays as other types."""
    path = tmp_path / f"{next(counter)}.h5"
    write(path, read(PACKED), kind="bpcells")
    with h5py.File(path, "a") as file:
        for name, dtype in types.items():
            data = file[name][...]
            del file[name]
            file[name] = data.astype(dtype)
        if change:
            change(file)
    return path


def test_hdf5_of_other_types(tmp_path):
    right = read(PACKED)
    for types in ({"idxptr": "int64"}, {"idxptr": ">u8", "index_data": ">u4"}, {"shape": "int16"}, {"index_idx": "u8"}):
        assert read(in_hdf5(tmp_path, **types)).equals(right)
    for types, message in [
        ({"index_data": "int32"}, "index_data: expected unsigned uint32, got int32"),
        ({"idxptr": "float64"}, "idxptr: expected uint64, got float64"),
    ]:
        with pytest.raises(ArrayError, match=message):
            read(in_hdf5(tmp_path, **types))

    def with_texts(kind):
        def change(file):
            del file["storage_order"], file["row_names"]
            file.create_dataset("storage_order", data=np.array([b"row"], kind))
            file.create_dataset("row_names", data=np.array([b"a%d" % k for k in range(16)], kind))
            file.attrs["version"] = np.array(["packed-uint-matrix-v2"], h5py.string_dtype())

        return change

    for kind in ("S3", h5py.string_dtype("ascii")):
        assert read(in_hdf5(tmp_path, with_texts(kind))).labels("row")[3] == "a3"

    def negative(file):
        file["idxptr"][2] = -1

    with pytest.raises(ArrayError, match=r"idxptr\[2\]: -1 is out of the range of uint64"):
        read(in_hdf5(tmp_path, negative, idxptr="int64"))


def test_hdf5_faults(tmp_path):
    def doing(change, message, error=BinsparseError):
        with pytest.raises(error, match=message):
            read(in_hdf5(tmp_path, change))

    def replace(name, **options):
        def change(file):
            del file[name]
            if options:
                file.create_dataset(name, **options)

        return change

    doing(replace("val_data"), "val_data: / has no such array")
    doing(replace("shape", data=np.array([[16, 40]], "u4")), "shape: expected one dimension")
    doing(replace("storage_order", data="row"), "storage_order: expected one dimension")
    doing(replace("col_names", data=np.zeros(40)), "col_names: expected texts, got float64")
    doing(
        replace("val_data", data=np.zeros(99, "u4"), chunks=(2**27,), maxshape=(None,)), "stored in a chunk", LimitError
    )
    doing(lambda file: file.attrs.__setitem__("version", 3), "version: expected a string")

    def soft(file):
        del file["val_data"]
        file["val_data"] = h5py.SoftLink("/index_data")

    doing(soft, "SoftLink is not followed", UnsafeError)
    write(f"{tmp_path}/a.h5:b", read(PACKED), kind="bpcells")
    with pytest.raises(ContainerError, match="no attribute 'binsparse'"):
        read(tmp_path / "a.h5")


def test_groups_are_listed_and_not_appended_to(tmp_path):
    tensor = read(PACKED)
    path = tmp_path / "a.h5"
    for place, options in (("x/y", {"kind": "bpcells"}), ("z", {}), ("w", {"kind": "bpcells", "packed": False})):
        write(f"{path}:{place}", tensor, **options)
    anndata_file(path, scipy.sparse.csr_array(np.eye(3)), place="layers/old", old=True)
    assert list_tensors(path) == ["layers/old", "w", "x/y", "z"]
    assert {name: found.shape for name, found in read_all(path).items()}["x/y"] == tensor.shape
    before = path.read_bytes()
    for place in (f"{path}:w", PACKED):
        with pytest.raises(OptionError, match="cannot be appended to"):
            append(place, tensor)
    assert path.read_bytes() == before
    info = describe(f"{path}:x/y")
    assert info.descriptor.number_of_stored_values == tensor.number_of_stored_values
    assert info.arrays["indices_1"].shape == (tensor.number_of_stored_values,)


def test_floats_are_not_narrowed(tmp_path):
    path = tmp_path / "a.h5"
    write(path, pack_dense(np.eye(3, dtype=np.float32), "CSR"), kind="bpcells")
    with h5py.File(path, "a") as file:
        data = file["val"][...]
        del file["val"]
        file["val"] = data.astype(np.float64)
    with pytest.raises(ArrayError, match="val: expected float32, got float64"):
        read(path)


def test_a_window_of_a_packed_matrix_reads_little(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    indices = np.sort(generator.integers(0, 10**6, (100, 1000)), axis=1)
    indices[:, 1:] += np.arange(1, 1000)
    tensor = pack([np.repeat(np.arange(100), 1000), indices.ravel()], np.ones(100_000), (100, 2 * 10**6), "CSR")
    write(tmp_path / "a", tensor, kind="bpcells")
    seen = []
    unpack = bitpacked.kernels.bitpacking.unpack
    monkeypatch.setattr(bitpacked.kernels.bitpacking, "unpack", lambda *given: seen.append(given[5]) or unpack(*given))
    with contextlib.ExitStack() as closing:
        matrix = bpcells.look(str(tmp_path / "a"), closing, limits=Limits())
        a, b = map(int, matrix.arrays["pointers_to_1"][41:43])
        assert np.array_equal(matrix.arrays["indices_1"][a:b], indices[41])
    assert sum(seen) <= 9


# AnnData and 10x


def anndata_file(path, matrix, *, place="X", old=False, index="_index"):
    with h5py.File(path, "a") as file:
        group = file.create_group(place)
        for name, array in (("data", matrix.data), ("indices", matrix.indices), ("indptr", matrix.indptr)):
            group[name] = array
        group.attrs["h5sparse_format" if old else "encoding-type"] = matrix.format + "_matrix" * (not old)
        group.attrs["h5sparse_shape" if old else "shape"] = matrix.shape
        if place == "X":
            file.attrs["encoding-type"] = "anndata"
            for axis, size in zip(("obs", "var"), matrix.shape, strict=True):
                table = file.create_group(axis)
                table.attrs["_index"] = index
                table[index] = [f"{axis}{k}" for k in range(size)]
    return path


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("old", [False, True])
def test_anndata(tmp_path, kind, old):
    matrix = scipy.sparse.random_array((7, 5), density=0.4, format=kind, rng=0)
    path = anndata_file(tmp_path / "a.h5ad", matrix, old=old)
    anndata_file(path, matrix[:, :3], place="layers/part", old=old)
    for place in (path, f"{path}:X"):
        tensor = read(place)
        assert np.array_equal(tensor.to_dense(), matrix.toarray())
        assert str(tensor.format) == kind.upper()
        assert names_of(tensor) == [[f"obs{k}" for k in range(7)], [f"var{k}" for k in range(5)]]
    part = read(f"{path}:layers/part")
    assert np.array_equal(part.to_dense(), matrix.toarray()[:, :3])
    assert list(map(len, names_of(part))) == [7, 0]


def test_anndata_faults(tmp_path):
    matrix = scipy.sparse.random_array((7, 5), density=0.4, format="csr", rng=0)
    path = anndata_file(tmp_path / "a.h5ad", matrix)

    def broken(change, message):
        copy = shutil.copy(path, tmp_path / f"{next(counter)}.h5ad")
        with h5py.File(copy, "a") as file:
            change(file)
        with pytest.raises(BinsparseError, match=message):
            read(copy)

    broken(lambda file: file["X/indptr"].__setitem__(3, 99), r"indptr\[")
    broken(lambda file: file["X/indices"].__setitem__(3, -1), r"indices\[3\]")
    broken(lambda file: file["X"].attrs.__setitem__("shape", [7]), "shape: expected 2 integers")
    broken(lambda file: file["X"].attrs.__setitem__("shape", [7.0, 5.0]), "shape: expected 2 integers")
    broken(lambda file: file["X"].attrs.__setitem__("encoding-type", "array"), "expected csr_matrix or csc_matrix")
    broken(lambda file: file["X"].__delitem__("data"), "data: /X has no such array")
