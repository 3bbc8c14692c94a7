"""Descriptors: what is read, what is refused with which path, what lenient parsing mends, what is written."""

import contextlib
import json

import pytest

from binsparse_levels import BinsparseError, DescriptorError, LimitError, Limits, pack, read, write
from binsparse_levels.formats.descriptor import parse_descriptor
from binsparse_levels.formats.json import load_json

CSR = {
    "version": "0.1",
    "format": "CSR",
    "shape": [5, 7],
    "number_of_stored_values": 6,
    "data_types": {"pointers_to_1": "uint64", "indices_1": "int8", "values": "iso[complex[float32]]"},
}
TREE = {
    "level_desc": "dense",
    "rank": 1,
    "level": {"level_desc": "sparse", "rank": 1, "level": {"level_desc": "element"}},
}
MISSING = object()


def header(**changes):
    inner = {**CSR, **changes}
    return {"binsparse": {key: value for key, value in inner.items() if value is not MISSING}, "author": "somebody"}


def parse(lenient=False, **changes):
    return parse_descriptor(header(**changes), Limits(), lenient=lenient)


def test_what_a_descriptor_says():
    descriptor = parse()
    assert str(descriptor.format) == "CSR"
    assert descriptor.shape == (5, 7)
    assert descriptor.user == {"author": "somebody"}
    assert str(descriptor.data_types["values"]) == "iso[complex[float32]]"
    assert descriptor.header() == header()


@pytest.mark.parametrize("version", ["0.1", "0.1.0", "0.1.17", "0.1.0-rc.1+build.5"])
def test_versions(version):
    assert parse(version=version).version == version


FAULTS = [
    ({"version": "0.2"}, "version"),
    ({"version": "1.0"}, "version"),
    ({"version": 0.1}, "version"),
    ({"version": "0.1." + "9" * 10_000}, "version"),
    ({"version": MISSING}, "version"),
    ({"format": "csr"}, "format"),
    ({"format": "XYZ"}, "format"),
    ({"format": ["CSR"]}, "format"),
    ({"format": MISSING}, "format"),
    ({"format": "custom"}, "custom"),
    ({"custom": {"level": TREE, "transpose": [1, 0]}}, "custom"),
    ({"custom": []}, "custom"),
    ({"shape": [5, 7, 1]}, "shape"),
    ({"shape": "57"}, "shape"),
    ({"shape": [5, True]}, "shape[1]"),
    ({"shape": [5.0, 7]}, "shape[0]"),
    ({"shape": [5, -1]}, "shape[1]"),
    ({"shape": [5, 2**63]}, "shape[1]"),
    ({"shape": None}, "shape"),
    ({"number_of_stored_values": 36}, "number_of_stored_values"),
    ({"number_of_stored_values": -1}, "number_of_stored_values"),
    ({"number_of_stored_values": 6.0}, "number_of_stored_values"),
    ({"number_of_stored_values": "6"}, "number_of_stored_values"),
    ({"number_of_stored_values": True}, "number_of_stored_values"),
    ({"data_types": MISSING}, "data_types"),
    ({"data_types": []}, "data_types"),
    ({"data_types": {"indices_1": "int8", "values": "int8"}}, "data_types.pointers_to_1"),
    ({"data_types": {**CSR["data_types"], "indices_1": "float64"}}, "data_types.indices_1"),
    ({"data_types": {**CSR["data_types"], "indices_1": "iso[int8]"}}, "data_types.indices_1"),
    ({"data_types": {**CSR["data_types"], "values": "complex[int32]"}}, "data_types.values"),
    ({"data_types": {**CSR["data_types"], "values": "complex[iso[float64]]"}}, "data_types.values"),
    ({"data_types": {**CSR["data_types"], "values": "iso[float64"}}, "data_types.values"),
    ({"data_types": {**CSR["data_types"], "values": "iso[" * 2000}}, "data_types.values"),
    ({"data_types": {**CSR["data_types"], "values": "float16"}}, "data_types.values"),
    ({"data_types": {**CSR["data_types"], "values": 7}}, "data_types.values"),
    ({"fill": 0}, "fill"),
    ({"fill": "true"}, "fill"),
    ({"fill": True}, "data_types.fill_value"),
    ({"structure": "symmetric_lower"}, "structure"),
    ({"structure": "general"}, "structure"),
    ({"structure": "symmetrical", "shape": [5, 5]}, "structure"),
    ({"structure": 5, "shape": [5, 5]}, "structure"),
    (
        {"structure": "hermitian_upper", "shape": [5, 5], "data_types": {**CSR["data_types"], "values": "int8"}},
        "structure",
    ),
    ({"attributes": 3}, "attributes"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("changes", "path"), FAULTS, ids=range(len(FAULTS)))
def test_faults_have_a_path(changes, path):
    with pytest.raises(DescriptorError) as caught:
        parse(**changes)
    assert path in [problem.path for problem in caught.value.problems]


def test_every_fault_is_told_at_once():
    changes = {"version": "2", "shape": [5, -7], "number_of_stored_values": "6", "fill": 1, "data_types": None, "x": 1}
    with pytest.raises(DescriptorError) as caught:
        parse(**changes)
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"version", "shape[1]", "number_of_stored_values", "fill", "data_types", "x"}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": MISSING},
        {"number_of_stored_values": MISSING},
        {"format": MISSING, "custom": {"level": TREE}},
        {"format": "csr"},
        {"shape": [5.0, 7]},
        {"number_of_stored_values": 6.0},
        {"structure": "general"},
        {"tensor": json.loads(json.dumps({"level": TREE}).replace("level_desc", "level_kind"))},
        {"colour": {}},
    ],
    ids=range(9),
)
def test_lenient_parsing_mends_and_tells(changes):
    with pytest.raises(DescriptorError):
        parse(**changes)
    descriptor = parse(lenient=True, **changes)
    assert str(descriptor.format) == "CSR"
    assert descriptor.shape == (5, 7)
    assert len(descriptor.repairs) == 1


