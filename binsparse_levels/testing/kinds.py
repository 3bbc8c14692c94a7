"""The laws of a level kind, each a function of a case, and all of them in one call."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import cut
from ..compute.listing import nest_that_lists
from ..compute.nest import loop_problems
from ..compute.walk import arguments
from ..engine.tree import Tree
from ..errors import FormatError, needing, raise_if
from ..formats.format import Format
from ..levels import Dense, Level, Sparse, places, register
from ..levels.base import INTEGERS, Arrays, wrong_type
from ..levels.positions import Array, Positions, as_array, cells, coordinates_at, count_owners
from ..system import bounded_memory
from ..tensors.tensor import Tensor
from .built import BuiltCase, check_rows, listing, places_of, shown
from .cases import FEW, LevelCase, distinct, in_order, level_cases, selections
from .files import check_compiled, check_damage, check_joined, check_merged, check_read, tensors_with

with needing("test"):
    import hypothesis
    from hypothesis import strategies as st

MAX_BYTES = 2**32  # of memory for one law
_SHRINKING = 2  # seconds to find a small case for which a law fails


def check_built(made: BuiltCase) -> None:
    """The arrays of `build` pass `check`, and `size` and `lengths` agree."""
    _check_types(made, made.arrays, "build")
    own = any(spec.dtype for spec in made.specs.values())
    assert not own or made.level.fused() is None, "the fused pass makes arrays of one type: return None from fused()"
    for problem in made.level.check(made.arrays, made.dims, made.n):
        raise AssertionError(f"check refuses the arrays of build: {problem}")
    lengths = {role: len(array) for role, array in made.arrays.items()}
    counted, problems = made.level.lengths(lengths, made.dims, made.n)
    assert not problems, f"lengths refuses the arrays of build: {problems[0]}"
    assert counted in (None, made.size), f"lengths returns {counted} children, size {made.size}"
    if len(made.children):
        assert 0 <= made.children.min() <= made.children.max() < made.size, "build returns a child outside of size"


def _check_types(made: BuiltCase, arrays: Arrays, what: str) -> None:
    for role, x in arrays.items():
        expected = wrong_type(made.specs[role], x.dtype)
        assert not expected, f"{what} returns {x.dtype} for the role {role!r}, not {expected}: cast it"


def check_listed(made: BuiltCase) -> None:
    """`expand` lists the entries that were built, and no others unless the kind is `padded`."""
    lacks, more = places_of(made.entries, made.listing) < 0, places_of(made.listing, made.entries) < 0
    what = "expand lacks an entry that was built, or returns another child"
    assert not lacks.any(), f"{what}: {shown(made.entries[:, lacks])}"
    what = "expand lists other cells than the entries: set padded = True"
    assert made.level.padded or not more.any(), f"{what}, or {shown(made.listing[:, more])} in error"


def check_order(made: BuiltCase) -> None:
    """A fiber lists no coordinate twice. Coordinates and children ascend, unless the kind declares otherwise."""
    level, fibers, cell, child = made.level, made.listing[0], made.listing[:-1], made.listing[-1]
    order = np.lexsort(cell[::-1])
    assert distinct(cell[:, order]).shape == cell.shape, "expand lists a coordinate of a fiber twice; return one child"
    if level.ordered:
        assert (np.diff(order) > 0).all(), "expand is out of order: set ordered = False"
    ascending = (np.diff(fibers[np.argsort(child, kind="stable")]) >= 0).all()
    assert not level.monotone or ascending, "children do not ascend with fibers: set monotone = False"
    if level.ascending:
        assert (np.diff(child) >= 0).all(), "children fall in a fiber: set ordered = False"
    reached = len(np.unique(child))
    assert level.gaps or reached == made.size, "a child has no entry: set gaps = True"
    assert level.shares or reached == len(child), "a child has several coordinates: set shares = True"


def check_located(made: BuiltCase) -> None:
    """`locate` agrees with `expand`: in the first cells, all if they are few, and around samples of entries."""
    level, dims, sizes, entries = made.level, made.dims, (made.n, *made.dims), made.listing[:-1]
    total = max(cells(sizes), 1)
    some = entries[:, np.linspace(0, entries.shape[1] - 1, 64).astype(np.int64)[: entries.shape[1]]]
    near = np.ravel_multi_index(tuple(some), sizes) + np.array([[0], [1], [2**16], [total // 2]])
    numbers = np.append(np.arange(min(cells(sizes), 2**9)), near % total)
    at, *coords = np.array(np.unravel_index(numbers, [max(size, 1) for size in sizes]))
    places = places_of(np.array([at, *coords]), entries)
    expected = np.where(places < 0, -1, np.append(made.listing[-1], 0)[places])
    for locate in level.locate, partial(Level.locate, level):
        found = np.array([at, *coords, as_array(locate(made.arrays, dims, at, coords))])
        check_rows(found, np.array([at, *coords, expected]), "locate, or expand inside a window, differs from expand")


def check_sizes(made: BuiltCase) -> None:
    """`nbytes` is exact, and the numbers of `children` and `sliced` are correct."""
    level, dims, n, size = made.level, made.dims, made.n, made.size
    numbers = {role for role, spec in made.specs.items() if spec.holds in INTEGERS and not spec.dtype}
    real = sum(len(array) * 4 if role in numbers else array.nbytes for role, array in made.arrays.items())
    nbytes = level.nbytes(dims, n, size, root=False, itemsize=4)
    assert nbytes in (None, real), f"nbytes returns {nbytes}, and the arrays take {real}"
    children = level.children(dims, n, made.entries.shape[1])
    assert children in (None, size), f"children returns {children}, and there are {size}"
    for k in range(level.rank):
        taken = level.sliced(dims, n, size, k, root=False, itemsize=4)
        assert (taken is None) == (nbytes is None), "only one of sliced and nbytes returns None"
        assert taken is None or 0 <= taken <= dims[k] * real, f"sliced returns {taken} bytes of {real}"


def check_counted(made: BuiltCase) -> None:
    """The methods `size`, `split` and `count` of a kind return the same as the defaults."""
    level, dims, n, arrays, size = made.level, made.dims, made.n, made.arrays, made.size
    assert level.gaps or Level.size(level, arrays, dims, n) == size, "size differs from the children of expand"
    if level.fused() is not None:
        entries = count_owners(made.case.parents, n, np.dtype(np.int64))
        distinct = made.entries.shape[1] == len(made.case.parents)
        for built, below in [level.split(dims, entries, made.case.coords, distinct=x) for x in {False, distinct}]:
            same = all(np.array_equal(built[role], x) for role, x in arrays.items())
            assert same, "split makes other arrays than build"
            counted = count_owners(made.children, size, np.dtype(np.int64))
            pointers = np.arange(size + 1) if below is None else below
            assert np.array_equal(pointers, counted), "split returns other pointers than build implies"
    for counts in (2, np.arange(size) % 3):
        below = np.broadcast_to(counts, size)[made.listing[-1]]
        sums = np.bincount(made.listing[0], below, n)
        counted = np.broadcast_to(level.count(arrays, dims, n, counts), n)
        assert np.array_equal(counted, sums), "count differs from expand: a child without an entry does not count"


def check_level(case: LevelCase) -> None:
    """Assert all laws of a case that require no selection. A kind may refuse the case with FormatError."""
    made = BuiltCase(case)
    for law in (check_built, check_listed, check_order, check_located, check_sizes, check_counted):
        law(made)


def check_loop(case: LevelCase, *, compiled: bool = False) -> None:
    """`loop` as Python, or compiled with bounds checks, lists the same as `expand`, and reads inside of its arrays."""
    level, dims, n = case.level, case.dims, case.n
    raise_if(FormatError, loop_problems(level, False))
    whole = BuiltCase(case).whole
    for root in (False, True) if n == 1 and level.loop(True) != level.loop(False) else (False,):
        levels, stored = ((level,), tuple(dims)) if root else ((Dense(), level), (n, *dims))
        specs = places(levels, stored)[-1].arrays
        arrays = {role: whole[role] for role in specs}
        expected = listing(level.expand(arrays, dims, range(n), [range(x) for x in dims]), range(n))[int(root) :]
        values = np.zeros(level.size(arrays, dims, n), bool)
        given, _ = arguments(Tree(levels, stored, {specs[role].name: x for role, x in arrays.items()}, values))
        found, count = np.zeros(expected.T.shape, np.int64), np.zeros(1, np.int64)
        nest, extent = nest_that_lists(levels, compiled)
        try:
            with np.errstate(all="ignore"):  # unsigned numbers wrap
                nest(*extent(*given[:-1]), *given, found, count)
        except IndexError as error:
            assert count[0] <= len(found), "loop lists more than expand"
            raise AssertionError(f"loop reads outside of an array: {error}") from None
        check_rows(found[: count[0]].T, expected, "loop differs from expand")


def check_selection(case: LevelCase, positions: Positions, window: Sequence[Positions]) -> None:
    """`expand` of any positions and window equals a selection from the full `expand`."""
    made = BuiltCase(case)
    level, arrays, dims, fibers = made.level, made.arrays, made.dims, range(made.n)
    whole = made.listing[:, np.all([_among(x, w) for x, w in zip(made.listing[1:-1], window, strict=True)], axis=0)]
    selected = whole[:, _among(whole[0], positions)]
    what = "expand of some positions and a window is not a selection from the full expand"
    check_rows(listing(level.expand(arrays, dims, positions, window), positions), selected, what)
    reached = as_array(level.reached(arrays, dims, positions, window))
    first = np.sort(np.unique(selected[-1], return_index=True)[1])
    assert np.array_equal(reached, selected[-1][first]), "reached differs from expand"
    if (cut := level.cut(arrays, dims, window)) is not None:
        _check_types(made, cut[0], "cut")
        lengths = [len(w) for w in window]
        fiber, *coords, child = listing(level.expand(cut[0], lengths, fibers, [range(x) for x in lengths]), fibers)
        named = [coordinates_at(w, x) for w, x in zip(window, coords, strict=True)]
        check_rows(np.array([fiber, *named, as_array(cut[1])[child]]), whole, "cut differs from expand")


def check_parts(case: LevelCase, positions: Positions, window: Sequence[Positions], children: range) -> None:
    """`part`, `above` and `check_in_parts` of lazy arrays agree with the whole level."""
    made = BuiltCase(case)
    level, dims, n = made.level, made.dims, made.n
    arrays: Any = {role: cut(array, 0, len(array)) for role, array in made.arrays.items()}
    size = max([2, *(len(array) // 20 for array in made.arrays.values())])
    assert list(level.check_in_parts(arrays, dims, n, size)) == [], "check_in_parts refuses the arrays of build"
    part = level.part(arrays, dims, positions, window)
    if part is not None:
        _check_types(made, part[0], "part")
        fibers = range(len(positions))
        assert list(level.check(part[0], dims, len(fibers))) == [], "check refuses the result of part"
        fiber, *coords, child = listing(level.expand(part[0], dims, fibers, window), fibers)
        named = np.array([as_array(positions)[fiber], *coords, as_array(part[1])[child]])
        expected = listing(level.expand(made.arrays, dims, positions, window), positions)
        check_rows(named, expected, "part has other entries than the level")
    some = range(made.size)[children.start : children.stop]
    for above in (level.above, partial(Level.above, level)) if some else ():
        owners = above(arrays, dims, n, some)
        assert np.broadcast_to(owners.counts, len(owners.fibers)).sum() == len(some), "above: counts"
        spans = np.broadcast_to(owners.spans, len(some)).astype(np.int64)
        columns = as_array(owners.fibers)[owners.parents], *owners.coords, as_array(some)
        rows = np.array(columns, np.int64).repeat(spans, axis=1)
        if dims:
            rows[-2] += np.arange(rows.shape[1]) - np.repeat(np.cumsum(spans) - spans, spans)
        kept = in_order(made.listing[:, _among(made.listing[-1], some)])
        check_rows(in_order(rows), kept, "above has other entries than expand")


def _among(x: Array, selected: Positions) -> Array:
    """A mask of the numbers that are among a range, or in an array."""
    if not isinstance(selected, range):
        return np.isin(x, selected)
    mask: Array = (x >= selected.start) & (x < selected.stop) & ((x - selected.start) % selected.step == 0)
    return mask


def check_names(format: Format) -> None:
    """The stored names of a format are distinct."""
    names = [spec.name for place in places(format.levels, (0,) * format.rank) for spec in place.arrays.values()]
    assert len(set(names)) == len(names), f"two arrays have the same name in {format}; put the depth in the name"
    assert not {"values", "fill_value"} & set(names), "values and fill_value are reserved names"


@st.composite
def _selected(draw: st.DrawFn, level: Level, size: int) -> tuple[Any, ...]:
    case = draw(level_cases(level, max_size=size))
    start = draw(st.integers(0, max(12, len(case.parents))))
    return case, *draw(selections(case)), range(start, start + draw(st.integers(0, 30)))


class _Law(NamedTuple):
    """A law by name, as a function of what is drawn for it by `draw(level, size)`."""

    name: str
    check: Callable[[Any], object]
    draw: Callable[[Level, int], st.SearchStrategy[Any]] = lambda level, size: level_cases(level, max_size=size)
    share: float = 1.0  # of the examples
    whole: bool = False  # a law of tensors, checked if the laws of the level hold


def _of_built(law: Callable[[BuiltCase], None]) -> Callable[[LevelCase], None]:
    return lambda case: law(BuiltCase(case))


def _of_tensor(name: str, law: Callable[[Tensor], None], share: float, *, below: bool = True) -> _Law:
    return _Law(name, law, lambda level, _: tensors_with(level, below=below), share, True)


_LAWS = (
    _Law("build passes check", _of_built(check_built)),
    _Law("expand lists what was built", _of_built(check_listed)),
    _Law("order and children are as declared", _of_built(check_order)),
    _Law("expand selects", lambda drawn: check_selection(*drawn[:3]), _selected),
    _Law("locate and finder agree", _of_built(check_located)),
    _Law("sizes are right", _of_built(check_sizes)),
    _Law("overridden defaults agree", _of_built(check_counted)),
    _Law("names are distinct", check_names, lambda x, _: st.just(Format((Dense(), x, x, Sparse(), x))), 0),
    _Law("part and above read parts", lambda drawn: check_parts(*drawn), _selected),
    _Law("loop lists what expand lists", partial(check_loop, compiled=True), share=2),
    _of_tensor("compiled loops sum", check_compiled, 0.2, below=False),
    _of_tensor("merges as numpy does", check_merged, 0.5),
    _of_tensor("an index selects", check_read, 0.5),
    _of_tensor("append and concatenate", check_joined, 1),
    _of_tensor("damage is found", check_damage, 0.2),
)


@dataclass(frozen=True)
class Held:
    """The result of a law for a kind. problem: what to change, or why the law was skipped; else empty."""

    law: str
    holds: bool
    problem: str = ""

    def __str__(self) -> str:
        result = "holds" if self.holds and not self.problem else "skipped" if self.holds else "BROKEN"
        return f"{self.law:36} {result}{': ' * bool(self.problem)}{self.problem}"


def check_kind(kind: type[Level], *, examples: int = 30, sizes: Sequence[int] = (4, 300, 70_000, 2**33)) -> list[Held]:
    """Check all laws for the samples of a kind, print a line for each law, and return these lines.

    Registers the kind. Requires hypothesis.

    Parameters
    ----------
    kind : type
        A subclass of Level.
    examples : int, default 30
        The number of small cases for each law and each of `kind.samples()`, and up to a third of them of each larger
        size. Samples share the cases of laws of tensors, all small.
    sizes : sequence of int, default (4, 300, 70000, 2 ** 33)
        The largest sizes of dimensions, in ascending order; see `level_cases`.

    Raises
    ------
    AssertionError
        Some laws are broken. The message lists them, each with a small case for which it fails.
    """
    register(kind)
    results: list[Held] = []
    for law in _LAWS:
        problem = skipped = ""
        if law.whole and not all(x.holds for x in results):
            skipped = "repair the laws above first"
        elif "loop" in law.name and kind.samples()[0].loop(False) is None:
            skipped = "the kind has no loop"
        else:
            cases = itertools.product(kind.samples(), (0,) if law.whole else sizes)
            problem = next((x for level, size in cases if (x := _problem(law, level, examples, size))), "")
        results.append(Held(law.name, not problem, problem or skipped))
        print(results[-1])
    if broken := [str(x) for x in results if not x.holds]:
        raise AssertionError("\n".join([f"{kind.kind}: {len(broken)} of {len(results)} laws are broken", *broken]))
    return results


class _EnoughError(BaseException):
    """The search for a smaller case takes too long. Hypothesis handles exceptions of other bases."""


def _problem(law: _Law, level: Level, examples: int, size: int) -> str:
    """The fault of a level against a law, in one line; empty if the law holds or does not apply."""
    problem, end = "", math.inf
    samples = len(level.samples())
    share = law.share * (1 / samples if law.whole else 1 if size <= FEW else min(0.3, 0.5 / samples))

    @hypothesis.settings(
        max_examples=max(int(examples * share), 1),
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.seed(f"{law.name} {size}")
    @hypothesis.given(law.draw(level, size))
    def run(drawn: Any) -> None:
        nonlocal problem, end
        try:
            law.check(drawn)
        except hypothesis.errors.HypothesisException:  # it rejects the case
            raise
        except Exception as error:
            case = drawn[0] if isinstance(drawn, tuple) else drawn
            of = f" (of {case})" if isinstance(case, LevelCase) else ""
            problem, end = _described(error, level) + of, min(end, time.process_time() + _SHRINKING)
            if time.process_time() > end:
                raise _EnoughError from None
            raise

    try:
        with bounded_memory(MAX_BYTES if size <= FEW else MAX_BYTES // 8):  # a damaged file may ask for more
            run()
    except hypothesis.errors.Unsatisfiable:  # the kind refuses every case
        return ""
    except (Exception, _EnoughError) as error:
        return f"{level}: {problem or _described(error, level)}"
    return ""


def _described(error: BaseException, level: Level) -> str:
    """An exception in one line, with the line of the kind that raised it."""
    text = str(error).splitlines()
    if isinstance(error, AssertionError) and text:
        return text[0][:300]
    files = {x.__code__.co_filename for x in vars(type(level)).values() if inspect.isfunction(x)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    at = f"{frames[-1].name}, {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    place = f" (in {at})" if at else ""
    return f"{type(error).__name__}{place}: {' '.join(str(error).split())}"[:300]
