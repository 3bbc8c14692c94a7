"""The loops of level kinds, and where a nest of them is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import Sparse, testing
from binsparse_levels.compute import store
from binsparse_levels.compute.nest import Leaf, Seen, Wrap, nest_text
from binsparse_levels.levels import LEVELS


@pytest.mark.parametrize("level", [x for kind in LEVELS.values() for x in kind.samples() if x.loop(False)], ids=str)
@given(data=st.data())
def test_loop_lists_what_expand_lists(level, data):
    testing.check_loop(data.draw(testing.level_cases(level)))


class Roundabout(Sparse):
    """A list of coordinates whose loop does not tell the first of them from its counter."""

    def loop(self, root):
        inner = "        i0 = idx0[q]\n        i1 = idx1[q]\n        yield"
        return f"for part in range(2):\n    for q in range(part * children // 2, (part + 1) * children // 2):\n{inner}"


def test_a_loop_is_cut_only_between_first_coordinates():
    space = {"u8": int}
    leaf = Leaf(("out",), "out[c0] += value", frozenset((0,)), frozenset((0,)))

    def text(level):
        wraps = tuple(Wrap(k + 1, f"c{k} = x{k}\nyield") for k in range(level.rank))
        return nest_text((level,), Seen(wraps, tuple(range(1, level.rank + 1)), frozenset((0,))), leaf, "each")

    for level, extent in ((Sparse(2), (0, 7)), (Sparse(1), (0, 7)), (Roundabout(2), (0, 1)), (bl.Dense(2), (0, 4))):
        exec(text(level), space)
        numbers = [4] * level.rank + [7]
        assert space["extent"](numbers, *[[]] * len(level.arrays(0, True))) == extent
    exec(text(Sparse(2)), space)
    assert space["first"](1, [4, 4, 3], [0, 2, 2], [1, 0, 3]) == 2
    exec(text(Roundabout(2)), space)
    out = np.zeros(4)
    space["nest"](0, 1, [4, 4, 3], [0, 2, 2], [1, 0, 3], [5.0, 6.0, 7.0], out)
    assert out.tolist() == [5, 0, 13, 0]


def test_an_outermost_loop_may_have_a_step(monkeypatch):
    class Stepped(Sparse):
        kind = "stepped"

        def loop(self, root):
            begin, end = ("0", "children") if root else ("ptr[p]", "ptr[p + 1]")
            return f"for q in range({begin}, {end}, 1):\n    i0 = idx0[q]\n    yield\n"

    monkeypatch.setitem(LEVELS, "stepped", Stepped)
    tensor = testing.uniform((300,), 101)
    assert np.isclose(bl.einsum("i,i->", tensor.convert("stepped"), np.ones(300)), tensor.values.sum())


class ByRows(Sparse):
    """A list of coordinates whose loop goes row by row. It counts the rows that it has passed."""

    kind = "by_rows"

    def loop(self, root):
        begin, end = ("0", "children") if root else ("ptr[p]", "ptr[p + 1]")
        return (
            f"at = {begin}\n"
            f"while at < {end}:\n"
            f"    i0 = idx0[at]\n"
            f"    stop = at\n"
            f"    for q in range(at, {end}):\n"
            f"        if idx0[q] == i0:\n"
            f"            i1 = idx1[q]\n"
            f"            stop = stop + 1\n"
            f"            yield\n"
            f"    at = stop\n"
        )


def test_the_sum_of_a_row_stays_in_a_variable(monkeypatch):
    """Statements that may skip the rest stand inside: the loop counts what a view does not have."""
    monkeypatch.setitem(LEVELS, "by_rows", ByRows)
    monkeypatch.setattr(store, "_fast", lambda function, *_: np.errstate(all="ignore")(function))
    leaf = Leaf(("out",), "total += 1", frozenset((0,)), frozenset((0,)), "total = out[c0]\nyield\nout[c0] = total")
    wraps = tuple(Wrap(k + 1, f"c{k} = x{k}\nyield") for k in range(2))
    lines = [x.strip() for x in nest_text((ByRows(2),), Seen(wraps, (1, 2), None), leaf, "each").splitlines()]
    assert lines.index("total = out[c0]") < lines.index("for q0 in range(at_0, n0):") < lines.index("c1 = x1")
    dense = np.arange(42.0).reshape(6, 7) % 3
    vector = np.arange(7.0)
    for chain in ("by_rows(2)", "by_rows(2) through 1, 0", "by_rows(2), dense through 0/2, 1, 0%2"):
        tensor = bl.pack_dense(dense, "COO").convert(chain)
        for key in (slice(None), slice(1, 5), slice(None, None, -2)):
            found, expected = tensor[key, 1:], dense[key, 1:]
            np.testing.assert_allclose(found @ vector[1:], expected @ vector[1:])
            np.testing.assert_allclose(found.sum(0), expected.sum(0))
    square = bl.pack([[0, 2, 2], [0, 1, 2]], [1.0, 2.0, 3.0], (3, 3), "by_rows(2)", structure="symmetric_lower")
    np.testing.assert_allclose(square @ np.arange(3.0), square.to_dense() @ np.arange(3.0))


def test_a_coordinate_is_valid_before_a_loop_that_keeps_it():
    class Beyond(ByRows):
        def loop(self, root):
            return super().loop(root) + "i0 = size0\nfor q in range(0):\n    i1 = 0\n    yield\n"

    case = testing.LevelCase(Beyond(2), (2, 2), 1, np.zeros(1, int), (np.zeros(1, int),) * 2, np.zeros(1, int))
    with pytest.raises(AssertionError, match="before a loop"):
        testing.check_loop(case)
