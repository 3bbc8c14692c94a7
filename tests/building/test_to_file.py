"""Convert and write_from: larger than memory as in one piece, whatever the blocks."""

import concurrent.futures
import contextlib
import gc
import os

import h5py
import numpy as np
import pytest
from helpers import kinds  # noqa: F401 (registers a kind)
from helpers.blocks import SUFFIXES, blocks_of, large, rows_at_once
from helpers.disks import full_disk
from helpers.opened import open_files
from hypothesis import assume, given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    LimitError,
    OptionError,
    Tensor,
    concatenate,
    convert,
    pack,
    pack_dense,
    read,
    testing,
    write,
    write_from,
)
from binsparse_levels.building import plan, to_file
from binsparse_levels.cli import main
from binsparse_levels.formats.format import coordinates
from binsparse_levels.system import resident
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import using_thresholds


class Rows(int):
    """In place of memory: so many entries may be in memory at a time."""


@pytest.fixture(autouse=True, scope="module")
def counted():
    rows_within = plan.rows_within

    def made(memory, *sizes, **more):
        return int(memory) if isinstance(memory, Rows) else rows_within(memory, *sizes, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "rows_within", made)
        yield


TEXTS = {"a.mtx": (2, None), "b.mtx.gz": (2, None), "c.tns": (3, None)}


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_texts_in_blocks_as_in_one_piece(tmp_path_factory, name, data):
    """Of a few bytes, and of a few entries, with labels, structures and one value of all."""
    rank, kind = TEXTS[name]
    draw, folder = data.draw, tmp_path_factory.mktemp("texts")
    symmetries = ["symmetric_lower", "symmetric_upper", "skew_symmetric_upper"] if ".mtx" in name else []
    structure = draw(st.sampled_from([None, *symmetries]))
    shape = (draw(st.integers(1, 6)),) * 2 if structure else draw(st.tuples(*[st.integers(1, 6)] * rank))
    cells = list(np.ndindex(*shape))
    if structure is not None:
        cells = [(i, j) for i, j in cells if i != j and (i > j) == structure.endswith("lower")]
        cells += [(k, k) for k in range(shape[0]) if structure.startswith("symmetric")]
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=20)) if cells else []
    numbers = draw(st.sampled_from([[1, 2], [0.5, 3], [2, 2.5, 10**9], [True], *[[1j, 2]] * (".mtx" in name)]))
    values = np.array([numbers[k % len(numbers)] for k in range(len(chosen))], np.array(numbers).dtype)
    if numbers == [True]:
        assume(structure is None)
        values = np.array(True)
    places = np.array(chosen, np.int64).reshape(-1, len(shape)).T
    write(folder / name, pack(places, values, shape, coordinates(rank), structure=structure), kind=kind)
    assume(chosen or rank == 2)
    format = draw(st.none() | testing.formats(min_rank=rank, max_rank=rank, kinds=testing.PLAIN))
    expected = read(folder / name)
    try:
        expected = expected.convert(format or expected.format)
    except FormatError:
        assume(False)
    memory = Rows(draw(st.sampled_from([2, 5, 100])))
    with using_thresholds(text_bytes=draw(st.sampled_from([1, 7, 100]))):
        convert(folder / name, folder / "b.h5", format, memory=memory)
    found = read(folder / "b.h5")
    assert found.equals(expected)
    assert found.format.canonical() == expected.format.canonical()
    assert (found.dtype, found.structure, found.dims) == (expected.dtype, expected.structure, expected.dims)
    # Whether a padded level is full is known at the end, when the values are written.
    assert found.iso == expected.iso or (found.format.padded and not found.iso) or not chosen
    for dimension in found.dims or ():
        assert repr(found.labels(dimension)) == repr(expected.labels(dimension))
    assert set(os.listdir(folder)) == {name, "b.h5"}


@pytest.mark.parametrize("size", [3, 7])
@given(data=st.data())
def test_in_blocks_as_in_one_piece(tmp_path_factory, size, data):
    tensor = data.draw(
        testing.tensors(kinds=data.draw(st.sampled_from([testing.PLAIN, tuple(testing.LEVELS.values())])))
    )
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
            convert(source, target, format, memory=Rows(size))
        return
    with blocks_of(size):
        convert(source, target, format, memory=Rows(size))
    found = read(target)
    assert found.equals(expected)
    assert found.format.canonical() == expected.format.canonical()
    assert (found.structure, found.attributes) == (expected.structure, expected.attributes)
    assert found.number_of_stored_values == expected.number_of_stored_values
    assert sorted(os.listdir(folder)) == sorted({source.name, target.name})


