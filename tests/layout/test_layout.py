"""The proposal and the page on the layout of files are true: their examples, the conformance files, and a reader that
was written from the proposal alone, agree with the package.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import conformance
import h5py
import numpy as np
import pytest
import reader
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.formats.dtypes import CODECS
from binsparse_levels.io.writing import write_arrays
from binsparse_levels.levels import OURS
from binsparse_levels.levels.base import level_desc
from binsparse_levels.tensors.encoding import encode_tensor

DOCS = Path(__file__).parents[2] / "docs"
PROPOSAL = {path.stem: path.read_text() for path in sorted((DOCS / "proposal").glob("*.md"))}
PAGE = "".join([*PROPOSAL.values(), (DOCS / "reference/file_layout.md").read_text()])
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
IN_PARTS = [example for example in EXAMPLES if "groups" in example]
IN_ONE_TREE = [example for example in EXAMPLES if "groups" not in example]


def plain(tensor):
    """The entries of a tensor as a dictionary of Python's numbers, the structure expanded."""
    coords, values = (tensor if tensor.structure is None else tensor.expand_structure()).unpack()
    places = list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * len(values)
    assert len(set(places)) == len(places)
    return dict(zip(places, values.tolist(), strict=True))


def same(found, tensor):
    """Assert that the plain reader found what the package reads. `repr` tells -0.0 from 0.0, and knows NaN."""
    assert found["shape"] == tensor.shape
    assert {k: repr(v) for k, v in found["entries"].items()} == {k: repr(v) for k, v in plain(tensor).items()}
    fill = None if tensor.fill_value is None else tensor.fill_value.tolist()
    assert repr(found["fill_value"]) == repr(fill)
    assert list(found["labels"]) == list(tensor.dims or ())
    for name, labels in found["labels"].items():
        given = conformance.stored_labels(tensor)[name]
        given = given if given is None or given.dtype.kind != "M" else given.view(np.int64)
        assert labels == (None if given is None else given.tolist())


def written(path, tensor, **options):
    """Assert that the plain reader reads a tensor from a file, and give the tensor that the package reads."""
    bl.write(path, tensor, overwrite=True, **options)
    again = bl.read(path)
    same(reader.tensors(path)["/"], again)
    same(reader.tensors(path)["/"], tensor)
    return again


def container(example):
    """The header and the arrays of an example of the page."""
    beside = {key: value for key, value in example.items() if key.startswith("binsparse_levels:")}
    beside |= example.get("user", {})
    keys = ("format", "custom", "shape", "number_of_stored_values", "data_types", "fill", "structure")
    descriptor = {"version": "0.1.0", "format": "custom"} | {key: example[key] for key in keys if key in example}
    arrays = {}
    for name, items in example.get("arrays", {}).items():
        data_type = example["data_types"][name]
        base = re.search(r"\w+(?=\]*$)", data_type)[0]
        stored = "uint32" if data_type.startswith("bitpacked") else "uint8" if base == "bint8" else base
        arrays[name] = np.array(items, stored)
    return {"binsparse": descriptor, **beside}, arrays


@pytest.mark.parametrize("example", IN_ONE_TREE, ids=lambda x: x["data_types"].keys().__iter__().__next__())
def test_examples_of_the_page(example):
    header, arrays = container(example)
    expected = {tuple(x): complex(*v) if isinstance(v, list) else v for *x, v in example["entries"]}
    tensor = bl.read({"binsparse": header, **arrays})
    assert plain(tensor) == expected
    found = reader.decode(header, arrays)
    same(found, tensor)
    assert found["entries"] == expected
    for name, labels in example.get("labels", {}).items():
        assert tensor.labels(name).tolist() == labels


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("example", IN_PARTS)
def test_the_example_of_parts(tmp_path, example, suffix):
    place = f"{tmp_path}/a{suffix}"
    write_arrays(place, *container(example), overwrite=False)
    for name, part in example["groups"].items():
        write_arrays(f"{place}:{name}", *container(part), overwrite=False)
    for tensor in (bl.read(place), bl.open(place)):
        assert plain(tensor) == {tuple(x): v for *x, v in example["entries"]}
        assert tensor.fill_value == 0
        assert {dim: tensor.labels(dim).tolist() for dim in tensor.dims} == example["labels"]
    with pytest.raises(reader.Refused, match=r"^level: parts"):
        reader.decode(*container(example))


