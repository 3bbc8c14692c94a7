"""The notation and the custom object of a format, and what is equal to what."""

import numpy as np
import pytest
from helpers import kinds
from hypothesis import given, settings
from hypothesis import strategies as st

from binsparse_levels import (
    ALIASES,
    SYNONYMS,
    Dense,
    Format,
    FormatError,
    Sparse,
    advise,
    convert,
    pack,
    pack_dense,
    parse_format,
    read,
    testing,
    write,
    write_from,
)  # fmt: skip


@given(testing.formats(max_rank=6))
def test_str_and_custom_are_inverses_of_parsing(format):
    assert parse_format(str(format)) == format
    assert parse_format(format.custom()) == format
    assert parse_format(format) is format
    assert format.canonical().canonical() == format.canonical()
    assert format.canonical().rank == format.rank


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("CSR", Format((Dense(), Sparse()))),
        ("COO", Format((Sparse(2),))),
        ("DMAT", Format((Dense(), Dense()))),
        ("dense, sparse(2) @ 2, 0, 1", Format((Dense(), Sparse(2)), (2, 0, 1))),
        ("  dense ,sparse( 2 )@2,0 , 1 ", Format((Dense(), Sparse(2)), (2, 0, 1))),
        ("sparse(rank=2)", Format((Sparse(2),))),
        ("element", Format(())),
        ("element @", Format((), ())),
        ("csr", Format((Dense(), Sparse()))),
        ("Coo", Format((Sparse(2),))),
        ("Dense, SPARSE(2)", Format((Dense(), Sparse(2)))),
        ("backwards(2, base=1), dense", Format((kinds.Backwards(2, base=1), Dense()))),
    ],
)
def test_notation(text, format):
    assert parse_format(text) == format


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crs", "did you mean CSR"),
        ("CSF", "follows the number of dimensions"),
        ("spars", "did you mean sparse"),
        ("", "expected a level"),
        ("dense,,sparse", "expected a level"),
        ("dense, CSR", "'CSR' is no level kind"),
        ("CSC @ 1, 0", "has a transpose of its own; write its levels, dense, sparse"),
        ("dense, sparse through 1, 0", "no map is taken here"),
        ("sparse(0)", "needs an integer >= 1, got 0"),
        ("sparse(x)", "needs an integer >= 1, got 'x'"),
        ("sparse(2, 3)", "expected name=value"),
        ("sparse(2, rank=3)", "rank is given twice"),
        ("sparse(2, base=3)", "no such key"),
        ("sparse, sparse @ 1", "permutation of 0 … 1"),
        ("sparse, sparse @ 1, 1", "permutation of 0 … 1"),
        ("sparse, sparse @ 1, a", "expected integers after the @"),
        ("sparse, sparse @ 1 @ 0", "expected integers after the @"),
    ],
)
def test_faults_of_the_notation(text, message):
    with pytest.raises(FormatError, match=message):
        parse_format(text)


@pytest.mark.parametrize("what", [None, 3, ["dense"], Dense()])
def test_what_is_no_format(what):
    with pytest.raises(TypeError):
        parse_format(what)


@pytest.mark.parametrize("rank", [0, 1, 2, 5])
def test_families_follow_the_rank(rank):
    assert parse_format("CSF", rank) == parse_format("csf", rank) == Format((Sparse(),) * rank)
    assert parse_format("COO", rank) == Format((Sparse(rank),) if rank else ())
    assert parse_format("CSR", rank) == parse_format("CSR")


def test_families_everywhere():
    tensor = pack([[0, 1], [1, 2], [3, 0]], [1.0, 2.0], (2, 3, 4), "CSF")
    assert str(tensor.format) == "sparse, sparse, sparse"
    assert str(tensor.convert("coo").format) == "sparse(3)"
    assert str(pack_dense(tensor.to_dense(), "csf").format) == "sparse, sparse, sparse"
    assert str(pack_dense(tensor.to_dense(), "csf", map="0, (1 2)").format) == "DCSR"
    assert tensor.load("COO").format == advise(tensor).candidate("COO").format
    store = {}
    write_from([tensor.unpack()], store, tensor.shape, "COO", memory=2**33)
    assert str(read(store).format) == "sparse(3)"
    convert(store, target := {}, "CSF")
    assert read(target).format == tensor.format


