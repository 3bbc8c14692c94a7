"""Index maps: one to one on every cell, padding that nobody sees, and views, files and conversions through them."""

import copy
import itertools
import json
import pickle
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from helpers.strategies import keys
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    DescriptorError,
    FormatError,
    IndexMap,
    LimitError,
    Tensor,
    pack,
    pack_dense,
    parse_map,
    testing,
)
from binsparse_levels.cli import main
from binsparse_levels.formats.extensions import MAP, parse_older_map
from binsparse_levels.formats.index_map import Digit
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import THRESHOLDS

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
MATRIX = np.array([[0, 1.5, 0, 2, 0], [0, 0, 0, 0, 0], [3, 0, 4, 0, 5]])


def stored_place(map, place):
    """The oracle: where a cell goes, digit by digit."""
    found = []
    for group in map.groups:
        number = 0
        for digit in group:
            x = place[digit.dimension]
            x += map.shape[digit.less] - 1 - place[digit.less] if digit.less >= 0 else 0
            number = number * digit.radix + x // digit.stride % digit.radix
        found.append(number)
    return tuple(found)


def cells(shape):
    return list(itertools.product(*map(range, shape)))


def columns(places, rank):
    return list(np.array(places, np.int64).reshape(len(places), rank).T)


def rows(coords, count):
    return list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * count


@st.composite
def shapes_and_maps(draw):
    shape = draw(SHAPES)
    return shape, draw(testing.maps(shape))


@st.composite
def mapped_tensors(draw):
    """A mapped tensor, the dense array and the pattern of the same entries."""
    shape, map = draw(shapes_and_maps())
    places = cells(shape)
    chosen = draw(st.lists(st.sampled_from(places), unique=True, max_size=12)) if places else []
    chosen = chosen or places[: not shape]
    format = draw(testing.formats(min_rank=len(map.groups), max_rank=len(map.groups)))
    assume(np.prod(map.stored_shape, dtype=float) < 2**16)
    fill = draw(st.sampled_from([None, 0, 7]))
    values = draw(st.sampled_from([np.arange(1, len(chosen) + 1), np.int64(5)]))
    values = values[: len(chosen)] if np.ndim(values) else values
    tensor = pack(columns(chosen, len(shape)), values, shape, format, map=map, fill_value=fill)
    dense, pattern = np.full(shape, fill or 0, np.int64), np.zeros(shape, bool)
    for place, value in zip(chosen, np.broadcast_to(values, len(chosen)), strict=True):
        dense[place], pattern[place] = value, True
    return tensor, dense, pattern


# The maps


@given(shapes_and_maps())
def test_a_map_is_one_to_one_and_the_rest_is_padding(case):
    shape, map = case
    places = cells(shape)
    stored = rows(map.forward(columns(places, len(shape))), len(places))
    assert stored == [stored_place(map, place) for place in places]
    assert len(set(stored)) == len(stored)
    assume(np.prod(map.stored_shape, dtype=float) < 2**14)
    everywhere = cells(map.stored_shape)
    back = rows(map.backward(columns(everywhere, len(map.groups))), len(everywhere))
    there = dict(zip(everywhere, back, strict=True))
    assert [there[place] for place in stored] == places
    padding = set(everywhere) - set(stored)
    assert all(any(x >= size for x, size in zip(there[place], shape, strict=True)) for place in padding)
    assert map.padded or not padding
    assert np.prod(map.stored_shape, dtype=int) == len(everywhere)


@given(shapes_and_maps())
def test_notation_and_header_give_the_map_back(case):
    shape, map = case
    assert parse_map(str(map), shape) == map
    assert parse_older_map({"shape": list(map.shape), "digits": str(map)}, map.stored_shape) == map
    assert hash(parse_map(str(map), shape)) == hash(map)


@given(st.data())
def test_two_maps_are_one(data):
    shape, first = data.draw(shapes_and_maps())
    second = data.draw(testing.maps(first.stored_shape))
    try:
        both = first.then(second)
    except FormatError:
        assume(False)
    places = cells(shape)
    expected = [stored_place(second, stored_place(first, place)) for place in places]
    assert rows(both.forward(columns(places, len(shape))), len(places)) == expected
    assert both.stored_shape == second.stored_shape
    assert rows(both.backward(columns(expected, len(second.groups))), len(places)) == places


@given(st.data())
def test_what_merges_or_permutes_goes_after_any_map(data):
    shape, first = data.draw(shapes_and_maps())
    rank = len(first.groups)
    order = data.draw(st.permutations(range(rank)))
    cuts = sorted(data.draw(st.sets(st.integers(1, rank - 1)))) if rank > 1 else []
    second = IndexMap.grouping(first.stored_shape, order, cuts)
    both = first.then(second)
    for place in cells(shape):
        assert stored_place(both, place) == stored_place(second, stored_place(first, place))
    axes = data.draw(st.permutations(range(len(shape))))
    turned = first.permuted(axes)
    for place in cells(shape):
        assert stored_place(turned, [place[k] for k in axes]) == stored_place(first, place)


def test_what_a_map_cuts_unevenly_does_not_become_one():
    merged = IndexMap.grouping((5, 7), (0, 1), ())
    with pytest.raises(FormatError, match="unevenly"):
        merged.then(IndexMap.blocks((35,), 4))
    assert str(merged.then(IndexMap.blocks((35,), 7))) == "0, 1"
    assert str(IndexMap.blocks((10,), 4).then(IndexMap.blocks((3, 4), (2, 2)))) == "0/8, 0/2%2, 0/4%2, 0%2"
    assert str(merged.then(IndexMap.blocks((35,), 14))) == "0/2, (0%2 1)"
    with pytest.raises(FormatError, match="shape"):
        merged.then(IndexMap.blocks((36,), 4))


