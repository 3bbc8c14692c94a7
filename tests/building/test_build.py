"""build: any source, any client, folders and object stores, is what pack makes of all entries."""

import concurrent.futures
import contextlib
import os
import subprocess
import threading
import time

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from helpers.blocks import alike

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    OptionError,
    build,
    pack,
    read,
    write,
)
from binsparse_levels.building import packing, running
from binsparse_levels.containers.objects.folder import Folder
from binsparse_levels.thresholds import THRESHOLDS

SHAPE = (50, 60, 70)
NAMES = ["i", "j", "k", "v"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of a few entries, and shards of a few items."""
    monkeypatch.setattr(THRESHOLDS, "step_entries", 500)
    monkeypatch.setattr(THRESHOLDS, "shard_items", 128)
    monkeypatch.setattr(THRESHOLDS, "step_bytes", 4096)


def entries(count=3000, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, n, count) for n in shape], rng.integers(-99, 99, count).astype(float)


def table(coords, values):
    return pyarrow.table(dict(zip(NAMES, (*coords, values), strict=False)) | {"v": values, "x": ["a"] * len(values)})


def parquet(folder, coords, values, files=3, group=150):
    """Parquet files of a few row groups each; together they have the entries in order."""
    folder.mkdir(exist_ok=True)
    whole = table(coords, values)
    size = -(-len(values) // files)
    for k in range(files):
        pyarrow.parquet.write_table(whole[k * size : (k + 1) * size], folder / f"{k}.parquet", row_group_size=group)
    return folder


def chunk(number):
    """A tenth of the entries. Processes find it by its name."""
    coords, values = entries()
    return [x[number::10] for x in coords], values[number::10]


def expected(format, policy, map=None):
    coords, values = entries()
    order = np.concatenate([np.arange(3000)[k::10] for k in range(10)])
    return pack([x[order] for x in coords], values[order], SHAPE, format, duplicates=policy, map=map)


STORAGE = {"chunks": 16, "shards": 64}
FORMATS = [
    *("sparse, sparse, sparse", "dense, sparse(2)", "sparse(3) @ 2, 0, 1", "sparse(2), dense"),
    *("dense, sparse, sparse @ 1, 2, 0", "sparse, dense, sparse"),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", ["sum", "first", "last"])
def test_a_function_is_built_as_pack_does(tmp_path, format, policy):
    build(chunk, tmp_path / "a.zarr", SHAPE, format, count=10, duplicates=policy)
    alike(read(tmp_path / "a.zarr"), expected(format, policy))
    assert os.listdir(tmp_path) == ["a.zarr"]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("policy", ["error", "sum", "first", "last"])
@pytest.mark.parametrize(
    ("format", "map"),
    [
        ("CSR", None),
        ("CSC", None),
        ("COO", None),
        ("DCSR", None),
        ("dense, sparse, dense(2)", "0/5, 1/4, 0%5, 1%4"),
        ("sparse(4)", "0/5, 1/4, 0%5, 1%4"),
    ],
)
def test_matrices_and_blocks(tmp_path, format, map, policy):
    coords, values = entries(shape=(50, 60))
    if policy == "error":
        _, at = np.unique(coords[0] * 60 + coords[1], return_index=True)
        at.sort()
        coords, values = [x[at] for x in coords], values[at]

    def numbered(k):
        return [x[k * 200 : (k + 1) * 200] for x in coords], values[k * 200 : (k + 1) * 200]

    options = {"duplicates": policy, "map": map, "fill_value": 0, "attributes": {"of": "mine"}}
    build(numbered, tmp_path / "a.zarr", (50, 60), format, count=15, **options)
    alike(read(tmp_path / "a.zarr"), pack(coords, values, (50, 60), format, **options))


def test_a_repeated_coordinate_is_named(tmp_path):
    def numbered(k):
        return [[k, 20 + k, 7], [k, 1, 50]], [1.0, 2.0, 3.0]

    for map in (None, "0/5, 1/4, 0%5, 1%4"):
        format = "CSR" if map is None else "sparse(4)"
        with pytest.raises(ArrayError, match=r"\(7, 50\) is given more than once"):
            build(numbered, tmp_path / "a.zarr", (50, 60), format, count=15, map=map, overwrite=True)
    assert os.listdir(tmp_path) in ([], ["a.zarr"])


def test_blocks_of_rank_four(tmp_path):
    coords, values = entries(shape=(10, 12, 5, 4))

    def numbered(k):
        return [x[k::7] for x in coords], values[k::7]

    order = np.concatenate([np.arange(3000)[k::7] for k in range(7)])
    build(numbered, tmp_path / "a.zarr", (10, 12, 5, 4), "dense, sparse, dense(2)", count=7, duplicates="last")
    whole = pack(
        [x[order] for x in coords], values[order], (10, 12, 5, 4), "dense, sparse, dense(2)", duplicates="last"
    )
    alike(read(tmp_path / "a.zarr"), whole)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "complex64", "complex128"])
def test_value_types(tmp_path, dtype):
    coords, values = entries()
    values = values % 9 if dtype == "int8" else values + 100  # a sum beyond 127 is an error

    def numbered(k):
        return [x[k::7] for x in coords], values[k::7].astype(dtype)

    build(numbered, tmp_path / "a.zarr", SHAPE, "sparse(3)", count=7, duplicates="sum", fill_value=1)
    order = np.concatenate([np.arange(3000)[k::7] for k in range(7)])
    made = values[order].astype(dtype)
    whole = pack([x[order] for x in coords], made, SHAPE, "sparse(3)", duplicates="sum", fill_value=1)
    alike(read(tmp_path / "a.zarr"), whole)


def test_chunks_without_entries_and_no_chunks(tmp_path):
    empty = [np.empty(0, int)] * 3, np.empty(0, np.int16)
    for count in (0, 1, 5):
        options = {"count": count, "dtype": np.int16, "overwrite": True}
        build(lambda k: empty, tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", **options)
        alike(read(tmp_path / "a.zarr"), pack(*empty, SHAPE, "dense, sparse(2)"))
    with pytest.raises(OptionError, match="dtype"):
        build(lambda k: empty, tmp_path / "b.zarr", SHAPE, "dense, sparse(2)", count=0)
    build(lambda k: ([[k]] * 3, 5), tmp_path / "c.zarr", SHAPE, "sparse(3)", count=2)
    alike(read(tmp_path / "c.zarr"), pack([[0, 1]] * 3, [5, 5], SHAPE, "sparse(3)"))


# Sources


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["file", "folder", "pattern", "list"])
@pytest.mark.parametrize("group", [40, 150, 2000])
def test_parquet(tmp_path, kind, group):
    coords, values = entries()
    folder = parquet(tmp_path / "in", coords, values, 1 if kind == "file" else 3, group)
    source = {
        "file": folder / "0.parquet",
        "folder": folder,
        "pattern": f"{folder}/[0-9].parquet",
        "list": [folder / f"{k}.parquet" for k in range(3)],
    }[kind]
    build(source, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="last")
    alike(read(tmp_path / "a.zarr"), pack(coords, values, SHAPE, "sparse(3)", duplicates="last"))


def test_parquet_that_is_refused(tmp_path):
    coords, values = entries()
    folder = parquet(tmp_path / "in", coords, values)
    for columns, error in (
        (["i", "j", "z", "v"], OptionError),
        (["i", "j", "v"], ArrayError),
        (["i", "j", "v", "k"], ArrayError),
        (["i", "j", "k", "x"], ArrayError),
        (NAMES * 2, ArrayError),
        ([], BinsparseError),
        (["v"], BinsparseError),
    ):
        with pytest.raises(error):
            build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=columns, duplicates="sum")
    whole = table(coords, values).set_column(0, "i", pyarrow.array([None, *coords[0][1:].tolist()]))
    pyarrow.parquet.write_table(whole, tmp_path / "in" / "0.parquet")
    with pytest.raises(
        ArrayError, match=r"columns\.i: contains nulls, which SELECT \* FROM .* WHERE \"i\" IS NULL shows"
    ):
        build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="sum")
    (tmp_path / "in" / "1.parquet").write_bytes(b"PAR1 garbage PAR1")
    with pytest.raises(ContainerError, match=r"1\.parquet"):
        build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="sum")
    with pytest.raises(FileNotFoundError):
        build(tmp_path / "none", tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES)
    with pytest.raises(FileNotFoundError):
        build(tmp_path / "none.parquet", tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES)
    for source in (whole, whole.to_pandas(), [whole], None, 3):
        with pytest.raises(OptionError, match=r"source: .* got .*; pass tables in memory to write_from"):
            build(source, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES)
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_a_dask_dataframe(tmp_path):
    dataframe = pytest.importorskip("dask.dataframe")
    coords, values = entries()
    frame = dataframe.from_pandas(pandas.DataFrame(dict(zip(NAMES, (*coords, values), strict=True))), npartitions=7)
    build(frame[frame.v > 0], tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="last")
    there = values > 0
    whole = pack([x[there] for x in coords], values[there], SHAPE, "sparse(3)", duplicates="last")
    alike(read(tmp_path / "a.zarr"), whole)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("suffix", [".h5", ".zarr", ".npz", ".bspnpy", ".h5:g"])
def test_tensors_at_places(tmp_path, suffix):
    tensors = []
    for k, format in enumerate(["sparse(3)", "dense, sparse, sparse @ 2, 0, 1", "sparse, sparse, sparse @ 1, 0, 2"]):
        tensors.append(pack(*entries(seed=k), SHAPE, format, duplicates="sum"))
        write(f"{tmp_path}/{k}{suffix}", tensors[-1])
    places = [f"{tmp_path}/{k}{suffix}" for k in range(3)]
    listed = [tensor.unpack() for tensor in tensors]
    coords = [np.concatenate([x[0][k] for x in listed]) for k in range(3)]
    values = np.concatenate([x[1] for x in listed])
    for given, which in (
        (places, slice(None)),
        (places[1], slice(len(listed[0][1]), len(listed[0][1]) + len(listed[1][1]))),
    ):
        build(given, tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", duplicates="sum", overwrite=True)
        whole = pack([x[which] for x in coords], values[which], SHAPE, "dense, sparse(2)", duplicates="sum")
        alike(read(tmp_path / "a.zarr"), whole)


def test_tensors_keep_structure_and_fill(tmp_path):
    rng = np.random.default_rng(0)
    at = np.tril_indices(60)
    chosen = rng.permutation(len(at[0]))[:1000]
    coords, values = [x[chosen] for x in at], rng.random(1000)
    options = {"structure": "symmetric_lower", "fill_value": 2.0}
    write(tmp_path / "a.h5", pack(coords, values, (60, 60), "CSR", **options))
    build(tmp_path / "a.h5", tmp_path / "a.zarr", (60, 60), "CSC")
    alike(read(tmp_path / "a.zarr"), pack(coords, values, (60, 60), "CSC", **options))
    write(tmp_path / "b.h5", pack(coords, values, (60, 60), "CSR", fill_value=2.0))
    write(tmp_path / "c.h5", pack(coords, values, (60, 60), "CSR", structure="symmetric_lower"))
    for other in ("b.h5", "c.h5"):
        with pytest.raises(ArrayError, match="make them equal"):
            build([tmp_path / "a.h5", tmp_path / other], tmp_path / "b.zarr", (60, 60), "CSC")
    with pytest.raises(FormatError, match="structure"):
        build(tmp_path / "a.h5", tmp_path / "b.zarr", (60, 60), "sparse(4)", map="0/5, 1/4, 0%5, 1%4")
    with pytest.raises(FormatError, match="shape"):
        build(tmp_path / "a.h5", tmp_path / "b.zarr", (60, 61), "CSC")


@pytest.mark.parametrize("source", [5, None, 3.5, [], [3], {}, b"a"])
def test_what_is_no_source(tmp_path, source):
    with pytest.raises((BinsparseError, TypeError)):
        build(source, tmp_path / "a.zarr", SHAPE, "sparse(3)")
    for count in (None, -1, 1.5, True, "3"):
        with pytest.raises(OptionError):
            build(chunk, tmp_path / "a.zarr", SHAPE, "sparse(3)", count=count)
    assert os.listdir(tmp_path) == []


# Clients


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(memory_limit="2GB", **options) as made, distributed.Client(made) as client:
        yield client


@contextlib.contextmanager
def client_of(kind, cluster):
    if kind == "threads":
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            yield pool
    elif kind == "processes":
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            yield pool
    else:
        yield cluster if kind == "dask" else None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("client", [None, "threads", "processes", "dask"])
def test_clients(tmp_path, cluster, client):
    coords, values = entries()
    folder, told = parquet(tmp_path / "in", coords, values), []
    with client_of(client, cluster) as given:
        build(
            folder, tmp_path / "a.zarr", SHAPE, "sparse, sparse, sparse",
            columns=NAMES, duplicates="sum", client=given, progress=lambda *step: told.append(step),
        )  # fmt: skip
        alike(read(tmp_path / "a.zarr"), pack(coords, values, SHAPE, "sparse, sparse, sparse", duplicates="sum"))
        assert list(dict.fromkeys(name for name, *_ in told)) == list(running.STAGES)
        assert all(0 <= done <= total for _, done, total in told)
        with pytest.raises(ArrayError, match="more than once"):
            build(folder, tmp_path / "b.zarr", SHAPE, "sparse(3)", columns=NAMES, client=given)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("client", ["processes", "dask"])
def test_functions_are_sent_to_processes_anew(tmp_path, cluster, client):
    """The same work folder, target and name, and other entries: workers that stay forget the first."""
    with client_of(client, cluster) as given:
        for factor in (1, 2):

            def numbered(k, factor=factor):
                return [[k]], [factor * k]

            options = {"client": given, "work": tmp_path / "work", "count": 5}
            build(numbered, tmp_path / "a.zarr", 5, "sparse", overwrite=True, **options)
            assert read(tmp_path / "a.zarr").values.tolist() == [factor * k for k in range(5)]
            subprocess.run(["rm", "-r", tmp_path / "work"], check=True)


def test_what_is_no_client(tmp_path):
    for wrong in (5, "dask", object()):
        with pytest.raises(OptionError, match="client"):
            build(chunk, tmp_path / "a.zarr", SHAPE, "sparse(3)", count=10, client=wrong)


def test_a_failed_step_ends_all_before_the_work_is_removed(tmp_path):
    running_now = threading.Semaphore(0)

    def numbered(k):
        if k == 3:
            running_now.acquire()
            raise RuntimeError("mine")
        if k > 3:
            running_now.release()
            time.sleep(0.2)
        return [[k]], [1.0]

    with concurrent.futures.ThreadPoolExecutor(3) as pool, pytest.raises(RuntimeError, match="mine"):
        build(numbered, tmp_path / "a.zarr", 20, "sparse", count=20, client=pool)
    time.sleep(0.3)
    assert os.listdir(tmp_path) == []


# The target


@pytest.mark.slow
def test_other_programs_read_it(tmp_path):
    build(chunk, tmp_path / "a.zarr", SHAPE, "sparse(3)", count=10, duplicates="sum", chunks=20, shards=100)
    whole = expected("sparse(3)", "sum")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    for name, array in {**whole.arrays, "values": whole.values}.items():
        np.testing.assert_array_equal(group[name][...], array)
        assert (group[name].chunks, group[name].shards) == ((20,), (100,))
        assert len(os.listdir(tmp_path / "a.zarr" / name / "c")) == -(-len(array) // 100)


STORAGES = [
    *({}, {"chunks": 7}, {"shards": 64, "chunks": 16}, {"compression": "gzip"}),
    *({"compression": "none", "chunks": {"values": 30}}, {"compression": {"values": "none"}}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", STORAGES, ids=str)
def test_storage(tmp_path, options):
    build(chunk, tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", count=10, duplicates="sum", **options)
    alike(read(tmp_path / "a.zarr"), expected("dense, sparse(2)", "sum"))
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    np.testing.assert_array_equal(group["values"][...], expected("dense, sparse(2)", "sum").values)


@pytest.mark.parametrize("options", [{"chunks": 0}, {"chunks": "a"}, {"compression": "lzma"}, {"shards": -1}], ids=str)
def test_storage_that_is_refused(tmp_path, options):
    with pytest.raises(BinsparseError):
        build(chunk, tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", count=10, duplicates="sum", **options)


def test_targets_that_are_refused(tmp_path):
    (tmp_path / "file.zarr").write_bytes(b"mine")
    (tmp_path / "full.zarr").mkdir()
    (tmp_path / "full.zarr" / "mine.txt").write_bytes(b"mine")
    write(tmp_path / "there.zarr", pack([[0], [0]], [1.0], (2, 2), "CSR"))
    before = sorted(os.listdir(tmp_path))
    for name, options, error in (
        ("file.zarr", {"overwrite": True}, FileExistsError),
        ("full.zarr", {"overwrite": True}, FileExistsError),
        ("full.zarr", {}, FileExistsError),
        ("there.zarr", {}, FileExistsError),
        ("none/a.zarr", {}, FileNotFoundError),
        ("a.zarr:g", {}, OptionError),
        ("a.h5", {}, OptionError),
        ("a.zarr.zip", {}, OptionError),
    ):
        with pytest.raises(error):
            build(chunk, f"{tmp_path}/{name}", SHAPE, "sparse(3)", count=10, duplicates="sum", **options)
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "full.zarr" / "mine.txt").read_bytes() == b"mine"
    with pytest.raises(FormatError):
        build(chunk, tmp_path / "a.zarr", (), "", count=10)
    with pytest.raises(OptionError, match="work"):
        build(chunk, "s3://nowhere/a.zarr", SHAPE, "sparse(3)", count=10)
    with pytest.raises(ValueError, match="duplicates"):
        build(chunk, tmp_path / "a.zarr", SHAPE, "sparse(3)", count=10, duplicates="mean")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("more", [{}, {"work": "work"}])
def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)

    def meanwhile(number):
        if not os.path.exists("a.zarr"):  # when the type of the values is asked for
            (tmp_path / "a.zarr").write_bytes(b"mine")
        return chunk(number)

    with pytest.raises(BinsparseError, match=r"a\.zarr"):
        build(meanwhile, "a.zarr", SHAPE, "sparse(3)", count=10, duplicates="sum", **more)
    assert (tmp_path / "a.zarr").read_bytes() == b"mine"


@pytest.mark.parametrize("kept", [False, True])
def test_of_two_builds_to_a_new_path_one_fails(tmp_path, kept):
    """Their headers are equal."""

    def chunk(value):
        return lambda k: ([[k], [k]], [value])

    def other(stage, done, total):
        if stage == "write" and not os.path.exists(tmp_path / "a.zarr"):
            binsparse_levels.build(chunk(2.0), tmp_path / "a.zarr", (3, 3), "CSR", count=2)

    work = {"work": tmp_path / "work"} if kept else {}
    with pytest.raises(FileExistsError):
        binsparse_levels.build(chunk(1.0), tmp_path / "a.zarr", (3, 3), "CSR", count=2, progress=other, **work)
    assert read(tmp_path / "a.zarr").values.tolist() == [2.0, 2.0]


def test_a_tensor_that_changes_while_it_is_built_anew_is_kept(tmp_path):
    path = str(tmp_path / "a.zarr")
    write(path, pack([[0], [0]], [1.0], (3, 3), "CSR"))

    def other(stage, done, total):
        if stage == "write" and read(path).shape == (3, 3):
            binsparse_levels.append(path, pack([[0], [0]], [1.0], (1, 3), "CSR"))

    with pytest.raises(ContainerError, match="changed since"):
        binsparse_levels.build([path], path, (3, 3), "CSC", overwrite=True, progress=other)
    assert read(path).shape == (4, 3)


@pytest.mark.parametrize("kind", ["function", "labels"])
def test_a_build_is_sealed_as_a_file_is(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(THRESHOLDS, "step_bytes", 64)
    frame = pandas.DataFrame({"i": [f"u{k}" for k in range(900)], "j": range(900), "v": np.arange(900.0)})
    frame.to_parquet(tmp_path / "t.parquet")
    source, shape, more = {
        "function": (chunk, SHAPE, {"count": 10, "duplicates": "sum", "fill_value": 1.5}),
        "labels": (tmp_path / "t.parquet", None, {"columns": ["i", "j", "v"]}),
    }[kind]
    build(source, tmp_path / "a.zarr", shape, "sparse(3)" if kind == "function" else "COO", checksum=True, **more)
    made = read(tmp_path / "a.zarr")
    write(tmp_path / "b.zarr", made, checksum=True)
    seals = [zarr.open_group(tmp_path / f"{name}.zarr").attrs["binsparse"] for name in "ab"]
    assert seals[0] == seals[1]
    assert "binsparse_levels:sealed" in seals[0]
    zarr.open_group(tmp_path / "a.zarr", mode="r+")["values"][0] = 99
    with pytest.raises(ContainerError, match="checksum mismatch"):
        read(tmp_path / "a.zarr")


def test_overwriting(tmp_path):
    write(tmp_path / "a.zarr", pack([[0], [0]], [1.0], (2, 2), "DCSR"))
    build(chunk, tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", count=10, duplicates="sum", overwrite=True)
    alike(read(tmp_path / "a.zarr"), expected("dense, sparse(2)", "sum"))
    assert sorted(os.listdir(tmp_path / "a.zarr")) == [
        *sorted(expected("dense, sparse(2)", "sum").arrays),
        "values",
        "zarr.json",
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("more", [{}, {"work": "work"}])
@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
def test_what_lies_beside_a_tensor_is_not_overwritten(tmp_path, monkeypatch, kind, more):
    monkeypatch.chdir(tmp_path)
    tensor = pack([[0], [0]], [1.0], (2, 2), "DCSR")
    for group in ("/", "other"):
        write(f"a.zarr:{group}", tensor, kind=kind)
    given = {"count": 10, "duplicates": "sum", **more}
    with pytest.raises(FileExistsError, match="'other'"):
        build(chunk, "a.zarr", SHAPE, "sparse(3)", overwrite=True, **given)
    alike(read("a.zarr:other"), tensor)
    build(chunk, "a.zarr", SHAPE, "sparse(3)", overwrite="file", **given)
    alike(read("a.zarr"), expected("sparse(3)", "sum"))
    assert "other" not in os.listdir("a.zarr")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("more", [{}, {"work": "work"}])
@pytest.mark.parametrize("at", ["pack/1", "values/c/5", "commit/0"])
def test_what_fails_leaves_the_old_target(tmp_path, monkeypatch, at, more):
    monkeypatch.chdir(tmp_path)
    old, options = pack([[0], [0]], [1.0], (2, 2), "DCSR"), {"count": 10, "duplicates": "sum", **STORAGE, **more}
    with failing(at):
        build(chunk, "a.zarr", SHAPE, "sparse(3)", **options)
    if at == "commit/0":  # which says that the target is there
        alike(read("a.zarr"), expected("sparse(3)", "sum"))
    else:
        assert not os.path.exists("a.zarr")
        write("b.zarr", old)
        options["work"] = more and "other"
        options = {name: x for name, x in options.items() if x}
        with failing(at):
            build(chunk, "b.zarr", SHAPE, "sparse(3)", overwrite=True, **options)
        alike(read("b.zarr"), old)
        build(chunk, "b.zarr", SHAPE, "sparse(3)", overwrite=True, **options)
        alike(read("b.zarr"), expected("sparse(3)", "sum"))
        assert not [name for name in os.listdir() if name.startswith(".b")]


@contextlib.contextmanager
def failing(at):
    """Where this object is written, a step fails."""
    put = Folder.put

    def made(self, key, pieces, **options):
        if key == at:
            raise ZeroDivisionError
        put(self, key, pieces, **options)

    Folder.put = made
    try:
        with pytest.raises(ZeroDivisionError):
            yield
    finally:
        Folder.put = put


# Again


def test_a_build_that_is_done_is_found_done(tmp_path):
    options = {"columns": NAMES, "duplicates": "sum", "work": tmp_path / "work"}
    folder = parquet(tmp_path / "in", *entries())
    build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", **options)
    before = objects(tmp_path)
    assert sorted(os.listdir(tmp_path / "work")) == ["begun", "commit"]
    build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", **options)
    assert objects(tmp_path) == before
    subprocess.run(["rm", "-r", tmp_path / "a.zarr"], check=True)
    with pytest.raises(ContainerError, match="has changed since"):
        build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", **options)


def objects(folder):
    """The time and number of every file."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}


STAGES = list(running.STAGES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stage", STAGES)
def test_a_build_goes_on_where_it_failed(tmp_path, monkeypatch, stage):
    folder = parquet(tmp_path / "in", *entries())
    options = {"columns": NAMES, "duplicates": "sum", "work": tmp_path / "work", **STORAGE}
    fails = f"{stage}/{int(stage in ('sample', 'partition', 'pack', 'write'))}"
    coords, values = entries()
    with failing(fails):
        build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", **options)
    before = objects(tmp_path)
    assert any(f"/{name}/" in path for path in before for name in STAGES) or stage == "sample"
    seen, put = [], Folder.put
    monkeypatch.setattr(
        Folder,
        "put",
        lambda self, key, *rest, **o: (seen.append(f"{self._root}/{key}"), put(self, key, *rest, **o)),
    )
    build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", **options)
    assert not set(seen) & {path for path in before if "/work/" in path and not path.endswith("index")}
    alike(read(tmp_path / "a.zarr"), pack(coords, values, SHAPE, "sparse(3)", duplicates="sum"))


def test_another_build_in_a_work_folder_is_refused(tmp_path, monkeypatch):
    folder = parquet(tmp_path / "in", *entries())
    write(tmp_path / "in.h5", pack(*entries(), SHAPE, "sparse(3)", duplicates="sum"))
    given = {"source": folder, "target": tmp_path / "a.zarr", "shape": SHAPE, "format": "sparse(3)"}
    given |= {"columns": NAMES, "duplicates": "sum", "work": tmp_path / "work"}
    with failing("pack/1"):
        build(**given)
    before = objects(tmp_path)
    for other, told in (
        ({"target": tmp_path / "b.zarr"}, "target"),
        ({"shape": (50, 60, 71)}, "shape"),
        ({"format": "dense, sparse(2)"}, "format"),
        ({"duplicates": "last"}, "duplicates"),
        ({"dtype": "float32"}, "dtype"),
        ({"fill_value": 0}, "fill_value"),
        ({"attributes": {"a": 1}}, "attributes"),
        ({"columns": ["j", "i", "k", "v"]}, "columns"),
        ({"source": folder / "0.parquet"}, "source"),
        ({"source": tmp_path / "in.h5", "columns": None}, "source"),
        ({"source": chunk, "count": 10, "columns": None}, "source"),
        ({"chunks": 10}, "storage"),
        ({"overwrite": True}, "overwrite"),
        ({"map": "1, 0, 2"}, "map"),
        ({"limits": binsparse_levels.Limits(rank=9)}, "limits"),
    ):
        with pytest.raises(ContainerError, match=rf"another build, which differs in .*{told}"):
            build(**{**given, **other})
    assert objects(tmp_path) == before
    os.utime(folder / "1.parquet", ns=(1, 1))
    with pytest.raises(ContainerError, match="differs in source"):
        build(**given)
    monkeypatch.setattr(THRESHOLDS, "step_entries", 50)  # other memory is no other plan
    parquet(tmp_path / "in", *entries())
    with pytest.raises(ContainerError, match="differs in source"):
        build(**given)


def test_a_source_that_changes_while_it_is_read(tmp_path):
    folder = parquet(tmp_path / "in", *entries())

    def changed(stage, done, total):
        if stage == "partition" and done == 0:
            os.utime(folder / "2.parquet", ns=(1, 1))

    with pytest.raises(ContainerError, match=r"2\.parquet: has changed"):
        build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="sum", progress=changed)


@pytest.mark.slow
def test_a_plan_in_a_relative_folder_is_found_by_others(tmp_path, monkeypatch, cluster):
    monkeypatch.chdir(tmp_path)
    folder = parquet(tmp_path / "in", *entries())
    build("in", "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="sum", work="work", client=cluster)
    alike(read(tmp_path / "a.zarr"), pack(*entries(), SHAPE, "sparse(3)", duplicates="sum"))
    assert folder.is_dir()


# Killed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", ["sample", "partition", "pack", "write"])
def test_a_worker_that_is_killed(tmp_path, stage):
    distributed = pytest.importorskip("distributed")
    folder = parquet(tmp_path / "in", *entries())
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": 50,
    }
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        killed = []

        def kill(name, done, total):
            if name == stage and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], 9)

        build(
            folder, tmp_path / "a.zarr", SHAPE, "sparse(3)",
            columns=NAMES, duplicates="sum", client=client, progress=kill, **STORAGE,
        )  # fmt: skip
    assert killed
    alike(read(tmp_path / "a.zarr"), pack(*entries(), SHAPE, "sparse(3)", duplicates="sum"))


