"""Tensor: the public face over a tree and its transpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..engine import packing
from ..engine.blocks import read_slab, slab_ranges
from ..engine.dense import gather_tree, scatter_tree
from ..engine.emission import Duplicates
from ..engine.packing import Entries
from ..engine.selection import (
    View,
    broadcast,
    find_in,
    load,
    locate_in,
    match,
    narrowed,
    parse_key,
    pick,
    value_reader,
    view_of,
)
from ..engine.tree import Tree, count_positions, index_dtype, length_problems, repeat_one, same, value_problems
from ..errors import ArrayError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.descriptor import VERSION, array_classes
from ..formats.dtypes import sound_booleans
from ..formats.format import Format, FormatLike, checked_axes, coordinates, in_order
from ..formats.structure import (
    STRUCTURES,
    diagonal_problems,
    expand,
    in_triangle,
    structure_problems,
    symmetry_problems,
    transposed,
    triangle_problems,
)
from ..levels import places
from ..levels.base import items_at
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from . import drawing
from .encoding import stored
from .validation import (
    check_value_type,
    checked_array,
    checked_dimension,
    checked_entries,
    checked_fill,
    checked_format,
    checked_json,
    checked_places,
    checked_values,
    mirror_problems,
    split_mask,
)

Array: TypeAlias = npt.NDArray[Any]
Check: TypeAlias = Literal["full", "trusted", "none"]

_DRAWN_UNASKED = 2**22  # stored values of a tensor that a notebook draws, in a tenth of a second


@within_memory
class Tensor:
    """A sparse tensor of any rank in a tree of levels. Immutable; its arrays are read-only.

    format: a Format, its notation, or a Binsparse `custom` object. shape: sizes of the tensor's dimensions. arrays:
    those of the levels by stored name (`pointers_to_1`, `indices_1`, `bitmap_0` …), one-dimensional, of any integer
    type, a bitmap of booleans or bytes. values: one-dimensional, an item for each position of the last level, or a
    scalar for all of them (then the tensor is *iso*). They are used as they are, without a copy; masked items are
    refused.

    fill_value: the value of what is not stored; None, which is not 0, where it is not specified. structure: one of the
    six of Binsparse 0.1, section 3.8. attributes: JSON of your own that is kept with the tensor; descriptor_attributes:
    the same, where it lies in the descriptor itself (section 3.9). check: "full" checks
    every invariant, "trusted" leaves out the order of the entries, "none" believes everything.

    Raises FormatError, ArrayError with every fault, LimitError.
    """

    __slots__ = (
        "_attributes",
        "_descriptor_attributes",
        "_fill_value",
        "_format",
        "_held",
        "_reader",
        "_shape",
        "_structure",
    )

    def __init__(
        self,
        format: FormatLike,
        shape: int | Sequence[int],
        arrays: Mapping[str, npt.ArrayLike],
        values: npt.ArrayLike,
        *,
        fill_value: Any = None,
        structure: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        descriptor_attributes: Mapping[str, Any] | None = None,
        check: Check = "full",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if check not in ("full", "trusted", "none"):
            raise ValueError(f"check is 'full', 'trusted' or 'none', got {check!r}")
        parsed, sizes = checked_format(format, shape, limits)
        dims = tuple(sizes[k] for k in parsed.order)
        classes = array_classes(parsed)
        raise_if(
            ArrayError,
            [Problem(str(name), f"the format {parsed} has no such array") for name in arrays if name not in classes],
        )
        given = {name: checked_array(arrays[name], name) for name in classes if name in arrays}
        given_values = checked_values(values)
        iso = given_values.ndim == 0
        raise_if(ArrayError, length_problems(parsed.levels, dims, given, None if iso else len(given_values)))
        given = {name: x.view(bool) if classes[name] == "bool" else x for name, x in given.items()}
        positions = count_positions(places(parsed.levels, dims), given)
        whole = repeat_one(given_values.reshape(1), positions) if iso else given_values
        raise_if(ArrayError, value_problems(positions, len(whole)))
        tree = Tree(parsed.levels, dims, given, whole, iso)
        fill = checked_fill(fill_value, given_values.dtype)
        kept = checked_json(attributes, limits), checked_json(descriptor_attributes, limits)
        self._set(parsed, sizes, tree, fill, structure, *kept)
        if check != "none":
            self._check(order=check == "full")

    def _set(
        self,
        format: Format,
        shape: tuple[int, ...],
        held: Tree | View,
        fill_value: Any,
        structure: str | None,
        attributes: Mapping[str, Any],
        descriptor_attributes: Mapping[str, Any],
    ) -> None:
        self._format = format
        self._shape = shape
        self._held = held if isinstance(held, View) or held.lazy else _frozen(format, held)
        self._reader: Callable[[Any], Any] | None = None  # made when a value has been asked for
        self._fill_value = fill_value
        self._structure = structure
        self._attributes = attributes
        self._descriptor_attributes = descriptor_attributes

    @classmethod
    def _trusted(cls, format: Format, shape: tuple[int, ...], held: Tree | View, *rest: Any) -> Tensor:
        """A tensor around a tree that needs no check, or that is checked when it is read; rest: fill value, structure,
        both kinds of attributes.
        """
        self = cls.__new__(cls)
        self._set(format, shape, held, *rest)
        return self

    @property
    def _tree(self) -> Tree:
        """The tree, in memory: read and checked, or selected, when it is first asked for."""
        held = self._held
        if isinstance(held, View):
            held = self._held = _frozen(self._format, load(held, self._format, self._pad(), DEFAULT_LIMITS))
        elif held.lazy:
            held = held.loaded()
            raise_if(ArrayError, held.check(self._format.order))
            held = _frozen(self._format, held)
            whole = self._trusted(self._format, self._shape, held, *self._rest())
            whole._check_structure()
            raise_if(ArrayError, whole._diagonal_problems())
            self._held = held
        return held

    @property
    def _source(self) -> Tree:
        """What the tensor is made of, for what is known of it without reading: the type of its values."""
        return self._held.tree if isinstance(self._held, View) else self._held

    def _rest(self) -> tuple[Any, ...]:
        return self._fill_value, self._structure, self._attributes, self._descriptor_attributes

    def _with(self, format: Format, tree: Tree, **changes: Any) -> Tensor:
        """The same content in another tree."""
        rest = {"fill_value": self._fill_value, "structure": self._structure} | changes
        kept = self._attributes, self._descriptor_attributes
        return Tensor._trusted(format, self._shape, tree, rest["fill_value"], rest["structure"], *kept)

    # What it is

    @property
    def format(self) -> Format:
        """The levels and the transpose, as they were given."""
        return self._format

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of cells, stored or not; a Python integer of any size."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type of the values."""
        return self._source.values.dtype

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The index and pointer arrays by stored name, read-only."""
        return MappingProxyType(dict(self._tree.arrays))

    @property
    def values(self) -> Array:
        """The values by position of the last level, read-only; of an iso tensor a broadcast of the one value."""
        return self._tree.values

    @property
    def fill_value(self) -> Any:
        """The value of what is not stored, as a numpy scalar of the tensor's type, or None."""
        return self._fill_value

    @property
    def structure(self) -> str | None:
        """The structure of a matrix that stores one triangle, or None."""
        return self._structure

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's own JSON."""
        return MappingProxyType(self._attributes)

    @property
    def descriptor_attributes(self) -> Mapping[str, Any]:
        """The `attributes` inside the descriptor (Binsparse 0.1, section 3.9)."""
        return MappingProxyType(self._descriptor_attributes)

    @property
    def iso(self) -> bool:
        """Whether one value stands for all stored ones."""
        return (self._held if isinstance(self._held, Tree) else self._tree).iso

    @property
    def number_of_stored_values(self) -> int:
        """How many entries are stored; with a structure, those of its triangle; of a view they are looked for."""
        held = self._held
        tree = held if isinstance(held, Tree) and not held.gaps and not held.shares else self._tree
        return tree.count()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays and the values, in memory; of an iso tensor one value."""
        tree = self._held if isinstance(self._held, Tree) else self._tree
        sizes = [len(array) * array.dtype.itemsize for array in tree.arrays.values()]
        return sum(sizes) + (1 if tree.iso else len(tree.values)) * tree.values.dtype.itemsize

    def __repr__(self) -> str:
        lines = [] if isinstance(self._held, View) else self._tree_lines()
        return "\n".join([self._head(), *lines])

    def _repr_html_(self) -> str:
        """What a notebook shows: the head alone of what has not been read, a picture too of what is in memory."""
        if isinstance(self._held, View) or self._held.lazy:
            return f"<pre>{drawing.escaped(self._head())}</pre>"
        drawn = self.draw() if self.number_of_stored_values <= _DRAWN_UNASKED else ""
        return f"<pre>{drawing.escaped(repr(self))}</pre>{drawn}"

    def draw(self, dimensions: Sequence[int] | None = None) -> str:
        """An SVG: of a small tensor its level tree, with all arrays and pointers; of a large one, or where dimensions
        are named, how many stored entries lie where in one or two of them (the first two), as a spy plot.

        Raises IndexError, OptionError for dimensions that cannot be drawn.
        """
        tree, order = self._tree, self._format.order
        if dimensions is None and (not self.ndim or drawing.is_small(tree)):
            return drawing.draw_tree(tree, order)
        asked = range(min(self.ndim, 2)) if dimensions is None else dimensions
        chosen = [checked_dimension(k, self.ndim) for k in asked]
        if len(set(chosen)) != len(chosen) or not 0 < len(chosen) <= 2:
            raise OptionError(Problem("dimensions", f"expected one or two different ones, got {chosen}"))
        return drawing.spy(tree, order, chosen)

    def _head(self) -> str:
        shape = " × ".join(map(str, self._shape)) or "scalar"
        fill = "" if self._fill_value is None else f", fill {self._fill_value}"
        if isinstance(self._held, View):
            return f"<Tensor {shape} {self.dtype}, a view{fill}, {self._format}>"
        iso = ", iso" if self.iso else ""
        structure = f", {self._structure}" if self._structure else ""
        count = len(self._held.values) if self._held.lazy else self.number_of_stored_values
        entries = f"{count} stored value{'' if count == 1 else 's'}"
        return f"<Tensor {shape} {self.dtype}{iso}, {entries}{fill}{structure}, {self._format}>"

    def _tree_lines(self) -> list[str]:
        lines = []
        assert isinstance(self._held, Tree)
        for depth, (place, arrays, n) in enumerate(self._held.walk()):
            first = place.depth
            covered = ", ".join(f"{self._format.order[first + k]} (size {size})" for k, size in enumerate(place.dims))
            held = ", ".join(f"{place.arrays[role].name}[{len(array)}]" for role, array in arrays.items())
            fibers = f"{n} fiber{'s' if n != 1 else ''}"
            covered = f"dimension {covered}" if covered else "no dimension"
            lines.append(f"{'  ' * depth}└ {place.level}: {covered}, {fibers}{', ' + held if held else ''}")
        lines.append(f"{'  ' * len(self._format.levels)}└ element: values[{len(self._held.values)}]")
        return lines

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Tensor is not made dense implicitly; call to_dense()")

    def __reduce__(self) -> tuple[Any, ...]:
        tree = self._tree
        values = _one(tree.values) if tree.iso else tree.values
        held = (self._format, self._shape, dict(tree.arrays), values, len(tree.values), tree.iso)
        rest = self._fill_value, self._structure, self._attributes, self._descriptor_attributes
        return _unpickle, (*held, *rest)

    # Parts of it

    def __getitem__(self, key: Any) -> Any:
        """What numpy's rules make of integers, slices, an ellipsis, arrays of integers and masks.

        A view, which costs nothing until something is asked of it; a structure is expanded. Where every dimension is
        given an integer, the value there, as a numpy scalar; where every one is given an integer or an array, an array
        of the values there. Several arrays beside a slice, or one of several dimensions, make a Tensor in memory, by
        all coordinates. Raises IndexError.
        """
        read = self._reader
        if read is not None and (value := read(key)) is not None:
            return value
        indices, apart = parse_key(key, self._shape)
        sliced = [isinstance(index, slice) for index in indices]
        arrays = [index for index in indices if isinstance(index, np.ndarray)]
        if arrays and not any(sliced):
            return self._values_at(broadcast(indices, self._shape))
        if len(arrays) > 1 or (arrays and arrays[0].ndim > 1):
            return gather(self, indices, apart)
        if any(sliced) or (not indices and key != ()):
            return self._viewed(narrowed(self._view(), indices, apart=apart))
        value = self._value_at(
            [pick(range(size), x, k) for k, (x, size) in enumerate(zip(indices, self._shape, strict=True))]
        )
        if isinstance(self._held, Tree) and not self._held.lazy and self._structure is None:
            self._reader = value_reader(self._held, self._format.order, self._shape, self._pad())
        return value

    def _view(self) -> View:
        held = self._held
        return held if isinstance(held, View) else view_of(held, self._format.order, self._structure)

    def _viewed(self, view: View) -> Tensor:
        kept = len(view.dimensions) == self.ndim and not any(level.refuses for level in self._format.levels)
        format = self._format if kept else view.format()
        return self._trusted(format, view.shape, view, self._fill_value, None, {}, {})

    def _value_at(self, place: Sequence[int]) -> Any:
        """The value at coordinates in range."""
        held = self._held
        if isinstance(held, View):
            items = list(held.items)
            for k, x in zip(held.dimensions, place, strict=True):
                items[k] = int(items[k][x])  # type: ignore[index]
            place = tuple([items[k] for k in map(held.order.index, range(len(items)))])  # type: ignore[misc]
            structure, order, tree = held.structure, held.order, held.tree
        else:
            structure, order, tree = self._structure, self._format.order, held
        mirrored = structure is not None and not in_triangle(structure, place)  # type: ignore[arg-type]
        q = find_in(tree, [place[k] for k in (order[::-1] if mirrored else order)])
        if q < 0:
            return self._pad()
        value = tree.values[q : q + 1]
        if structure is not None and tree.lazy and tree.padded:
            raise_if(ArrayError, diagonal_problems(structure, [np.array([x]) for x in place], value))
        return (STRUCTURES[structure].mirrored(value) if structure and mirrored else value)[0]

    def _values_at(self, coords: Sequence[Array]) -> Array:
        """The values at coordinates in range, in an array of the shape of these."""
        whole = [x.ravel() for x in coords]
        tree, mirrored = self._tree, np.zeros(len(whole[0]), bool)
        if self._structure is not None:
            mirrored = ~in_triangle(self._structure, whole)
            whole = [np.where(mirrored, x, y) for x, y in zip(whole[::-1], whole, strict=True)]
        positions = locate_in(tree, [whole[k] for k in self._format.order])
        if not len(tree.values):
            return np.full(coords[0].shape, self._pad(), self.dtype)
        values = np.array(items_at(tree.values, positions))
        if self._structure is not None:
            values[mirrored] = STRUCTURES[self._structure].mirrored(values[mirrored])
        np.copyto(values, self._pad(), where=positions < 0)
        return values.reshape(coords[0].shape)

    def locate(self, coords: Sequence[npt.ArrayLike]) -> Array:
        """Where the entries at these coordinates stand among `values`, or -1 for what is not stored: an int64 array.

        coords: an integer array for each dimension, of one length. With a structure, of what is stored. Raises
        IndexError, ArrayError.
        """
        columns = checked_places(coords, self._shape)
        return locate_in(self._tree, [columns[k] for k in self._format.order])

    def permute(self, axes: Sequence[int]) -> Tensor:
        """The same entries with the dimensions in another order: dimension k is dimension axes[k] of this tensor.

        Nothing is moved. Raises FormatError for what is no permutation.
        """
        order = checked_axes(axes, self.ndim)
        format = in_order(self._format.levels, [order.index(k) for k in self._format.order])
        structure = self._structure
        if structure is not None and order == [1, 0]:
            structure = transposed(structure)
        held = self._held.permuted(order) if isinstance(self._held, View) else self._held
        shape = tuple(self._shape[k] for k in order)
        kept = self._attributes, self._descriptor_attributes
        return self._trusted(format, shape, held, self._fill_value, structure, *kept)

    @property
    def T(self) -> Tensor:
        """The dimensions in reverse."""
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> Tensor:
        """The same entries in memory, of a view in arrays of its own, of a file with no more read than is needed.

        format: where not the one that it has. Raises what `read` raises for the arrays, FormatError, LimitError.
        """
        _ = self._tree
        return self if format is None else self.convert(format)

    def slabs(self, dimension: int, *, max_bytes: int) -> Iterator[tuple[range, Tensor]]:
        """The tensor in parts along a dimension, each of whole fibers and in memory, its arrays of at most so many
        bytes: the coordinates of the part, and the tensor of them, in the format of a view of it.

        Of dense and sparse levels each entry is read once along the outermost stored dimension; along another, once
        for every part, and once more to count. Of other kinds a part is made, and halved where it turns out too large.
        A structure is expanded first. Raises LimitError where one coordinate alone takes more, IndexError.
        """
        dimension, most = checked_dimension(dimension, self.ndim), as_integer(max_bytes)
        if most is None:
            raise OptionError(
                Problem("max_bytes", f"expected a number of bytes, got {max_bytes!r:.40}; give an integer")
            )
        max_bytes = most
        k = self._format.order.index(dimension)
        whole = self.expand_structure()
        tree = whole._held if isinstance(whole._held, Tree) else whole._tree
        planned = all(level.fused() is not None for level in tree.levels)
        size, start = self._shape[dimension], 0
        plan = slab_ranges(tree, k, max_bytes) if planned else iter(())
        width = max(size * max_bytes // max(whole.nbytes, 1), 1)
        key: list[Any] = [slice(None)] * self.ndim
        while start < size:
            part = next(plan, range(start, min(start + width, size)))
            key[dimension] = slice(part.start, part.stop)
            slab = whole[tuple(key)]
            if planned and tree.lazy and k:
                columns, values = read_slab(tree, k, part, max(max_bytes // (8 * self.ndim + self.dtype.itemsize), 1))
                coords = [columns[self._format.order.index(d)] for d in range(self.ndim)]
                slab = slab._packed(coords, values, self._format, DEFAULT_LIMITS, iso=tree.iso)
            if slab.load().nbytes <= max_bytes:
                yield part, slab
                start, width = part.stop, 2 * len(part)
            elif len(part) > 1 and not planned:  # the sizes of some kinds are known when they are made
                width = len(part) // 2
            else:
                what = f"coordinate {start} of dimension {dimension} takes more than {max_bytes} bytes; allow more"
                raise LimitError(Problem("max_bytes", what))

    # What it does

    def check(self) -> None:
        """Check every invariant again; raises ArrayError with every fault and its place."""
        self._check(order=True)

    def _check(self, *, order: bool) -> None:
        raise_if(ArrayError, self._tree.check(self._format.order, order=order))
        self._check_structure()

    def _check_structure(self) -> None:
        if self._structure is not None:
            raise_if(FormatError, structure_problems(self._structure, self._shape, self.dtype))
            if not self._padded:
                raise_if(ArrayError, triangle_problems(self._structure, self.unpack()[0]))

    @property
    def _padded(self) -> bool:
        """Whether stored values may be what no entry was."""
        return self._format.padded

    def unpack(self) -> tuple[tuple[Array, ...], Array]:
        """The stored entries in stored order: `ndim` int64 arrays of coordinates, one a dimension, and their values.

        With a structure, those of its triangle: what a dense format stores in the other one is no entry.
        """
        return self._entries(np.int64)

    def _entries(self, dtype: npt.DTypeLike) -> tuple[tuple[Array, ...], Array]:
        """As `unpack`, with coordinates of that type."""
        columns, positions = packing.unpack_tree(self._tree, dtype)
        coords: list[Array] = [columns[0]] * self.ndim if columns else []
        for column, dimension in zip(columns, self._format.order, strict=True):
            coords[dimension] = column
        values = items_at(self._tree.values, positions)
        if self._structure is not None and self._padded:
            kept = in_triangle(self._structure, coords)
            return tuple(x[kept] for x in coords), values[kept]
        return tuple(coords), values

    def to_dense(self, fill: Any = None, *, limits: Limits = DEFAULT_LIMITS) -> Array:
        """A numpy array of the tensor's shape and type, its structure expanded.

        fill: the value of what is not stored, where the fill value of the tensor, or zero, will not do.
        Raises LimitError for an array of more than `limits.dense_bytes`.
        """
        if self.ndim > 64:
            raise LimitError(Problem("shape", f"numpy has no arrays of {self.ndim} dimensions"))
        limits.hold("dense_bytes", self.size * self.dtype.itemsize, "shape", "the size in bytes of the dense array")
        rest = self._pad() if fill is None else checked_fill(fill, self.dtype)
        if self._structure is None and not self._tree.arrays and len(self._tree.values) == self.size:
            cells = self._tree.values.reshape(self._tree.dims)
            return np.array(cells.transpose(np.argsort(self._format.order)) if self.ndim else cells, order="C")
        if self._structure is not None:
            return self.convert(coordinates(2)).expand_structure().to_dense(rest, limits=limits)
        blank = np.zeros((), self.dtype)
        blank[...] = rest
        if any(blank.tobytes()):
            dense = np.full(self._shape, rest, self.dtype)
        else:  # memory that nobody has touched is zero
            dense = np.zeros(self._shape, self.dtype)
        steps = [math.prod(self._shape[k + 1 :]) for k in self._format.order]
        scatter_tree(self._tree, steps, dense.reshape(-1))
        return dense

    def convert(self, format: FormatLike, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
        """The same entries in another format. Between formats of one order the values, and the indices that list every
        entry, are shared.

        A format that stores more than entries (dense below) is filled up with the fill value, or zero, and what it is
        filled up with is stored from then on; `drop_fill` is the way back. Raises FormatError, LimitError.
        """
        parsed, _ = checked_format(format, self._shape, limits)
        if parsed.canonical() == self._format.canonical():
            return self._with(parsed, self._tree)
        if self._structure is not None:
            raise_if(FormatError, mirror_problems(self._structure, parsed, self._pad()))
            if self._padded:
                return self._packed(*self.unpack(), parsed, limits)
        stored_at = np.argsort(self._format.order)
        order = tuple(int(stored_at[k]) for k in parsed.order)
        return self._with(parsed, packing.convert_tree(self._tree, parsed.levels, order, self._pad(), limits))

    def drop_fill(self) -> Tensor:
        """A tensor of the same format without the stored entries that equal the fill value (zero where it is None).

        A format that is dense below cannot be without them: convert it first.
        """
        fill = self._pad()
        coords, values = self.unpack()
        with np.errstate(invalid="ignore"):
            kept = (values != fill) & ~((values != values) & bool(fill != fill))
        if kept.all():
            return self
        return self._packed([x[kept] for x in coords], values[kept], self._format, DEFAULT_LIMITS)

    def _packed(
        self, coords: Sequence[Array], values: Array, format: Format, limits: Limits, *, iso: bool | None = None
    ) -> Tensor:
        """A tensor of these entries, otherwise like this one."""
        iso = (self.iso if iso is None else iso) and bool(coords or len(values))
        entries = _entries(format, self._shape, coords, _one(values).reshape(1) if iso else values, iso)
        return self._with(format, packing.pack_entries(format.levels, entries, self._pad(), "error", limits))

    def astype(self, dtype: npt.DTypeLike) -> Tensor:
        """The same tensor with values of another type, cast as numpy casts them; the other arrays are shared."""
        tree = self._tree.blanked()
        check_value_type(np.dtype(dtype))
        if self._structure is not None:
            raise_if(FormatError, structure_problems(self._structure, self._shape, np.dtype(dtype)))
        if tree.iso:
            values = repeat_one(_one(tree.values).reshape(1).astype(dtype), len(tree.values))
        else:
            values = tree.values.astype(dtype)
        fill = None if self._fill_value is None else self._fill_value.astype(values.dtype)
        cast = tree.with_values(values, tree.iso)
        return self._with(self._format, cast, fill_value=fill)

    def equals(self, other: Tensor) -> bool:
        """Whether both have the same shape, the same entries, and the same fill value, in whatever formats.

        NaN equals NaN; types are compared by value, as numpy does; a stored fill value is an entry.
        """
        if hasattr(other, "to_tensor"):  # it is seen through a map
            other = other.to_tensor()
        if not isinstance(other, Tensor) or self._shape != other._shape:
            return False
        fills = self._fill_value, other._fill_value
        if (fills[0] is None) != (fills[1] is None) or (fills[0] is not None and not same(*fills)):
            return False
        (mine, values), (others, other_values) = self._sorted(), other._sorted()
        if len(values) != len(other_values) or not all(map(np.array_equal, mine, others)):
            return False
        try:
            with np.errstate(invalid="ignore"):  # NaN may be of the kind that signals
                return bool(np.all((values == other_values) | ((values != values) & (other_values != other_values))))
        except TypeError:  # types that numpy does not compare
            return False

    def expand_structure(self) -> Tensor:
        """The same matrix with the entries of both triangles, in the same format, without a structure."""
        if self._structure is None:
            return self
        # Behind or before the entries, their mirror images are in order within each fiber: only the first stored
        # dimension is to be sorted.
        above = STRUCTURES[self._structure].lower != (self._format.order == (0, 1))
        given = self._entries(index_dtype(self._shape, 2 * len(self._tree.values)))
        coords, values = expand(self._structure, *given, mirrored_first=above)
        iso = self.iso and bool(len(values) == 0 or (values == values[0]).all())
        entries = _entries(self._format, self._shape, coords, _one(values).reshape(1) if iso else values, iso)
        ordered = all(level.ordered for level in self._format.levels)
        tree = packing.pack_entries(
            self._format.levels,
            entries,
            self._pad(),
            "error",
            DEFAULT_LIMITS,
            ordered_dims=int(ordered),
            trusted=ordered,
        )
        return self._with(self._format, tree, structure=None)

    def with_structure(self, structure: str) -> Tensor:
        """The inverse: the same matrix, of which one triangle is stored. Raises ArrayError, with a place, for one that
        is not what its other triangle says, FormatError for a shape or a type that cannot be.
        """
        whole = self.expand_structure()
        raise_if(FormatError, structure_problems(structure, whole._shape, whole.dtype))
        raise_if(FormatError, mirror_problems(structure, whole._format, whole._pad()))
        raise_if(ArrayError, symmetry_problems(structure, *whole._sorted()))
        coords, values = whole.unpack()
        kept = in_triangle(structure, coords)
        half = whole._packed([x[kept] for x in coords], values[kept], whole._format, DEFAULT_LIMITS)
        return half._with(half._format, half._tree, structure=structure)

    def _diagonal_problems(self) -> list[Problem]:
        """What a strict reader finds wrong with the diagonal of a dense matrix with a structure: it has to be its own
        mirror image.
        """
        if self._structure is None or not self._padded:
            return []
        return list(diagonal_problems(self._structure, *self.unpack()))

    def _stored(
        self, version: str = VERSION, *, narrow: bool = False, bitpacked: bool | Collection[str] = False
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """The header of a container, and the arrays as it holds them; raises ArrayError for types without a name."""
        raise_if(ArrayError, self._diagonal_problems())
        attributes = dict(self._descriptor_attributes)
        if self._structure is not None:
            i, j = self.unpack()[0]
            attributes["number_of_diagonal_elements"] = int(np.count_nonzero(i == j))
        return stored(
            self._tree,
            self._format,
            self._shape,
            self._fill_value,
            self._structure,
            attributes,
            self._attributes,
            version,
            narrow,
            bitpacked,
        )

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor, as a dictionary with the key `binsparse`. Provisional: the protocol is a draft."""
        return self._stored()[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, as a container would hold them, without a copy. Provisional: the protocol is a draft."""
        return self._stored()[1]

    def _sorted(self) -> tuple[tuple[Array, ...], Array]:
        """All entries in lexicographic order, the structure expanded."""
        if not self.ndim:  # coordinates of no dimension would make an entry of one that is not there
            return self.unpack()
        if self._structure is None:
            return self.convert(coordinates(self.ndim)).unpack()
        coords, values = expand(self._structure, *self.unpack())
        entries = _entries(coordinates(self.ndim), self._shape, coords, values, False)
        tree = packing.pack_entries(coordinates(self.ndim).levels, entries, self._pad(), "error", DEFAULT_LIMITS)
        return tuple(packing.unpack_tree(tree)[0]), tree.values

    def _pad(self) -> Any:
        """What stands where nothing is stored."""
        return np.zeros((), self.dtype)[()] if self._fill_value is None else self._fill_value


@within_memory
def pack(
    coords: Sequence[npt.ArrayLike] | npt.ArrayLike,
    values: npt.ArrayLike,
    shape: int | Sequence[int],
    format: FormatLike,
    *,
    duplicates: Duplicates = "error",
    fill_value: Any = None,
    structure: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """A Tensor of entries in any order.

    coords: one integer array for each dimension, or one array of shape (ndim, n). values: an array of length n, or a
    scalar for all entries (then the tensor is iso). duplicates: what becomes of coordinates that are given more than
    once: an error, the sum of the values (of booleans, whether any is true; integers wrap as numpy's), or the first or
    the last of them in input order. Of a masked array the entries whose value is masked are not stored. fill_value,
    structure, attributes: as for Tensor.

    Raises FormatError, ArrayError for what is out of range, repeated, or of a wrong type or length, LimitError.
    """
    if duplicates not in ("error", "sum", "first", "last"):
        raise ValueError(f"duplicates is 'error', 'sum', 'first' or 'last', got {duplicates!r}")
    parsed, sizes = checked_format(format, shape, limits)
    columns, stored = checked_entries(coords, values, len(sizes))
    raise_if(FormatError, structure_problems(structure, sizes, stored.dtype) if structure is not None else ())
    iso = stored.ndim == 0
    entries = _entries(parsed, sizes, columns, stored.reshape(-1) if iso else stored, iso)
    fill = checked_fill(fill_value, stored.dtype)
    pad = np.zeros((), stored.dtype)[()] if fill is None else fill
    kept = checked_json(attributes, limits)
    tree = packing.pack_entries(parsed.levels, entries, pad, duplicates, limits)
    if structure is not None:
        raise_if(ArrayError, triangle_problems(structure, columns))
        raise_if(FormatError, mirror_problems(structure, parsed, pad))
    return Tensor._trusted(parsed, sizes, tree, fill, structure, kept, {})


@within_memory
def pack_dense(
    array: npt.ArrayLike,
    format: FormatLike,
    *,
    fill_value: Any = 0,
    pattern: npt.ArrayLike | None = None,
    attributes: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """A Tensor of what differs from the fill value in an array (NaN equals NaN), or of what the boolean pattern marks.
    Of a masked array the cells that are masked are not stored.

    The fill value is 0 unless another is given, while `pack` gives none: by `equals` these differ. Where it is None the
    tensor has none, and what differs from zero is stored. Raises FormatError, ArrayError
    for a pattern of another shape or a fill value that the type cannot hold, LimitError.
    """
    dense, masked = split_mask(array, "array")
    dense = sound_booleans(dense)
    check_value_type(dense.dtype)
    fill = checked_fill(fill_value, dense.dtype)
    pad = np.zeros((), dense.dtype)[()] if fill is None else fill
    if pattern is None:
        with np.errstate(invalid="ignore"):
            mask = dense != pad if pad == pad else dense == dense
    else:
        mask = sound_booleans(checked_array(pattern, "pattern"))
        if mask.dtype != bool or mask.shape != dense.shape:
            raise ArrayError(
                Problem("pattern", f"expected booleans of shape {dense.shape}, got {mask.dtype} of shape {mask.shape}")
            )
    if masked is not None:
        mask = mask & ~masked
    if not mask.size or not dense.ndim:
        empty = (np.nonzero(mask), dense[mask]) if dense.ndim else ((), dense[mask])
        return pack(*empty, dense.shape, format, fill_value=fill_value, attributes=attributes, limits=limits)
    parsed, sizes = checked_format(format, dense.shape, limits)
    native = dense.astype(dense.dtype.newbyteorder("="), copy=False)
    tree = gather_tree(native, mask, parsed.levels, parsed.order, pad, limits)
    return Tensor._trusted(parsed, sizes, tree, fill, None, checked_json(attributes, limits), {})


def gather(tensor: Any, indices: Sequence[Any], apart: bool) -> Tensor:
    """The entries of a tensor that several index arrays beside slices name, in a tensor by all coordinates.

    tensor: a Tensor, or what is asked like one. indices, apart: of `parse_key`.
    """
    named = [k for k, index in enumerate(indices) if not isinstance(index, slice)]
    points = broadcast([indices[k] for k in named], [tensor.shape[k] for k in named])
    shape = points[0].shape
    part = tensor[tuple(index if isinstance(index, slice) else slice(None) for index in indices)]
    there = []
    for k, point in zip(named, points, strict=True):  # first of each dimension alone, which reads less
        coordinates_there, number = np.unique(point.ravel(), return_inverse=True)
        there.append(number)
        part = part[(slice(None),) * k + (coordinates_there,)]
    coords, values = part.unpack()
    entries, at = match([coords[k] for k in named], there)
    columns = [coords[k][entries] for k in range(len(indices)) if k not in named]
    sizes = [part.shape[k] for k in range(len(indices)) if k not in named]
    first = 0 if apart else named[0]
    columns[first:first] = np.unravel_index(at, shape) if at.size else [at] * len(shape)
    sizes[first:first] = shape
    found = values[:1].reshape(()) if part.iso and len(values) else values[entries]
    return pack(columns, found, sizes, coordinates(len(sizes)), fill_value=tensor.fill_value)


def _unpickle(
    format: Format,
    shape: tuple[int, ...],
    arrays: Mapping[str, Array],
    values: Array,
    count: int,
    iso: bool,
    *rest: Any,
) -> Tensor:
    dims = tuple(shape[k] for k in format.order)
    whole = repeat_one(values.reshape(1), count) if iso else values
    return Tensor._trusted(format, shape, Tree(format.levels, dims, arrays, whole, iso), *rest)


def _entries(format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, iso: bool) -> Entries:
    order = format.order
    return Entries(tuple(shape[k] for k in order), tuple(coords[k] for k in order), values, iso, order)


def _one(values: Array) -> Array:
    """The one value of an iso tensor, as an array without dimensions."""
    return values[0:1].reshape(()) if len(values) else np.zeros((), values.dtype)


def _frozen(format: Format, tree: Tree) -> Tree:
    """The tree with arrays that cannot be written to, and the levels as they were spelled."""
    arrays = {name: _read_only(array) for name, array in tree.arrays.items()}
    return Tree(format.levels, tree.dims, arrays, _read_only(tree.values), tree.iso)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