def test_maps_by_name():
    assert str(IndexMap.transpose((2, 3, 5), (2, 0, 1))) == "2, 0, 1"
    assert str(IndexMap.grouping((2, 3, 5), (2, 0, 1), (1,))) == "2, (0 1)"
    blocks = IndexMap.blocks((6, 8), (2, 4))
    assert str(blocks) == "0/2, 1/4, 0%2, 1%4"
    assert blocks.stored_shape == (3, 2, 2, 4)
    assert not blocks.padded
    assert IndexMap.blocks((7, 8), (2, 4)).padded
    assert str(IndexMap.blocks((16, 16), 8, 2)) == "0/8, 1/8, 0/2%4, 1/2%4, 0%2, 1%2"
    assert str(IndexMap.blocks((4, 4), (1, 2))) == "0, 1/2, 0%1, 1%2"
    z = IndexMap.morton((4, 4))
    assert str(z) == "(0/2 1/2 0%2 1%2)"
    (numbers,) = z.forward(np.divmod(np.arange(16), 4))
    assert numbers.reshape(4, 4).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    assert str(IndexMap.morton((5, 2, 1, 0))) == "(0/4 0/2%2 0%2 1 2 3)"
    assert str(IndexMap.hicoo((8, 16), 4)) == "(1/8 0/4 1/4%2), 0%4, 1%4"
    assert IndexMap.morton(()).groups == ()
    for shape in ((), (5,), (2, 8), (5, 2, 1, 0)):
        assert parse_map("alto", shape) == IndexMap.alto(shape)
        assert parse_map(" morton ", shape) == IndexMap.morton(shape)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple), st.integers(1, 12), st.data())
def test_alto_deals_bits_in_turn_and_blco_keeps_the_lowest(shape, bits, data):
    """The oracle deals bits from the least significant on: in each round one to each dimension that has more."""
    places = [tuple(data.draw(st.integers(0, size - 1)) for size in shape) for _ in range(5)]
    lengths = [(size - 1).bit_length() for size in shape]
    turns = sorted(range(len(shape)), key=lambda k: lengths[k])
    dealt = [(k, bit) for bit in range(max(lengths)) for k in turns if bit < lengths[k]]
    expected = [sum((place[k] >> bit & 1) << at for at, (k, bit) in enumerate(dealt)) for place in places]
    alto = IndexMap.alto(shape)
    assert rows(alto.forward(columns(places, len(shape))), 5) == [(number,) for number in expected]
    assert rows(alto.backward([expected]), 5) == places
    blco = IndexMap.blco(shape, bits)
    stored = blco.forward(columns(places, len(shape)))
    assert rows(blco.backward(stored), 5) == places
    if len(stored) > 1 and 1 not in shape:  # the digit of a dimension of size 1 counts as a bit
        assert stored[0].tolist() == [number >> bits for number in expected]
        assert blco.stored_shape[1] == 2 ** min(bits, len(dealt))
    with pytest.raises(FormatError, match="bits"):
        IndexMap.blco(shape, 0)


@given(st.integers(0, 6), st.integers(0, 6), st.data())
def test_diagonals_are_numpys(n, m, data):
    dense = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n * m, max_size=n * m)), float).reshape(n, m)
    tensor = pack_dense(dense, "sparse, sparse through 1-0, 0", fill_value=0)
    assert tensor.stored.shape == (max(n + m - 1, 0), n)
    stored = tensor.stored.to_dense()
    for d in range(max(n + m - 1, 0)) if n and m else ():
        first = max(-(d - n + 1), 0)
        diagonal = np.diagonal(dense, d - n + 1)
        np.testing.assert_array_equal(stored[d, first : first + len(diagonal)], diagonal)
        assert stored[d].sum() == diagonal.sum()
    np.testing.assert_array_equal(tensor @ np.arange(m), dense @ np.arange(m))
    np.testing.assert_array_equal(tensor.T.to_dense(), dense.T)


SHAPE = (5, 6, 7)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "text",
    [
        f"sparse through {IndexMap.alto(SHAPE)}",
        f"dense, sparse through {IndexMap.blco(SHAPE, 4)}",
        f"sparse, sparse(3) through {IndexMap.hicoo(SHAPE, 3)}",
        "sparse, dense, sparse through 2-0, 0, 1",
        "sparse, sparse through (0 1-2), 2",
        "sparse(2), dense(2) through (0-1/4 2), 1, 0-1/2%2, 0-1%2",
        "sparse through (0%2 1/4 0/2%2 2/2 1%2 0/4 2%2 1/2%2)",
    ],
)
def test_what_is_computed_through_maps(text):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, SHAPE) * (rng.random(SHAPE) < 0.3)
    factors = [rng.integers(0, 9, (size, 4)) for size in SHAPE]
    tensor = pack_dense(dense, "COO").convert(text)
    a, b, c = factors
    for spec, first, second in (("ijk,jr,kr->ir", b, c), ("ijk,ir,kr->jr", a, c), ("ijk,ir,jr->kr", a, b)):
        np.testing.assert_array_equal(bl.einsum(spec, tensor, first, second), np.einsum(spec, dense, first, second))
    view, cells = tensor[::-1, 1:, [6, 0, 3]], dense[::-1, 1:, [6, 0, 3]]
    np.testing.assert_array_equal(view.to_dense(), cells)
    np.testing.assert_array_equal(bl.reduce(view, (0, 2)), cells.sum((0, 2)))
    again = tensor.convert("CSF").convert(text)
    assert again.equals(tensor)