def test_the_page_has_an_example_of_every_kind_and_names_every_key():
    text = json.dumps(EXAMPLES)
    assert not [kind.kind for kind in OURS if kind.kind != "dense" and level_desc(kind) not in text + "sparse"]
    assert not [word for word in (*CODECS, *bl.ALIASES, *bl.SYNONYMS) if f"`{word}" not in PAGE]
    package = Path(bl.__file__).parent
    keys = {key for path in package.rglob("*.py") for key in re.findall(r'RESERVED\}(\w+)"', path.read_text())}
    assert len(keys) >= 6
    assert not [key for key in keys if f"`binsparse_levels:{key}`" not in PAGE]


def test_the_header_text_and_the_bytes_of_the_page():
    header, arrays = container(next(x for x in EXAMPLES if "user" in x))
    rest = {key: value for key, value in header.items() if not key.startswith("binsparse_levels:")}
    assert f"    {json.dumps(rest, sort_keys=True, separators=(',', ':'))}\n" in PAGE
    assert arrays["pointers_to_1"].tobytes().hex(" ") in PAGE
    assert reader.crc32c(b"123456789") == 3808858755


def test_the_ra_file_of_the_page(tmp_path):
    bl.write(tmp_path / "a.bspra", bl.pack_dense([1.0, 2.0], "DVEC"))
    octets = (tmp_path / "a.bspra/values.ra").read_bytes().hex(" ")
    assert octets in " ".join(PAGE.split())


def as_json(found):
    """What the plain reader found, as the conformance files have it. Entries are in any order."""

    def number(x):
        return [x.real, x.imag] if isinstance(x, complex) else x

    entries = sorted([*place, number(value)] for place, value in found["entries"].items())
    return repr({**found, "shape": [*found["shape"]], "entries": entries, "fill_value": number(found["fill_value"])})


def test_every_conformance_tensor_is_read():
    names = [name for name, _, _ in conformance.sound()]
    for name, tensor, options in conformance.sound():
        bl.write(store := {}, tensor, **options)
        wanted = conformance.expected(tensor)
        wanted["entries"].sort()
        assert as_json(reader.decode(store.pop("binsparse"), store)) == repr(wanted), name
    assert len(names) == len(set(names))
    assert f"\n{len(names)} tensors." in PROPOSAL["conformance"]


def test_every_unsound_tensor_is_refused_for_its_rule():
    for case in conformance.unsound():
        header, arrays = conformance.container(case)
        with pytest.raises(reader.Refused, match=f"^{case.rule}: "):
            reader.decode(header, arrays)
        with pytest.raises(bl.BinsparseError):
            bl.read({"binsparse": header, **arrays})
    assert f"\n{len(conformance.unsound())} files," in PROPOSAL["conformance"]
    listed = re.findall(r"^\| `(\w+)` \| [a-z]", PROPOSAL["conformance"].partition("`unsound`")[2], re.MULTILINE)
    assert set(listed) == {case.rule for case in conformance.unsound()}


@pytest.mark.slow
def test_the_conformance_files(tmp_path):
    folder = tmp_path / "files"
    run = [sys.executable, conformance.__file__, str(folder)]
    assert subprocess.run(run, check=False).returncode == 0
    assert subprocess.run(run, check=False, capture_output=True).returncode == 1
    for path in sorted(folder.glob("*/*.json")):
        about = json.loads(path.read_text())
        for file in (path.with_suffix(".h5"), path.with_suffix(".zarr")):
            if "rule" in about:
                with pytest.raises(reader.Refused, match=f"^{about['rule']}: "):
                    reader.tensors(file)
                with pytest.raises(bl.BinsparseError):
                    bl.read(file)
            else:
                wanted = {key: value for key, value in about.items() if key != "format"}
                wanted["entries"].sort()
                assert as_json(reader.tensors(file)["/"]) == repr(wanted), file.name


