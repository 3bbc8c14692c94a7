"""What is larger than memory: converted in blocks as in one piece, whatever the blocks; joined; appended."""

import concurrent.futures
import contextlib
import os

import numpy as np
import pytest
import zarr
from hypothesis import event, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    LimitError,
    OptionError,
    append,
    blocks,
    concatenate,
    convert,
    external,
    pack,
    read,
    testing,
    write,
)
from binsparse_levels.cli import main
from binsparse_levels.containers import zarr_chunks

SUFFIXES = [".h5", ".zarr", ".npz", ".bspnpy", ".nc", ".bspra"]


@contextlib.contextmanager
def blocks_of(size):
    """Blocks of a few entries, arrays joined a few items at a time."""
    before = external._block_size, blocks._AT_ONCE
    external._block_size, blocks._AT_ONCE = (lambda memory, tree: size), size - 1
    try:
        yield
    finally:
        external._block_size, blocks._AT_ONCE = before


@pytest.mark.parametrize("size", [3, 7])
@given(data=st.data())
def test_in_blocks_as_in_one_piece(tmp_path_factory, size, data):
    tensor = data.draw(testing.tensors(kinds=testing.PLAIN))
    format = data.draw(testing.formats(min_rank=tensor.ndim, max_rank=tensor.ndim, kinds=testing.PLAIN))
    folder = tmp_path_factory.mktemp("convert")
    source, target = (
        folder / f"a{data.draw(st.sampled_from(SUFFIXES))}",
        folder / f"b{data.draw(st.sampled_from(SUFFIXES))}",
    )
    write(source, tensor)
    try:
        expected = read(source).convert(format)
    except FormatError as error:
        with pytest.raises(type(error)), blocks_of(size):
            convert(source, target, format, memory=1)
        return
    with blocks_of(size):
        convert(source, target, format, memory=1)
    found = read(target)
    assert found.equals(expected)
    assert found.format.canonical() == expected.format.canonical()
    assert (found.structure, found.attributes) == (expected.structure, expected.attributes)
    assert found.number_of_stored_values == expected.number_of_stored_values
    assert sorted(os.listdir(folder)) == sorted({source.name, target.name})


def large(count=20_000, shape=(50, 60, 70), format="sparse, dense, sparse"):
    rng = np.random.default_rng(0)
    places = rng.choice(np.prod(shape), count, replace=False)
    return pack(np.unravel_index(places, shape), rng.random(count), shape, format, attributes={"of": "mine"})


@pytest.mark.parametrize("executor", [None, "threads", "processes"])
def test_steps_are_run_by_any_executor(tmp_path, monkeypatch, executor):
    monkeypatch.setattr(external, "_block_size", lambda memory, tree: 3000)
    tensor = large()
    write(tmp_path / "a.zarr", tensor)
    pools = {"threads": concurrent.futures.ThreadPoolExecutor, "processes": concurrent.futures.ProcessPoolExecutor}
    told = []
    with pools[executor](2) if executor else contextlib.nullcontext() as pool:
        convert(
            tmp_path / "a.zarr",
            tmp_path / "b.h5",
            "dense, sparse(2) @ 2, 0, 1",
            memory=1,
            executor=pool,
            progress=lambda *step: told.append(step),
        )
    assert read(tmp_path / "b.h5").equals(tensor)
    assert read(tmp_path / "b.h5").attributes == {"of": "mine"}
    assert list(dict.fromkeys(name for name, *_ in told)) == ["partitioning", "packing", "writing"]
    assert all(0 <= done <= total for _, done, total in told)


def test_memory_is_counted(tmp_path):
    write(tmp_path / "a.h5", large())
    with pytest.raises(LimitError, match="memory"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=2**20)
    for wrong in (0, 1.5, "1G", True):
        with pytest.raises(OptionError, match="memory"):
            convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=wrong)
    convert(tmp_path / "a.h5", tmp_path / "b.h5", "sparse(3)", memory=2**31)
    assert read(tmp_path / "b.h5").equals(large())
    convert(tmp_path / "a.h5", tmp_path / "b.tns", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.h5", "b.tns"]


@pytest.mark.parametrize("format", [None, "sparse(3) @ 2, 1, 0"])
def test_faults_of_the_source_leave_nothing(tmp_path, monkeypatch, format):
    monkeypatch.setattr(external, "_block_size", lambda memory, tree: 3000)
    write(tmp_path / "a.bspnpy", large(format="sparse, sparse(2)"))
    for name, place, number in (("indices_2", 500, 70), ("indices_1", 900, -1), ("pointers_to_1", 7, 10**6)):
        file = tmp_path / "a.bspnpy" / f"{name}.npy"
        before = np.load(file)
        changed = before.copy()
        changed[place] = number
        np.save(file, changed)
        with pytest.raises(BinsparseError):
            convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=1)
        np.save(file, before)
    swapped = np.load(tmp_path / "a.bspnpy" / "indices_2.npy")
    swapped[[100, 101]] = swapped[[101, 100]]
    np.save(tmp_path / "a.bspnpy" / "indices_2.npy", swapped)
    with pytest.raises(ArrayError):
        convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=1)
    assert os.listdir(tmp_path) == ["a.bspnpy"]


