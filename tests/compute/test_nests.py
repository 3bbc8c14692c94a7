"""The loops of level kinds, and where a nest of them is cut."""

import numpy as np
import pytest
from helpers import kinds
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import FormatError, Sparse, testing
from binsparse_levels.compute.nest import Leaf, Seen, Wrap, list_fiber, nest_text
from binsparse_levels.levels import LEVELS


@pytest.mark.parametrize("level", [x for kind in LEVELS.values() for x in kind.samples() if x.loop(False)], ids=str)
@given(data=st.data())
def test_loop_lists_what_expand_lists(level, data):
    testing.check_loop(data.draw(testing.level_cases(level)))


def test_the_loop_of_a_kind_without_one():
    with pytest.raises(FormatError, match="has no loop"):
        list(list_fiber(kinds.Backwards(), {}, [1], 0, root=False, children=0))


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
        return nest_text((level,), Seen(wraps, tuple(range(1, level.rank + 1)), frozenset((0,))), leaf, False)

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
