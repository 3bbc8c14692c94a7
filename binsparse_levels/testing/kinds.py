"""The laws of a level kind, each a function of a case, and all of them in one call."""

from __future__ import annotations

import inspect
import itertools
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import cut
from ..compute.nest import list_fiber, loop_problems
from ..errors import FormatError, needing, raise_if
from ..formats.format import Format
from ..levels import Dense, Level, Sparse, places, register
from ..levels.base import INTEGERS, Expanded
from ..levels.positions import Positions, as_array, as_pointers, count_owners
from ..system import bounded_memory
from ..tensors.tensor import Tensor
from .drawn import LevelCase, level_cases, selections
from .files import check_compiled, check_damage, check_joined, check_merged, check_read, rows_of, tensors_with

with needing("test"):
    import hypothesis
    from hypothesis import assume
    from hypothesis import strategies as st

MAX_BYTES = 2**32  # of memory for one law
Listing: TypeAlias = list[tuple[int, tuple[int, ...], int]]  # fiber, coordinates, child


class Built:
    """A built level of a case: its arrays below other levels, its children, and the listing of `expand`."""

    def __init__(self, case: LevelCase) -> None:
        self.case, self.level, self.dims, self.n = case, case.level, case.dims, case.n
        try:
            self.whole, child = case.build()
        except FormatError:  # a kind may refuse entries
            assume(False)
        self.children = as_array(child)
        self.specs = self.level.arrays(1, root=False)
        if missing := set(self.specs) - set(self.whole):
            raise AssertionError(f"build makes no array for the role {min(missing)!r}, which arrays() names")
        self.arrays = {role: self.whole[role] for role in self.specs}
        self.everything = [range(size) for size in self.dims]

    @cached_property
    def size(self) -> int:
        return self.level.size(self.arrays, self.dims, self.n)

    @cached_property
    def listing(self) -> Listing:
        return _listing(self.level.expand(self.arrays, self.dims, range(self.n), self.everything), range(self.n))

    @cached_property
    def child(self) -> dict[tuple[int, tuple[int, ...]], int]:
        return {(p, c): q for p, c, q in self.listing}

    @cached_property
    def rows(self) -> list[tuple[int, tuple[int, ...]]]:
        return list(zip(self.case.parents.tolist(), rows_of(self.case.coords, len(self.case.parents)), strict=True))


def check_built(made: Built) -> None:
    """The arrays of `build` pass `check`, and `size` and `lengths` agree."""
    for problem in made.level.check(made.arrays, made.dims, made.n):
        raise AssertionError(f"check refuses the arrays of build: {problem}")
    lengths = {role: len(array) for role, array in made.arrays.items()}
    counted, problems = made.level.lengths(lengths, made.dims, made.n)
    assert not problems, f"lengths refuses the arrays of build: {problems[0]}"
    assert counted in (None, made.size), f"lengths returns {counted} children, size {made.size}"
    if len(made.children):
        assert 0 <= made.children.min() <= made.children.max() < made.size, "build returns a child outside of size"


def check_listed(made: Built) -> None:
    """`expand` lists the entries that were built, and no others unless the kind is `padded`."""
    built = dict(zip(made.rows, made.children.tolist(), strict=True))
    assert built.items() <= made.child.items(), "expand lacks an entry that was built, or returns another child"
    assert made.level.padded or built == made.child, "expand lists other cells than the entries: set padded = True"


def check_order(made: Built) -> None:
    """A fiber lists no coordinate twice. Coordinates and children ascend, unless the kind declares otherwise."""
    level, listing = made.level, made.listing
    assert len(made.child) == len(listing), "expand lists a coordinate of a fiber twice; return one child"
    if level.ordered:
        assert [row[:2] for row in listing] == sorted(made.child), "expand is out of order: set ordered = False"
    owners = [p for p, _, _ in sorted(listing, key=lambda row: row[2])]
    assert not level.monotone or owners == sorted(owners), "children do not ascend with fibers: set monotone = False"
    if level.ascending:
        assert [q for *_, q in listing] == sorted(made.child.values()), "children fall in a fiber: set ordered = False"
    reached = {q for *_, q in listing}
    assert level.gaps or len(reached) == made.size, "a child has no entry: set gaps = True"
    assert level.shares or len(reached) == len(listing), "a child has several coordinates: set shares = True"