def test_what_a_second_map_does_to_differences():
    diagonals = parse_map("1-0, 0", (4, 6))
    assert str(IndexMap.transpose((6, 4), (1, 0)).then(parse_map("1-0, 0", (4, 6)))) == "0-1, 1"
    assert str(diagonals.then(IndexMap.blocks((9, 4), 2))) == "1-0/2, 0/2, 1-0%2, 0%2"
    assert str(diagonals.permuted((1, 0))) == "0-1, 1"
    assert [str(x) for x in diagonals.restricted((1,), (3,))] == ["0", "[0]"]
    for first, second in (
        (IndexMap.blocks((4, 6), 2), "0, 1, 2, 3-0"),
        (IndexMap.grouping((4, 6, 2), (0, 1, 2), (1,)), "0, 1-0"),
        (diagonals, "0, 1-0"),
    ):
        with pytest.raises(FormatError, match="divides or merges"):
            first.then(parse_map(second, first.stored_shape))
    with pytest.raises(FormatError, match="subtracts"):
        diagonals.dm()


def test_the_parameters_of_a_grouping():
    dense = np.arange(24).reshape(2, 3, 4)
    map = IndexMap.grouping((2, 3, 4), (2, 0, 1), (1,))
    assert map.dm() == (((2,), (0, 1)), ((1,), (3, 1)), (0, 0))
    tensor = pack_dense(dense.transpose(2, 0, 1).reshape(4, 6), "CSR").with_map(map)
    assert tensor[1:][0].dm() == (((1,), (0,)), ((1,), (1,)), (0, 3))
    assert tensor[:, ::-2, 1].T.dm() == (((), (1, 0)), ((), (3, -2)), (1, 2))
    for view in (tensor[1:][0], tensor[:, ::-2, 1].T, tensor[:, 1:, 3]):
        groups, strides, offset = view.dm()
        for place in np.ndindex(*view.shape):
            stored = [
                start + sum(step * place[k] for step, k in zip(s, g, strict=True))
                for start, s, g in zip(offset, strides, groups, strict=True)
            ]
            assert tensor.stored[tuple(stored)] == view[place]
    with pytest.raises(FormatError, match="divides"):
        IndexMap.blocks((4,), 2).dm()
    with pytest.raises(FormatError, match="index array"):
        tensor[[0, 1]].dm()


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ((4, 4), "0", "dimension 1"),
        ((4, 4), "0, 1, 0", "dimension 0"),
        ((4,), "0/2", "do not make up"),
        ((4,), "0%2", "do not make up"),
        ((4,), "0/2, 0%3", "do not make up"),
        ((4,), "0/0, 0%2", "no digit"),
        ((4,), "0, 7", "no digit"),
        ((4,), "0,", "expected digits"),
        ((4,), "()", "has no digit"),
        ((4,), "(0", "expected digits"),
        ((4,), "0 0", "expected digits"),
        ((4,), "-1", "expected a digit"),
        ((2**32, 2**32), "(0 1)", "2\\*\\*63"),
        ((2**63 - 1,), "0/4, 0%4", "2\\*\\*63"),
        ((-1,), "0", "2\\*\\*63"),
        ((4, 5), "0, 1-1", "difference"),
        ((4, 5), "1-0, 0-1", "difference"),
        ((4, 5), "1-0/2, 1%2, 0", "difference"),
        ((4, 5), "1-0, 1", "do not make up"),
        ((4, 5), "1-0, 0, 0-1", "difference"),
        ((4, 5), "1-2, 0", "no digit"),
        ((4, 5), "1-, 0", "expected a digit"),
        ((4, 5), "1--1, 0", "expected a digit"),
        ((4, 5), "1-0-0, 0", "expected a digit"),
        ((4, 5), "0, 1-0%9", "do not make up"),
        ((2**62, 2**62 + 2), "1-0, 0", "2\\*\\*63"),
    ],
)
def test_what_is_no_map(shape, text, message):
    with pytest.raises(FormatError, match=message):
        parse_map(text, shape)


@given(st.text("0123%/()- ,", max_size=12), SHAPES)
def test_any_text_is_a_map_or_refused(text, shape):
    try:
        map = parse_map(text, shape)
    except FormatError:
        return
    assert parse_map(str(map), shape) == map


def test_what_else_is_no_map():
    for wrong in (
        lambda: IndexMap.grouping((2, 3), (0, 0), (1,)),
        lambda: IndexMap.grouping((2, 3), (0, 1, 2), (1,)),
        lambda: IndexMap.grouping((2, 3), (0, -1), (1,)),
        lambda: IndexMap.grouping((2, 3), (0, 1), (0,)),
        lambda: IndexMap.grouping((2, 3), (0, 1), (2,)),
        lambda: IndexMap.grouping((2, 3, 4), (0, 1, 2), (2, 1)),
        lambda: IndexMap.grouping((2, 3), (0, 1), (1.0,)),
        lambda: IndexMap.grouping((), (), (1,)),
        lambda: IndexMap.blocks((4, 4), (2, 0)),
        lambda: IndexMap.blocks((4, 4), (2,)),
        lambda: IndexMap.blocks((4, 4)),
        lambda: IndexMap.blocks((4, 4), 3, 2),
        lambda: IndexMap.morton((2**40, 2**40)),
        lambda: IndexMap((4,), ((Digit(0, 1, 3),),)),
        lambda: parse_map(IndexMap.morton((4,)), (5,)),
    ):
        with pytest.raises(FormatError):
            wrong()
    with pytest.raises(LimitError):
        parse_map("(" + "0%1 " * 5000 + "0)", (1,))
    with pytest.raises(TypeError):
        parse_map(7, (4,))
    with pytest.raises(TypeError):
        IndexMap.morton(4)
    with pytest.raises(ArrayError, match=r"coords\[1\]\[2\]"):
        IndexMap.morton((4, 4)).forward([[0, 1, 2], [0, 1, 4]])
    with pytest.raises(ArrayError, match="each of 2"):
        IndexMap.morton((4, 4)).forward([[0]])
    with pytest.raises(ArrayError, match="integers"):
        IndexMap.morton((4,)).backward([[0.5]])


# Tensors through them


