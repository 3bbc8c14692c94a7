"""The notation of MLIR and UST: what is read from it, what is printed in it, and what is refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import FormatError, IndexMap, LimitError, pack_dense, parse_format, parse_map, testing
from binsparse_levels.formats.format import with_map
from binsparse_levels.levels import Dense, Sparse


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
    again = parse_format(levels).to_mlir(map)
    assert again.startswith("(d0" if "i" in text or "d0" in text else "()")
    assert with_map(again)[1] == map
    assert parse_format(with_map(again)[0]) == parse_format(levels)
    assert parse_format(levels).to_mlir(map) == parse_format(with_map(again)[0]).to_mlir(map)


@given(st.data())
def test_what_is_printed_is_read_again(data):
    format = data.draw(testing.formats(kinds=(Dense, Sparse)))
    assert parse_format(format.to_mlir()).canonical() == format.canonical()
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    map = data.draw(testing.maps(shape))
    levels = data.draw(testing.formats(kinds=(Dense, Sparse), min_rank=len(map.groups), max_rank=len(map.groups)))
    if any(len(group) > 1 for group in map.groups):
        with pytest.raises(FormatError, match="merges"):
            levels.to_mlir(map)
        return
    text, order = levels.to_mlir(map), levels.order
    chain, digits = with_map(text)
    if digits is None:  # every digit is a whole dimension
        made = parse_format(chain)
        assert made.order == tuple(map.groups[k][0].dimension for k in order)
    else:
        assert parse_map(digits, shape) == IndexMap(shape, tuple(map.groups[k] for k in order))
        made = parse_format(chain)
    assert parse_format(", ".join(str(level) for level in made.levels)).canonical().levels == levels.canonical().levels


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
        assert with_map(tensor.format.to_mlir(tensor.map)) == with_map(
            parse_format(own.split(" through")[0]).to_mlir(tensor.map)
        )
    assert parse_format("CSR") == "(i, j) -> (i : dense, j : compressed)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(i, j) -> (i : dense, j : loose_compressed)", "no level of this package is 'loose_compressed'"),
        ("(i, j) -> (i : batch, j : dense)", "'batch'"),
        ("(i, j) -> (j - i : compressed, i : range)", "'range'"),
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
    with pytest.raises(FormatError, match="bitmap\\(2\\) has no name in MLIR"):
        parse_format("bitmap(2)").to_mlir()
    with pytest.raises(FormatError, match="merges \\(1 2\\)"):
        parse_format("CSR").to_mlir("0, (1 2)")


@given(st.text("ij01 :,()-><[]{}", max_size=40) | st.text("ij (),:", max_size=20).map("(i, j) -> ({})".format))
def test_any_text_is_a_format_or_refused(text):
    try:
        levels, map = with_map(text)
        format = parse_format(levels)
    except (FormatError, LimitError):
        return
    assert format.rank == len(map.split(",")) if map else True
