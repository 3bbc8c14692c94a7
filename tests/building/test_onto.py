"""Rows merged into a tensor that is stored: what comes out is what all entries together make."""

import contextlib
import datetime
import decimal
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.parquet import write_table

import binsparse_levels as bl
from binsparse_levels import ArrayError, ContainerError, OptionError, cli
from binsparse_levels.building import labelling, planning, stored_tensors, target
from binsparse_levels.containers.objects import folder as folders
from binsparse_levels.engine.joining import by_arrays

SHAPE = (5, 6)
NAMES = ["i", "j", "v"]
FORMATS = ["CSR", "COO", "DCSC", "dense, dense", "dense, sparse @ 1, 0", "sparse, bitmap", "dense, band", "run, sparse"]
PLACES = [".h5", ".zarr", ".npz", ".zarr.zip", ".h5:group", ".zarr:group"]
DTYPES = ["int8", "int64", "float32", "float64"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chunks, ranges of labels and merges of a few entries."""
    monkeypatch.setattr(labelling, "_SHARE", 8)
    monkeypatch.setattr(labelling, "_BLOCKS", (16, 64))
    monkeypatch.setattr(stored_tensors, "_TEXT", 1)
    monkeypatch.setattr(planning, "rows_within", lambda *_, **__: 12)
    monkeypatch.setattr(target, "_WRITTEN", 256)


def draw_rows(data, size, dtype="int64"):
    """Rows without order, some of the same cell; values are whole and not 0."""
    cells = data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in size)), max_size=30))
    coords = [np.array([cell[k] for cell in cells], np.int64) for k in range(len(size))]
    return coords, np.arange(1, len(cells) + 1).astype(dtype)


def file_of(path, columns, names=NAMES):
    write_table(pyarrow.table(dict(zip(names, columns, strict=True))), path, row_group_size=7)
    return str(path)


@pytest.mark.sampled(12)
@given(data=st.data())
def test_a_tensor_and_rows_are_what_all_entries_make(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("onto")
    how = data.draw(st.sampled_from(["sum", "first", "last"]))
    types = [np.dtype(data.draw(st.sampled_from(DTYPES))) for _ in range(2)]
    fill = data.draw(st.sampled_from([None, 0, 99]))
    old, new = draw_rows(data, SHAPE, types[0]), draw_rows(data, (7, 6), types[1])
    through = data.draw(st.sampled_from([None, None, "0/2, 1/3, 0%2, 1%3", "(0 1)"]))
    if through is None:
        format = data.draw(st.sampled_from(FORMATS))
    else:
        format = data.draw(st.sampled_from(["sparse, sparse, dense, dense", "COO"] if "%" in through else ["sparse"]))
        if format == "COO":
            through = None
    place = str(folder / f"old{data.draw(st.sampled_from(PLACES))}")
    notes = {"of": "old"}
    tensor = bl.pack(*old, SHAPE, format, duplicates=how, map=through, fill_value=fill, attributes=notes)
    bl.write(place, tensor)
    dtype = None if stored_tensors.common_type(types) is not None else "float64"
    source = data.draw(st.sampled_from(["file", "function", "tensor"]))
    given = {"duplicates": how, "dtype": dtype, "onto": place, "chunks": 8, "shards": 16}
    shape = data.draw(st.sampled_from([None, (7, 6), (9, 8)])) if source == "file" else (7, 6)
    if source == "file":
        rows = file_of(folder / "new.parquet", [*new[0], new[1]])
        given["columns"] = NAMES
    elif source == "function":
        half = len(new[1]) // 2
        parts = [([x[part] for x in new[0]], new[1][part]) for part in (slice(half), slice(half, None))]
        rows, given["count"] = parts.__getitem__, 2
    else:
        rows = f"{folder}/new.h5"
        bl.write(rows, bl.pack(*new, (7, 6), "COO", duplicates=how, fill_value=fill))
    joined = by_arrays(tensor.format.levels)  # other kinds need all entries in memory
    wanted = data.draw(st.sampled_from([*([None] if joined else []), "CSC", "sparse, sparse"]))
    out = f"{folder}/new.zarr"
    bl.build(rows, out, shape, wanted, **given)
    got = bl.read(out)
    total = got.dtype
    coords = [np.concatenate(x) for x in zip(old[0], new[0], strict=True)]
    least = [max(n, int(x.max(initial=-1)) + 1) for n, x in zip(SHAPE, new[0], strict=True)]
    assert got.shape == (tuple(least) if shape is None else shape)
    values = np.concatenate([old[1].astype(total), new[1].astype(total)])
    expected = bl.pack(coords, values, got.shape, "COO", duplicates=how, fill_value=fill)
    assert np.array_equal(got.to_dense(), expected.to_dense())
    assert got.fill_value == fill
    assert dict(got.attributes) == notes
    assert wanted is not None or (str(got.format), str(got.map)) == (str(tensor.format), str(tensor.map))


# Labels


POOLS = {
    "text": (["", "a", "a\0", "ab", "b" * 30, "z", "ä"], pyarrow.string()),
    "date": ([datetime.date(1960 + 7 * k, 1, 1) for k in range(7)], pyarrow.date32()),
    "truth": ([False, True], pyarrow.bool_()),
    "time": ([datetime.datetime(1950 + 9 * k, 1, 1) for k in range(7)], pyarrow.timestamp("us")),
    "decimal": ([decimal.Decimal(k).scaleb(-1) for k in (-100, -5, 0, 3, 20, 100)], pyarrow.decimal128(9, 1)),
    "coordinates": (list(range(7)), pyarrow.int64()),
}


def stored(label):
    return f"{label:.1f}" if isinstance(label, decimal.Decimal) else label


def cells(tensor):
    """The values by label, or by coordinate where there is none."""
    coords, values = tensor.unpack()
    known = [tensor.labels(name) for name in tensor.dims]
    columns = [(x if labels is None else labels[x]).tolist() for x, labels in zip(coords, known, strict=True)]
    return dict(zip(zip(*columns, strict=True), values.tolist(), strict=True))


@pytest.mark.sampled(12)
@given(data=st.data())
def test_labels_of_the_tensor_stay_and_new_ones_come_behind(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("labels")
    kinds = [data.draw(st.sampled_from(sorted(POOLS))) for _ in range(2)]
    given, expected, columns = {"columns": NAMES, "duplicates": "sum"}, {}, []
    for name in ("old", "new"):
        count = data.draw(st.integers(name == "old", 30))
        picked = [[data.draw(st.sampled_from(POOLS[kind][0])) for _ in range(count)] for kind in kinds]
        for cell in zip(*([stored(x) for x in some] for some in picked), strict=True):
            expected[cell] = expected.get(cell, 0) + 1
        arrays = [pyarrow.array(x, POOLS[kind][1]) for x, kind in zip(picked, kinds, strict=True)]
        columns.append(file_of(folder / f"{name}.parquet", [*arrays, np.ones(count, np.int64)]))
    old, new = columns
    if "decimal" in kinds or data.draw(st.booleans()):
        place = f"{folder}/old.zarr"
        bl.build(old, place, None, "CSR", **given)
    else:  # labels in order of appearance
        place = f"{folder}/old.h5"
        table = pyarrow.parquet.read_table(old)
        bl.write(place, bl.from_table(table, NAMES[:2], "v", "DCSR", duplicates="sum"))
    before = bl.read(place)
    bl.build(new, f"{folder}/new.zarr", None, None, onto=place, **given)
    got = bl.read(f"{folder}/new.zarr")
    assert cells(got) == expected
    assert got.dims == before.dims == ("i", "j")
    for k, name in enumerate(got.dims):
        labels, known = got.labels(name), before.labels(name)
        if known is None:
            assert labels is None
            continue
        assert labels[: len(known)].tolist() == known.tolist()
        added = [stored(x) for x in POOLS[kinds[k]][0] if stored(x) in set(labels[len(known) :].tolist())]
        assert labels[len(known) :].tolist() == added
        assert len(labels) == got.shape[k]


# Stopped, changed, refused


def merged(folder, count=24):
    """A tensor with labels, a file of rows, and what both make: the place, the arguments and the cells."""
    random = np.random.default_rng(0)
    users = pyarrow.array([f"user {k}" for k in random.integers(0, 30, 2 * count)])
    items, values = random.integers(0, 9, 2 * count), np.arange(2 * count)
    parts = [[x[part] for x in (users, items, values)] for part in (slice(count), slice(count, None))]
    old, new = (file_of(folder / f"{k}.parquet", part) for k, part in enumerate(parts))
    given = {"columns": NAMES, "duplicates": "sum"}
    bl.build(old, f"{folder}/a.zarr", None, "CSR", **given)
    shutil.copytree(f"{folder}/a.zarr", f"{folder}/before.zarr")
    bl.build(new, f"{folder}/both.zarr", None, None, onto=f"{folder}/a.zarr", **given)
    return new, {"shape": None, "format": None, "onto": f"{folder}/a.zarr", **given}


class Killed(BaseException):
    pass


@contextlib.contextmanager
def stopping(at):
    """Stop before one of the calls that change the disk; gives the names of these calls."""
    calls = []

    def before(call):
        def made(*args, **options):
            calls.append(call.__name__)
            if len(calls) == at:
                raise Killed
            return call(*args, **options)

        return made

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((folders.Folder, "put"), (folders.Folder, "delete"), (target, "exchange_folders")):
            patch.setattr(owner, name, before(getattr(owner, name)))
        patch.setattr(target, "remove", before(target.remove))
        yield calls


@pytest.mark.parametrize("steps", [False, True])
def test_tensors_keep_their_labels_and_attributes(tmp_path, steps):
    """With and without steps: `again` is two tensors."""
    names = {"i": list("vwxyz"), "j": [6, 5, 4, 3, 2, 1]}
    table = {"i": ["w", "z"], "j": [5, 1], "v": [1.0, 2.0]}
    tensor = bl.from_table(pyarrow.table(table), ["i", "j"], "v", labels=names, attributes={"a": 1})
    places = [str(tmp_path / f"{k}.h5") for k in range(1 + steps)]
    for place in places:
        bl.write(place, tensor)
    target = str(tmp_path / "built.zarr")
    bl.build(places, target, tensor.shape, "DCSR", duplicates="first")
    built = bl.read(target)
    assert built.equals(tensor)
    assert built.attributes == tensor.attributes
    assert built.dims == tensor.dims
    assert all(built.labels(k).tolist() == tensor.labels(k).tolist() for k in names)
    other = bl.from_table(pyarrow.table(table), ["i", "j"], "v", labels=names | {"i": list("zyxwv")})
    bl.write(tmp_path / "other.h5", other)
    with pytest.raises(ArrayError, match=r"other\.h5: has the label 'z' at coordinate 0 of dimension 'i'"):
        bl.build([*places, str(tmp_path / "other.h5")], str(tmp_path / "no.zarr"), tensor.shape, "DCSR")


def test_a_tensor_is_replaced_at_once_wherever_a_build_is_killed(tmp_path):
    new, given = merged(tmp_path)
    old, both = bl.read(tmp_path / "before.zarr"), bl.read(tmp_path / "both.zarr")
    place, work = f"{tmp_path}/a.zarr", f"{tmp_path}/work"

    def again():
        for path in (place, work):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "before.zarr", place)

    with stopping(0) as calls:
        bl.build(new, place, work=work, **given)
    assert bl.read(place).equals(both)
    exchange, exchanged = calls.index("exchange_folders") + 1, []
    for at in [2, exchange // 2, *range(exchange - 1, exchange + 3), len(calls)]:
        again()
        with stopping(at), pytest.raises(Killed):
            bl.build(new, place, work=work, **given)
        there = bl.read(place)
        exchanged.append(there.equals(both))
        assert exchanged[-1] or there.equals(old)
        bl.build(new, place, work=work, **given)
        assert bl.read(place).equals(both)
        bl.build(new, place, work=work, **given)  # it is done
        assert bl.read(place).equals(both)
        left = {name for name in os.listdir(tmp_path) if not name.endswith(".lock")}
        assert left == {"0.parquet", "1.parquet", "a.zarr", "before.zarr", "both.zarr", "work"}
    assert len(set(exchanged)) == 2


def test_a_build_without_a_work_folder_leaves_the_old_tensor_or_the_new(tmp_path):
    new, given = merged(tmp_path)
    old = bl.read(tmp_path / "before.zarr")
    for at in (5, 20):
        with stopping(at), pytest.raises(Killed):
            bl.build(new, f"{tmp_path}/a.zarr", **given)
        assert bl.read(tmp_path / "a.zarr").equals(old)
        assert not [name for name in os.listdir(tmp_path) if ".part" in name]
    bl.build(new, f"{tmp_path}/a.zarr", **given)
    assert bl.read(tmp_path / "a.zarr").equals(bl.read(tmp_path / "both.zarr"))


@pytest.mark.parametrize("last", ["partition", "commit"])
def test_a_tensor_that_changes_meanwhile_is_told(tmp_path, last):
    new, given = merged(tmp_path)
    place, work = f"{tmp_path}/a.zarr", f"{tmp_path}/work"
    bl.plan(new, place, work=work, **given)
    while (stage := next(x for x in bl.progress(work) if x.done != x.total)).name != last:
        for number in range(stage.total):
            bl.step(work, stage.name, number)
    bl.write(place, bl.read(place)[:3], overwrite=True)
    with pytest.raises(ContainerError, match="has changed since the build began"):
        bl.commit(work) if last == "commit" else bl.step(work, last, 0)
    assert bl.read(place).shape[0] == 3
    with pytest.raises(ContainerError, match=r"another build, which differs in|has changed"):
        bl.build(new, place, work=work, **given)


@pytest.mark.slow
def test_processes_share_the_chunks_of_a_tensor(tmp_path):
    new, given = merged(tmp_path)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        bl.build(new, f"{tmp_path}/a.zarr", client=pool, **given)
    assert bl.read(tmp_path / "a.zarr").equals(bl.read(tmp_path / "both.zarr"))


def test_by_commands(tmp_path, capsys):
    new, _ = merged(tmp_path)
    place, work = f"{tmp_path}/a.zarr", f"{tmp_path}/work"
    words = [new, place, "--onto", place, "--columns", "i,j,v", "--duplicates", "sum"]
    assert cli.main(["plan", *words, "--work", work]) == 0
    while (stage := next(x for x in bl.progress(work) if x.done != x.total)).name != "commit":
        assert cli.main(["step", work, stage.name, "0", "--of", "1"]) == 0
    assert cli.main(["commit", work]) == 0
    assert bl.read(place).equals(bl.read(tmp_path / "both.zarr"))
    assert cli.main(["build", *words[:2], "--columns", "i,j,v"]) != 0
    assert "--format" in capsys.readouterr().err


def test_both_triangles_of_a_structure_are_merged(tmp_path):
    lower = bl.pack([[0, 2, 2], [0, 1, 2]], [1, 2, 3], (3, 3), "CSR", structure="symmetric_lower")
    bl.write(tmp_path / "a.h5", lower)
    new = file_of(tmp_path / "new.parquet", [[0, 1], [0, 2], [10, 20]])
    bl.build(new, tmp_path / "b.zarr", None, None, columns=NAMES, onto=tmp_path / "a.h5", duplicates="sum")
    got = bl.read(tmp_path / "b.zarr")
    assert got.structure is None
    assert got.to_dense().tolist() == [[11, 0, 0], [0, 0, 22], [0, 2, 3]]


def test_what_is_refused(tmp_path):
    new, given = merged(tmp_path)
    place, out = given.pop("onto"), f"{tmp_path}/out.zarr"
    one, text = pyarrow.array([1]), pyarrow.array(["a"])
    numbers = file_of(tmp_path / "numbers.parquet", [one, one, one])
    texts = file_of(tmp_path / "texts.parquet", [text, text, one])
    bl.write(tmp_path / "plain.h5", bl.pack([[0], [0]], [1], (2, 2), "CSR"))
    twice, other = pyarrow.table({"i": ["a", "b"], "j": [0, 1], "v": [1, 2]}), f"{tmp_path}/both.zarr"
    for name in "xy":
        bl.write(f"{tmp_path}/{name}.h5", bl.from_table(twice, ["i", "j"], "v", "CSR"))
    bl.concatenate([f"{tmp_path}/x.h5", f"{tmp_path}/y.h5"], f"{tmp_path}/xy.h5")  # labels are twice there
    itself = {"onto": None, "columns": None, "shape": (99, 99), "format": "CSR", "overwrite": True}
    cases = [
        (numbers, out, {}, ArrayError, "has integers, and the tensor has labels of type text"),
        (texts, out, {}, ArrayError, "has labels of type text, and the tensor has none"),
        (new, out, {"shape": (None, 3)}, bl.FormatError, "pass a shape that holds it"),
        (new, out, {"duplicates": "error"}, ArrayError, "more than once"),
        (new, out, {"columns": ["i", "v"]}, ArrayError, "names for 2 dimensions"),
        (place, out, {"columns": None}, ArrayError, "a tensor is not merged by labels"),
        (new, out, {"onto": None}, OptionError, "only with onto="),
        (new, out, {"onto": tmp_path / "xy.h5"}, ArrayError, "stands at two coordinates"),
        (new, place, {"onto": f"{place}:/"}, OptionError, "is a group of the target"),
        (other, other, itself, OptionError, "is read by the build"),
    ]
    for source, to, options, error, message in cases:
        with pytest.raises(error, match=message):
            bl.build(source, to, **{"onto": place, **given, **options})
    assert bl.read(place).equals(bl.read(tmp_path / "before.zarr"))


def test_object_stores(tmp_path, s3):
    new, given = merged(tmp_path)
    place = f"{s3}/a.zarr"
    bl.build(f"{tmp_path}/0.parquet", place, None, "CSR", columns=NAMES, duplicates="sum", work=f"{s3}/first")
    given["onto"] = place
    bl.build(new, f"{s3}/b.zarr", work=f"{s3}/work", **given)
    assert bl.read(f"{s3}/b.zarr").equals(bl.read(tmp_path / "both.zarr"))
    with pytest.raises(OptionError, match="in an object store is not exchanged at once; build to another URL"):
        bl.build(new, place, work=f"{s3}/other", **given)