@given(mapped_tensors())
def test_entries_come_back_without_padding(case):
    tensor, dense, pattern = case
    coords, values = tensor.unpack()
    found = dict(zip(rows(coords, len(values)), values.tolist(), strict=True))
    assert len(found) == len(values)
    expected = (
        {place: dense[place] for place in zip(*np.nonzero(pattern), strict=True)} if dense.ndim else {(): dense[()]}
    )
    if tensor.format.padded:
        assert expected.items() <= found.items()
    else:
        assert found == expected
    assert all(x < size for place in found for x, size in zip(place, dense.shape, strict=True))
    assert tensor.number_of_stored_values == len(values)
    np.testing.assert_array_equal(tensor.to_dense(), dense)
    plain = tensor.without_map()
    assert plain.shape == tensor.shape == dense.shape
    assert tensor.equals(plain)
    tensor.check()
    again = pickle.loads(pickle.dumps(tensor))
    assert again.equals(tensor)
    assert again.map == tensor.map


@given(mapped_tensors(), st.data())
def test_views_are_numpys(case, data):
    tensor, dense, pattern = case
    padded = tensor.format.padded  # a view that lists its entries lists those of padding too
    for _ in range(2):
        key = data.draw(keys(dense.shape))
        tensor, dense, pattern = tensor[key], dense[key], pattern[key]
        found = tensor.to_dense() if isinstance(tensor, Tensor) else tensor
        np.testing.assert_array_equal(found, dense)
        if not isinstance(tensor, Tensor) or tensor.map is None:
            return
        assert tensor.shape == dense.shape
        axes = data.draw(st.permutations(range(dense.ndim)))
        tensor, dense, pattern = tensor.permute(axes), dense.transpose(axes), pattern.transpose(axes)
        if not padded and dense.ndim:
            assert sorted(rows(tensor.unpack()[0], 0)) == rows(np.nonzero(pattern), 0)
        if data.draw(st.booleans()):
            stored, map = tensor.stored, tensor.map
            stored.check()
            assert stored.shape == map.stored_shape
            np.testing.assert_array_equal(stored.with_map(map).to_dense(), dense)
        np.testing.assert_array_equal(tensor.T.to_dense(), dense.T)


@given(mapped_tensors(), st.data())
def test_conversion_to_other_maps(case, data):
    tensor, dense, _ = case
    map = data.draw(testing.maps(dense.shape))
    assume(np.prod(map.stored_shape, dtype=float) < 2**16)
    format = data.draw(testing.formats(min_rank=len(map.groups), max_rank=len(map.groups)))
    found = tensor.convert(format, map=map)
    assert (found.map, found.format) == (map, format)
    np.testing.assert_array_equal(found.to_dense(), dense)
    if not (format.padded or tensor.format.padded):
        assert found.equals(tensor)
    assert str(found.fill_value) == str(tensor.fill_value)
    if dense.ndim:
        again = tensor.with_map(IndexMap.transpose(dense.shape[::-1], range(dense.ndim)[::-1]))
        np.testing.assert_array_equal(again.to_dense(), dense.T)
        assert not len(tensor.values) or np.shares_memory(again.values, tensor.values)


def test_single_values_and_arrays_of_them():
    tensor = pack_dense(MATRIX, "CSR").convert("sparse, sparse(2)", map=IndexMap.hicoo(MATRIX.shape, 2))
    for place in np.ndindex(*MATRIX.shape):
        assert tensor[place] == MATRIX[place]
        assert tensor[1:, ::-1][place[0] - 1, place[1]] == MATRIX[1:, ::-1][place[0] - 1, place[1]]
    rows_and_columns = np.array([0, 2, -1]), np.array([1, 4, 0])
    assert tensor[rows_and_columns].tolist() == MATRIX[rows_and_columns].tolist()
    assert tensor[[2, 0]][[0, 1], 0].tolist() == MATRIX[[2, 0]][[0, 1], 0].tolist()
    assert tensor[[0, 2], 3].tolist() == MATRIX[[0, 2], 3].tolist()
    for key in ((3, 0), (0, 0, 0), ([0, 1], [0, 1, 2]), True):
        with pytest.raises(IndexError):
            tensor[key]
    with pytest.raises(ValueError, match="zero"):
        tensor[::0]


@given(mapped_tensors(), st.data())
def test_all_that_a_tensor_is_asked_is_asked_of_one_with_a_map(case, data):
    tensor, dense, _ = case
    if dense.ndim and data.draw(st.booleans()):
        key = tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in dense.shape)
        tensor, dense = tensor[key], dense[key]
    plain = tensor.without_map()
    assert tensor.equals(plain)
    assert plain.equals(tensor)
    if not any(level.padded for level in tensor.format.levels):
        assert tensor.expand_structure().drop_fill().equals(plain.drop_fill())
    cast = tensor.astype(np.float32)
    assert cast.dtype == np.float32
    assert cast.equals(plain.astype(np.float32))
    np.testing.assert_array_equal(bl.to_numpy(tensor), dense)
    assert bl.to_sparse(tensor).fill_value == (tensor.fill_value or 0)
    np.testing.assert_array_equal(bl.to_sparse(tensor).todense(), dense)
    if dense.ndim and not tensor.fill_value:
        np.testing.assert_array_equal(bl.to_scipy(tensor).toarray(), dense)
    assert str(bl.advise(tensor)) == str(bl.advise(plain))
    assert tensor.draw().startswith("<svg")
    if dense.ndim:
        assert tensor.draw([0]) == plain.draw([0])
        dimension = data.draw(st.integers(0, dense.ndim - 1))
        parts = list(tensor.slabs(dimension, max_bytes=10**6))
        joined = [part.to_dense() for _, part in parts]
        if joined:
            np.testing.assert_array_equal(np.concatenate(joined, dimension), dense)
    if dense.size:
        coords = [x.reshape(-1) for x in np.indices(dense.shape)] or [np.zeros(1, int)][:0]
        positions = tensor.locate(coords)
        found = np.where(positions < 0, tensor.fill_value or 0, np.append(tensor.values, 0)[positions])
        np.testing.assert_array_equal(found, dense.reshape(-1))
        if dense.ndim:
            with pytest.raises(IndexError):
                tensor.locate([x + size for x, size in zip(coords, dense.shape, strict=True)])
    assert isinstance(tensor.descriptor_attributes, Mapping)
    assert set(tensor.arrays) == set(tensor.stored.arrays)