KINDS = ["dense, band", "dense, run", "run, run", "bitmap(2)", "dense, bits", "dense, hashed", "dense, n_of_m(1, n=4)"]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("format", [*KINDS, "bitmap, run", "run, sparse", "dense, backwards"])
def test_every_kind_is_a_source(tmp_path, format):
    rng = np.random.default_rng(0)
    dense = np.repeat(rng.integers(0, 3, (20, 20)), 5, axis=1)
    tensor = pack_dense(dense, format)
    write(tmp_path / "a.h5", tensor)
    for target in ("CSR", "sparse(2) @ 1, 0"):
        with blocks_of(100):
            convert(tmp_path / "a.h5", tmp_path / "b.h5", target, memory=Rows(100), overwrite=True)
        assert read(tmp_path / "b.h5").equals(tensor.convert(target))


@pytest.mark.parametrize("client", [None, "threads", "processes"])
def test_steps_are_run_by_any_client(tmp_path, client):
    tensor = large()
    write(tmp_path / "a.zarr", tensor)
    pools = {"threads": concurrent.futures.ThreadPoolExecutor, "processes": concurrent.futures.ProcessPoolExecutor}
    told = []
    with pools[client](2) if client else contextlib.nullcontext() as pool:
        convert(
            tmp_path / "a.zarr",
            tmp_path / "b.h5",
            "dense, sparse(2) @ 2, 0, 1",
            memory=Rows(3000),
            client=pool,
            progress=lambda *step: told.append(step),
        )
    assert read(tmp_path / "b.h5").equals(tensor)
    assert read(tmp_path / "b.h5").attributes == {"of": "mine"}
    assert list(dict.fromkeys(name for name, *_ in told)) == [
        *("sample", "split", "partition", "pack"),
        "writing",
    ]
    assert all(0 <= done <= total for _, done, total in told)


