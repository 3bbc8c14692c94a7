"""Append and concatenate: kept as stored, by several at once, iso values, empty fibers, tiny chunks."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import h5py
import numpy as np
import pyarrow
import pytest
import zarr
from helpers import kinds  # noqa: F401 (further kinds)
from helpers.blocks import blocks_of, large, rows_at_once
from hypothesis import assume, event, given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    OptionError,
    Tensor,
    append,
    concatenate,
    convert,
    from_table,
    pack,
    pack_dense,
    read,
    testing,
    write,
)
from binsparse_levels.containers import checksums, replacing
from binsparse_levels.containers.objects.chunks import Chunks
from binsparse_levels.io import appending
from binsparse_levels.io.kinds import resolved
from binsparse_levels.io.reading import opened
from binsparse_levels.levels import LEVELS
from binsparse_levels.limits import DEFAULT_LIMITS
from binsparse_levels.tensors.labels import Column, Labels, stored_type
from binsparse_levels.tensors.tensor import remade


def storage_of(place):
    """How the tensor at a place is stored."""
    with resolved(place) as location:
        return appending.storage_of(opened(location, DEFAULT_LIMITS)[1], location)


@given(data=st.data())
def test_joined_along_the_outermost_dimension(tmp_path_factory, data):
    types = ("float64", "bool", "complex64")
    first = data.draw(testing.tensors(kinds=tuple(LEVELS.values()), structures=False, dtypes=types))
    assume(first.ndim and first.fill_value is None)
    folder, outer = tmp_path_factory.mktemp("join"), first.format.order[0]
    size = first.shape[outer]
    cut = data.draw(st.integers(0, size))
    key = [slice(None)] * first.ndim
    names = []
    for piece in (slice(0, cut), slice(cut, size)):
        key[outer] = piece
        names.append(folder / f"{len(names)}.h5")
        try:
            write(names[-1], first[tuple(key)].load(first.format))
        except FormatError:  # a kind may refuse a part of what it holds
            assume(False)
    with blocks_of(3):
        concatenate(names, folder / "whole.zarr")
    assert read(folder / "whole.zarr").equals(first)
    assert read(folder / "whole.zarr").format.canonical() == first.format.canonical()
    append(names[0], first[tuple(key)], axis=outer)
    assert read(names[0]).equals(first)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("options", [{}, {"chunks": 10, "shards": 50}, {"chunks": 64, "compression": "none"}], ids=str)
@pytest.mark.parametrize("group", ["", ":some/group"])
def test_a_zarr_folder_grows(tmp_path, options, group):
    tensor = large(5000)
    place = f"{tmp_path / 'a.zarr'}{group}"
    write(place, tensor[:45].load(), **options)
    kept = read(place)
    append(place, tensor[45:])
    assert read(place).equals(tensor)
    assert zarr.open_group(tmp_path / "a.zarr", path=group[1:])["values"][...].tolist() == tensor.values.tolist()
    before = {path: path.read_bytes() for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()}
    with pytest.raises(BinsparseError):
        append(place, tensor.astype("float32"))
    assert {path: path.read_bytes() for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()} == before
    append(place, kept)
    assert read(place).shape == (95, 60, 70)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_fault_while_a_folder_grows_leaves_it_as_it_was(tmp_path, monkeypatch):
    names = Labels(tuple("ijk"), {"i": Column("int8", np.arange(50, dtype=np.int8))})
    tensor = remade(large(5000), labels=names)
    write(tmp_path / "a.zarr", tensor[:45].load(), chunks=10, shards=50)
    monkeypatch.setattr(Chunks, "encoded", lambda *_: (bytes(1 // size) for size in (1, 0)))
    with pytest.raises(ZeroDivisionError):
        append(tmp_path / "a.zarr", tensor[45:])
    assert read(tmp_path / "a.zarr").equals(tensor[:45])
    assert read(tmp_path / "a.zarr").labels("i").tolist() == list(range(45))
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_what_does_not_fit_is_not_joined(tmp_path):
    tensor = large(100)
    write(tmp_path / "a.h5", tensor)
    before = (tmp_path / "a.h5").read_bytes()
    for other, told in (
        (tensor.astype("float32"), "dtype"),
        (large(100, (50, 61, 70)), "size 61 in dimension 1"),
        (pack([[], [], []], np.zeros(0), (1, 60, 70), "sparse(3)", fill_value=1.0), "fill value"),
    ):
        with pytest.raises(BinsparseError, match=told):
            append(tmp_path / "a.h5", other)
    write(tmp_path / "b.h5", tensor.convert("sparse(3)"))
    with pytest.raises(FormatError, match="format"):
        concatenate([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "c.h5")
    with pytest.raises(OptionError):
        concatenate([], tmp_path / "c.h5")
    assert (tmp_path / "a.h5").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.h5"]


def test_labels_that_do_not_fit_are_not_joined(tmp_path):
    """Behind each other along the outermost dimension, equal along the others."""

    def of(users, items, **more):
        columns = {"user": users * len(items), "item": sorted(items * len(users)), "n": [1.0] * len(users) * len(items)}
        labels = {"user": users, "item": items} | more
        return from_table(pyarrow.table(columns), ["user", "item"], "n", "CSR", labels=labels)

    write(tmp_path / "a.h5", of(["u", "v"], ["x", "y"]))
    write(tmp_path / "b.h5", pack([[0], [1]], [1.0], (1, 2), "CSR"))
    before = snapshot(tmp_path)
    for first, other, why in (
        (
            "a",
            of(["w"], ["x", "z"]),
            "has other labels of dimension 'item' than .*a.h5; select",
        ),
        ("a", of(["w"], ["y", "x"]), "has other labels of dimension 'item'"),
        ("a", of([1], ["x", "y"]), "labels of type int64 in dimension 'user', and .*a.h5 of text; cast"),
        ("a", read(tmp_path / "b.h5"), "tensor: has no labels of dimension 'user', but .*a.h5 has; make both"),
        ("b", of(["w"], ["x", "y"]), "b.h5: has no labels of dimension 'user', but tensor has; make both"),
        (
            "a",
            of(["u", "v"], ["x", "y"]).T.convert("CSR"),
            "has the dimensions .'item', 'user'.*same names in the same order",
        ),
    ):
        with pytest.raises(ArrayError, match=why):
            append(tmp_path / f"{first}.h5", other)
        assert snapshot(tmp_path) == before
    append(tmp_path / "a.h5", of(["w"], ["x", "y"])[:, :])
    assert read(tmp_path / "a.h5").labels("user").tolist() == ["u", "v", "w"]
    some, lacking = {}, [Column("int8", np.arange(count, dtype=np.int8)) for count in (1, 0)]
    parts = [remade(pack([[0]], [1.0], 2, "sparse"), labels=Labels(("k",), {"k": x})) for x in lacking]
    write(some, parts[0])
    append(some, parts[1])
    assert read(some).labels("k").tolist() == [0]
    with pytest.raises(ArrayError, match="dict: has 1 labels for 4 coordinates of dimension 'k', and others follow"):
        append(some, parts[0], existing="repeat")


@given(data=st.data())
def test_a_label_that_is_there_is_not_appended_again(tmp_path_factory, data):
    """A job that runs again: an error, or what is new alone, or all; as a list of rows with a set of labels."""
    kind = data.draw(st.sampled_from(sorted(LABELS)))
    first, more = (data.draw(st.lists(LABELS[kind], min_size=1, max_size=4)) for _ in range(2))
    rows = [[k + 1.0, 0.0] for k in range(len(first) + len(more))]
    outer = data.draw(st.sampled_from(["CSR", "CSC"])) == "CSC"  # it grows along this dimension

    def made(labels, rows):
        cells = np.array(rows).T if outer else np.array(rows)
        column = labels_column(kind, labels)
        return remade(pack_dense(cells, "CSC" if outer else "CSR"), labels=Labels(("t", "x"), {"tx"[outer]: column}))

    place = {} if data.draw(st.booleans()) else f"{tmp_path_factory.mktemp('again')}/a.h5"
    write(place, made(first, rows[: len(first)]))
    before, tensor = read(place), made(more, rows[len(first) :])
    seen, fresh = {x for x in first if x == x}, []
    for k, label in enumerate(more):
        if label not in seen:
            fresh.append(k)
        if label == label:  # a missing label repeats none
            seen.add(label)
    if len(fresh) < len(more):
        with pytest.raises(ArrayError, match="would be there twice; pass existing='skip'"):
            append(place, tensor, axis=int(outer))
        assert read(place).equals(before)
    existing = data.draw(st.sampled_from(["skip", "repeat"]))
    append(place, tensor, axis=int(outer), existing=existing)
    kept = fresh if existing == "skip" else range(len(more))
    whole = made([*first, *(more[k] for k in kept)], [*rows[: len(first)], *(rows[len(first) + k] for k in kept)])
    assert told(read(place)) == told(whole)
    np.testing.assert_array_equal(read(place).to_dense(), whole.to_dense())


PLACES = {
    "a.h5": ("compression", "chunks"), "a.h5:g/h": ("compression", "chunks"), "a.nc": ("compression", "chunks"),
    "a.zarr": ("compression", "chunks", "shards"), "a.zarr:g": ("compression", "chunks", "shards"),
    "a.zarr.zip": ("compression", "chunks", "shards"), "b.zarr": ("compression", "chunks"), "a.npz": ("compression",),
    "a.bspnpy": (), "a.bspra": (), "memory": (),
}  # fmt: skip


LABELS = {
    "text": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3), "bool": st.booleans(),
    "int8": st.integers(-9, 9), "float64": st.sampled_from([0.5, -0.0, np.nan]),
    "datetime64[D]": st.integers(0, 9), "datetime64[s, Europe/Berlin]": st.integers(0, 9),
}  # fmt: skip


def labels_column(type, items):
    if type != "text":
        return Column(type, np.array(items, stored_type(type)))
    octets = [text.encode() for text in items]
    return Column(type, np.frombuffer(b"".join(octets), np.uint8), np.cumsum([0, *map(len, octets)]))


@st.composite
def labels_of(draw, shape):
    """Names of the dimensions, and labels of some."""
    columns = {}
    for k, size in enumerate(shape):
        if (type := draw(st.sampled_from([None, *LABELS]))) is not None:
            columns[f"d{k}"] = labels_column(type, draw(st.lists(LABELS[type], min_size=size, max_size=size)))
    return Labels(tuple(f"d{k}" for k in range(len(shape))), columns)


def told(tensor):
    """The names of a tensor, and what its labels are."""
    return tensor.dims, [repr(tensor.labels(name)) for name in tensor.dims or ()]


@st.composite
def halves(draw):
    """Two tensors, perhaps with labels, and what they are one behind the other."""
    whole = draw(testing.tensors(kinds=testing.PLAIN, structures=False).filter(lambda tensor: tensor.ndim))
    whole = remade(whole, labels=draw(st.none() | labels_of(whole.shape)))
    outer = whole.format.order[0]
    key = [slice(None)] * whole.ndim
    cut = draw(st.integers(0, whole.shape[outer]))
    pieces = []
    for key[outer] in (slice(0, cut), slice(cut, None)):
        pieces.append(whole[tuple(key)].load(whole.format))
    return (*pieces, whole)


@st.composite
def stored_somehow(draw, tensor, folder):
    """A tensor written to a container of any kind with any options: where, and the options."""
    name = draw(st.sampled_from(sorted(PLACES)))
    has = PLACES[name]
    integers = [array for array in (*tensor.arrays, "values") if array != "values" or tensor.dtype.kind in "iu"]
    integers = [array for array in integers if array != "values" or not tensor.iso]
    options = {
        "checksum": draw(st.sampled_from([None, True, False])),
        "narrow": draw(st.booleans()),
        "bitpacked": draw(st.booleans() | st.lists(st.sampled_from(integers), unique=True) if integers else st.none()),
        "compression": draw(st.sampled_from([None, "gzip", "none"])) if "compression" in has else None,
        "chunks": draw(st.sampled_from([None, 1, 3, 1000])) if "chunks" in has else None,
        "shards": draw(st.sampled_from([None, 6])) if "shards" in has else None,
        "kind": "zarr2" if name == "b.zarr" else None,
    }
    options["bitpacked"] = options["bitpacked"] or False
    place = {} if name == "memory" else f"{folder}/{name}"
    write(place, tensor, **options)
    return place, options


def described(place):
    """How a tensor is stored, of every array: whether it is sealed, bit-packed, in chunks, compressed."""
    kept = storage_of(place)
    by_name = {
        option: {name: value for name, value in (kept.options[option] or {}).items() if name != "fill_value"}
        for option in ("compression", "chunks", "shards")
    }
    with binsparse_levels.io.open_reader(place) as reader:
        lengths = {name: reader.array(name).shape[0] for name in by_name["chunks"]}
    return kept.options["kind"], kept.options["checksum"], dict(kept.wrappers), by_name, lengths


def agree(before, after):
    """A chunk of a whole array may have been cut to it, and that of an empty array is told by the others; one value for
    all that is no longer alone was not bit-packed.
    """
    assert after[:3] == before[:3]
    for option, names in before[3].items():
        assert set(names) <= set(after[3][option])
    assert before[3]["compression"].items() <= after[3]["compression"].items()
    for name, size in before[3]["chunks"].items():
        assert size in (after[3]["chunks"][name], 2**16, 2**17, 2**20, before[4][name]) or not before[4][name]


@given(data=st.data())
def test_what_is_appended_to_stays_stored_as_it_was(tmp_path_factory, data):
    first, second, whole = data.draw(halves())
    folder = tmp_path_factory.mktemp("kept")
    place, options = data.draw(stored_somehow(first, folder))
    before = described(place)
    with blocks_of(data.draw(st.sampled_from([2, 3, 1000]))):
        append(place, second, axis=whole.format.order[0], existing="repeat")
        agree(before, described(place))
        found = read(place)
        assert found.equals(whole)
        assert told(found) == told(whole)
        np.testing.assert_array_equal(found.to_dense(), whole.to_dense())
        target = {} if isinstance(place, dict) else f"{folder}/c{place.removeprefix(str(folder) + '/')}"
        other = f"{folder}/other.h5"
        write(other, second)
        append(place, second, axis=whole.format.order[0], existing="repeat")
        concatenate([place, other], target, **({"kind": "zarr2"} if options["kind"] else {}))
        agree(described(place), described(target))
        outer, last = whole.format.order[0], read(target)
        assert last.shape[outer] == found.shape[outer] + 2 * second.shape[outer]
        for part, start in ((whole, 0), (second, whole.shape[outer] + second.shape[outer])):
            key = [slice(None)] * whole.ndim
            key[outer] = slice(start, start + part.shape[outer])
            assert told(last[tuple(key)]) == told(part)
    header, sums = checksums.unsealed(header_of(place))
    assert bool(sums) == (options["checksum"] is True)
    assert header["binsparse"]["number_of_stored_values"] == read(place).number_of_stored_values
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def header_of(place):
    with binsparse_levels.io.open_reader(place) as reader:
        return reader.read_header()


def test_other_containers_keep_seals_and_what_is_bit_packed(tmp_path):
    tensor = pack([np.arange(50)] * 2, np.arange(50), (50, 50), "CSR")
    write(tmp_path / "plain.npz", tensor)
    write(tmp_path / "a.h5", tensor, bitpacked=["indices_1", "values"], checksum=True, compression="gzip", chunks=20)
    concatenate([tmp_path / "a.h5", tmp_path / "plain.npz"], tmp_path / "b.zarr")
    found = storage_of(tmp_path / "b.zarr")
    assert found.options["checksum"]
    assert set(found.wrappers) == {"indices_1", "values"}
    assert found.options["compression"]["values"] == "blosc"
    concatenate([tmp_path / "plain.npz", tmp_path / "a.h5"], tmp_path / "c.npz")
    assert storage_of(tmp_path / "c.npz").options["checksum"]
    append(tmp_path / "a.h5", tensor, checksum=False, compression="none", chunks=30)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["values"].chunks == (30,)
        assert file["values"].compression is None
    assert not storage_of(tmp_path / "a.h5").options["checksum"]
    assert read(tmp_path / "a.h5").equals(read(tmp_path / "c.npz"))


def test_what_was_empty_grows_as_it_was_stored(tmp_path):
    empty = pack([[], []], np.zeros(0), (0, 10**6), "CSR")
    write(tmp_path / "a.h5", empty, compression="gzip", chunks=1000)
    write(tmp_path / "a.zarr", empty)
    more = pack([np.zeros(5000, int), np.arange(5000)], np.arange(5000.0), (1, 10**6), "CSR")
    for name in ("a.h5", "a.zarr"):
        for _ in range(3):
            append(tmp_path / name, more)
        assert read(tmp_path / name).shape == (3, 10**6)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["indices_1"].compression == "gzip"
        assert file["indices_1"].chunks[0] >= 1000
    assert zarr.open_array(tmp_path / "a.zarr", path="values").chunks[0] > 1


@given(data=st.data())
def test_what_read_refuses_is_not_joined(data):
    """Any item of any array changed, or any array longer or shorter: an error, and the target as it was."""
    first, second, _ = data.draw(halves())
    bad, good, options = {}, {}, {"checksum": data.draw(st.booleans()), "bitpacked": data.draw(st.booleans())}
    write(bad, first, **options)
    write(good, second)
    name = data.draw(st.sampled_from([name for name in bad if name != "binsparse"]))
    array = bad[name] = bad[name].copy()
    what = data.draw(st.sampled_from(["item", "longer", "shorter"] if len(array) else ["longer"]))
    if what == "item":
        at = data.draw(st.integers(0, len(array) - 1))
        if array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            near = st.integers(-2, 7) | st.sampled_from([info.min, info.max])
            array[at] = data.draw(near.filter(lambda x: info.min <= x <= info.max))
        else:
            array[at] += 1
    else:
        bad[name] = np.append(array, array[:1] if len(array) else np.ones(1, array.dtype))
        bad[name] = bad[name] if what == "longer" else array[:-1]
    refused = None
    try:
        kept = read(bad)
    except BinsparseError as error:
        refused = error
    event(f"{what}, {'refused' if refused else 'sound'}")
    before = bytes_of(bad)
    with blocks_of(data.draw(st.sampled_from([2, 3, 1000]))):
        for call in (lambda target: concatenate([good, bad], target, overwrite=True), lambda _: append(bad, second)):
            target = {"old": np.ones(1)}
            try:
                call(target)
            except BinsparseError:
                assert list(target) == ["old"]
                assert bytes_of(bad) == before
                continue
            found = read(target if "binsparse" in target else bad)
            if refused is None:
                size = found.shape[first.format.order[0]]
                assert size == kept.shape[first.format.order[0]] + second.shape[first.format.order[0]]
            else:  # what is not there at all
                assert not len(first.values)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a.zarr", "a.zarr:g", "a.h5", "a.npz"])
def test_what_read_refuses_does_not_grow(tmp_path, name):
    """Also where what is there is not copied."""
    places = np.arange(0, 100)
    tensor = pack([places] * 2, np.ones(100, bool), (100, 100), "DCSR").convert("sparse, sparse")
    tensor = binsparse_levels.Tensor(tensor.format, tensor.shape, tensor.arrays, np.ones(100, np.uint8))
    for array, place, number in (
        ("indices_0", 5, 4), ("indices_1", 7, 100), ("pointers_to_1", 50, 99), ("values", 99, 2),
    ):  # fmt: skip
        stored = {}
        write(stored, tensor)
        header = stored.pop("binsparse")
        header["binsparse"]["data_types"]["values"] = "bint8"
        stored[array] = stored[array].copy()
        stored[array][place] = number
        binsparse_levels.io.write_arrays(tmp_path / name, header, stored, overwrite=True)
        with pytest.raises(ArrayError):
            read(tmp_path / name)
        before = snapshot(tmp_path)
        for call in (
            lambda: append(tmp_path / name, pack([[0], [0]], np.ones(1, bool), (1, 100), "sparse, sparse")),
            lambda: concatenate([tmp_path / name] * 2, tmp_path / "b.zarr"),
        ):
            with pytest.raises(ArrayError, match=array):
                call()
        assert snapshot(tmp_path) == before


def bytes_of(mapping):
    return {key: value if isinstance(value, dict) else value.tobytes() for key, value in mapping.items()}


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_fault_in_many_empty_fibers_is_told_by_its_place(tmp_path):
    tensor = pack([[3, 70, 70, 71], [1, 2, 5, 1]], np.ones(4), (100, 9), "CSR")
    write(tmp_path / "a.h5", tensor)
    for array, place, number, told in (
        ("indices_1", 2, 2, r"indices_1\[2\]: 2 repeats the coordinate before it \(.*duplicates='sum'\), in fiber 70"),
        ("indices_1", 2, 9, r"indices_1\[2\]: 9 is outside dimension 1 of size 9, in fiber 70"),
        ("pointers_to_1", 50, 0, r"pointers_to_1\[50\]: 0 is less than the pointer before it, 1, in fiber 49"),
        ("pointers_to_1", 60, 4, r"pointers_to_1\[61\]: 1 is less than the pointer before it, 4, in fiber 60"),
    ):
        before = (tmp_path / "a.h5").read_bytes()
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            file[array][place] = number
        with blocks_of(3), pytest.raises(ArrayError, match=told):
            append(tmp_path / "a.h5", tensor)
        with blocks_of(3), rows_at_once(3), pytest.raises(ArrayError, match=told):
            convert(tmp_path / "a.h5", tmp_path / "b.h5", "CSC", memory=2**34)
        (tmp_path / "a.h5").write_bytes(before)


ROWS = """
import sys, binsparse_levels as bl
row = bl.pack(([0], [1]), [2.0], (1, 4), "CSR")
for k in range(int(sys.argv[2])):
    bl.append(sys.argv[1], row)