def test_permuting_and_packing_move_nothing():
    tensor = pack_dense(MATRIX, "CSR").convert("dense, sparse, dense(2)", map="0/2, 1/3, 0%2, 1%3")
    assert inside(tensor.T.stored).backing is inside(tensor.stored).backing
    assert str(tensor.T.map) == "1/2, 0/3, 1%2, 0%3"
    assert tensor.nbytes == tensor.stored.nbytes
    turned = tensor.convert("dense(2), sparse(2)", map="0%2, 1%3, 0/2, 1/3")
    np.testing.assert_array_equal(turned.to_dense(), MATRIX)
    with pytest.raises(FormatError):
        tensor.permute((0, 0))
    with pytest.raises(TypeError):
        np.asarray(tensor)
    assert "0/2, 1/3, 0%2, 1%3" in repr(tensor)
    assert "a view" in repr(tensor[1:])


def test_faults_are_told_by_the_coordinates_of_the_tensor():
    with pytest.raises(ArrayError, match=r"\(2, 3\) is given more than once"):
        pack([[2, 0, 2], [3, 1, 3]], [1, 2, 3], (4, 5), "sparse(4)", map="0/2, 1/2, 0%2, 1%2")
    with pytest.raises(ArrayError, match="5 is outside dimension 1 of size 5"):
        pack([[2], [5]], [1], (4, 5), "sparse(4)", map="0/2, 1/2, 0%2, 1%2")
    summed = pack([[2, 2], [3, 3]], [1, 2], (4, 5), "sparse(4)", map="0/2, 1/2, 0%2, 1%2", duplicates="sum")
    assert summed[2, 3] == 3
    with pytest.raises(FormatError, match="structure"):
        pack([[1], [0]], [1.0], (2, 2), "COO", structure="symmetric_lower").with_map(IndexMap.morton((2, 2)))
    with pytest.raises(FormatError, match="stores a tensor of shape"):
        pack_dense(MATRIX, "CSR").with_map(IndexMap.morton((3, 5)))


def test_what_stands_at_padding_is_no_entry():
    stored = pack([[0, 1, 1], [0, 0, 1]], [1, 2, 3], (2, 2), "COO", fill_value=0)
    tensor = stored.with_map(parse_map("0/2, 0%2", (3,)))
    assert tensor.unpack()[1].tolist() == [1, 2]
    assert tensor.to_dense().tolist() == [1, 0, 2]
    assert tensor[::-1].to_dense().tolist() == [2, 0, 1]
    assert tensor.convert("CVEC", map="0").stored.values.tolist() == [1, 2]


def test_sizes_beyond_memory():
    shape = (2**40, 2**20, 3)
    coords = [[0, 2**39 + 7, 2**40 - 1], [1, 2**19, 5], [2, 0, 1]]
    for map, format in [
        (IndexMap.blocks(shape, 128), "sparse(3), sparse(3)"),
        (IndexMap.morton(shape), "sparse"),
        (IndexMap.grouping(shape, (1, 0, 2), (1,)), "sparse, sparse"),
    ]:
        tensor = pack(coords, [1.0, 2.0, 3.0], shape, format, map=map)
        assert tensor[2**39 :, 4:].unpack()[1].tolist() in ([2, 3], [3, 2])
        assert tensor[2**39 + 7].unpack()[1].tolist() == [2]
        assert tensor[-1, 5, 1] == 3
        assert tensor[::-1, :, 2].number_of_stored_values == 1


@pytest.mark.parametrize("key", [np.s_[1], np.s_[:, 2], np.s_[1:, :, 3], np.s_[:, [2, 0]]], ids=str)
def test_a_map_over_a_view_is_indexed_like_a_view(key):
    view = pack_dense(np.arange(60.0).reshape(3, 4, 5), "dense, sparse, dense")[key].T
    seen = view.with_map(IndexMap.transpose(view.shape[::-1], range(view.ndim)[::-1]))
    for again in (np.s_[0], np.s_[..., 0], np.s_[1:], np.s_[[1, 0]]):
        np.testing.assert_array_equal(seen[again].to_dense(), view.to_dense().T[again])


# Files


@pytest.mark.parametrize("name", ["t.h5", "t.zarr", "t.npz", "t.bspnpy", "t.bspra", "t.nc"])
def test_a_map_stands_beside_what_is_stored(name, tmp_path):
    tensor = pack([[0, 2], [1, 4]], [1.5, 2.5], (3, 5), "dense, sparse, dense(2)", map="0/2, 1/2, 0%2, 1%2")
    stored = tensor.stored
    whole = Tensor(stored.format, stored.shape, stored.arrays, stored.values, attributes={"unit": "m"})
    tensor = whole.with_map(tensor.map)
    path = str(tmp_path / name)
    bl.write(path, tensor)
    again = bl.read(path)
    assert isinstance(again, Tensor)
    assert again.map == tensor.map
    testing.check_same(again.stored, tensor.stored)
    assert dict(again.attributes) == {"unit": "m"}
    opened = bl.open(path)
    assert inside(opened.stored).source.lazy
    np.testing.assert_array_equal(opened[1:, ::2].to_dense(), tensor.to_dense()[1:, ::2])
    assert opened[2, 4] == 2.5
    assert inside(opened.stored).source.lazy
    bl.write(str(tmp_path / f"again_{name}"), opened[:2])  # a view too
    np.testing.assert_array_equal(bl.read(str(tmp_path / f"again_{name}")).to_dense(), tensor.to_dense()[:2])
    # Another program sees the shape of the tensor, and a first level that it does not know.
    header: dict = {}
    bl.write(header, tensor)
    described = header["binsparse"]["binsparse"]
    assert described["shape"] == [3, 5]
    level = described["custom"]["level"]
    stored = level.pop("level")
    assert level == {"level_desc": MAP, "rank": 2, "digits": "0/2, 1/2, 0%2, 1%2"}
    assert stored == tensor.stored.format.custom()["level"]