def test_memory_is_counted(tmp_path):
    write(tmp_path / "a.h5", large())
    with pytest.raises(LimitError, match="memory"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=2**20)
    for wrong in (0, 1.5, "1G", True):
        with pytest.raises(OptionError, match="memory"):
            convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=wrong)
    convert(tmp_path / "a.h5", tmp_path / "b.h5", "sparse(3)", memory=2**33)
    assert read(tmp_path / "b.h5").equals(large())
    with pytest.warns(binsparse_levels.DialectWarning, match=r"b\.tns: .* leaves out the attributes of"):
        convert(tmp_path / "a.h5", tmp_path / "b.tns", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.h5", "b.tns"]


@pytest.mark.parametrize("format", [None, "sparse(3) @ 2, 1, 0"])
def test_faults_of_the_source_leave_nothing(tmp_path, format):
    write(tmp_path / "a.bspnpy", large(format="sparse, sparse(2)"))
    for name, place, number in (("indices_2", 500, 70), ("indices_1", 900, -1), ("pointers_to_1", 7, 10**6)):
        file = tmp_path / "a.bspnpy" / f"{name}.npy"
        before = np.load(file)
        changed = before.copy()
        changed[place] = number
        np.save(file, changed)
        with pytest.raises(BinsparseError):
            convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=Rows(3000))
        np.save(file, before)
    swapped = np.load(tmp_path / "a.bspnpy" / "indices_2.npy")
    swapped[[100, 101]] = swapped[[101, 100]]
    np.save(tmp_path / "a.bspnpy" / "indices_2.npy", swapped)
    with pytest.raises(ArrayError):
        convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=Rows(3000))
    assert os.listdir(tmp_path) == ["a.bspnpy"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_converted_in_parts_is_sealed(tmp_path, suffix):
    write(tmp_path / "a.h5", large(3000))
    with blocks_of(700):
        convert(
            tmp_path / "a.h5", tmp_path / f"b{suffix}", "dense, sparse(2) @ 1, 0, 2", memory=Rows(700), checksum=True
        )
    assert read(tmp_path / f"b{suffix}").equals(large(3000))
    stored = {}
    write(stored, read(tmp_path / f"b{suffix}"), checksum=True)
    with binsparse_levels.io.open_reader(tmp_path / f"b{suffix}") as reader:
        assert reader.read_header()["binsparse_levels:crc32c"] == stored["binsparse"]["binsparse_levels:crc32c"]


def test_on_the_command_line(tmp_path, capsys):
    write(tmp_path / "a.h5", large())
    arguments = ["convert", str(tmp_path / "a.h5"), str(tmp_path / "b.h5"), "--format", "sparse(3) @ 1, 2, 0"]
    assert main([*arguments, "--memory", f"{(resident() >> 30) + 1.5}G"]) == 0
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
    sources = [to_file._pointers(inside(x).source) for x in (tensor, listed)]
    found = [plan.rows_within(2**40, 2, 4, 8, used=0, pointers=x) for x in sources]
    assert found[0] < found[1] / 50


@pytest.mark.parametrize("format", [None, "DMATC"])
def test_a_diagonal_that_is_no_mirror_image_is_not_converted_in_parts(tmp_path, format):
    values = np.arange(9) * 1j
    tensor = binsparse_levels.Tensor("DMATR", (3, 3), {}, values, structure="hermitian_lower", check="none")
    stored = {}
    write(stored, pack([[1], [0]], [1j], (3, 3), "DMATR", structure="hermitian_lower"))
    stored["values"] = tensor.values.view(float)
    binsparse_levels.io.write_arrays(tmp_path / "a.h5", stored.pop("binsparse"), stored)
    with pytest.raises(ArrayError):
        read(tmp_path / "a.h5")
    with blocks_of(3), pytest.raises(ArrayError, match="mirror image"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", format, memory=Rows(3))
    assert os.listdir(tmp_path) == ["a.h5"]


def test_what_lies_in_the_wrong_triangle_of_a_file_is_no_entry(tmp_path):
    write(tmp_path / "a.bspnpy", pack([[1, 2], [0, 0]], [1.0, 2.0], (3, 3), "CSR", structure="symmetric_lower"))
    np.save(tmp_path / "a.bspnpy" / "indices_1.npy", np.array([2, 0], np.int32))
    for use in (lambda x: binsparse_levels.open(x)[:2].load(), lambda x: convert(x, tmp_path / "b.h5", memory=Rows(1))):
        with pytest.raises(ArrayError, match="triangle"):
            use(tmp_path / "a.bspnpy")


@pytest.mark.parametrize(
    ("name", "at", "number"),
    [("indices_1", 7, 2**32), ("pointers_to_1", -1, 9), ("pointers_to_1", 0, -3), ("indices_0", 3, -1)],
)
@pytest.mark.parametrize("format", [None, "CSC"])
def test_blocks_are_checked_as_they_are_stored(tmp_path, name, at, number, format):
    tensor = pack([np.repeat(np.arange(10), 4), np.arange(40) % 20], np.arange(40.0), (10, 20), "sparse, sparse")
    arrays = {key: x.astype(np.int64) for key, x in tensor.arrays.items()}
    write(tmp_path / "a.bspnpy", Tensor("sparse, sparse", (10, 20), arrays, tensor.values))
    arrays[name][at] += number
    np.save(tmp_path / "a.bspnpy" / f"{name}.npy", arrays[name])
    for size in (4, 7, 30):
        with pytest.raises(ArrayError, match=name):
            convert(tmp_path / "a.bspnpy", tmp_path / "b.h5", format, memory=Rows(size))
    assert os.listdir(tmp_path) == ["a.bspnpy"]


def test_a_store_is_converted_in_blocks(tmp_path):
    store, tensor = MemoryStore(), pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(store, tensor)
    convert(store, tmp_path / "a.h5", "CSC", memory=Rows(3))
    assert read(tmp_path / "a.h5").equals(tensor)


@pytest.mark.parametrize("target", ["there.h5", "missing/a.h5", "a.mtx"])
def test_a_target_that_cannot_be_is_told_before_anything_is_done(tmp_path, monkeypatch, target):
    monkeypatch.setattr(to_file.running, "run", lambda *_: pytest.fail("worked in vain"))
    for name in ("a.h5", "there.h5"):
        write(tmp_path / name, pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    with pytest.raises(BinsparseError):
        convert(tmp_path / "a.h5", tmp_path / target, memory=Rows(3))
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "there.h5"]


@pytest.mark.parametrize("options", [{}, {"memory": 2**40}, {"map": "0/2, 0%2, 1"}], ids=str)
def test_a_target_is_looked_at_before_the_source_is_read(tmp_path, options):
    for name in ("a.h5", "there.h5"):
        write(tmp_path / name, pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["indices_1"][0] = 99  # which whoever reads it notices
    with pytest.raises(FileExistsError):
        convert(tmp_path / "a.h5", tmp_path / "there.h5", **options)


@pytest.mark.parametrize("option", ["narrow", "bitpacked", "unknown"])
def test_what_pieces_do_not_take_is_refused_before_anything_is_done(tmp_path, option):
    write(tmp_path / "a.h5", pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    with pytest.raises(OptionError, match=f"{option}.* (does not apply|is no option)|{option}: is no option"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=Rows(3), **{option: True})
    with pytest.raises(OptionError, match=f"{option} does not apply"):
        write_from((pytest.fail("read in vain") for _ in range(1)), tmp_path / "b.h5", 3, "CVEC", **{option: True})
    with pytest.raises(OptionError, match=f"{option} does not apply"):
        concatenate([tmp_path / "a.h5"] * 2, tmp_path / "b.h5", **{option: True})


@pytest.mark.parametrize("format", ["CSR", "CSC"])
def test_scratch_files_on_a_full_disk(tmp_path, format):
    write(tmp_path / "a.h5", pack_dense(np.arange(360_000.0).reshape(600, 600), "CSR"))
    with full_disk(2**20), pytest.raises(ContainerError, match="cannot be written"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", format, memory=Rows(120_000))
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files")
def test_a_source_is_closed_when_it_has_been_converted(tmp_path):
    write(tmp_path / "a.h5", pack_dense(np.arange(12.0).reshape(3, 4), "CSR"))
    convert(tmp_path / "a.h5", tmp_path / "b.h5", "CSC", memory=Rows(3))
    gc.collect()
    assert os.path.realpath(tmp_path / "a.h5") not in open_files()


def test_a_store_at_a_url_that_only_fsspec_knows(tmp_path):
    tensor = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(f"memory://{tmp_path.name}/a.zarr", tensor)
    convert(f"memory://{tmp_path.name}/a.zarr", tmp_path / "a.h5", "CSC", memory=Rows(3))
    assert read(tmp_path / "a.h5").equals(tensor)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("rows", [None, 7])
@pytest.mark.parametrize("kind", ["anndata", "loom", "matrix_market"])
def test_zeros_of_dense_arrays_of_other_systems_are_no_entries(tmp_path, kind, rows):
    """A dense target has them; they are entries of a dense tensor of Binsparse, where they are stored."""
    cells = np.random.default_rng(0).integers(0, 2, (11, 9)).astype(float)
    if kind == "anndata":
        place = f"{tmp_path / 'a.h5ad'}:X"
        pytest.importorskip("anndata").AnnData(cells.copy()).write_h5ad(tmp_path / "a.h5ad")
    elif kind == "loom":
        place = f"{tmp_path / 'a.loom'}:matrix"
        with h5py.File(tmp_path / "a.loom", "w") as file:
            file["matrix"] = cells
    else:
        place = tmp_path / "a.mtx"
        pytest.importorskip("scipy.io").mmwrite(place, cells)
    with rows_at_once(rows) if rows else contextlib.nullcontext():
        for format in ("CSR", "COO", "DCSC", "DMATC"):
            binsparse_levels.convert(place, tmp_path / "b.h5", format, memory=2**30 if rows else None, overwrite=True)
            made = binsparse_levels.read(tmp_path / "b.h5")
            assert made.to_dense().tolist() == cells.tolist()
            assert made.number_of_stored_values == (cells.size if format == "DMATC" else np.count_nonzero(cells))
            assert made.dims == binsparse_levels.open(place).dims


@pytest.mark.parametrize("source", ["a.mtx", "a.h5"])
@pytest.mark.parametrize("memory", [None, 2**33])
def test_an_option_of_read_is_refused_by_name_before_anything_is_read(tmp_path, source, memory):
    (tmp_path / source).write_bytes(b"no tensor")
    for option in ({"duplicates": "sum"}, {"lenient": True}, {"nonsense": 1}):
        with pytest.raises(OptionError, match=f"{next(iter(option))}: is no option of convert"):
            convert(tmp_path / source, tmp_path / "b.h5", memory=memory, **option)
    assert os.listdir(tmp_path) == [source]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_conversion_that_fails_midway_leaves_the_old_target(tmp_path, suffix, error):
    write(tmp_path / "a.h5", large(3000))
    old = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    write(tmp_path / f"b{suffix}", old)
    for failing in ("partition", "pack", "writing"):

        def fails(stage, done, total, failing=failing):
            if stage == failing and done:
                raise error("mine")

        with blocks_of(700), pytest.raises((error, LimitError)):
            convert(
                tmp_path / "a.h5", tmp_path / f"b{suffix}", "sparse(3) @ 2, 1, 0",
                memory=Rows(700), progress=fails, overwrite=True,
            )  # fmt: skip
        assert read(tmp_path / f"b{suffix}").equals(old)
    assert sorted(os.listdir(tmp_path)) == sorted(["a.h5", f"b{suffix}"])
