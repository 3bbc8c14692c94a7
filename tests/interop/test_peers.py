"""What we write is read by the `binsparse` package and by a decoder of the tests, and the other way round."""

import itertools
import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from helpers.golden import FILES, GOLDEN, arrays_of, read_leniently, target
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from binsparse_levels import Dense, Sparse, compliance, pack, parse_format, read, testing, write

binsparse = pytest.importorskip("binsparse")
converters = pytest.importorskip("reference_cli.converters")
reformat = pytest.importorskip("reference_cli.reformat")

SUFFIXES = [".h5", ".npz", ".zarr"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("peers")


def decode(path):
    """An HDF5 file by plain loops over what the specification says: entries by coordinates, and the fill value."""
    with h5py.File(path) as file:
        header = json.loads(file.attrs["binsparse"])["binsparse"]
        arrays = {name: file[name][...] for name in header["data_types"]}

    def decoded(name, count):
        data_type = header["data_types"][name]
        iso = data_type.startswith("iso[")
        values = arrays[name]
        if "complex" in data_type:
            values = [complex(re, im) for re, im in zip(values[::2], values[1::2], strict=True)]
        elif "bint8" in data_type:
            values = [bool(x) for x in values]
        return [values[0]] * count if iso else list(values)

    format = parse_format(header["custom"] if header["format"] == "custom" else header["format"])
    shape, order = header["shape"], format.order
    fibers, depth = [()], 0  # the stored coordinates of each position
    for level in format.levels:
        dims = [shape[order[depth + k]] for k in range(level.rank)]
        below = []
        for p, above in enumerate(fibers):
            if level.kind == "dense":
                here = list(itertools.product(*map(range, dims)))
            else:
                columns = [arrays[f"indices_{depth + k}"] for k in range(level.rank)]
                pointers = arrays[f"pointers_to_{depth}"] if depth else [0, len(columns[0])]
                here = [tuple(int(x[q]) for x in columns) for q in range(int(pointers[p]), int(pointers[p + 1]))]
            below += [above + place for place in here]
        fibers, depth = below, depth + level.rank
    count = header["number_of_stored_values"]
    assert count == len(fibers)
    entries = {}
    for stored, value in zip(fibers, decoded("values", count), strict=True):
        logical = [0] * len(shape)
        for k, dimension in enumerate(order):
            logical[dimension] = stored[k]
        entries[tuple(logical)] = value
    return entries, decoded("fill_value", 1)[0] if header.get("fill") else None


def same_values(a, b):
    return a == b or (a != a and b != b)


def entries_of(tensor):
    places = zip(*(x.tolist() for x in tensor.unpack()[0]), strict=True) if tensor.ndim else [()]
    return dict(zip(places, tensor.unpack()[1].tolist(), strict=True))


def assert_same_entries(found, expected):
    assert found.keys() == expected.keys()
    assert all(same_values(found[place], value) for place, value in expected.items())


@given(testing.tensors(max_rank=6, max_size=3, structures=False, kinds=(Dense, Sparse)))
def test_the_decoder_reads_what_we_write(folder, tensor):
    write(folder / "ours.h5", tensor, overwrite=True)
    entries, fill = decode(folder / "ours.h5")
    assert_same_entries(entries, entries_of(tensor))
    assert (fill is None) == (tensor.fill_value is None)
    assert fill is None or same_values(fill, tensor.fill_value)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(tensor=testing.tensors(max_rank=5, max_size=3, structures=False, kinds=(Dense, Sparse)))
def test_the_package_reads_what_we_write(folder, suffix, tensor):
    path = folder / f"ours{suffix}"
    write(path, tensor, overwrite=True)
    theirs = binsparse.load_binsparse(path, alias=False)
    assert theirs.shape == tensor.shape
    transpose = theirs.transpose or tuple(range(len(theirs.shape)))
    entries = {
        tuple(int(stored[transpose.index(d)]) for d in range(len(transpose))): value
        for stored, value in reformat.binsparse_to_coo(theirs)
    }
    assert_same_entries(entries, entries_of(tensor))
    if tensor.fill_value is not None:
        assert same_values(theirs.fill_value, tensor.fill_value)


def theirs_from(tensor):
    """The same tensor as a CustomTensor of the package, made by its own reference code."""
    order = tensor.format.order
    dims = tuple(tensor.shape[k] for k in order)
    entries = sorted((tuple(place[k] for k in order), value) for place, value in _typed_entries(tensor))
    made = reformat.coo_to_binsparse(tensor.format.custom()["level"], entries, shape=dims)
    made.shape = tensor.shape
    made.transpose = tensor.format.transpose
    made.fill = tensor.fill_value is not None
    made.fill_value = tensor.fill_value
    return made


def _typed_entries(tensor):
    coords, values = tensor.unpack()
    places = zip(*(x.tolist() for x in coords), strict=True) if tensor.ndim else [()]
    return zip(places, values, strict=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(tensor=testing.tensors(max_rank=4, max_size=3, structures=False, kinds=(Dense, Sparse)))
def test_we_read_what_the_package_writes(folder, suffix, tensor):
    # Their reference code takes the type of the first value, and does not sort NaN.
    assume(len(tensor.values) and all(value == value for value in tensor.values.tolist()))
    path = folder / f"theirs{suffix}"
    binsparse.save_binsparse(theirs_from(tensor), path)
    again = read(path)
    assert again.equals(tensor)
    assert again.dtype == tensor.dtype
    assert again.format == parse_format(tensor.format.custom())


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_golden_files_written_again_are_read_by_the_package(tmp_path, suffix):
    count = 0
    for entry in FILES:
        if entry.get("expect_verdict") == "reject" or entry.get("structure"):
            continue
        tensor, _ = read_leniently(target(entry))
        write(tmp_path / f"a{suffix}", tensor, overwrite=True)
        theirs = binsparse.load_binsparse(tmp_path / f"a{suffix}", alias=False)
        expected = arrays_of(GOLDEN / entry["expect"])
        dense, pattern, _ = converters._npy_from_tensor(theirs)
        assert np.array_equal(pattern, expected["pattern"]), entry["file"]
        assert np.array_equal(dense[pattern], expected["dense"][pattern], equal_nan=dense.dtype.kind in "fc")
        if suffix == ".h5":
            entries, _ = decode(tmp_path / "a.h5")
            places = np.array(sorted(entries), np.int64).reshape(expected["stored_coords"].shape)
            assert np.array_equal(places, expected["stored_coords"])
        count += 1
    assert count > 90


# The compliance programs, beside the reference of the suite


@st.composite
def calls(draw):
    """What the suite gives to npy_to_binsparse: a tensor, and a header that may spell its format in any way."""
    tensor = draw(testing.tensors(max_rank=6, max_size=3, structures=False, kinds=(Dense, Sparse)))
    names = {"COOR": ["COOR", "COO"], "DMATR": ["DMATR", "DMAT"]}.get(tensor.format.alias or "", [tensor.format.alias])
    name = draw(st.sampled_from([*names, "custom"])) if names[0] else "custom"
    return tensor, name


def header_for(tensor, name, iso):
    header = {
        "version": "0.1.0",
        "format": name,
        "shape": list(tensor.shape),
        "number_of_stored_values": len(tensor.values),
        "data_types": dict.fromkeys(tensor.arrays, "int64"),
    }
    header["data_types"] |= {"values": str(tensor.__binsparse_descriptor__()["binsparse"]["data_types"]["values"])}
    if not iso:
        header["data_types"]["values"] = header["data_types"]["values"].removeprefix("iso[")
        depth = header["data_types"]["values"].count("]") - header["data_types"]["values"].count("[")
        header["data_types"]["values"] = header["data_types"]["values"][: len(header["data_types"]["values"]) - depth]
    if name == "custom":
        header["custom"] = tensor.format.custom()
    return header


def run(program, *arguments):
    """Our program in this process, as its console script would run it."""
    old = sys.argv
    sys.argv = [program.__name__, *map(str, arguments)]
    try:
        assert program() == 0
    finally:
        sys.argv = old


def contents(path):
    """The header inside the namespace and the raw arrays of a container, by the package's own adapters."""
    from binsparse.container import HDF5BinsparseContainer, NPZBinsparseContainer, ZarrBinsparseContainer

    def collect(container):
        header = container.read_header()
        return header, {name: np.asarray(container._read_buffer(name)) for name in header["data_types"]}

    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return collect(HDF5BinsparseContainer(file))
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return collect(NPZBinsparseContainer(archive))
    import zarr

    return collect(ZarrBinsparseContainer(zarr.open_group(path, mode="r")))


def assert_same_contents(ours, theirs):
    (header, arrays), (their_header, their_arrays) = contents(ours), contents(theirs)
    assert header == their_header
    for name, array in their_arrays.items():
        assert arrays[name].dtype == array.dtype, name
        assert np.array_equal(arrays[name], array, equal_nan=array.dtype.kind in "fc"), name


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=40)
@given(call=calls())
def test_the_three_programs_do_as_the_reference(folder, suffix, call):
    tensor, name = call
    iso = tensor.iso and len(tensor.values) > 0
    assume(not iso or tensor.values[0] == tensor.values[0])  # the reference has no iso NaN: NaN differs from NaN
    assume(tensor.format.levels or len(tensor.values))
    pad = np.zeros((), tensor.dtype)[()] if tensor.fill_value is None else tensor.fill_value
    pattern = np.zeros(tensor.shape, bool)
    pattern[tensor.unpack()[0] if tensor.ndim else ...] = True
    dense = tensor.to_dense(fill=pad)
    inputs = [folder / f"{what}.npy" for what in ("tensor", "pattern", "fill")]
    for path, array in zip(inputs, (dense, pattern, np.asarray(pad)), strict=True):
        np.save(path, array)
    header = folder / "header.json"
    header.write_text(json.dumps(header_for(tensor, name, iso)))
    ours, theirs = folder / f"a_ours{suffix}", folder / f"a_theirs{suffix}"
    assert converters.npy_to_binsparse_main([*map(str, inputs), str(header), str(theirs)]) == 0
    run(compliance.npy_to_binsparse, *inputs, header, ours)
    assert_same_contents(ours, theirs)

    again, theirs_again = folder / f"b_ours{suffix}", folder / f"b_theirs{suffix}"
    assert converters.binsparse_to_binsparse_main([str(theirs), str(theirs_again)]) == 0
    run(compliance.binsparse_to_binsparse, ours, again)
    assert_same_contents(again, theirs_again)

    outputs = [folder / f"{what}_out.npy" for what in ("tensor", "pattern", "fill")]
    theirs_out = [folder / f"{what}_theirs.npy" for what in ("tensor", "pattern", "fill")]
    run(compliance.binsparse_to_npy, again, *outputs)
    assert converters.binsparse_to_npy_main([str(theirs_again), *map(str, theirs_out)]) == 0
    for mine, other in zip(outputs, theirs_out, strict=True):
        a, b = np.load(mine), np.load(other)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", ["npy_to_binsparse", "binsparse_to_npy", "binsparse_to_binsparse"])
def test_the_programs_are_installed(program):
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; from binsparse_levels.compliance import {program} as p; sys.exit(p())"],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert found.stderr.startswith(f"usage: {program} ")


def test_what_the_programs_refuse(tmp_path):
    tensor = pack([[0]], [1.0], 3, "CVEC")
    write(tmp_path / "a.h5", tensor)
    for arguments in ([tmp_path / "none.h5", tmp_path / "b.h5"], [tmp_path / "a.h5", tmp_path / "b.xyz"]):
        with pytest.raises(AssertionError):
            run(compliance.binsparse_to_binsparse, *arguments)
    np.save(tmp_path / "t.npy", np.array([1.0, 2.0]))
    np.save(tmp_path / "p.npy", np.array([True, False]))
    np.save(tmp_path / "f.npy", np.array(0.0))
    arguments = [*(tmp_path / f"{name}.npy" for name in "tpf"), tmp_path / "h.json", tmp_path / "out.h5"]
    for header in ({"format": "DVEC"}, {"format": "CVEC", "data_types": {"values": "x"}}, {"format": "nothing"}, {}):
        (tmp_path / "h.json").write_text(json.dumps(header))
        with pytest.raises(AssertionError):
            run(compliance.npy_to_binsparse, *arguments)