def test_the_protocol_and_seals(tmp_path):
    tensor = pack_dense(MATRIX, "CSR").convert("sparse", map=IndexMap.morton(MATRIX.shape))
    again = bl.from_binsparse(tensor)
    assert again.map == tensor.map
    assert again.equals(tensor)
    bl.write(tmp_path / "t.h5", tensor, checksum=True)
    assert bl.read(tmp_path / "t.h5").map == tensor.map


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (7, "expected an object"),
        ({"shape": [3, 5]}, "digits"),
        ({"shape": [3, 5], "digits": 7}, "digits"),
        ({"shape": [3, "5"], "digits": "0, 1"}, "shape"),
        ({"shape": [3, 5], "digits": "0, 2"}, "no digit"),
        ({"shape": [3, 5], "digits": "1, 0"}, "shape"),
        ({"shape": [-3, 5], "digits": "0, 1"}, "2\\*\\*63"),
        ({"shape": [3, 5], "digits": "0, 1", "more": 1}, "no such key"),
    ],
)
def test_a_map_of_an_older_file_is_checked(change, message):
    bl.write(stored := {}, pack_dense(MATRIX, "CSR"))
    stored["binsparse"][MAP] = change
    for lenient in (False, True):
        with pytest.raises(DescriptorError, match=message) as caught:
            bl.read(stored, lenient=lenient)
        assert caught.value.problems[0].path.startswith(MAP)
    with pytest.raises(DescriptorError):
        bl.open(stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digits": None}, "digits: expected digits"),
        ({"digits": 7}, "digits: expected digits"),
        ({"digits": "0,\t1"}, "digits: expected digits"),
        ({"digits": "0, 2"}, "no digit"),
        ({"digits": "1, 0, 0"}, "do not make up"),
        ({"digits": "1-0, 0-1"}, "difference"),
        ({"digits": "1-99999, 0"}, "no digit"),
        ({"digits": "1-0/9, 0"}, "do not make up"),
        ({"digits": "(0 1)"}, "expected 2 dimensions, as the format CSR has"),
        ({"rank": 3}, "rank: expected 2"),
        ({"rank": True}, "rank: expected 2"),
        ({"more": 1}, "no such key"),
        ({"transpose": [0, 0]}, "custom.level.transpose: expected a permutation"),
        ({"level": None}, "custom.level.level: missing"),
        ({"level": {"level_desc": MAP, "rank": 2}}, "unknown level kind"),
    ],
)
def test_a_map_in_a_file_is_checked(change, message):
    bl.write(stored := {}, pack_dense(MATRIX, "CSR", map="0, 1"))
    stored["binsparse"]["binsparse"]["custom"]["level"] |= change
    for read in (bl.read, bl.open, partial(bl.read, lenient=True)):
        with pytest.raises((DescriptorError, FormatError), match=message) as caught:
            read(stored)
        assert caught.value.problems[0].path.startswith("custom")


def test_levels_at_the_root_stand_in_one_place():
    bl.write(stored := {}, pack_dense(MATRIX, "CSR", map="0, 1"), bitpacked=True)
    descriptor = stored["binsparse"]["binsparse"]
    for name, change, message in [
        ("format", "CSR", "expected custom"),
        ("transpose", [1, 0], "belongs to the map's level"),
        (MAP, {"shape": [3, 5], "digits": "0, 1"}, "a level at the root already defines"),
        ("rank", 1, "expected 0"),
    ]:
        changed = copy.deepcopy(stored)
        inner = changed["binsparse"]["binsparse"]
        place = {"format": inner, MAP: changed["binsparse"], "rank": inner["custom"]["level"]}.get(
            name, inner["custom"]
        )
        place[name] = change
        with pytest.raises(DescriptorError, match=message):
            bl.read(changed)
    packed = descriptor["custom"]["level"]
    map = packed["level"]
    descriptor["custom"]["level"] = {**map, "level": {**packed, "level": map["level"]}}
    with pytest.raises(DescriptorError, match="unknown level kind"):
        bl.read(stored)


def test_a_structure_has_no_map():
    bl.write(stored := {}, pack([[1], [0]], [1.0], (2, 2), "COO", structure="symmetric_lower"))
    stored["binsparse"][MAP] = {"shape": [2, 2], "digits": "0, 1"}
    with pytest.raises(DescriptorError, match="symmetric_lower"):
        bl.read(stored)
    bl.write(stored := {}, pack([[1], [0]], [1.0], (2, 2), "COO", map="1, 0"))
    stored["binsparse"]["binsparse"]["structure"] = "symmetric_lower"
    with pytest.raises(DescriptorError, match="symmetric_lower"):
        bl.read(stored)


def test_files_of_other_systems_hold_the_entries(tmp_path):
    tensor = pack_dense(MATRIX, "CSR").convert("sparse", map=IndexMap.morton(MATRIX.shape))
    bl.write(tmp_path / "t.mtx", tensor)
    assert bl.read(tmp_path / "t.mtx").map is None
    np.testing.assert_array_equal(bl.read(tmp_path / "t.mtx").to_dense(), MATRIX)