def check_located(made: Built) -> None:
    """`locate` agrees with `expand`."""
    level, dims = made.level, made.dims
    cells = list(itertools.product(range(made.n), *(range(s) for s in dims)))
    at, *coords = np.array(cells, np.int64).reshape(len(cells), level.rank + 1).T.copy()
    expected = [made.child.get((p, tuple(c)), -1) for p, *c in cells]
    assert level.locate(made.arrays, dims, at, coords).tolist() == expected, "locate differs from expand"
    assert Level.locate(level, made.arrays, dims, at, coords).tolist() == expected, "expand differs inside a window"


def check_sizes(made: Built) -> None:
    """`nbytes` is exact, and the numbers of `children` and `sliced` are correct."""
    level, dims, n, size = made.level, made.dims, made.n, made.size
    numbers = {role for role, spec in made.specs.items() if spec.holds in INTEGERS}
    real = sum(len(array) * 4 if role in numbers else array.nbytes for role, array in made.arrays.items())
    nbytes = level.nbytes(dims, n, size, root=False, itemsize=4)
    assert nbytes in (None, real), f"nbytes returns {nbytes}, and the arrays take {real}"
    children = level.children(dims, n, len(set(made.rows)))
    assert children in (None, size), f"children returns {children}, and there are {size}"
    for k in range(level.rank):
        taken = level.sliced(dims, n, size, k, root=False, itemsize=4)
        assert (taken is None) == (nbytes is None), "only one of sliced and nbytes returns None"
        assert taken is None or 0 <= taken <= dims[k] * real, f"sliced returns {taken} bytes of {real}"


def check_counted(made: Built) -> None:
    """The methods `size`, `split` and `count` of a kind return the same as the defaults."""
    level, dims, n, arrays, size = made.level, made.dims, made.n, made.arrays, made.size
    assert level.gaps or Level.size(level, arrays, dims, n) == size, "size differs from the children of expand"
    if level.fused() is not None:
        entries = count_owners(made.case.parents, n, np.dtype(np.int64))
        distinct = len(set(made.rows)) == len(made.rows)
        for built, below in [level.split(dims, entries, made.case.coords, distinct=x) for x in {False, distinct}]:
            same = all(built[role].tolist() == x.tolist() for role, x in arrays.items())
            assert same, "split makes other arrays than build"
            counted = count_owners(made.children, size, np.dtype(np.int64)).tolist()
            pointers = (np.arange(size + 1) if below is None else below).tolist()
            assert pointers == counted, "split returns other pointers than build implies"
    for counts in (2, np.arange(size) % 3):
        below = np.broadcast_to(counts, size)
        sums = [sum(int(below[q]) for fiber, _, q in made.listing if fiber == p) for p in range(n)]
        counted = np.broadcast_to(level.count(arrays, dims, n, counts), n).tolist()
        assert counted == sums, "count differs from expand: a child without an entry does not count"


_CASE_LAWS = (check_built, check_listed, check_order, check_located, check_sizes, check_counted)


def check_level(case: LevelCase) -> None:
    """Assert all laws of a case that require no selection. A kind may refuse the case with FormatError."""
    made = Built(case)
    for law in _CASE_LAWS:
        law(made)


def check_loop(case: LevelCase) -> None:
    """`loop`, run as plain Python, lists the same as `expand`; also as the root, if there is one fiber."""
    level, dims, n = case.level, case.dims, case.n
    raise_if(FormatError, loop_problems(level, False))
    whole = Built(case).whole
    for root in (False, True) if n == 1 else (False,):
        kept = {role: whole[role] for role in level.arrays(0 if root else 1, root)}
        size = level.size(kept, dims, n)
        expected = _listing(level.expand(kept, dims, range(n), [range(s) for s in dims]), range(n))
        fibers = [list_fiber(level, kept, dims, p, root=root, n=n, children=size) for p in range(n)]
        assert [(p, c, q) for p, fiber in enumerate(fibers) for c, q in fiber] == expected, "loop differs from expand"