@pytest.mark.parametrize(
    ("format", "arrays"), [("CVEC", {"indices_0": "uint64"}), ("DVEC", {}), ("cvec", {"indices_0": "int64"})]
)
@pytest.mark.parametrize("values", ["float64", "iso[float64]"])
def test_vectors_of_two_dimensions_are_those_of_older_writers(format, arrays, values):
    inner = {"version": "0.1", "format": format, "shape": [5, 1], "data_types": {**arrays, "values": values}}
    header = {"binsparse": {**inner, "number_of_stored_values": 5}}
    with pytest.raises(DescriptorError, match="lenient=True"):
        parse_descriptor(header, Limits())
    found = parse_descriptor(header, Limits(), lenient=True)
    assert (str(found.format), found.shape) == (format.upper(), (5,))
    header["binsparse"]["shape"] = [5, 2]
    with pytest.raises(DescriptorError, match="expected 1 dimensions"):
        parse_descriptor(header, Limits(), lenient=True)


def test_an_unknown_key_is_no_attribute():
    descriptor = parse(lenient=True, colour={"a": 1}, number_of_diagonal_elements=3, attributes={"b": 2})
    assert descriptor.attributes == {"b": 2}
    assert descriptor.user == {"author": "somebody"}
    assert {"colour", "number_of_diagonal_elements"}.isdisjoint(descriptor.header()["binsparse"])


def test_the_attributes_of_finch_are_the_users():
    descriptor = parse(attrs={"a": 1, "author": "another", "binsparse_levels:x": 2})
    assert descriptor.user == {"a": 1, "author": "somebody"}
    assert not descriptor.repairs
    for attrs in (3, {"binsparse": 1}):
        with pytest.raises(DescriptorError, match="attrs"):
            parse(attrs=attrs)


def test_the_version_that_is_written():
    tensor = pack([[0], [1]], [1.0], (3, 4), "CSR")
    for given, expected in (({}, "0.1.0"), ({"spec_version": "0.1"}, "0.1"), ({"spec_version": "0.1.7"}, "0.1.7")):
        write(place := {}, tensor, **given)
        assert place["binsparse"]["binsparse"]["version"] == expected
        assert read(place).equals(tensor)


def test_a_missing_namespace_is_mended():
    with pytest.raises(DescriptorError, match="binsparse: missing"):
        parse_descriptor(CSR, Limits())
    assert parse_descriptor(CSR, Limits(), lenient=True).repairs


@pytest.mark.parametrize("what", [None, [], "text", 3, {"binsparse": []}])
def test_what_is_no_object(what):
    for lenient in (False, True):
        with pytest.raises(DescriptorError):
            parse_descriptor(what, Limits(), lenient=lenient)