def test_larger_than_memory(tmp_path):
    tensor = pack_dense(MATRIX, "CSR").convert("sparse(2), sparse(2)", map=IndexMap.blocks(MATRIX.shape, 2))
    source, target = str(tmp_path / "t.h5"), str(tmp_path / "u.h5")
    bl.write(source, tensor)
    bl.convert(source, target, "dense, sparse(3)", memory=2**33)
    assert bl.read(target).map == tensor.map
    assert bl.read(target).equals(tensor)
    bl.append(source, tensor)
    np.testing.assert_array_equal(bl.read(source).to_dense(), np.concatenate([MATRIX, MATRIX]))


def test_files_are_converted_to_another_map(tmp_path):
    source, target = str(tmp_path / "t.h5"), str(tmp_path / "u.h5")
    bl.write(source, pack_dense(MATRIX, "CSR"))
    bl.convert(source, target, "dense, sparse, dense(2)", map="0/2, 1/2, 0%2, 1%2")
    assert str(bl.read(target).map) == "0/2, 1/2, 0%2, 1%2"
    np.testing.assert_array_equal(bl.read(target).to_dense(), MATRIX)
    bl.convert(target, source, map="(0 1)", overwrite=True)
    assert str(bl.read(source).format) == "CVEC"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["COO", "sparse, dense through 1-0, 0", f"sparse through {IndexMap.alto((300, 200))}"])
def test_files_larger_than_memory_are_converted_to_another_map(text, tmp_path, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "step_entries", 5000)
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (300, 200)) * (rng.random((300, 200)) < 0.9)
    source, target = str(tmp_path / "t.h5"), str(tmp_path / "u.h5")
    bl.write(source, pack_dense(dense, "COO").convert(text))
    own = bl.read(source)
    for map, format in (("0/16, 1/8, 0%16, 1%8", "sparse(2), dense(2)"), ("0-1, 1", None), (None, own.format)):
        bl.convert(source, target, format, map=map, memory=2**33, overwrite=True)
        found = bl.read(target)
        assert str(found.map) == (map or str(own.map))
        np.testing.assert_array_equal(found.to_dense(), dense)
    for memory in (2**33, None):
        bl.convert(source, target, map="0, 1", memory=memory, overwrite=True)
        found = bl.read(target)
        assert (found.map, found.format.alias) == (None, "COOR")
        np.testing.assert_array_equal(found.to_dense(), dense)
    bl.write(tmp_path / "t.mtx", pack_dense(dense, "COO"))
    bl.convert(tmp_path / "t.mtx", target, map="(0 1)", memory=2**28, overwrite=True)
    assert bl.read(target).notation == "CVEC through (0 1)"
    np.testing.assert_array_equal(bl.read(target).to_dense(), dense)
    symmetric = pack([[1], [0]], [1.0], (2, 2), "COO", structure="symmetric_lower")
    bl.write(tmp_path / "s.mtx", symmetric)
    with pytest.raises(FormatError, match="no map"):
        bl.convert(tmp_path / "s.mtx", target, map="(0 1)", memory=2**28, overwrite=True)
    bl.convert(tmp_path / "s.mtx", target, map="0, 1", memory=2**28, overwrite=True)
    assert bl.read(target).equals(symmetric)


def test_tensors_through_maps_are_built_from(tmp_path):
    tensors = [pack_dense(MATRIX, "COO").convert(text) for text in ("CSR", "sparse, dense through 1-0, 0")]
    for k, tensor in enumerate(tensors):
        bl.write(tmp_path / f"{k}.h5", tensor)
    places = [str(tmp_path / "0.h5"), str(tmp_path / "1.h5")]
    built, how = str(tmp_path / "built.zarr"), {"duplicates": "sum", "dtype": float}
    bl.build(places, built, MATRIX.shape, "sparse, dense", map="0-1, 1", **how)
    assert str(bl.read(built).map) == "0-1, 1"
    np.testing.assert_array_equal(bl.read(built).to_dense(), 2 * MATRIX)


def test_what_a_tensor_without_a_map_says():
    tensor = pack_dense(MATRIX, "CSR", attributes={"unit": "m"})
    assert tensor.map is None
    assert tensor.stored is tensor
    assert tensor.without_map() is tensor
    with pytest.raises(FormatError, match="has none"):
        tensor.dm()
    blocked = tensor.convert("sparse(4)", map="0/2, 1/2, 0%2, 1%2")
    assert dict(blocked.attributes) == dict(blocked.without_map().attributes) == {"unit": "m"}
    assert dict(blocked[1:].attributes) == dict(tensor[1:].attributes) == {"unit": "m"}
    symmetric = pack([[1], [0]], [1.0], (2, 2), "COO", structure="symmetric_lower")
    np.testing.assert_array_equal(symmetric.convert("sparse", map="(0 1)").to_dense(), symmetric.to_dense())
    with pytest.raises(FormatError, match="without_map"):
        symmetric.convert("sparse", map="(0 1)").with_structure("symmetric_lower")
    with pytest.raises(FormatError, match="expand_structure"):
        pack([[1], [0]], [1.0], (2, 2), "sparse(2)", structure="symmetric_lower", map="0, 1")