@given(data=st.data())
def test_joined_along_the_outermost_dimension(tmp_path_factory, data):
    first = data.draw(testing.tensors(kinds=testing.PLAIN, structures=False, dtypes=("float64", "bool", "complex64")))
    if not first.ndim or first.fill_value is not None:
        return
    folder, outer = tmp_path_factory.mktemp("join"), first.format.order[0]
    size = first.shape[outer]
    cut = data.draw(st.integers(0, size))
    key = [slice(None)] * first.ndim
    names = []
    for piece in (slice(0, cut), slice(cut, size)):
        key[outer] = piece
        names.append(folder / f"{len(names)}.h5")
        write(names[-1], first[tuple(key)].load(first.format))
    with blocks_of(3):
        concatenate(names, folder / "whole.zarr")
    assert read(folder / "whole.zarr").equals(first)
    assert read(folder / "whole.zarr").format.canonical() == first.format.canonical()
    append(names[0], first[tuple(key)])
    assert read(names[0]).equals(first)


@pytest.mark.parametrize("options", [{}, {"chunks": 10, "shards": 50}, {"chunks": 64, "compression": "none"}], ids=str)
@pytest.mark.parametrize("group", ["", ":some/group"])
def test_a_zarr_folder_grows_by_what_is_new(tmp_path, options, group):
    def files():
        found = [os.path.join(place, name) for place, _, names in os.walk(tmp_path / "a.zarr") for name in names]
        return {path: os.stat(path).st_ino for path in found if not path.endswith(".json")}

    tensor = large(5000)
    place = f"{tmp_path / 'a.zarr'}{group}"
    write(place, tensor[:45].load(), **options)
    before, kept = files(), read(place)
    append(place, tensor[45:])
    assert read(place).equals(tensor)
    again = files()
    assert sum(before[path] != again[path] for path in before) <= len(tensor.arrays) + 1
    assert zarr.open_group(tmp_path / "a.zarr", path=group[1:])["values"][...].tolist() == tensor.values.tolist()
    before = {path: (tmp_path / path).read_bytes() for path in again}
    with pytest.raises(BinsparseError):
        append(place, tensor.astype("float32"))
    assert {path: (tmp_path / path).read_bytes() for path in files()} == before
    append(place, kept)
    assert read(place).shape == (95, 60, 70)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_fault_while_a_folder_grows_leaves_it_as_it_was(tmp_path, monkeypatch):
    tensor = large(5000)
    write(tmp_path / "a.zarr", tensor[:45].load(), chunks=10, shards=50)
    monkeypatch.setattr(zarr_chunks.Chunks, "_write_chunk", lambda *_: 1 / 0)
    with pytest.raises(ContainerError):
        append(tmp_path / "a.zarr", tensor[45:])
    assert read(tmp_path / "a.zarr").equals(tensor[:45])
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


@given(data=st.data())
def test_slabs_are_the_tensor(tmp_path_factory, data):
    tensor = data.draw(testing.tensors(kinds=tuple(testing.LEVELS.values())))
    if not tensor.ndim:
        return
    if data.draw(st.booleans()) and all(level in testing.PLAIN for level in map(type, tensor.format.levels)):
        path = tmp_path_factory.mktemp("slabs") / "a.npz"
        write(path, tensor)
        tensor = binsparse_levels.open(path)
    dimension = data.draw(st.integers(-tensor.ndim, tensor.ndim - 1))
    max_bytes = data.draw(st.sampled_from([60, 100, 300, 10**6]))
    dense = tensor.to_dense()
    try:
        slabs = list(tensor.slabs(dimension, max_bytes=max_bytes))
    except LimitError:
        event("one coordinate is too much")
        return
    assert [x for part, _ in slabs for x in part] == list(range(dense.shape[dimension]))
    for part, slab in slabs:
        np.testing.assert_array_equal(slab.to_dense(), dense.take(part, dimension))
        assert slab.format == tensor.format or any(level.refuses for level in tensor.format.levels)
        if all(type(level) in testing.PLAIN for level in tensor.format.levels):
            assert slab.nbytes <= max_bytes


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_converted_in_parts_is_sealed(tmp_path, suffix):
    write(tmp_path / "a.h5", large(3000))
    with blocks_of(700):
        convert(tmp_path / "a.h5", tmp_path / f"b{suffix}", "dense, sparse(2) @ 1, 0, 2", memory=1, checksum=True)
    assert read(tmp_path / f"b{suffix}").equals(large(3000))
    stored = {}
    write(stored, read(tmp_path / f"b{suffix}"), checksum=True)
    with binsparse_levels.io.open_reader(tmp_path / f"b{suffix}") as reader:
        assert reader.read_header()["binsparse_levels:crc32c"] == stored["binsparse"]["binsparse_levels:crc32c"]


def test_on_the_command_line(tmp_path, capsys):
    write(tmp_path / "a.h5", large())
    arguments = ["convert", str(tmp_path / "a.h5"), str(tmp_path / "b.h5"), "--format", "sparse(3) @ 1, 2, 0"]
    assert main([*arguments, "--memory", "1.5G"]) == 0
    assert read(tmp_path / "b.h5").equals(large())
    assert main([*arguments, "--memory", "1K", "--overwrite"]) == 1
    assert "memory" in capsys.readouterr().err
    assert main([*arguments, "--memory", "1G", "--narrow"]) == 2
    assert main(["convert", str(tmp_path / "none.h5"), str(tmp_path / "c.h5"), "--memory", "1G"]) == 1
    for wrong in ("G", "1X", "", "1e999G"):
        with pytest.raises(SystemExit):
            main([*arguments, "--memory", wrong])


def test_empty_fibers_take_memory_too(tmp_path):
    tensor = pack([np.arange(0, 10**6, 100)] * 2, np.arange(10.0**4), (10**6, 10**6), "CSR")
    listed = tensor.convert("sparse(2)")
    assert external._block_size(2**40, tensor._source) < external._block_size(2**40, listed._source) / 50