"""
ROW = (([0], [1]), [2.0], (1, 4), "CSR")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.h5", "a.zarr:g", "a.npz"])
def test_two_processes_append_every_row(tmp_path, name):
    place = f"{tmp_path}/{name}"
    write(place, pack(*ROW))
    arguments = [sys.executable, "-W", "ignore", "-c", ROWS, place, "15"]
    writers = [subprocess.Popen(arguments, stderr=subprocess.PIPE) for _ in range(2)]
    assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    assert read(place).shape == (31, 4)
    assert os.listdir(tmp_path) == [name.partition(":")[0]]


@pytest.mark.parametrize("name", ["a.h5", "a.zarr"])
def test_threads_append_every_row_and_write_every_group(tmp_path, name):
    place = f"{tmp_path}/{name}"
    write(f"{place}:rows", pack(*ROW))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(append, f"{place}:rows", pack(*ROW)) for _ in range(8)]
        calls += [pool.submit(write, f"{place}:new/group{k}", pack(*ROW)) for k in range(8)]
        for call in calls:
            call.result()
    assert read(f"{place}:rows").shape == (9, 4)
    assert len(binsparse_levels.list_tensors(place)) == 9
    assert os.listdir(tmp_path) == [name]


HOLD = """
import sys, time
from binsparse_levels.containers.replacing import hold_lock
with hold_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_lives_is_waited_for_and_who_is_killed_is_not(tmp_path, monkeypatch):
    place = tmp_path / "a.h5"
    write(place, pack(*ROW))
    before = place.read_bytes()
    owner = subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"held\n"
    (lock,) = set(os.listdir(tmp_path)) - {"a.h5"}
    monkeypatch.setattr(replacing, "LOCK_SECONDS", 0.1)
    for call in (
        lambda: append(place, pack(*ROW)),
        lambda: concatenate([place, place], place, overwrite=True),
        lambda: write(f"{place}:g", pack(*ROW)),
    ):
        with pytest.raises(ContainerError, match="another process or thread"):
            call()
    assert os.path.exists(tmp_path / lock)
    assert place.read_bytes() == before
    assert read(place).shape == (1, 4)
    monkeypatch.setattr(replacing, "LOCK_SECONDS", 60)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(append, place, pack(*ROW))
        time.sleep(0.1)
        assert not waiting.done()
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
        waiting.result()
    assert read(place).shape == (2, 4)
    assert os.listdir(tmp_path) == ["a.h5"]