def test_the_reader_is_plain():
    tree = ast.parse(Path(reader.__file__).read_text())
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert named <= {"h5py", "numpy", *sys.stdlib_module_names}


def is_ours(format):
    """Whether the page knows all kinds; other tests of this process may have registered more."""
    return all(type(level).__module__.startswith("binsparse_levels.") for level in format.levels)


@pytest.mark.slow
@given(
    st.data(),
    st.fixed_dictionaries(
        {}, optional={"narrow": st.just(True), "bitpacked": st.just(True), "checksum": st.just(True)}
    ),
    st.sampled_from([{}, {"compression": "gzip"}, {"chunks": 3}]),
)
def test_any_tree(tmp_path_factory, data, options, storage):
    tensor = data.draw(testing.tensors())
    assume(is_ours(tensor.format))
    written(tmp_path_factory.getbasetemp() / "any.h5", tensor, **options, **storage)


def unless_refused(format, make):
    """A tensor. Cases that a level kind refuses are not judged."""
    try:
        return make()
    except bl.FormatError:
        assume(not any(level.refuses for level in format.levels))
        raise


@given(st.data())
def test_any_map(tmp_path_factory, data):
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=3)))
    map = data.draw(testing.maps(shape))
    assume(np.prod(map.stored_shape, dtype=float) < 2**12)
    places = list(np.ndindex(*shape))
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True, max_size=8)) if places else []
    chosen = chosen or places[: not shape]
    coords = np.array(chosen, np.int64).reshape(len(chosen), len(shape)).T
    format = data.draw(testing.formats(min_rank=len(map.groups), max_rank=len(map.groups), kinds=OURS))
    assume(is_ours(format))
    tensor = unless_refused(
        format, lambda: bl.pack(coords, np.arange(1.0, len(chosen) + 1), shape, format, map=map, fill_value=0)
    )
    again = written(tmp_path_factory.getbasetemp() / "map.h5", tensor)
    assert str(again.map) == str(map)


@pytest.mark.slow
@given(st.data(), st.sampled_from(["int8", "uint16", "int32", "uint32", "int64", "uint64"]), st.integers(0, 300))
def test_any_bit_packed_integers(tmp_path_factory, data, dtype, length):
    info = np.iinfo(dtype)
    few = st.integers(*data.draw(st.sampled_from([(0, 1), (0, 100), (max(info.min, -50), 50), (info.min, info.max)])))
    values = np.array(data.draw(st.lists(few, min_size=length, max_size=length)), np.dtype(dtype))
    for packed in (values, np.sort(values)):
        tensor = bl.pack_dense(packed, "DVEC")
        written(tmp_path_factory.getbasetemp() / "packed.h5", tensor, bitpacked=["values"])


@pytest.mark.slow
@given(st.data(), st.sampled_from(["int16", "uint64", "float32", "float64", "complex64", "complex128"]), st.booleans())
def test_any_dictionary(tmp_path_factory, data, dtype, packs):
    few = np.array([0, -0.0, 1, 2, np.nan] if dtype[0] in "fc" else [0, 1, 2, 3, 4]).astype(dtype)
    values = few[np.array(data.draw(st.lists(st.integers(0, 4), min_size=25, max_size=25)))]
    format = data.draw(testing.formats(min_rank=2, max_rank=2))
    assume(is_ours(format))
    shape = data.draw(st.sampled_from([(5, 5), (5, 7), (25, 1)]))
    cells = np.array(list(np.ndindex(*shape))[-25:]).T
    path = tmp_path_factory.getbasetemp() / "dictionary.h5"
    tensor = unless_refused(format, lambda: bl.pack(cells, values, shape, format, fill_value=0))
    written(path, tensor, dictionary=True, bitpacked=packs)
    with h5py.File(path) as file:
        assert "codes" in file or file["values"].shape == (1 + dtype.startswith("complex"),)


