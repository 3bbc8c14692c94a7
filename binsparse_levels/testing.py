"""The laws of level kinds and containers, and hypothesis strategies that draw cases for them.

For authors of kinds and containers. Needs hypothesis. The test of a kind takes three lines:

    @given(testing.level_cases(MyKind(1)))
    def test_laws(case):
        testing.check_level(case)

The laws of a level kind:

1. The arrays that `build` makes pass `check`; `size` and `lengths` agree.       check_level
2. `expand` lists what was built, and nothing more unless the kind is padded.    check_level
3. `expand` of some positions and a window selects from `expand` of everything.  check_selection
4. An ordered kind lists every fiber in order.                                   check_level
5. The stored names in a format are distinct.                                    check_names
6. `locate` and `finder` agree with `expand`.                                    check_level
7. `nbytes` is right to the byte.                                                check_level
8. With any item changed, or any array longer or shorter, `read` refuses the     damaged, check_stored,
   tensor, or else all ways to read it agree.                                    check_refused, check_agreement
9. `part`, `above` and `check_in_parts` read of a file what the whole level      check_parts, check_stored
   holds: parts joined equal the whole.
10. `loop`, run as plain Python, lists what `expand` lists.                      check_loop

The law of a container: it gives back what it was given.                         check_same
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from . import levels
from .arrays import LazyArray, lazy
from .building.sources import Tensors
from .compute.nest import list_fiber
from .errors import BinsparseError, FormatError, needing
from .formats.format import ALIASES, Format, coordinates
from .formats.index_map import Digit, IndexMap
from .formats.structure import STRUCTURES, in_triangle, structure_problems
from .io import open, read, write
from .levels import LEVELS, Level, places
from .levels.base import INTEGERS
from .levels.positions import Array, Positions, as_array, count_owners
from .tensors.packing import pack
from .tensors.tensor import Tensor

with needing("test"):
    from hypothesis import assume
    from hypothesis import strategies as st

PLAIN = tuple(kind for kind in levels.OURS if kind.specified)  # the kinds of the specification
OURS = (*PLAIN, *(kind for kind in levels.OURS if not kind.specified))
Listing: TypeAlias = list[tuple[int, tuple[int, ...], int]]  # fiber, coordinates, child


@dataclass(frozen=True)
class LevelCase:
    """Entries for one level, sorted by parent, then coordinates. Some repeat, as entries of the levels below do."""

    level: Level
    dims: tuple[int, ...]
    n: int
    parents: Array
    coords: tuple[Array, ...]
    same: Array

    def build(self) -> tuple[dict[str, Array], Positions]:
        """The arrays and child positions that the level makes. Raises FormatError for entries that it refuses."""
        more = {"same": self.same} if self.level.shares else {}
        return self.level.build(self.dims, self.parents, self.coords, self.n, **more)


@st.composite
def level_cases(draw: st.DrawFn, level: Level, *, max_size: int = 4, max_n: int = 4) -> LevelCase:
    """Entries for this level, over small dimensions, sizes 0 and 1 among them."""
    dims = tuple(draw(st.lists(st.integers(0, max_size), min_size=level.rank, max_size=level.rank)))
    n = draw(st.integers(0, max_n))
    cells = list(itertools.product(range(n), *(range(size) for size in dims)))
    chosen = sorted(draw(st.lists(st.sampled_from(cells), max_size=12))) if cells else []
    parents, *coords = np.array(chosen, np.int64).reshape(len(chosen), level.rank + 1).T.copy()
    classes = {cell: draw(st.integers(0, 1)) for cell in set(chosen)} if level.shares else {}
    same = np.array([classes.get(cell, 0) for cell in chosen], np.int64)
    return LevelCase(level, dims, n, parents, tuple(coords), same)


def check_level(case: LevelCase) -> None:
    """Assert laws 1, 2, 4, 6 and 7 for one case. A kind may refuse the case by FormatError."""
    level, dims, n = case.level, case.dims, case.n
    try:
        arrays, child = case.build()
    except FormatError:
        assume(False)
    children = as_array(child)
    # 1: what build makes is sound, and its lengths agree with its size
    names = level.arrays(1, root=False)
    kept = {role: arrays[role] for role in names}
    assert list(level.check(kept, dims, n)) == []
    size = level.size(kept, dims, n)
    counted, problems = level.lengths({role: len(array) for role, array in kept.items()}, dims, n)
    assert problems == []
    assert counted in (None, size)
    if len(children):
        assert 0 <= children.min() <= children.max() < size
    # 2: expand gives back what was built
    everything = [range(s) for s in dims]
    listing = _listing(level.expand(kept, dims, range(n), everything), range(n))
    rows = _rows(case.coords, len(case.parents))
    built = {(p, c): q for p, c, q in zip(case.parents.tolist(), rows, children.tolist(), strict=True)}
    found = {(p, c): q for p, c, q in listing}
    assert len(found) == len(listing)
    assert built.items() <= found.items()
    if not level.padded:
        assert built == found
    # 4: an ordered kind lists in order, and children ascend with their fibers unless the kind denies it
    owners = [p for p, _, _ in sorted(listing, key=lambda row: row[2])]
    assert not level.monotone or owners == sorted(owners), "children do not ascend with fibers: say monotone = False"
    if level.ordered:
        assert [row[:2] for row in listing] == sorted(found)
    if level.ascending:
        assert [q for *_, q in listing] == sorted(found.values())
    # 6: locate agrees with expand
    cells = list(itertools.product(range(n), *(range(s) for s in dims)))
    at, *coords = np.array(cells, np.int64).reshape(len(cells), level.rank + 1).T.copy()
    located = level.locate(kept, dims, at, coords)
    assert located.tolist() == [found.get((p, tuple(c)), -1) for p, *c in cells]
    find = level.finder(kept, dims)
    assert [find(*row) for row in cells] == located.tolist()
    # a method that the kind overrides gives what the default gives
    assert Level.locate(level, kept, dims, at, coords).tolist() == located.tolist()
    assert level.gaps or Level.size(level, kept, dims, n) == size
    counts, expanded, reached = level.expand(kept, dims, range(n), everything)
    pointers, listed, same = level.listed(kept, dims, range(n), everything)
    assert pointers.tolist() == np.append(0, np.cumsum(np.broadcast_to(counts, n))).tolist()
    assert _rows(listed, len(same)) == _rows(expanded, len(reached))
    assert as_array(same).tolist() == as_array(reached).tolist()
    if level.fused() is not None:
        entries = count_owners(case.parents, n, np.dtype(np.int64))
        distinct = len(built) == len(rows)
        for made, below in [level.split(dims, entries, case.coords, distinct=told) for told in {False, distinct}]:
            assert {role: made[role].tolist() for role in names} == {role: x.tolist() for role, x in kept.items()}
            assert (np.arange(size + 1) if below is None else below).tolist() == count_owners(
                as_array(child), size, np.dtype(np.int64)
            ).tolist()
    # 7: nbytes is right to the byte
    numbers = {role for role, spec in names.items() if spec.holds in INTEGERS}
    real = sum(len(array) * 4 if role in numbers else array.nbytes for role, array in kept.items())
    told = level.nbytes(dims, n, size, root=False, itemsize=4)
    assert told in (None, real)
    # what has an entry below it is reached once, and entries are counted as they are listed
    assert as_array(level.reached(kept, dims, range(n))).tolist() == list(dict.fromkeys(q for *_, q in listing))
    below = np.arange(size) % 3
    for one in (2, below):
        each = [sum(int(np.broadcast_to(one, size)[q]) for fiber, _, q in listing if fiber == p) for p in range(n)]
        assert np.broadcast_to(level.count(kept, dims, n, one), n).tolist() == each
    # so is the number of children, and a slice reads no more than everything
    assert level.children(dims, n, len(built)) in (None, size)
    for k in range(level.rank):
        read = level.sliced(dims, n, size, k, root=False, itemsize=4)
        assert (read is None) == (told is None)
        assert read is None or 0 <= read <= dims[k] * real


def check_loop(case: LevelCase) -> None:
    """Assert law 10 for one case, of a kind that says its loop; also as the root, where there is one fiber."""
    try:
        arrays, _ = case.build()
    except FormatError:
        assume(False)
    level, dims, n = case.level, case.dims, case.n
    for root in (False, True) if n == 1 else (False,):
        kept = {role: arrays[role] for role in level.arrays(0 if root else 1, root)}
        size = level.size(kept, dims, n)
        expected = _listing(level.expand(kept, dims, range(n), [range(s) for s in dims]), range(n))
        fibers = [list_fiber(level, kept, dims, p, root=root, children=size) for p in range(n)]
        assert [(p, c, q) for p, fiber in enumerate(fibers) for c, q in fiber] == expected


def check_selection(case: LevelCase, positions: Positions, window: Sequence[Positions]) -> None:
    """Assert law 3: `expand` of any positions and window is the selection from `expand` of everything."""
    try:
        arrays, _ = case.build()
    except FormatError:
        assume(False)
    level, dims, n = case.level, case.dims, range(case.n)
    everything = _listing(level.expand(arrays, dims, n, [range(size) for size in dims]), n)
    wanted = [set(as_array(w).tolist()) for w in window]
    selected = [
        (p, c, q)
        for p in as_array(positions).tolist()
        for fiber, c, q in everything
        if fiber == p and all(x in w for x, w in zip(c, wanted, strict=True))
    ]
    assert _listing(level.expand(arrays, dims, positions, window), positions) == selected


def check_parts(case: LevelCase, positions: Positions, window: Sequence[Positions], children: range) -> None:
    """Assert law 9 for arrays that are read where they are sliced: the fibers at some positions, and some children."""
    try:
        whole, _ = case.build()
    except FormatError:
        assume(False)
    level, dims, n = case.level, case.dims, case.n
    arrays: Any = {role: _unread(whole[role]) for role in level.arrays(1, root=False)}
    assert list(level.check_in_parts(arrays, dims, n, 2)) == []
    # the fibers at some positions, alone
    part = level.part(arrays, dims, positions, window)
    if part is not None:
        fibers = range(len(positions))
        assert list(level.check(part[0], dims, len(fibers))) == []
        at, reached = as_array(positions).tolist(), as_array(part[1]).tolist()
        found = _listing(level.expand(part[0], dims, fibers, window), fibers)
        named = [(at[p], c, reached[q]) for p, c, q in found]
        assert named == _listing(level.expand(whole, dims, positions, window), positions)
    # the fibers of some children
    everything = _listing(level.expand(whole, dims, range(n), [range(size) for size in dims]), range(n))
    given = range(level.size(whole, dims, n))[children.start : children.stop]
    for above in (level.above, partial(Level.above, level)) if given else ():
        owners = above(arrays, dims, n, given)
        assert np.broadcast_to(owners.counts, len(owners.fibers)).sum() == len(given)
        parents, spans = as_array(owners.fibers)[owners.parents].tolist(), np.broadcast_to(owners.spans, len(given))
        rows = zip(parents, _rows(owners.coords, len(given)), given, spans.tolist(), strict=True)
        listed = [(p, (*c[:-1], c[-1] + k) if c else c, q) for p, c, q, span in rows for k in range(span)]
        assert sorted(listed) == sorted(row for row in everything if row[2] in given)


def _unread(array: Array) -> LazyArray:
    """The array, as one that lies in a file."""
    return lazy(len(array), array.dtype, lambda start, stop: array[start:stop].copy())


@st.composite
def selections(draw: st.DrawFn, case: LevelCase) -> tuple[Positions, list[Positions]]:
    """Positions of the level and a window over its dimensions, ranges and sorted arrays."""
    window = [draw(_some_of(size, steps=True)) for size in case.dims]
    return draw(_some_of(case.n, steps=False)), window


@st.composite
def formats(
    draw: st.DrawFn, *, min_rank: int = 0, max_rank: int = 4, kinds: Sequence[type[Level]] | None = None
) -> Format:
    """Formats of any chain of levels of these kinds (those registered that hold any tensor), with any transpose."""
    known = list(kinds or (kind for kind in LEVELS.values() if not kind.refuses))
    flat = [kind for kind in known if kind.min_rank == 0]
    rank = draw(st.integers(min_rank, max_rank))
    chain: list[Level] = []
    while (left := rank - sum(level.rank for level in chain)) > 0:
        kind = draw(st.sampled_from([k for k in known if k.min_rank <= left]))
        chain.append(kind(draw(st.integers(max(kind.min_rank, 1), min(kind.max_rank, left)))))
    for kind in draw(st.lists(st.sampled_from(flat), max_size=2)) if flat else ():  # of rank 0, anywhere among them
        chain.insert(draw(st.integers(0, len(chain))), kind(0))
    transpose = draw(st.none() | st.permutations(range(rank)).map(tuple))
    return Format(tuple(chain), transpose)


@st.composite
def maps(draw: st.DrawFn, shape: Sequence[int], *, max_digits: int = 3, max_radix: int = 4) -> IndexMap:
    """Index maps of a tensor of this shape: its dimensions divided in any way, the digits in any order and grouping."""
    digits = []
    for k, size in enumerate(shape):
        stride = 1
        for radix in draw(st.lists(st.integers(1, max_radix), max_size=max_digits - 1)):
            digits.append(Digit(k, stride, radix))
            stride *= radix
        digits.append(Digit(k, stride, -(-size // stride)))
    order = draw(st.permutations(digits))
    groups: list[list[Digit]] = []
    for digit in order:
        if not groups or draw(st.booleans()):
            groups.append([])
        groups[-1].append(digit)
    return IndexMap(tuple(shape), tuple(tuple(group) for group in groups))


VALUE_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


@st.composite
def tensors(
    draw: st.DrawFn,
    *,
    max_rank: int = 4,
    max_size: int = 4,
    dtypes: Sequence[str] = VALUE_TYPES,
    kinds: Sequence[type[Level]] = OURS,
    structures: bool = True,
) -> Tensor:
    """Any tensor that Binsparse can represent, and any of further level kinds unless `kinds` leaves them out.

    Ranks and dimensions start at 0. Formats are predefined or custom, with any transpose. Values have any data type,
    iso or not. Some tensors have a fill value or a structure.
    """
    format = draw(
        st.sampled_from([f for f in ALIASES.values() if f.rank <= max_rank]) | formats(max_rank=max_rank, kinds=kinds)
    )
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, max_size), min_size=format.rank, max_size=format.rank)))
    structure = None
    if structures and format.rank == 2 and shape[0] == shape[1] and draw(st.booleans()):
        possible = [name for name in STRUCTURES if not list(structure_problems(name, shape, dtype))]
        structure = draw(st.none() | st.sampled_from(possible))
    cells = list(np.ndindex(*shape))
    if structure is not None:
        cells = [cell for cell in cells if in_triangle(structure, [np.array(x) for x in cell])]
        if not structure.startswith("symmetric"):  # a diagonal has to be its own mirror image
            cells = [cell for cell in cells if cell[0] != cell[1]]
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=12)) if cells else []
    fill = draw(st.none() | _scalars(dtype)) if structure is None else None
    table = np.array(chosen, np.int64).reshape(len(chosen), len(shape))
    values: Any = draw(_scalars(dtype)) if draw(st.booleans()) else draw(_arrays(dtype, len(chosen)))
    if not format.levels and np.ndim(values) and not chosen:
        values = draw(_arrays(dtype, 1))
    if not shape and np.ndim(values):
        values = values[:1]
    try:
        return pack(table.T, values, shape, format, fill_value=fill, structure=structure)
    except FormatError:  # a kind may refuse a tensor
        assume(False)
        raise


def check_same(again: Tensor, tensor: Tensor) -> None:
    """Assert that a container gave back what it was given.

    Values are the same bit for bit, and so are the stored entries, fill value, format, types, structure and attributes.
    """
    assert again.equals(tensor)
    assert again.shape == tensor.shape
    assert again.dtype == tensor.dtype
    assert again.format.canonical() == tensor.format.canonical()
    assert again.structure == tensor.structure
    assert again.iso == (tensor.iso and len(tensor.values) > 0)
    assert again.attributes == tensor.attributes
    assert again.descriptor_attributes == tensor.descriptor_attributes
    assert {name: array.dtype for name, array in again.arrays.items()} == {
        name: array.dtype for name, array in tensor.arrays.items()
    }
    assert again.values.tobytes() == tensor.values.tobytes()


@st.composite
def _arrays(draw: st.DrawFn, dtype: np.dtype[Any], length: int) -> Array:
    return np.array(draw(st.lists(_scalars(dtype), min_size=length, max_size=length)), dtype)


@st.composite
def _scalars(draw: st.DrawFn, dtype: np.dtype[Any]) -> Any:
    """A scalar of that type: small numbers, the ends of its range, NaN, infinity, negative zero."""
    if dtype.kind in "iu":
        ends = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
        return dtype.type(draw(st.integers(0, 5) | st.sampled_from(ends)))
    if dtype.kind == "b":
        return np.bool_(draw(st.booleans()))
    parts = st.integers(-5, 5) | st.sampled_from([0.5, -0.0, np.nan, np.inf])
    return dtype.type(draw(parts) if dtype.kind == "f" else complex(draw(parts), draw(parts)))


def damaged(stored: Mapping[str, Any], *, most: int = 4) -> Iterator[dict[str, Any]]:
    """Copies of a mapping that `write` filled, each with one array of another length, or with one item changed.

    most: how many items of each array are changed; the first and the last are among them.
    """
    for name, array in stored.items():
        if not isinstance(array, np.ndarray):
            continue
        for changed in (array[:-1], array[:0], np.append(array, array[-1:]), np.append(array, array.dtype.type(0))):
            if len(changed) != len(array):
                yield {**stored, name: changed}
        chosen = sorted({*range(len(array))[:: len(array) // most + 1], *range(len(array))[-1:]})
        for k in chosen if array.dtype.kind in "biu" and name not in ("values", "fill_value") else ():
            for item in _others(array[k]):
                changed = array.copy()
                changed[k] = item
                yield {**stored, name: changed}


def _others(item: Any) -> list[Any]:
    """Other numbers of the same type: neighbours, small and large ones, the ends of the type."""
    ends = np.iinfo(np.uint8 if item.dtype == bool else item.dtype)
    near = {int(item) - 1, int(item) + 1, -1, 0, 3, 2**20, int(ends.max), int(ends.min)} - {int(item)}
    return [item.dtype.type(x) for x in sorted(near) if ends.min <= x <= ends.max]


def check_stored(stored: Mapping[str, Any]) -> bool:
    """Assert law 8 for a mapping that may be damaged. Returns whether `read` accepted it.

    Where `read` accepts it, all ways to read it agree, `open` and its views among them. Else see `check_refused`.
    """
    try:
        tensor: Any = read(stored)
    except BinsparseError:
        check_refused(stored)
        return False
    check_agreement(tensor)
    again: dict[str, Any] = {}
    write(again, tensor)
    assert read(again).equals(tensor)
    opened = open(stored)
    dense = tensor.to_dense()
    for key in _keys(tensor.shape):
        assert _equal(_dense(opened[key]), dense[key])
    assert opened.load().equals(tensor)
    coords, values = tensor.stored.unpack()
    whole = list(zip(_rows(coords, len(values)), map(repr, values), strict=True))
    inside = in_triangle(tensor.structure, coords) if tensor.structure else np.ones(len(values), bool)
    assert sorted(_in_parts(stored)) == sorted(itertools.compress(whole, inside))
    return True


def _in_parts(stored: Mapping[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    """The coordinates of all entries, and their values as text, read two entries at a time, and checked in parts."""
    entries, found = Tensors([stored], 2), list[tuple[tuple[int, ...], str]]()
    for number in range(len(entries)):
        coords, values = entries.read(number)
        assert len(values) <= 2
        found += zip(_rows(coords, len(values)), map(repr, values), strict=True)
    return found


def check_refused(stored: Mapping[str, Any]) -> None:
    """Assert that `open` refuses what `read` refuses once all of it is read, and that views raise only our errors."""
    try:
        opened = open(stored)
    except BinsparseError:
        return
    for key in _keys(opened.shape):
        with contextlib.suppress(BinsparseError):
            _dense(opened[key])
    for whole in (opened.load, opened.to_dense, opened.unpack, lambda: _in_parts(stored)):
        try:
            whole()
        except BinsparseError:
            continue
        raise AssertionError(f"{whole} accepts what read refuses")


def check_agreement(tensor: Tensor) -> None:
    """Assert that every way to read a tensor lists the same entries."""
    whole = tensor.expand_structure()
    coords, values = whole.unpack()
    dense = np.full(tensor.shape, tensor._pad(), tensor.dtype)
    rows = _rows(coords, len(values))
    for row, value in zip(rows, values, strict=True):
        dense[row] = value
    assert len(set(rows)) == len(rows) == whole.number_of_stored_values
    assert _equal(tensor.to_dense(), dense)
    assert _equal(tensor.convert(coordinates(tensor.ndim)).to_dense(), dense)
    if tensor.ndim:
        assert _equal(whole.values[whole.locate(coords)], values)
        everywhere = np.array(list(np.ndindex(tensor.shape)), np.int64).reshape(-1, tensor.ndim).T
        assert np.count_nonzero(whole.locate(list(everywhere)) >= 0) == len(rows)
        assert _equal(tensor[tuple(everywhere)], dense.ravel())
    for key in _keys(tensor.shape):
        assert _equal(_dense(tensor[key]), dense[key])


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc")


def _dense(selected: Any) -> Any:
    return selected.to_dense() if isinstance(selected, Tensor) else selected


def _keys(shape: Sequence[int]) -> Iterator[Any]:
    """Keys of some values, of all slices of one coordinate, of slices with a step, of nothing."""
    if all(shape):
        yield from {(0,) * len(shape), tuple(size - 1 for size in shape), tuple(size // 2 for size in shape)}
    for k, size in enumerate(shape):
        for item in (*range(size), slice(0, 0), slice(1, None), slice(None, None, 2), slice(None, None, -1)):
            yield (*[slice(None)] * k, item, ...)


def check_names(format: Format) -> None:
    """Assert law 5: the stored names of a format are distinct."""
    names = [spec.name for place in places(format.levels, (0,) * format.rank) for spec in place.arrays.values()]
    assert len(set(names)) == len(names)
    assert not {"values", "fill_value"} & set(names)


@st.composite
def _some_of(draw: st.DrawFn, size: int, *, steps: bool) -> Positions:
    if draw(st.booleans()):
        start = draw(st.integers(0, size))
        return range(start, draw(st.integers(start, size)), draw(st.integers(1, 3)) if steps else 1)
    chosen = draw(st.sets(st.integers(0, size - 1))) if size else set()
    return np.array(sorted(chosen), np.int64)


def _rows(coords: Sequence[Array], count: int) -> list[tuple[int, ...]]:
    return list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * count


def _listing(expanded: tuple[int | Array, list[Array], Positions], positions: Positions) -> Listing:
    counts, coords, child = expanded
    fibers = as_array(positions).tolist()
    repeats = [counts] * len(fibers) if isinstance(counts, int) else np.asarray(counts).tolist()
    parents = [p for p, count in zip(fibers, repeats, strict=True) for _ in range(count)]
    return list(zip(parents, _rows(coords, len(child)), as_array(child).tolist(), strict=True))