def check_selection(case: LevelCase, positions: Positions, window: Sequence[Positions]) -> None:
    """`expand` of any positions and window equals a selection from the full `expand`."""
    made = Built(case)
    inside = [set(as_array(w).tolist()) for w in window]
    selected = [
        (p, c, q)
        for p in as_array(positions).tolist()
        for fiber, c, q in made.listing
        if fiber == p and all(x in w for x, w in zip(c, inside, strict=True))
    ]
    expanded = _listing(made.level.expand(made.arrays, made.dims, positions, window), positions)
    assert expanded == selected, "expand of some positions and a window is not a selection from the full expand"
    reached = as_array(made.level.reached(made.arrays, made.dims, positions, window)).tolist()
    assert reached == list(dict.fromkeys(q for *_, q in selected)), "reached differs from expand"
    if (cut := made.level.cut(made.arrays, made.dims, window)) is not None:
        lengths = [len(w) for w in window]
        left = _listing(made.level.expand(cut[0], lengths, range(made.n), [range(x) for x in lengths]), range(made.n))
        named = [(p, tuple(int(w[x]) for w, x in zip(window, c, strict=True)), as_array(cut[1])[q]) for p, c, q in left]
        whole = _listing(made.level.expand(made.arrays, made.dims, range(made.n), window), range(made.n))
        assert named == whole, "cut differs from expand"


def check_parts(case: LevelCase, positions: Positions, window: Sequence[Positions], children: range) -> None:
    """`part`, `above` and `check_in_parts` of lazy arrays agree with the whole level."""
    made = Built(case)
    level, dims, n = made.level, made.dims, made.n
    arrays: Any = {role: cut(array, 0, len(array)) for role, array in made.arrays.items()}
    assert list(level.check_in_parts(arrays, dims, n, 2)) == [], "check_in_parts refuses the arrays of build"
    # only the fibers at some positions
    part = level.part(arrays, dims, positions, window)
    if part is not None:
        fibers = range(len(positions))
        assert list(level.check(part[0], dims, len(fibers))) == [], "check refuses the result of part"
        at, reached = as_array(positions).tolist(), as_array(part[1]).tolist()
        inside = _listing(level.expand(part[0], dims, fibers, window), fibers)
        named = [(at[p], c, reached[q]) for p, c, q in inside]
        assert named == _listing(level.expand(made.arrays, dims, positions, window), positions), "part: other entries"
    # the fibers of some children
    some = range(made.size)[children.start : children.stop]
    for above in (level.above, partial(Level.above, level)) if some else ():
        owners = above(arrays, dims, n, some)
        assert np.broadcast_to(owners.counts, len(owners.fibers)).sum() == len(some), "above: counts"
        parents, spans = as_array(owners.fibers)[owners.parents].tolist(), np.broadcast_to(owners.spans, len(some))
        rows = zip(parents, rows_of(owners.coords, len(some)), some, spans.tolist(), strict=True)
        listed = [(p, (*c[:-1], c[-1] + k) if c else c, q) for p, c, q, span in rows for k in range(span)]
        assert sorted(listed) == sorted(row for row in made.listing if row[2] in some), "above: other entries"


def check_names(format: Format) -> None:
    """The stored names of a format are distinct."""
    names = [spec.name for place in places(format.levels, (0,) * format.rank) for spec in place.arrays.values()]
    assert len(set(names)) == len(names), f"two arrays have the same name in {format}; put the depth in the name"
    assert not {"values", "fill_value"} & set(names), "values and fill_value are reserved names"


# All laws


class _Law(NamedTuple):
    """A law by name, as a function of the data of hypothesis and a level."""

    name: str
    check: Callable[[st.DataObject, Level], object]
    share: float = 1.0  # of the examples
    whole: bool = False  # a law of tensors, checked if the laws of the level hold


def _of_case(law: Callable[[Built], None]) -> Callable[[st.DataObject, Level], object]:
    return lambda data, level: law(Built(data.draw(level_cases(level))))


def _of_tensor(law: Callable[[Tensor], None], *, below: bool = True) -> Callable[[st.DataObject, Level], object]:
    return lambda data, level: law(data.draw(tensors_with(level, below=below)))


def _selected(data: st.DataObject, level: Level) -> None:
    case = data.draw(level_cases(level))
    check_selection(case, *data.draw(selections(case)))


