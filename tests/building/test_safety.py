"""What a build must never do: write another number than its source has, or go on with another source or target."""

import functools
import itertools
import os
import pickle
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from helpers.blocks import alike
from hypothesis import assume, event, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    OptionError,
    build,
    commit,
    pack,
    plan,
    progress,
    read,
    step,
    write,
    write_from,
)
from binsparse_levels.building import parquet, parquet_files, partitions, planning, target, trees, values, work
from binsparse_levels.containers.base import Storage
from binsparse_levels.containers.objects.bucket import Bucket

SHAPE = (9, 8)
SAMPLED = partitions.sampled


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Steps of a few entries, and caches as processes have that are new."""
    monkeypatch.setattr(planning, "rows_within", lambda *_, **__: 12)
    monkeypatch.setattr(target, "_WRITTEN", 64)
    monkeypatch.setattr(partitions, "sampled", lambda work: SAMPLED(work)[:1])  # so that a partition is cut again
    fresh()


def fresh():
    for cached in (work._seal_of, work._loaded, partitions.cut_table, target._joined):
        cached.cache_clear()
    work._BEGUN.clear()


def table(folder, name, scale, count=40):
    """A Parquet file of entries, half of them in one row."""
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, n, count) for n in SHAPE]
    coords[0][::2] = 3
    numbers = scale * np.arange(1.0, count + 1)
    path = f"{folder}/{name}.parquet"
    pyarrow.parquet.write_table(pyarrow.table([*coords, numbers], names=list("ijv")), path, row_group_size=10)
    return path, pack(coords, numbers, SHAPE, "CSR", duplicates="sum")


def begin(source, folder, place, **options):
    given = {"columns": list("ijv"), "duplicates": "sum", "storage": Storage(chunks=4, shards=8), **options}
    return plan(source, place, SHAPE, "CSR", work=folder, **given)


def steps(folder):
    """The steps of a build in order, as far as it goes."""
    while (todo := next((x for x in progress(folder) if x.done != x.total), None)) is not None:
        for number in range(todo.total):
            if todo.name != "commit":
                step(folder, todo.name, number)
            yield todo.name, number
        if todo.name == "commit":
            commit(folder)
            return


# Objects of the work


def kept(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("stage", ["split", "partition", "table", "again", "pack", "join", "write", "commit"])
def test_any_byte_of_the_work_flipped_is_told_or_changes_nothing(tmp_path, stage):
    source, whole = table(tmp_path, "in", 1.0)
    folder, place = tmp_path / "work", tmp_path / "a.zarr"
    begin(source, folder, place)
    for name, _ in steps(folder):
        if name == stage:
            break
    before, begun = kept(folder), kept(place)
    told = []
    damages = [(path, at, 1 << (at % 8)) for path, held in before.items() for at in range(len(held))][::997]
    damages += [(path, size, None) for path, held in before.items() for size in (0, len(held) // 2, len(held) - 1)]
    damages += [(path, len(held) // 2, 0) for path, held in before.items()]  # zeros from there on
    for path, at, bit in damages:
        held = bytearray(before[path])
        if bit is None:
            held = held[:at]
        elif bit:
            held[at] ^= bit
        else:
            held[at:] = bytes(len(held) - at)
        for tree, files in ((folder, before), (place, begun)):
            for old in kept(tree).keys() - files.keys():
                old.unlink()
            for name, content in files.items():
                name.parent.mkdir(parents=True, exist_ok=True)
                if not name.exists() or name.read_bytes() != content:
                    name.write_bytes(content)
        path.write_bytes(held)
        fresh()
        try:
            list(steps(folder))
        except BinsparseError as error:
            told.append((path, str(error)))
            continue
        alike(read(place), whole)
    assert told
    assert all(path.name in text or path.parent.name in text for path, text in told)


class OneObject:
    """A store of one object."""

    def __init__(self, held):
        self.held = held

    def get(self, key):
        return bytes(self.held)

    def size(self, key):
        return len(self.held)

    def ranges(self, wanted):
        return [np.frombuffer(self.held, np.uint8, size, start) for _, start, size in wanted]


def whole_object(begun, key):
    return bytes(begun.get(key))


def by_pieces(begun, key):
    seal = begun.seal(key)
    pieces = [(seal.range(key, k, k + 1), int(known)) for k, known in enumerate(seal.sums)]
    return b"".join(bytes(x) for x in begun.ranges(pieces))


def by_bytes(begun, key):
    return bytes(begun.slice(key, 0, int(begun.seal(key).ends[-1])))


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_each_byte_of_each_object_is_told_by_each_way_of_reading(tmp_path, monkeypatch, every):
    source, _ = table(tmp_path, "in", 1.0)
    begin(source, tmp_path / "work", tmp_path / "a.zarr")
    for name, _ in steps(tmp_path / "work"):
        if name == "write":
            break
    begun = work.Work(str(tmp_path / "work"), "")
    for path, held in kept(tmp_path / "work").items():
        key = str(path.relative_to(tmp_path / "work"))
        ways = [whole_object, by_pieces, by_bytes] if len(begun.get(key)) else [whole_object]
        there = OneObject(bytearray(held))
        with monkeypatch.context() as patched:
            patched.setattr(work, "store_at", lambda address, there=there: there)
            for way in ways:
                assert held.startswith(way(begun, key))
            for at in range(0, len(held), every):
                there.held[at] ^= 1 << at % 8
                work._seal_of.cache_clear()
                for way in ways:
                    with pytest.raises(ContainerError):
                        way(begun, key)
                there.held[at] ^= 1 << at % 8


# Targets


@given(
    order=st.lists(st.booleans(), min_size=1, max_size=60), overwrite=st.booleans(), late=st.integers(0, 30),
    other=st.booleans(),
)  # fmt: skip
def test_builds_on_one_target_never_mix(tmp_path_factory, order, overwrite, late, other):
    folder = tmp_path_factory.mktemp("builds")
    place, wholes, running, committed = folder / "a.zarr", [], [None, None], None
    sources = [table(folder, name, scale) for name, scale in (("one", 1.0), ("two", 1000.0))]
    wholes = [whole for _, whole in sources]
    for turn, which in enumerate(itertools.chain(map(int, order), itertools.cycle([0, 1]))):
        if turn > 400 or running == [False, False]:
            break
        if other and turn == late:
            wholes.append(pack([[0], [0]], [7.0], SHAPE, "CSR"))
            write(place, wholes[-1], overwrite="file")
            committed = 2
        try:
            if running[which] is None:
                begin(sources[which][0], folder / f"work{which}", place, overwrite=overwrite)
                running[which] = steps(folder / f"work{which}")
                committed = None
            elif running[which]:
                next(running[which])
        except StopIteration:
            running[which], committed = False, which
        except BinsparseError:
            running[which] = False
    if committed is None:
        with pytest.raises(BinsparseError):
            read(place)
    else:
        alike(read(place), wholes[committed])


def test_a_build_that_is_done_knows_its_target(tmp_path):
    options = {"work": tmp_path / "work", "count": 4, "key": "a", "overwrite": True}
    for changed in (
        lambda: write(tmp_path / "a.zarr", pack([[0]], [9.0], 3, "CVEC"), overwrite="file"),
        lambda: build(lambda k: ([[k]], [2.0]), tmp_path / "a.zarr", (4,), "CVEC", count=4, overwrite=True),
    ):
        build(lambda k: ([[k]], [1.0]), tmp_path / "a.zarr", (4,), "CVEC", **options)
        build(lambda k: ([[k]], [1.0]), tmp_path / "a.zarr", (4,), "CVEC", **options)
        changed()
        with pytest.raises(ContainerError, match="not by the build in"):
            build(lambda k: ([[k]], [1.0]), tmp_path / "a.zarr", (4,), "CVEC", **options)
        for path in kept(tmp_path / "work"):
            path.unlink()
        fresh()


# Sources


class Stop(Exception):
    pass


@pytest.mark.parametrize("make", [lambda f: f, lambda f: functools.partial(f), lambda f: lambda k: f(k)])
def test_a_function_is_told_by_its_content_or_its_key(tmp_path, make):
    def stop(stage, done, total):
        if stage == "partition" and done == 2:
            raise Stop

    def of(value):
        return make(lambda k: ([[k * 10 + x for x in range(5)]], np.full(5, value)))

    options = {"target": tmp_path / "a.zarr", "shape": (40,), "format": "CVEC", "count": 4, "work": tmp_path / "work"}
    held = open(tmp_path / "held", "w")  # noqa: SIM115, which cannot be pickled
    with held, pytest.raises(OptionError, match="key="):
        build(lambda k: ([[k]], [held.tell()]), **options)
    for one, two in (({}, {}), ({"key": "one"}, {"key": "two"})):
        with pytest.raises(Stop):
            build(of(1.0), **options, **one, progress=stop)
        with pytest.raises(ContainerError, match="differs in source"):
            build(of(2.0), **options, **two)
        if one:
            build(of(1.0), **options, **one)
        else:
            shutil.rmtree(tmp_path / "work")
            shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
    assert set(read(tmp_path / "a.zarr").values.tolist()) == {1.0}


def test_an_error_of_the_caller_comes_as_it_is(tmp_path):
    class Mine(Exception):
        pass

    def failing(k):
        if k == 2:
            raise Mine("text")
        return [[k]], [1.0]

    with pytest.raises(Mine, match="text") as caught:
        build(failing, tmp_path / "a.zarr", (4,), "CVEC", count=4)
    assert "chunk 2 of" in caught.value.__notes__[0]
    assert os.listdir(tmp_path) == []
    with pytest.raises(ArrayError, match=r"chunk 3 of .*, row 0: coords\[0\]: 4 is outside"):
        build(lambda k: ([[k + k // 3]], [1.0]), tmp_path / "a.zarr", (4,), "CVEC", count=4)


@pytest.mark.parametrize("kind", [".h5", ".zarr", ".npz", ".bspnpy", ".bspra"])
def test_a_stored_tensor_that_changes_midway_is_told(tmp_path, kind):
    place = tmp_path / f"in{kind}"
    first, second = (pack(np.nonzero(np.ones(SHAPE)), x + np.arange(72.0), SHAPE, "CSR") for x in (0, 1000))
    write(place, first)

    def change(stage, done, total):
        if stage == "partition" and done == 2:
            write(place, second, overwrite=True)

    with pytest.raises(BinsparseError, match=r"changed|replaced"):
        build(place, tmp_path / "a.zarr", SHAPE, "CSC", progress=change)


# Values

TYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64"]


@st.composite
def typed_chunks(draw):
    chunks = []
    for k, name in enumerate(draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))):
        dtype = np.dtype(name)
        edges = {
            "b": [0, 1],
            "i": [2**53 + 1, -1, 2**24 + 1],
            "u": [2**63 + 1, 255],
            "f": [1e300, 0.1, np.nan, 16777217.0],
        }
        numbers = draw(st.lists(st.sampled_from([1, *edges.get(dtype.kind, [0.1j])]), min_size=1, max_size=3))
        with np.errstate(all="ignore"):
            chunks.append(([[10 * k + x for x in range(len(numbers))]], np.array(numbers).astype(dtype)))
    return chunks


def same(found, wanted):
    """Whether numbers of two types are the same numbers."""
    pairs = zip(found.tolist(), wanted, strict=True)
    return all(x == y or (x != x and y != y) for x, y in pairs)


@given(chunks=typed_chunks())
def test_no_value_becomes_another_one(tmp_path_factory, chunks):
    wanted = [x for _, numbers in chunks for x in numbers.tolist()]
    target = {}
    try:
        write_from(iter(chunks), target, (40,), "CVEC")
    except ArrayError as error:
        told = str(error)
        event("refused")
    else:
        told = "dtype="
        assert same(read(target).values, wanted)
    assert "dtype=" in told


@given(chunks=typed_chunks())
def test_the_type_of_files_is_the_common_one(tmp_path_factory, chunks):
    assume(all(x.dtype.kind != "c" for _, x in chunks))
    folder = tmp_path_factory.mktemp("files")
    for k, (coords, numbers) in enumerate(chunks):
        pyarrow.parquet.write_table(pyarrow.table({"i": coords[0], "v": numbers}), folder / f"{k}.parquet")
    common = values.common_type([x.dtype for _, x in chunks])
    wanted = [x for _, numbers in chunks for x in numbers.tolist()]
    if common is None:
        with pytest.raises(ArrayError, match="no type has both; pass dtype="):
            build(folder, folder / "a.zarr", (40,), "CVEC", columns=["i", "v"])
        return
    build(folder, folder / "a.zarr", (40,), "CVEC", columns=["i", "v"])
    found = read(folder / "a.zarr").values
    assert found.dtype == common
    assert same(found, wanted)


# Memory


@given(
    format=st.sampled_from(["CSR", "dense, dense, sparse", "sparse, dense", "dense, sparse, dense", "dense(2)"]),
    seed=st.integers(0, 100),
)
def test_positions_without_entries_are_bounded(tmp_path_factory, format, seed):
    """However many fibers are empty, a tree has few positions."""
    rng, made, before = np.random.default_rng(seed), [], trees.packed
    shape = (4000, 3) if format in ("CSR", "sparse, dense", "dense(2)") else (200, 20, 3)
    coords = [rng.integers(0, n, 60) for n in shape]

    def noted(plan, levels, columns, *rest):
        tree = before(plan, levels, columns, *rest)
        made.append(sum(len(x) for name, x in tree.arrays.items() if "pointers" in name) + len(tree.values))
        return tree

    trees.packed = noted
    try:
        source = iter([([x[k::4] for x in coords], np.arange(60.0)[k::4]) for k in range(4)])
        folder = tmp_path_factory.mktemp("positions")
        write_from(source, folder / "a.h5", shape, format, duplicates="last", memory=1)
    finally:
        trees.packed = before
    at = np.concatenate([np.arange(60)[k::4] for k in range(4)])
    alike(read(folder / "a.h5"), pack([x[at] for x in coords], at.astype(float), shape, format, duplicates="last"))
    assert max(made) <= 12 + 2 * 3 + 2 * max(12 // 4, 60)


@given(groups=st.lists(st.integers(1, 60), min_size=1, max_size=5), order=st.randoms(use_true_random=False))
def test_chunks_of_files_are_bounded_and_hold_each_row_once(tmp_path_factory, groups, order):
    folder, start = tmp_path_factory.mktemp("groups"), 0
    for k, size in enumerate(groups):
        rows = np.arange(start, start + 2 * size)
        start += 2 * size
        at = pyarrow.table({"i": rows, "v": rows * 1.5})
        pyarrow.parquet.write_table(at, folder / f"{k}.parquet", row_group_size=size)
    source = parquet.Parquet(parquet_files.parquet_files(folder), ["i", "v"], 12)
    again = parquet.Parquet(**{name: x for name, x in source.described().items() if name != "kind"})
    numbers = list(range(len(source)))
    order.shuffle(numbers)
    found = {k: again.read(k) for k in numbers}
    assert max(len(x) for _, x in found.values()) <= 12
    np.testing.assert_array_equal(np.concatenate([found[k][0][0] for k in sorted(found)]), np.arange(start))
    np.testing.assert_array_equal(np.concatenate([found[k][1] for k in sorted(found)]), 1.5 * np.arange(start))
    assert all(again.sample(k, 4)[0] == len(x) for k, (_, x) in found.items())


# Leases


class Losing:
    """A library of objects that does what it is asked, and loses answers."""

    def __init__(self, calls, lost):
        self._calls, self._lost = calls, lost

    def __getattr__(self, name):
        return getattr(self._calls, name)

    def put(self, *args, **options):
        answer = self._calls.put(*args, **options)
        if self._lost and self._lost.pop(0):
            raise OSError("the answer is lost")
        return answer


def test_a_lease_whose_answer_is_lost_is_held(s3):
    for lost in ([True], [True, True], [False, True, True, False, True]):
        one, other = (Bucket(f"{s3}/work") for _ in range(2))
        one._calls = Losing(one._calls, lost)
        with one.held():
            with pytest.raises(ContainerError, match="another process"), other.held():
                pass
            for _ in range(3):
                one.put("object", [b"x"]) if not lost else None
        assert one.names("lease") == set()
        with other.held():
            pass


def test_works_are_small_to_send(tmp_path):
    source, _ = table(tmp_path, "in", 1.0)
    begin(source, tmp_path / "work", tmp_path / "a.zarr")
    assert len(pickle.dumps(work.Work(str(tmp_path / "work"), "0" * 16))) < 500
    assert binsparse_levels.progress(tmp_path / "work")[0].done == 0