def test_aliases():
    for name, format in ALIASES.items():
        assert parse_format(name) == format
        assert str(format) == format.alias == name
    assert {SYNONYMS[name] for name in SYNONYMS} <= set(ALIASES)
    assert parse_format("dense(2)").alias == "DMATR"
    assert parse_format("dense, sparse @ 0, 1").alias == "CSR"
    assert str(parse_format("dense, sparse @ 0, 1")) == "dense, sparse @ 0, 1"
    assert parse_format("sparse, sparse").alias == "DCSR" != parse_format("sparse(2)").alias


def test_formats_are_values():
    assert len({parse_format("CSR"), Format([Dense(1), Sparse(1)]), parse_format("CSC")}) == 2
    assert parse_format("CSC").order == (1, 0)
    assert parse_format("CSR").order == (0, 1)


def test_every_fault_of_a_custom_object_is_told_with_its_path():
    level = {"level_desc": "sparse", "rank": 0, "level": {"level_desc": "element", "rank": 1}}
    tree = {"level_desc": "dense", "rank": True, "level": {"level_desc": "foo", "rank": 1, "level": level}}
    with pytest.raises(FormatError) as caught:
        parse_format({"level": tree, "transpose": [0.5], "colour": "red"})
    assert [problem.path for problem in caught.value.problems] == [
        "custom.colour",
        "custom.level.rank",
        "custom.level.level.level_desc",
        "custom.level.level.level.rank",
        "custom.level.level.level.level.rank",
        "custom.transpose",
    ]


def test_a_kind_beyond_the_specification_has_a_name_that_others_refuse():
    custom = parse_format("backwards(base=1)").custom()
    assert custom["level"]["level_desc"] == "helpers:backwards"
    assert custom["level"]["base"] == 1


def test_deep_trees_are_walked_without_recursion():
    deep = Format((Dense(),) * 5000)
    assert parse_format(deep.custom()) == deep


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("CSF @ 1, 2, 0, 3", "sparse, sparse, sparse, sparse @ 1, 2, 0, 3"), ("coo @ 2, 0, 1", "sparse(3) @ 2, 0, 1"),
        ("CSR @ 1, 0", "CSC"), ("DVEC @ 0", "dense @ 0"),
    ],
)  # fmt: skip
def test_names_take_a_transpose(text, levels):
    assert str(parse_format(text)) == levels
    assert parse_format(str(parse_format(text))) == parse_format(text)


@settings(deadline=None)
@given(testing.tensors(max_rank=3), st.data())
def test_one_text_names_levels_order_and_map(tensor, data):
    """It is taken where a format is, and printed back the same."""
    tensor = tensor.expand_structure()
    map = data.draw(testing.maps(tensor.shape))
    entries, fill = tensor.unpack(), tensor.fill_value
    stored = pack(*entries, tensor.shape, "COO" if map.groups else "element", map=map, fill_value=fill)
    assert stored.notation == f"{stored.format} through {map}"
    for made in (tensor.convert(stored.notation), pack(*entries, tensor.shape, stored.notation, fill_value=fill)):
        assert (made.notation, made.map) == (stored.notation, map)
        assert made.load(stored.notation).notation == stored.notation
        assert made.equals(stored)
    with pytest.raises(FormatError, match="leave out map="):
        tensor.convert(stored.notation, map=map)


def test_a_file_takes_the_notation(tmp_path):
    dense = np.arange(35.0).reshape(5, 7)
    text = "dense, sparse, dense(2) through 0/2, 1/3, 0%2, 1%3"
    tensor = pack_dense(dense, text)
    assert tensor.notation == text
    write(tmp_path / "a.npz", pack_dense(dense, "CSR"))
    convert(tmp_path / "a.npz", tmp_path / "b.npz", text)
    chunks = [(tensor.unpack())]
    write_from(chunks, tmp_path / "c.npz", (5, 7), text)
    for name in ("b.npz", "c.npz"):
        assert read(tmp_path / name).notation == text
        assert read(tmp_path / name).to_dense().tolist() == dense.tolist()