def _in_parts(data: st.DataObject, level: Level) -> None:
    case = data.draw(level_cases(level))
    start = data.draw(st.integers(0, 12))
    check_parts(case, *data.draw(selections(case)), range(start, data.draw(st.integers(start, 30))))


_LAWS = (
    _Law("build passes check", _of_case(check_built)),
    _Law("expand lists what was built", _of_case(check_listed)),
    _Law("order and children are as declared", _of_case(check_order)),
    _Law("expand selects", _selected),
    _Law("locate and finder agree", _of_case(check_located)),
    _Law("sizes are right", _of_case(check_sizes)),
    _Law("overridden defaults agree", _of_case(check_counted)),
    _Law("names are distinct", lambda _, level: check_names(Format((Dense(), level, level, Sparse(), level))), 0),
    _Law("part and above read parts", _in_parts),
    _Law("loop lists what expand lists", lambda data, level: check_loop(data.draw(level_cases(level)))),
    _Law("compiled loops sum", _of_tensor(check_compiled, below=False), 0.2, True),
    _Law("merges as numpy does", _of_tensor(check_merged), 0.5, True),
    _Law("an index selects", _of_tensor(check_read), 0.5, True),
    _Law("append and concatenate", _of_tensor(check_joined), 1, True),
    _Law("damage is found", _of_tensor(check_damage), 0.3, True),
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


def check_kind(kind: type[Level], *, examples: int = 30) -> list[Held]:
    """Check all laws for the samples of a kind, print a line for each law, and return these lines.

    Registers the kind. Requires hypothesis.

    Parameters
    ----------
    kind : a subclass of Level.
    examples : the number of cases for each law and each of `kind.samples()`.

    Raises
    ------
    AssertionError : some laws are broken. The message lists them.
    """
    register(kind)
    results: list[Held] = []
    for law in _LAWS:
        problems: list[str] = []
        if law.whole and not all(x.holds for x in results):
            skipped = "repair the laws above first"
        elif law.name.startswith(("loop", "compiled")) and kind.samples()[0].loop(False) is None:
            skipped = "the kind has no loop"
        else:
            skipped = ""
            problems = [x for x in (_problem(law, level, examples) for level in kind.samples()) if x is not None]
        results.append(Held(law.name, not problems, (problems or [skipped])[0]))
        print(results[-1])
    if broken := [str(x) for x in results if not x.holds]:
        raise AssertionError("\n".join([f"{kind.kind}: {len(broken)} of {len(results)} laws are broken", *broken]))
    return results


def _problem(law: _Law, level: Level, examples: int) -> str | None:
    """The fault of a level against a law, in one line; None if the law holds or does not apply."""

    @hypothesis.settings(
        max_examples=max(int(examples * law.share), 1),
        deadline=None,
        database=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def run(data: st.DataObject) -> None:
        law.check(data, level)

    try:
        with bounded_memory(MAX_BYTES):  # a kind that accepts a damaged file must not exhaust the memory
            run()
    except hypothesis.errors.Unsatisfiable:  # the kind refuses every case
        return None
    except Exception as error:
        text = str(error).splitlines()
        what = text[0] if isinstance(error, AssertionError) and text else _described(error, level)
        drawn = "".join(note.partition("dims=")[2] for note in getattr(error, "__notes__", ()))
        return f"{level}: {what[:300]}" + (f" (of dims={' '.join(drawn.split())[:160]}" if drawn else "")
    return None


def _described(error: Exception, level: Level) -> str:
    """An exception in one line, with the line of the kind that raised it."""
    files = {x.__code__.co_filename for x in vars(type(level)).values() if inspect.isfunction(x)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    at = f"{frames[-1].name}, {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    place = f" (in {at})" if at else ""
    return f"{type(error).__name__}{place}: {' '.join(str(error).split())}"


def _listing(expanded: Expanded, positions: Positions) -> Listing:
    counts, coords, child = expanded
    fibers = as_array(positions).tolist()
    repeats = np.diff(as_pointers(counts, len(fibers))).tolist()
    parents = [p for p, count in zip(fibers, repeats, strict=True) for _ in range(count)]
    return list(zip(parents, rows_of(coords, len(child)), as_array(child).tolist(), strict=True))