def test_the_command_line(tmp_path, capsys):
    source, blocked, plain = (str(tmp_path / f"{name}.h5") for name in "abc")
    bl.write(source, pack_dense(MATRIX, "CSR"))
    assert main(["convert", source, blocked, "--map", "0/2, 1/2, 0%2, 1%2", "--format", "dense, sparse, dense(2)"]) == 0
    assert str(bl.read(blocked).map) == "0/2, 1/2, 0%2, 1%2"
    assert main(["info", blocked]) == 0
    assert "0/2, 1/2, 0%2, 1%2, stored in shape 2 × 3 × 2 × 2" in capsys.readouterr().out
    assert main(["info", blocked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["map"] == {"shape": [3, 5], "digits": "0/2, 1/2, 0%2, 1%2"}
    assert (told["shape"], told["stored_shape"]) == ([3, 5], [2, 3, 2, 2])
    assert main(["check", blocked]) == 0
    assert main(["convert", blocked, plain, "--map", "0, 1", "--format", "CSC"]) == 0
    assert bl.read(plain).map is None
    np.testing.assert_array_equal(bl.read(plain).to_dense(), MATRIX)
    assert main(["convert", blocked, plain, "--map", "0", "--overwrite"]) == 2
    assert main(["convert", blocked, plain, "--map", "0, 1", "--memory", "16G", "--overwrite"]) == 0


# Other libraries


@pytest.mark.slow
@given(st.data())
def test_gcxs_with_its_arrays(data):
    sparse = pytest.importorskip("sparse")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    dense = np.arange(np.prod(shape)).reshape(shape) % 3
    rows_of = sorted(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1, max_size=len(shape) - 1)))
    array = sparse.GCXS.from_numpy(dense, compressed_axes=rows_of)
    tensor = bl.from_gcxs(array, copy=False)
    np.testing.assert_array_equal(tensor.to_dense(), dense)
    assert np.shares_memory(tensor.stored.values, array.data) or not array.nnz
    back = bl.to_gcxs(tensor)
    assert tuple(back.compressed_axes) == tuple(rows_of)
    assert np.shares_memory(back.data, array.data) or not array.nnz
    np.testing.assert_array_equal(back.todense(), dense)
    other = bl.to_gcxs(tensor, compressed_axes=[len(shape) - 1])
    assert tuple(other.compressed_axes) == (len(shape) - 1,)
    np.testing.assert_array_equal(other.todense(), dense)
    key = data.draw(keys(shape))
    found = tensor[key]
    np.testing.assert_array_equal(found.to_dense() if isinstance(found, bl.Tensor) else found, dense[key])


def test_gcxs_of_one_dimension_and_none():
    sparse = pytest.importorskip("sparse")
    for dense in (np.array([0, 3, 0, 4]), np.array(5)):
        tensor = bl.from_gcxs(sparse.GCXS.from_numpy(dense))
        np.testing.assert_array_equal(tensor.to_dense(), dense)
        np.testing.assert_array_equal(bl.to_gcxs(tensor).todense(), dense)
    broken = sparse.GCXS.from_numpy(MATRIX, compressed_axes=(0,))
    broken.indices = broken.indices + 7
    with pytest.raises(ArrayError):
        bl.from_gcxs(broken)
    with pytest.raises(TypeError):
        bl.from_gcxs(MATRIX)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore::UserWarning")  # that its own layouts are new
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dense_dim", [0, 1])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_torch_and_back(torch, layout, batch, dense_dim):
    cells = (np.arange(48) * 7 % 5 * (np.arange(48) % 3 == 0)).reshape(6, 8).astype(np.float32)
    dense = np.broadcast_to(cells, (*batch, 6, 8)).copy()
    dense = np.stack([dense, -dense], -1) if dense_dim else dense
    whole = torch.from_numpy(dense)
    if layout == "coo":
        array = whole.to_sparse(dense.ndim - dense_dim)
    elif layout in ("csr", "csc"):
        array = getattr(whole, f"to_sparse_{layout}")(dense_dim=dense_dim)
    else:
        array = getattr(whole, f"to_sparse_{layout}")((2, 4), dense_dim=dense_dim)
    tensor = bl.from_torch(array, copy=False)
    np.testing.assert_array_equal(tensor.to_dense(), dense)
    assert (tensor.map is not None) == layout.startswith("bs")
    stored = tensor.stored
    stored.check()
    assert np.shares_memory(stored.values, array.values().numpy())
    back = bl.to_torch(tensor)
    assert back.layout == array.layout
    assert back.dense_dim() == dense_dim
    np.testing.assert_array_equal(back.to_dense().numpy(), dense)
    pointers = {"csr": "crow_indices", "bsr": "crow_indices", "csc": "ccol_indices", "bsc": "ccol_indices"}
    if layout in pointers:
        ours, theirs = getattr(back, pointers[layout])(), getattr(array, pointers[layout])()
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_torch_in_another_layout(torch):
    cells = np.arange(48).reshape(6, 8) % 4
    tensor = pack_dense(cells, "COO")
    for layout, block in [("coo", None), ("csr", None), ("csc", None), ("bsr", (2, 4)), ("bsc", (3, 2))]:
        array = bl.to_torch(tensor, layout, block=block)
        assert str(array.layout) == f"torch.sparse_{layout}"
        np.testing.assert_array_equal(array.to_dense().numpy(), cells)
        np.testing.assert_array_equal(bl.to_torch(bl.from_torch(array), "csr").to_dense().numpy(), cells)
    uneven = pack_dense(np.stack([cells, cells * (cells > 2)]), "dense(2), sparse")
    assert bl.to_torch(uneven).layout == torch.sparse_coo  # batches of torch have as many entries
    vector = pack_dense(cells[0], "dense, sparse, dense(2)", map="0/4, 0/2%2, 0/1%2, 0/1%1")
    assert bl.to_torch(vector).layout == torch.sparse_coo  # one dimension cannot be cut into blocks of a matrix
    for wrong in ({"layout": "bsr"}, {"layout": "bsr", "block": (4, 4)}, {"layout": "x"}, {"block": (2, 2)}):
        with pytest.raises(FormatError):
            bl.to_torch(tensor, **wrong)
    with pytest.raises(FormatError):
        bl.to_torch(pack_dense(cells, "COO", fill_value=1))
    with pytest.raises(FormatError):
        bl.to_torch(uneven, "csr")
    with pytest.raises(TypeError):
        bl.from_torch(torch.ones(3))
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3))
    assert bl.from_torch(twice)[0, 1] == 3