def test_the_predefined_name_is_written_wherever_there_is_one():
    for tree, transpose, name in [(TREE, [1, 0], "CSC"), (TREE, [0, 1], "CSR"), (TREE, None, "CSR")]:
        custom = {"level": tree} if transpose is None else {"level": tree, "transpose": transpose}
        written = parse(format="custom", custom=custom).header()["binsparse"]
        assert written["format"] == name
        assert "custom" not in written
    rank_2 = {"level_desc": "sparse", "rank": 2, "level": {"level_desc": "element"}}
    types = {"indices_0": "int8", "indices_1": "int8", "values": "int8"}
    written = parse(format="COO", data_types=types).header()["binsparse"]
    assert written["format"] == "COOR"
    deeper = {"level_desc": "dense", "rank": 1, "level": rank_2}
    types = {"pointers_to_1": "int8", "indices_1": "int8", "indices_2": "int8", "values": "int8"}
    written = parse(format="custom", custom={"level": deeper}, shape=[2, 3, 4], data_types=types).header()["binsparse"]
    assert (written["format"], written["custom"]) == ("custom", {"level": deeper})


def test_ranks_are_limited():
    with pytest.raises(LimitError, match="rank=64"):
        parse(shape=[1] * 65)
    huge = {"level_desc": "dense", "rank": 10**12, "level": {"level_desc": "element"}}
    with pytest.raises(DescriptorError):
        parse(format="custom", custom={"level": huge, "transpose": [0]})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"\xff{}", DescriptorError),
        ("{", DescriptorError),
        ('{"a": 1, "a": 2}', DescriptorError),
        ('{"b": {"a": 1, "a": 2}}', DescriptorError),
        ('{"a": NaN}', DescriptorError),
        ('{"a": -Infinity}', DescriptorError),
        ('{"a": 1e999}', DescriptorError),
        ('{"a": ' + "9" * 5000 + "}", DescriptorError),
        ("[" * 200_000, LimitError),
        ('{"a": ' * 3000 + "1" + "}" * 3000, LimitError),
        ('"' + "x" * 2**20 + '"', LimitError),
    ],
    ids=range(11),
)
def test_strict_json(text, error):
    with pytest.raises(error):
        load_json(text, Limits())


def test_json_limits_can_be_raised():
    text = '{"a": ' * 500 + '"}]"' + "}" * 500
    assert load_json(text, Limits(nesting=500))
    with pytest.raises(LimitError, match="nesting=499"):
        load_json(text, Limits(nesting=499))


def test_json_is_parsed_as_deep_as_this_python_can():
    for depth in (500, 900, 5000, 10**6):  # where it ends differs by version, and by the system
        text = "[" * depth + "]" * depth
        with contextlib.suppress(LimitError):
            assert load_json(text, Limits(nesting=10**7, header_bytes=10**7)) or depth < 10**6
    with pytest.raises(LimitError, match="deeper than this Python"):
        load_json(text, Limits(nesting=10**7, header_bytes=10**7))


# Cases that hostile use found


LEAF = {"level_desc": "element"}
HEADER = {"version": "0.1", "number_of_stored_values": 0, "data_types": {"values": "iso[float64]"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "custom", "custom": {"level": {"level_desc": "sparse", "rank": 10**30, "level": LEAF}}},
        {"format": "CVEC", "shape": [1], "custom": {"level": {"level_desc": "dense", "rank": 10**12, "level": LEAF}}},
        {"format": "custom", "tensor": None, "shape": [1]},
        {"format": "CVEC", "custom": None, "shape": [1]},
    ],
    ids=range(4),
)
@pytest.mark.parametrize("lenient", [False, True])
def test_hostile_descriptors(changes, lenient):
    with pytest.raises(BinsparseError):
        parse_descriptor({"binsparse": {**HEADER, **changes}}, Limits(), lenient=lenient)


@pytest.mark.parametrize("format", ["CVEC", "DVEC"])
def test_a_vector_of_one_column_is_read_leniently(format):
    types = {"indices_0": "int64"} if format == "CVEC" else {}
    changes = {
        "format": format,
        "shape": [5, 1],
        "number_of_stored_values": 5,
        "data_types": types | {"values": "int8"},
    }
    assert parse(lenient=True, **changes).shape == (5,)
    with pytest.raises(DescriptorError, match="lenient=True"):
        parse(**changes)
    with pytest.raises(DescriptorError, match="expected 1 dimensions"):
        parse(lenient=True, **changes | {"shape": [5, 2]})