def test_a_lock_that_is_left_is_taken_over(tmp_path):
    write(tmp_path / "a.h5", pack(*ROW))
    lock = tmp_path / f".a.h5{replacing._LOCK}"
    lock.touch()
    append(tmp_path / "a.h5", pack(*ROW))
    assert os.listdir(tmp_path) == ["a.h5"]
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ContainerError, match="cannot be locked"):
        append(tmp_path / "a.h5", pack(*ROW))
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_is_not_locked(tmp_path, monkeypatch):
    def none(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", none)
    write(tmp_path / "a.h5", pack(*ROW))
    append(tmp_path / "a.h5", pack(*ROW))
    assert read(tmp_path / "a.h5").shape == (2, 4)
    assert os.listdir(tmp_path) == ["a.h5"]


def test_a_seal_is_looked_at_before_parts_are_used(tmp_path):
    tensor = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    for name in ("a.bspnpy", "b.bspnpy"):
        write(tmp_path / name, tensor, checksum=True)
    with rows_at_once(3):
        convert(tmp_path / "a.bspnpy", tmp_path / "c.h5", "CSC", memory=2**34)
    np.save(tmp_path / "b.bspnpy" / "values.npy", np.arange(11.0))

    def converted(source, target):
        with rows_at_once(3):
            convert(source, target, "CSC", memory=2**34)

    uses = (
        lambda b: converted(b, tmp_path / "d.h5"),
        lambda b: concatenate([tmp_path / "a.bspnpy", b], tmp_path / "d.h5"),
        lambda b: append(b, tensor),
    )
    for use in uses:
        with pytest.raises(ContainerError, match="checksum"):
            use(tmp_path / "b.bspnpy")
    assert sorted(os.listdir(tmp_path)) == ["a.bspnpy", "b.bspnpy", "c.h5"]


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_iso_tensors_of_different_values_are_joined_with_all_of_them(tmp_path, suffix):
    values = [np.float64(5), np.float64(7), np.array([8.0])]
    names = [tmp_path / f"{k}{suffix}" for k in range(3)]
    for name, value in zip(names, values, strict=True):
        write(name, pack([[0], [1]], value, (2, 3), "CSR"))
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


def test_no_fill_value_joins_zero():
    store = {}
    binsparse_levels.write(store, binsparse_levels.pack([[0]], [1.0], (2,), "sparse", fill_value=0))
    binsparse_levels.append(store, binsparse_levels.pack([[1]], [2.0], (3,), "sparse"))
    assert binsparse_levels.read(store).to_dense().tolist() == [1, 0, 0, 2, 0]


@given(st.data())
def test_tensors_are_joined_through_any_map(data):
    """A file keeps its format and the notation of its map, whatever map another has."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    map = data.draw(testing.maps(shape))
    rank = len(map.groups)
    able = tuple(kind for kind in LEVELS.values() if not kind.refuses)
    format = data.draw(testing.formats(min_rank=rank, max_rank=rank, kinds=able))
    outer = map.groups[format.order[0]][0].dimension
    ends = [0, shape[outer], *data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=2))]
    dense, tensors, places = [], [], []
    for size in ends[1:]:
        sizes = tuple(size if k == outer else n for k, n in enumerate(shape))
        random = np.random.default_rng(data.draw(st.integers(0, 99)))
        dense.append(random.integers(1, 9, sizes) * (random.random(sizes) < 0.4))
        coords, own = np.nonzero(dense[-1]), binsparse_levels.parse_map(str(map), sizes)
        if tensors and rank == 1 and data.draw(st.booleans()):
            own = binsparse_levels.IndexMap.alto(sizes)
        tensors.append(pack(coords, dense[-1][coords], sizes, format, map=own))
        places.append({})
        write(places[-1], tensors[-1])
    whole = {}
    concatenate(places, whole)
    for tensor in tensors[1:]:
        append(places[0], data.draw(st.sampled_from([tensor, tensor.without_map()])), axis=outer)
    for made in (read(whole), read(places[0])):
        assert np.array_equal(made.to_dense(), np.concatenate(dense, outer))
        assert made.format.canonical() == tensors[0].format.canonical()
        assert made.map == binsparse_levels.parse_map(str(tensors[0].map), made.shape)
        made.check()


@given(st.integers(0, 5), st.integers(1, 3), st.sampled_from(["dense, sparse, dense(2)", "dense, sparse, sparse(2)"]))
def test_blocks_are_joined_array_by_array(rows, blocks, format):
    """If the size is a multiple of the block, no entry is packed, and the arrays are those of the whole tensor."""
    whole, map = testing.uniform((2 * blocks + rows, 12), 30), "0/2, 1/4, 0%2, 1%4"
    tensor, *parts = (x.convert(format, map=map) for x in (whole, whole[: 2 * blocks], whole[2 * blocks :]))
    first, second, both = {}, {}, {}
    write(first, parts[0])
    write(second, parts[1])
    with mock.patch.object(appending, "packed", None):
        concatenate([first, second], both)
        append(first, parts[1], axis=0)
    for made in (read(both), read(first)):
        assert made.map == tensor.map
        assert np.array_equal(made.values, tensor.values)
        assert all(np.array_equal(made.stored.arrays[name], x) for name, x in tensor.stored.arrays.items())


def test_what_is_not_alike_is_not_joined_through_a_map():
    mapped, plain, cube = {}, {}, {}
    write(mapped, pack([[0], [1]], [1.0], (2, 4), "sparse(2)", map="1, 0"))
    write(plain, pack([[0], [1]], [1.0], (4, 2), "sparse(2)"))
    write(cube, pack([[0], [1], [0]], [1.0], (2, 4, 3), "sparse(2)", map="1, (0 2)"))
    for other in (plain, cube):
        with pytest.raises(FormatError, match=r"has the format .*, and the dict has COOR through 1, 0; convert one"):
            concatenate([mapped, other], {})
    with pytest.raises(FormatError, match="grows along dimension 1 alone; pass axis=1"):
        append(mapped, read(plain), axis=0)
    with pytest.raises(FormatError):
        append(mapped, read(cube), axis=1)
    append(plain, read(mapped).T)  # which has no map there
    assert read(plain).map is None
    assert read(plain).to_dense().sum() == 2
    wide = {}
    write(wide, pack([[0], [0]], [1.0], (2**40, 2**22), "sparse", map="(0 1)"))
    with pytest.raises(FormatError, match=r"beyond 2\*\*63 - 1"):
        concatenate([wide, wide], {})


@given(
    st.sampled_from(["CSR", "CSC", "DCSC", "COOC"]),
    st.sampled_from(["CSR", "CSC", "dense(2)", "COOC"]),
    st.sampled_from([0, 1, -1, "row", "column"]),
)
def test_a_file_grows_along_the_axis_that_is_asked_for_alone(there, format, axis):
    dense = np.arange(9.0).reshape(3, 3)
    store, more = {}, pack_dense(dense, format, dims=["row", "column"])
    write(store, pack_dense(dense, there, dims=["row", "column"]))
    outer, number = read(store).format.order[0], {"row": 0, "column": 1, -1: 1}.get(axis, axis)
    if number != outer:
        with pytest.raises(
            FormatError, match=f"grows along dimension {outer} alone; pass axis={outer}, or convert it, or part=True"
        ):
            append(store, more, axis=axis)
        assert read(store).shape == (3, 3)
    else:
        append(store, more, axis=axis)
        assert np.array_equal(read(store).to_dense(), np.concatenate([dense, dense], outer))
