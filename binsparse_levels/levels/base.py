"""The interface of level kinds. A level is a relation (p, i_0 … i_{r-1}) ↔ q.

`p` is a position of the level itself: the number of a fiber. The `i` are coordinates in the dimensions of the level.
`q` is a position of the level below. Every method takes the same names:

    n        the number of positions of the level
    dims     the sizes of the dimensions that the level covers
    arrays   the arrays of the level, by role

A level stores parameters, but neither a shape nor arrays. A new kind is a subclass in a separate file, decorated with
`register`. `binsparse_levels.testing` checks the laws of a kind.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from ..errors import ArrayError, FormatError, LimitError, Problem, raise_if
from ..limits import as_integers
from .array_spec import ArraySpec as ArraySpec
from .checksums import checksum
from .positions import Array as Array
from .positions import (
    Positions,
    Window,
    as_array,
    as_pointers,
    below_fibers,
    count_owners,
    items_at,
    match,
    signed,
)

Arrays: TypeAlias = Mapping[str, Array]
Counted: TypeAlias = tuple[int | None, list[Problem]]  # the number of child positions, faulty lengths
Built: TypeAlias = tuple[dict[str, Array], Positions]  # arrays by role, child positions
# The number of entries of each fiber, or pointers to them (see `as_pointers`); their coordinates; their children.
Expanded: TypeAlias = tuple[int | Array, list[Array], Positions]
Split: TypeAlias = tuple[dict[str, Array], Array | None]  # arrays by role, pointers to the entries of each child


class Owners(NamedTuple):
    """The fibers to which some children belong.

    fibers: the parents. counts: the number of these children in each. coords: the coordinates of each child; the first
    ones, if several coordinates share it. spans: the number of coordinates, consecutive in the last dimension of the
    level, that share the child; 0 for a child that no entry reaches. A single number for counts or spans applies to
    every fiber or child. numbers: the index in `fibers` of each child's parent; None: they ascend as in `counts`.
    """

    fibers: range
    counts: int | Array
    coords: list[Array]
    spans: int | Array = 1
    numbers: Array | None = None

    @property
    def parents(self) -> Array:
        """The index in `fibers` of the parent of each child."""
        return np.repeat(np.arange(len(self.fibers)), self.counts) if self.numbers is None else self.numbers


OWN = __name__.partition(".")[0]  # the name of this package
MAX_RANK = 2**16  # an upper bound of `Limits.rank`: some objects are created for each dimension

# Codes of dimensions for the fused pass: of a dense level, the first of a sparse level, a further dimension of it.
DENSE, SPARSE, CONTINUED = range(3)
INTEGERS = ("index", "pointer", "integer")  # the classes of arrays of any integer type


@dataclass(frozen=True)
class Level(ABC):
    """One level of a tree. The dataclass fields are the parameters of the kind, `rank` first.

    Parameters
    ----------
    rank : int, default 1
        The number of dimensions.

    Attributes
    ----------
    kind : str
        The name, in the notation and as `level_desc` in a descriptor.
    specified : bool, default False
        True if the Binsparse specification defines the kind. Others are stored under an extension name.
    package : str, default ''
        The package of the kind, in its stored name; by default the top-level package of the class's module.
    formerly : tuple of str, default ()
        Packages, or `__main__`, that had the kind. Files that name them are read.
    version : int, default 0
        Version of the layout of the arrays. A file of another version is refused. A class in a program or a notebook
        without a version is identified by a checksum of `build` and `expand`.
    ordered : bool, default True
        True if a fiber is listed in lexicographic order.
    unique : bool, default True
        True if a fiber lists no coordinate twice. A law requires it.
    monotone : bool, default True
        True if the children of a fiber come before those of the next fiber.
    padded : bool, default False
        True if the level stores coordinates that are not entries.
    gaps : bool, default False
        True if the level has child positions that no entry reaches.
    shares : bool, default False
        True if several coordinates may have the same child.
    refuses : bool, default False
        True if there are tensors that the kind cannot store.

    See Also
    --------
    list_plugins : List the names of all installed plug-ins, sorted.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> [(level.kind, level.rank, level.specified) for level in bl.parse_format("dense, bitmap(2)").levels]
    [('dense', 1, True), ('bitmap', 2, False)]
    """

    rank: int = 1

    kind: ClassVar[str]
    specified: ClassVar[bool] = False
    package: ClassVar[str] = ""
    formerly: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[int] = 0
    min_rank: ClassVar[int] = 1
    max_rank: ClassVar[int] = MAX_RANK
    ordered: ClassVar[bool] = True
    unique: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    padded: ClassVar[bool] = False
    gaps: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    refuses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self)]
        for name, number in zip(names, as_integers(getattr(self, name) for name in names), strict=True):
            object.__setattr__(self, name, number)
        if type(self.rank) is not int or self.rank < self.min_rank:
            what = f"a level of kind {self.kind} needs an integer >= {self.min_rank}, got {self.rank!r:.40}"
            raise FormatError(Problem("rank", what))
        if self.rank > self.max_rank < MAX_RANK:
            what = f"a level of kind {self.kind} has a rank of at most {self.max_rank}, got {self.rank!s:.40}"
            raise FormatError(Problem("rank", what))
        if self.rank > MAX_RANK:
            raise LimitError(Problem("rank", f"no level has more than {MAX_RANK} dimensions, got {self.rank!s:.40}"))

    def __str__(self) -> str:
        settings = [f"{name}={value}" for name, value in parameters(self).items()]
        if self.rank != 1 or settings:
            settings.insert(0, str(self.rank))
        name = notation(type(self), LEVELS.values())
        return f"{name}({', '.join(settings)})" if settings else name

    @classmethod
    def samples(cls) -> tuple[Level, ...]:
        """Levels of the kind for tests and examples: one of each possible rank up to 3."""
        return tuple(cls(rank) for rank in range(cls.min_rank, min(cls.max_rank, 3) + 1))

    @property
    def ascending(self) -> bool:
        """True if child positions ascend in the order in which the level lists its fibers."""
        return self.ordered and self.monotone

    # Required of a kind

    @abstractmethod
    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        """The arrays of the level by role, each with its stored name and its class.

        depth: the number of dimensions above. root: True for the first level of the tree, which is one fiber.
        """

    @abstractmethod
    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        """The number of child positions, and every faulty length, from the lengths of the arrays alone.

        `n` and the number are None if they depend on the data.
        """

    @abstractmethod
    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        """The arrays that store these entries, and the child position of each. Both may share memory with the input.

        A kind with `shares` takes one more argument, `same`: a number for each entry. Two neighbouring coordinates have
        the same number if the levels below them are equal.

        Precondition: entries ascend by parent, then by `coords`, which are signed integers. Entries repeat both only
        if they differ in a level below. Raises FormatError, naming the fiber, for entries that the kind cannot store.
        """

    @abstractmethod
    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        """The entries of the fibers at `positions` inside `window`: counts, coordinates, child positions.

        Counts are an array with the number of each fiber, a number for all, or pointers, an array longer by one.
        """

    @abstractmethod
    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        """Yield every broken invariant. The path names the array by its role.

        Without `order`, only faults that would index memory wrongly. Precondition: the arrays are one-dimensional and
        of a type of their class, and `lengths` reports no problem.
        """

    @abstractmethod
    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int | None:
        """The size of the arrays in bytes, from counts alone; None if counts do not determine it."""

    # Optional methods that make a kind faster, or that read less of a file. The defaults use the members above.

    def fused(self) -> tuple[int, ...] | None:
        """DENSE, SPARSE or CONTINUED for each dimension, if the fused pass can write the level.

        See `engine.emission`. Its parts are joined array by array. None if it requires `build`. A dense level has no
        arrays. A sparse one has an index for each dimension, and below the root a pointer.
        """
        return None

    def loop(self, root: bool) -> str | None:
        """Python statements that list fiber `p` in the order of `expand`. None: the entries of the tree are unpacked.

        Before each `yield` the text sets `q` and `i0`, `i1` …; the next level is inserted there. It can use `p`, the
        arrays by role, `size0`, `size1` … of the dimensions, `n` and `children` (the numbers of positions and of
        children), `range`, the names of `helpers`, and local names. All numbers are unsigned: compare before you
        subtract. If the text begins with a loop, threads share it. Before a loop with a `yield` that does not change a
        coordinate, that coordinate is within its dimension: statements that need only this coordinate stand around the
        loop, so that a row is summed in a register.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> print(bl.Sparse().loop(root=False))
        for q in range(ptr[p], ptr[p + 1]):
            i0 = idx0[q]
            yield
        """
        return None

    def helpers(self) -> Mapping[str, Callable[..., Any]]:
        """Numba functions that `loop` calls, by name, from unsigned numbers and arrays to numbers."""
        return {}

    def size(self, arrays: Arrays, dims: Sequence[int], n: int) -> int:
        """The number of child positions: from `lengths`, or else from the arrays, read whole and checked.

        A kind with gaps whose `lengths` return None overrides this method.
        """
        children, _ = self.lengths({role: array.shape[0] for role, array in arrays.items()}, dims, n)
        if children is None:
            whole = {role: array[:] for role, array in arrays.items()}
            raise_if(ArrayError, self.check(whole, dims, n))
            reached = self.reached(whole, dims, range(n), [range(size) for size in dims])
            children = int(as_array(reached).max(initial=-1)) + 1
        return children

    def split(self, dims: Sequence[int], begins: Array, coords: Sequence[Array], *, distinct: bool) -> Split:
        """`build` from pointers to the entries of each fiber. Returns arrays and pointers to the entries of each child.

        begins: the pointers. The result has None in place of pointers if each child has one entry. distinct: no two
        entries of a fiber have the same coordinates. A kind with a `fused` pass may override this method.
        """
        n = len(begins) - 1
        parents = np.repeat(np.arange(n), np.diff(signed(begins))) if n != 1 else np.broadcast_to(0, len(coords[0]))
        made, child = self.build(dims, parents, coords, n)
        return made, count_owners(as_array(child), self.size(made, dims, n), begins.dtype)

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        """For each (position, coordinates) the child position, or -1.

        The default lists these fibers inside a window around the coordinates. A kind that can search a long fiber
        overrides this method.
        """
        fibers = np.unique(positions)
        counts, listed, child = self.expand(arrays, dims, fibers, [np.unique(x) for x in coords])
        at = np.repeat(fibers, np.diff(as_pointers(counts, len(fibers))))
        entries, points = match([*listed, at], [*coords, positions])
        children = np.full(len(positions), -1)
        children[points] = as_array(child)[entries]
        return children

    def reached(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Positions:
        """The distinct child positions of the fibers at `positions` inside `window`."""
        children = self.expand(arrays, dims, positions, window)[2]
        return as_array(children)[np.sort(np.unique(children, return_index=True)[1])] if self.shares else children

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> int | Array:
        """The number of entries below each of the n fibers, from the number below each child.

        below, and the result: an array, or one number for all.
        """
        counts, _, child = self.expand(arrays, dims, range(n), [range(size) for size in dims])
        if isinstance(counts, int) and isinstance(below, int):
            return counts * below
        return below_fibers(as_pointers(counts, n), below if isinstance(below, int) else items_at(below, child))

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built | None:
        """The fibers at `positions` as a separate level, and their original children. None: the kind is read whole.

        Children outside `window` may be omitted. The arrays may be unchecked arrays in a file: the method reads only
        the required items, and checks every number before it indexes with it. Raises ArrayError for a faulty number.
        """
        return None

    def cut(self, arrays: Arrays, dims: Sequence[int], window: Window) -> Built | None:
        """The level inside `window`, with coordinates relative to its start, and the remaining children.

        For kinds with more coordinates than numbers; required if coordinates share children. None: the entries are
        listed one by one.
        """
        return None

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        """The inverse of `expand`: the parents of these children, and their coordinates.

        The arrays may be in a file, as for `part`. The default reads the level whole.
        Precondition: at least one child.
        """
        whole = {role: array[:] for role, array in arrays.items()}
        raise_if(ArrayError, self.check(whole, dims, n))
        counts, coords, below = self.expand(whole, dims, range(n), [range(size) for size in dims])
        order = np.argsort(as_array(below), kind="stable")
        child, owner = as_array(below)[order], np.repeat(np.arange(n), np.diff(as_pointers(counts, n)))[order]
        if not len(child):
            return Owners(range(1), len(children), [np.zeros(len(children), np.int64) for _ in dims], 0)
        first, stop = (np.searchsorted(child, as_array(children), side) for side in ("left", "right"))
        owners = owner[np.maximum(stop - 1, 0)]  # a child without an entry belongs to the fiber of the child before
        fibers = range(int(owners.min()), int(owners.max()) + 1)
        numbers = owners - fibers.start
        at = order[np.minimum(first, len(child) - 1)]
        owned = np.bincount(numbers), [x[at] for x in coords], stop - first
        ascend = bool((numbers[1:] >= numbers[:-1]).all())
        return Owners(fibers, *owned, None if ascend else numbers)

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        """`check` for arrays in a file, with about `size` items in memory at a time. The default reads them whole."""
        return self.check({role: array[:] for role, array in arrays.items()}, dims, n)

    # Estimates of sizes

    def children(self, dims: Sequence[int], n: int, distinct: int) -> int | None:
        """The number of child positions, from counts alone; None if counts do not determine it.

        distinct: the number of distinct coordinates of the entries in this level and the levels above.
        """
        return None if self.padded or self.gaps or self.shares else distinct

    def sliced(self, dims: Sequence[int], n: int, children: int, k: int, *, root: bool, itemsize: int) -> int | None:
        """The bytes read to select each coordinate of dimension k, one at a time; None if counts do not determine it.

        The default reads the whole level for every coordinate.
        """
        whole = self.nbytes(dims, n, children, root=root, itemsize=itemsize)
        return None if whole is None else dims[k] * whole


def wrong_type(spec: ArraySpec, dtype: np.dtype[Any]) -> str | None:
    """The required type of an array, or None if `dtype` matches. Booleans may be bytes of 0 and 1."""
    if spec.holds == "bool":
        return None if dtype.kind in "biu" and dtype.itemsize == 1 else "booleans"
    if expected := spec.dtype or {"byte": "uint8", "word": "uint64"}.get(spec.holds):
        return None if dtype.newbyteorder("=") == expected else expected
    return None if dtype.kind in "iu" else "an integer type"


def wrong_lengths(lengths: Mapping[str, int], expected: Mapping[str, int | None], each: str = "") -> list[Problem]:
    """A problem for every array of another length than the expected one, by role; None allows any length.

    each: the meaning of an item, for messages.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> [str(problem) for problem in wrong_lengths({"ptr": 4, "start": 3}, {"ptr": 5, "start": None})]
    ['ptr: expected a length of 5, got 4']
    """
    more = f", one for each {each}" if each else ""
    return [
        Problem(role, f"expected a length of {size}{more}, got {lengths[role]}")
        for role, size in expected.items()
        if size is not None and lengths.get(role, size) != size
    ]


def moved(problem: Problem, items: int) -> Problem:
    """The problem of a part of an array as one of the whole array. items: the number of items before the part."""
    role, bracket, number = problem.path.partition("[")
    return Problem(f"{role}[{items + int(number.rstrip(']'))}]" if bracket else role, problem.message)


class Place(NamedTuple):
    """One level of a chain: the sizes of its dimensions, the number of dimensions above, its arrays by role."""

    level: Level
    dims: tuple[int, ...]
    depth: int
    arrays: dict[str, ArraySpec]

    @property
    def pointer(self) -> str | None:
        """The role of the pointer; None for a level without a pointer."""
        return next((role for role, spec in self.arrays.items() if spec.holds == "pointer"), None)


LEVELS: dict[str, type[Level]] = {}  # the known kinds by name in the notation


def parameters(level: Level) -> dict[str, Any]:
    """The parameters except the rank: the JSON keys of the level."""
    return {field.name: getattr(level, field.name) for field in fields(level) if field.name != "rank"}


def package_of(kind: type[Level]) -> str:
    """The package of a kind; `__main__` for a class of a program or a notebook."""
    return kind.package or kind.__module__.partition(".")[0]


def level_desc(kind: type[Level]) -> str:
    """The name of a kind in a descriptor. Other parsers refuse names that the specification does not define."""
    package = package_of(kind)
    return kind.kind if kind.specified and package == OWN else f"{package}:{kind.kind}"


def described(level: Level) -> dict[str, Any]:
    """The JSON object of a level, without the level below."""
    kind = type(level)
    version = {} if package_of(kind) == OWN else {"version": layout(kind)}
    return {"level_desc": level_desc(kind), "rank": level.rank, **parameters(level), **version}


def notation(kind: type[Level], known: Iterable[type[Level]]) -> str:
    """The name of a kind in the notation, which is unique among the known kinds."""
    return level_desc(kind) if sum(other.kind == kind.kind for other in known) > 1 else kind.kind


@functools.cache
def layout(kind: type[Level]) -> int | str:
    """The version of the kind's arrays. In a program or a notebook it is a checksum of the source."""
    if kind.version or package_of(kind) != "__main__":
        return kind.version
    return checksum(kind.build, kind.expand)