KNOWN = {"element", "dense", "sparse"}


def refused_by_the_specification(header):
    """Whether a reader that knows the specification alone refuses a header, as the C reference and Finch.jl do: by an
    unknown name of a format, or an unknown level. It looks at nothing else."""
    descriptor = header["binsparse"]
    if descriptor["format"] != "custom":
        return descriptor["format"] not in reader.PREDEFINED
    level = descriptor["custom"]["level"]
    while level is not None and level["level_desc"] in KNOWN:
        level = level.get("level")
    return level is not None


@given(st.data(), st.booleans(), st.booleans())
def test_what_others_would_misread_they_refuse(tmp_path_factory, data, packs, mapped):
    binsparse = pytest.importorskip("binsparse")
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    map = data.draw(testing.maps(shape)) if mapped else None
    rank = len(shape if map is None else map.groups)
    levels = data.draw(testing.formats(min_rank=rank, max_rank=rank, kinds=OURS))
    assume(is_ours(levels))
    cells = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    tensor = unless_refused(levels, lambda: bl.pack_dense(cells, levels, map=map))
    path = tmp_path_factory.getbasetemp() / "others.h5"
    written(path, tensor, bitpacked=["values"] if packs else False)
    with h5py.File(path) as file:
        header = json.loads(file.attrs["binsparse"])
    assert tuple(header["binsparse"]["shape"]) == shape
    specified = all(level.specified for level in levels.levels)
    assert refused_by_the_specification(header) == (packs or mapped or not specified)
    if packs or mapped:
        with pytest.raises((ValueError, KeyError, NotImplementedError, binsparse.BinsparseParseError)):
            binsparse.load_binsparse(path)


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".zarr", ".bspnpy", ".bspra", ".nc", None])
def test_keys_that_no_reader_knows(tmp_path, suffix):
    tensor = bl.pack_dense(np.eye(3), "CSR", map="1, 0").with_attributes({"a": 1})
    header, arrays = encode_tensor(tensor)
    header["binsparse_levels:of_tomorrow"] = {"x": 1}
    place = {} if suffix is None else tmp_path / f"a{suffix}"
    write_arrays(place, header, arrays, overwrite=False)
    for tensor in (bl.read(place), bl.open(place), bl.open(place).load()):
        assert tensor.attributes == {"a": 1}
        bl.write(again := {}, tensor)
        assert "binsparse_levels:of_tomorrow" not in again["binsparse"]


def test_labels_of_every_type(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    times = pyarrow.array([0, 5], pyarrow.timestamp("ms", "Europe/Berlin"))
    for labels in (["a", "π𝄞"], [True, False], [3, -9], [0.5, -0.0], times):
        table = pyarrow.table({"x": labels, "y": ["p", "q"], "v": [1.5, 2.5]})
        tensor = bl.from_table(table, ["x", "y"], "v", "CSR", labels={"x": labels})
        again = written(tmp_path / "a.h5", tensor, checksum=True)
        assert again.dims == ("x", "y")


def test_attributes_in_the_checksum_of_the_header(tmp_path):
    strange = {'π𝄞\x7f\x1f"\\/\b\t': ["\u2028é", 1e16, 1e-5, 0.0001, -0.0, 1e300, 2**70, -3, True, None, {}], "a": 0.1}
    written(tmp_path / "a.h5", bl.pack_dense([1.5], "DVEC").with_attributes(strange), checksum=True)


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    bl.write(path, bl.pack_dense(np.eye(3), "CSR"), checksum=True)
    with h5py.File(path, "r+") as file:
        file["indices_1"][1] = 2
    for read in (bl.read, reader.tensors):
        with pytest.raises(ValueError, match="checksum"):
            read(path)
