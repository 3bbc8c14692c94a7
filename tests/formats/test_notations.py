"""The notations of other systems: what is read from them, what is printed in them, and what is refused by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    FormatError,
    IndexMap,
    LimitError,
    OptionError,
    pack_dense,
    parse_format,
    parse_map,
    testing,
)
from binsparse_levels.formats.format import Format, with_map
from binsparse_levels.formats.notations import WRITERS
from binsparse_levels.levels import LEVELS, Band, Bitmap, Dense, Hashed, NOfM, Run, Sparse

# Names of nvmath.sparse.ust.NamedFormats 1.0.0 with arguments of the builders, printed by it, and the notation here.
UST = json.loads((Path(__file__).parents[1] / "data/ust_formats.json").read_text())


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("(i, j) -> (i : dense, j : compressed)", "dense, sparse"),
        ("(d0, d1) -> (d1 : dense, d0 : compressed)", "dense, sparse @ 1, 0"),
        ("(i,j)->(i:compressed(nonunique),j:singleton)", "sparse(2)"),
        ("(i, j, k) -> (k : compressed(nonunique), i : singleton(nonunique, soa), j : singleton(soa))",
         "sparse(3) @ 2, 0, 1"),
        ("(b, i, j) -> (b : dense, i : compressed(nonunique), j : singleton)", "dense, sparse(2)"),
        (
            "(i, j) -> (i floordiv 2 : dense, j floordiv 3 : compressed, i mod 2 : dense, j mod 3 : dense)",
            "dense, sparse, dense, dense through 0/2, 1/3, 0%2, 1%3",
        ),
        ("(i, j) -> (j - i : compressed, i : dense)", "sparse, dense through 1-0, 0"),
        ("(i, j) -> (j - i : compressed, i : range)", "sparse, dense through 1-0, 0"),
        ("#sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed) }>", "dense, sparse"),
        ("#CSC = #sparse_tensor.encoding<{\n  map = (i, j) -> (j : dense, i : compressed),\n  posWidth = 32,\n  "
         "crdWidth = 8\n}>", "dense, sparse @ 1, 0"),
        ("#sparse_tensor.encoding<{ crdWidth = 32, map = (i, j) -> (i floordiv 2 : compressed, j floordiv 3 : "
         "compressed, i mod 2 : dense, j mod 3 : dense) }>", "sparse, sparse, dense, dense through 0/2, 1/3, 0%2, 1%3"),
        ("(i, j) -> ((i - j) floordiv 4 : dense, (i-j) mod 4 : dense, j : dense)",
         "dense, dense, dense through 0-1/4, 0-1%4, 1"),
        ("(i) -> (i floordiv 8 : compressed, (i floordiv 2) mod 4 : dense, i mod 2 : dense)",
         "sparse, dense, dense through 0/8, 0/2%4, 0%2"),
        ("(i) -> (i floordiv 8 : dense, (i mod 8) floordiv 2 : dense, (i mod 8) mod 2 : dense)",
         "dense, dense, dense through 0/8, 0/2%4, 0%2"),
        ("(i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])", "dense, n_of_m(1, n=2, m=4)"),
        ("(i, j) -> (i : dense, j floordiv 4 : compressed, j mod 4 : structured[1, 4])",
         "dense, sparse, n_of_m(1, n=1, m=4) through 0, 1/4, 1%4"),
        ("() -> ()", "element"),
    ],
)  # fmt: skip
def test_what_it_says(text, own):
    (levels, map), (own_levels, own_map) = with_map(text), with_map(own)
    assert (parse_format(levels), map) == (parse_format(own_levels), own_map)
    again = parse_format(levels).to_notation("mlir", map)
    assert again.startswith("#sparse_tensor.encoding<{ map = (")
    assert with_map(again)[1] == map
    assert parse_format(with_map(again)[0]) == parse_format(levels)
    assert parse_format(levels).to_notation("mlir", map) == parse_format(with_map(again)[0]).to_notation("mlir", map)


@given(st.data())
def test_what_is_printed_is_read_again(data):
    format = data.draw(testing.formats(kinds=(Dense, Sparse)))
    assert parse_format(format.to_notation("mlir")).canonical() == format.canonical()
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    map = data.draw(testing.maps(shape))
    levels = data.draw(testing.formats(kinds=(Dense, Sparse), min_rank=len(map.groups), max_rank=len(map.groups)))
    if any(len(group) > 1 for group in map.groups):
        with pytest.raises(FormatError, match="merges"):
            levels.to_notation("mlir", map)
        return
    text, order = levels.to_notation("mlir", map), levels.order
    chain, digits = with_map(text)
    if digits is None:  # every digit is a whole dimension
        made = parse_format(chain)
        assert made.order == tuple(map.groups[k][0].dimension for k in order)
    else:
        assert parse_map(digits, shape) == IndexMap(shape, tuple(map.groups[k] for k in order))
        made = parse_format(chain)
    assert parse_format(", ".join(str(level) for level in made.levels)).canonical().levels == levels.canonical().levels


@pytest.mark.parametrize(("name", "text", "own"), UST, ids=[name for name, *_ in UST])
def test_the_named_formats_of_ust(name, text, own):
    if isinstance(own, str):
        (levels, map), (own_levels, own_map) = with_map(text), with_map(own)
        assert (parse_format(levels), map) == (parse_format(own_levels), own_map)
        return
    with pytest.raises(FormatError) as caught:
        parse_format(with_map(text)[0])
    assert own["lacks"] in str(caught.value).removeprefix(repr(text))


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("{Dense, Compressed}", "CSR"),
        ("{Dense, Sparse}, {1, 0}", "CSC"),
        ("Format csc({dense, compressed}, {1,0})", "CSC"),
        ("({Compressed(ModeFormat::NOT_UNIQUE),Singleton})", "COO"),
        ("Format({ModeFormat::Sparse({ModeFormat::ORDERED, ModeFormat::NOT_UNIQUE}), Singleton(NOT_UNIQUE), Singleton}"
         ", {2, 0, 1})", "sparse(3) @ 2, 0, 1"),
        ("{}", "element"),
        ("Dense(SparseList(Element(0.0)))", "CSC"),
        ("swizzle(Tensor(Dense(SparseList(Element(0.0)))), 2, 1)", "CSR"),
        ("Tensor(SparseCOO{3}(Element(0)))", "sparse(3) @ 2, 1, 0"),
        ("swizzle(Dense(SparseDict(SparseRunList(Pattern()))), 2, 3, 1)", "dense, hashed, run @ 1, 0, 2"),
        ("Dense(SparseByteMap(Element(false)))", "dense, bitmap @ 1, 0"),
        ("SparseBand(Element(-0.0))", "band"),
        ("Element(0.0)", "element"),
    ],
)  # fmt: skip
def test_what_taco_and_finch_say(text, own):
    assert parse_format(text) == parse_format(own)


def test_the_first_dimension_of_finch_is_the_innermost():
    """An entry of Finch.jl at A[i, j, k]: the outermost level of the tensor in swizzle has its last dimension."""
    dims = (2, 3, 1)  # swizzle(body, dims)[i, j, k] is body[…] with the index n at dims[n]
    body = [None] * 3
    for name, at in zip("ijk", dims, strict=True):
        body[at - 1] = name
    order = parse_format("swizzle(Dense(SparseList(SparseList(Element(0.0)))), 2, 3, 1)").order
    assert ["ijk"[k] for k in order] == body[::-1]


TRANSLATED = {
    "mlir": (Dense, Sparse, NOfM),
    "taco": (Dense, Sparse),
    "finch": (Dense, Sparse, Bitmap, Run, Band, Hashed),
}


@pytest.mark.parametrize("system", WRITERS)
@given(data=st.data())
def test_what_is_printed_is_read_again_by_every_system(system, data):
    """Or a level of the format has no name there."""
    format = data.draw(testing.formats(kinds=data.draw(st.sampled_from([TRANSLATED[system], tuple(LEVELS.values())]))))
    named = all(type(level) in TRANSLATED[system] for level in format.levels)
    named = named and all(level.rank == 1 for level in format.levels if not isinstance(level, Dense | Sparse))
    if not named:
        with pytest.raises(FormatError, match="has no name there"):
            format.to_notation(system)
        return
    assert parse_format(format.to_notation(system)).canonical() == format.canonical()


def test_a_tensor_takes_it():
    dense = np.arange(48.0).reshape(6, 8) * (np.arange(8) % 4 < 2)
    for text, own in [
        ("(i, j) -> (j : compressed, i : compressed)", "DCSC"),
        ("(i, j) -> (j - i : compressed, i : dense)", "sparse, dense through 1-0, 0"),
        ("(i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])", "dense, n_of_m(1, n=2, m=4)"),
    ]:
        tensor = pack_dense(dense, text)
        assert tensor.notation == own
        np.testing.assert_array_equal(tensor.to_dense(), dense)
        np.testing.assert_array_equal(pack_dense(dense, "CSR").convert(text).to_dense(), dense)
        assert with_map(tensor.format.to_notation("mlir", tensor.map)) == with_map(
            parse_format(own.split(" through")[0]).to_notation("mlir", tensor.map)
        )
    assert parse_format("CSR") == "(i, j) -> (i : dense, j : compressed)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(i, j) -> (i : dense, j : loose_compressed)", "no level of this package is 'loose_compressed'"),
        ("(i, j) -> (i : batch, j : dense)", "'batch'"),
        ("(i, j) -> (j - i : compressed, j : range)", "'j : range' has to be the dimension"),
        ("(i, j) -> (j : dense, i : range)", "'i : range' has to be the dimension"),
        ("(i, j) -> (i : dense, j : compressed(nonordered))", "no level is nonordered"),
        ("(i) -> (i : dense(nonunique))", "no level is nonunique"),
        ("(i) -> (i : compressed(nonunique))", "duplicates are not stored"),
        ("(i, j) -> (i : compressed, j : singleton)", "singleton below it"),
        ("(i, j) -> (i : compressed(nonunique), j : compressed)", "singleton below it"),
        ("(i, j) -> (i : singleton, j : dense)", "singleton below it"),
        ("(i) -> (i : structured)", "'structured'"),
        ("(i) -> (i : dense[2, 4])", "dense\\[2, 4\\]"),
        ("(i) -> (i : structured[2, 4])", "mod 4"),
        ("(i) -> (i mod 8 : structured[2, 4], i floordiv 8 : dense)", "mod 4"),
        ("(i) -> (j : dense)", "got 'j'"),
        ("(i) -> (i + 1 : dense)", "got 'i \\+ 1'"),
        ("(i, j) -> (i * 8 + j : dense)", "expected a dimension"),
        ("(i, j) -> (j - i floordiv 2 : dense, i : dense)", "\\(j - i\\)"),
        ("(i) -> (i floordiv (8 mod 4) : dense)", "expected a dimension"),
        ("(i) -> ((i : dense)", "got '\\(i'"),
        ("(i) -> (i floordiv 0 : dense, i : dense)", "0 does not divide"),
        ("(i) -> (i mod 4 mod 3 : dense)", "3 does not divide"),
        ("(i) -> (i)", "expected a level"),
        ("(i) -> (i : )", "expected a level"),
        ("(i) -> (i : dense,)", "expected a level"),
        ("(i, i) -> (i : dense)", "each once"),
        ("(1) -> (1 : dense)", "each once"),
        ("i -> (i : dense)", "expected dimensions and levels"),
        ("#sparse_tensor.encoding<{ map = (i) -> (i : dense), implicitVal = 0.0 : f32 }>", "no format has implicitVal"),
        ("#sparse_tensor.encoding<{ posWidth = 32 }>", "expected dimensions and levels"),
        ("#sparse_tensor.encoding<{ map = (i) -> (i : block2_4) }>", "'block2_4'"),
        ("{Dense, Banded}", "'banded'"),
        ("{Dense, Compressed}, {1}", "expected modes and their order"),
        ("{Dense, Compressed}, {0, 2}", "got 'd2'"),
        ("{Compressed(NOT_ORDERED)}", "no level is nonordered"),
        ("Dense(SparsePoint(Element(0.0)))", "no level of this package is SparsePoint"),
        ("SparseList{2}(Element(0.0))", "no level of this package is SparseList"),
        ("SparseCOO(Element(0.0))", "no level of this package is SparseCOO"),
        ("Dense(SparseList(Element(Inf)))", "expected levels around Element\\(0.0\\)"),
        ("swizzle(Dense(Dense(Element(0.0))), 1, 3)", "all dimensions in swizzle"),
        ("{l0} (i) -> (l0 = i : dense)", "expected dimensions and levels"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_named(text, message):
    for parse in (lambda: parse_format(*with_map(text)[:1]), lambda: pack_dense(np.eye(4), text)):
        with pytest.raises(FormatError, match=message) as caught:
            parse()
        assert repr(text) in str(caught.value)


def test_a_map_is_not_taken_where_a_format_alone_is():
    with pytest.raises(FormatError, match="no map is taken"):
        parse_format("(i) -> (i floordiv 2 : dense, i mod 2 : dense)")
    with pytest.raises(FormatError, match="leave out map="):
        pack_dense(np.eye(4), "(i, j) -> (j - i : dense, i : dense)", map="0, 1")
    with pytest.raises(FormatError, match="do not make up"):
        pack_dense(np.eye(4), "(i, j) -> (i : dense)")
    with pytest.raises(FormatError, match="1 … 4"):
        parse_format("(i) -> (i floordiv 4 : dense, i mod 4 : structured[5, 4])")
    with pytest.raises(FormatError, match="bitmap\\(2\\) has no name there"):
        parse_format("bitmap(2)").to_notation("mlir")
    with pytest.raises(FormatError, match="merges \\(1 2\\)"):
        parse_format("CSR").to_notation("mlir", "0, (1 2)")


@pytest.mark.parametrize("system", ["taco", "finch"])
def test_a_map_is_printed_by_mlir_alone(system):
    with pytest.raises(FormatError, match="the map 0/2, 0%2 has no notation there"):
        parse_format("sparse, dense").to_notation(system, "0/2, 0%2")
    with pytest.raises(OptionError, match="expected one of mlir, finch, taco, got 'ust'"):
        Format(()).to_notation("ust")
    with pytest.raises(FormatError, match="has no name there"):
        parse_format("n_of_m(1, n=2, m=4)").to_notation(system)


@given(
    st.text("ij01 :,()-><[]{}", max_size=40)
    | st.text("ij (),:", max_size=20).map("(i, j) -> ({})".format)
    | st.text("{}Compresd, 01", max_size=30).map("{{Dense{}".format)
    | st.text("DenseSparList0CO{}(), 13", max_size=30).map("swizzle(Dense(Element(0.0)){}".format)
)
def test_any_text_is_a_format_or_refused(text):
    try:
        levels, map = with_map(text)
        format = parse_format(levels)
    except (FormatError, LimitError):
        return
    assert format.rank == len(map.split(",")) if map else True