# A biased source


def test_a_biased_source_keeps_memory_and_bytes(tmp_path, monkeypatch):
    """The first row group of each file is alike."""
    rng, most = np.random.default_rng(0), []
    coords = [rng.integers(0, n, 6000) for n in SHAPE]
    for k in range(0, 6000, 600):
        for x in coords:
            x[k : k + 100] = 3
    values = rng.random(6000)
    folder = parquet(tmp_path / "in", coords, values, files=10, group=100)
    packed = packing._packed

    def counted(plan, levels, columns, *rest):
        most.append(len(columns[-1]))
        return packed(plan, levels, columns, *rest)

    monkeypatch.setattr(packing, "_packed", counted)
    written, put = {}, Folder.put

    def noted(self, key, pieces, **options):
        pieces = [bytes(x) for x in pieces]
        written[key] = sum(map(len, pieces))
        put(self, key, pieces, **options)

    monkeypatch.setattr(Folder, "put", noted)
    build(folder, tmp_path / "a.zarr", SHAPE, "sparse(3)", columns=NAMES, duplicates="last")
    alike(read(tmp_path / "a.zarr"), pack(coords, values, SHAPE, "sparse(3)", duplicates="last"))
    assert max(most) <= 500
    data = 6000 * (3 * 4 + 8)
    runs = [size for key, size in written.items() if key.startswith("partition/")]
    assert sum(runs) <= data + 16 * 40 * len(runs)
