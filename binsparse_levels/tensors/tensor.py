"""The class Tensor."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..engine import packing
from ..engine.blocks import read_slab, slab_ranges
from ..engine.dense import scatter_tree
from ..engine.mirroring import mirror_tree
from ..engine.packing import Entries
from ..engine.selection import find_in, load, locate_in, match, value_reader
from ..engine.tree import Tree, count_positions, index_dtype, same
from ..engine.views import View, broadcast, narrowed, parse_key, pick, view_of
from ..errors import ArrayError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.descriptor import VERSION, array_classes
from ..formats.format import Format, FormatLike, checked_axes, coordinates, in_order
from ..formats.index_map import DimensionMap, IndexMap, MapLike
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
from ..levels.base import wrong_type
from ..levels.positions import Array, items_at
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from .encoding import Metadata, encode_tree
from .labels import Labels
from .mapping import Through, converted
from .validation import (
    check_value_type,
    checked_array,
    checked_dimension,
    checked_fill,
    checked_format,
    checked_json,
    checked_places,
    checked_values,
    mirror_problems,
    pad_of,
)

if TYPE_CHECKING:
    from ..looking.report import Report

Check: TypeAlias = Literal["full", "trusted", "none"]

_PER_PLACE = 2**12  # values that could be read in the time of one lookup in a file
_PACKAGE = __package__.rpartition(".")[0]  # whose rooms above this one are imported where they are asked for


@within_memory
class Tensor:
    """A sparse tensor of any rank, stored in a tree of levels. It is immutable, and its arrays are read-only.

    The constructor wraps arrays without a copy. `pack` and `pack_dense` make a tensor of entries or cells.

    Parameters
    ----------
    format : a Format, its notation, or a Binsparse `custom` object.
    shape : the sizes of the dimensions.
    arrays : the arrays of the levels by stored name (`pointers_to_1`, `indices_1`, `bitmap_0` …). Each has one
        dimension and any integer type; a bitmap holds booleans or bytes. Masked items are refused.
    values : an array with an item for each position of the last level, or one scalar for all (an *iso* tensor).
    fill_value : the value of cells that are not stored. None stays None, and counts as 0 in numbers.
    structure : one of the six structures of Binsparse 0.1, section 3.8.
    attributes : the user's own JSON, which is kept with the tensor.
    descriptor_attributes : the same inside the descriptor (section 3.9).
    check : "full" checks every invariant, "trusted" skips the order of the entries, "none" checks nothing.
    limits : the largest rank and size of the attributes.

    Raises
    ------
    FormatError, ArrayError, LimitError : with every fault.

    >>> from binsparse_levels import Tensor
    >>> arrays = {"pointers_to_1": [0, 1, 2], "indices_1": [2, 0]}
    >>> Tensor("CSR", (2, 3), arrays, [1.5, 2.5]).to_dense().tolist()
    [[0.0, 0.0, 1.5], [2.5, 0.0, 0.0]]
    """

    __slots__ = (
        "_file",
        "_format",
        "_held",
        "_looked_up",
        "_metadata",
        "_reader",
        "_shape",
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
        for name, x in given.items():
            if classes[name] == "bool" and wrong_type("bool", x.dtype) is None:
                given[name] = x.view(bool)
        given_values = checked_values(values)
        iso = given_values.ndim == 0
        count = count_positions(parsed.levels, dims, given, None if iso else len(given_values))
        whole = repeat_one(given_values.reshape(1), count) if iso else given_values
        tree = Tree(parsed.levels, dims, given, whole, iso)
        fill = checked_fill(fill_value, given_values.dtype)
        kept = checked_json(attributes, limits), checked_json(descriptor_attributes, limits)
        self._set(parsed, sizes, tree, Metadata(fill, structure, *kept))
        if check != "none":
            self._check(order=check == "full")

    def _set(self, format: Format, shape: tuple[int, ...], held: Tree | View | Through, metadata: Metadata) -> None:
        if metadata.map is not None and not isinstance(held, Through):
            stored = Tensor._trusted(format, shape, held, replace(metadata, map=None, labels=None))
            held = Through(stored, metadata.map)
            shape = metadata.map.shape
        self._format = format
        self._shape = shape
        self._held = _frozen(format, held) if isinstance(held, Tree) and not held.lazy else held
        self._looked_up = 0  # places in the lazy tree
        self._reader: Callable[[Any], Any] | None = None  # made when a value has been asked for
        self._file: Callable[[], Any] | None = None  # closes the file that `open` has opened
        self._metadata = metadata

    @classmethod
    def _trusted(
        cls, format: Format, shape: tuple[int, ...], held: Tree | View | Through, metadata: Metadata
    ) -> Tensor:
        """A tensor around a tree that needs no check, or is checked when it is read.

        With a map in the metadata, `format` and `shape` are those of the stored tensor.
        """
        self = cls.__new__(cls)
        self._set(format, shape, held, metadata)
        return self

    @property
    def _tree(self) -> Tree:
        """The tree in memory. The first access reads and checks a lazy tree, and selects the entries of a view."""
        held = self._held
        if isinstance(held, Through):
            return self.stored._tree
        if isinstance(held, View):
            held = self._held = _frozen(self._format, load(held, self._format, self._pad(), DEFAULT_LIMITS))
        elif held.lazy:
            held = held.loaded()
            raise_if(ArrayError, held.check(self._format.order))
            held = _frozen(self._format, held)
            whole = self._trusted(self._format, self._shape, held, self._metadata)
            whole._check_structure()
            raise_if(ArrayError, whole._diagonal_problems())
            self._held = held
        return held

    def _tree_for(self, places: int) -> Tree:
        """The tree to look up so many places in: of a tensor in a file the lazy tree, until a whole read costs less."""
        held = self._held
        if not isinstance(held, Tree) or not held.lazy or self._metadata.structure is not None:
            return self._tree
        self._looked_up += places
        chunk = max(getattr(array, "chunk", 1) for array in (*held.arrays.values(), held.values))
        return held if self._looked_up * max(2 * chunk, _PER_PLACE) <= len(held.values) else self._tree

    @property
    def _source(self) -> Tree:
        """The tree whose arrays are held, perhaps lazy, of a view that of the whole. Reading it costs nothing."""
        held = self._whole._held
        assert not isinstance(held, Through)
        return held.tree if isinstance(held, View) else held

    @property
    def _whole(self) -> Tensor:
        """The tensor without a map that holds the arrays; for a view through a map, that of the whole."""
        return self._held.stored if isinstance(self._held, Through) else self

    def _with(self, format: Format, tree: Tree, **changes: Any) -> Tensor:
        """A tensor with another tree and the same metadata, but for the changes."""
        return Tensor._trusted(format, self._shape, tree, replace(self._metadata, **changes))

    # What it is

    @property
    def format(self) -> Format:
        """The levels and the transpose of the stored tensor, spelled as they were given."""
        return self._held.restricted()[1] if isinstance(self._held, Through) else self._format

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._shape

    @property
    def map(self) -> IndexMap | None:
        """The index map from the tensor to the stored tensor; None if the format's transpose is all.

        >>> from binsparse_levels import pack_dense
        >>> str(pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").map)
        '(0 1)'
        """
        return self._held.restricted()[0] if isinstance(self._held, Through) else None

    @property
    def stored(self) -> Tensor:
        """The stored tensor, which has no map; the tensor itself if it has no map.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").stored.to_dense().tolist()
        [0, 2, 3, 0]
        """
        held = self._held
        if not isinstance(held, Through):
            return self
        if held.view is not None:  # a view gets a stored tensor of its own
            map, format = held.restricted()
            coords, values = held.unpack()
            made = self._packed(map.forward(coords), values, format, shape=map.stored_shape, map=map)
            self._set(made._format, made._shape, made._held, made._metadata)
            return made.stored
        return held.stored

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of cells, stored or not, as a Python integer of any size."""
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
        """The values by position of the last level, read-only. An iso tensor broadcasts its one value."""
        return self._tree.values

    @property
    def fill_value(self) -> Any:
        """The value of cells that are not stored, as a numpy scalar of the tensor's type, or None."""
        return self._metadata.fill_value

    @property
    def structure(self) -> str | None:
        """The structure of a matrix that stores one triangle, or None."""
        return self._metadata.structure

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's own JSON."""
        return MappingProxyType(self._metadata.attributes)

    @property
    def descriptor_attributes(self) -> Mapping[str, Any]:
        """The `attributes` inside the descriptor (Binsparse 0.1, section 3.9)."""
        return MappingProxyType(self._metadata.descriptor_attributes)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions of a tensor that `from_table` or `write_from` made of a table, or None."""
        return None if self._metadata.labels is None else self._metadata.labels.dims

    def labels(self, dimension: str) -> Array | None:
        """The labels of a dimension by coordinate, as an array of numpy; None where coordinates are their own labels.

        Coordinates behind the last label have none. `with_map` and lists of coordinates by index arrays have no names.

        Parameters
        ----------
        dimension : its name, one of `dims`.

        Raises
        ------
        IndexError : no dimension has this name.
        ArrayError : the labels in the file are damaged.

        >>> import pyarrow
        >>> from binsparse_levels import from_table
        >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
        >>> tensor = from_table(table, ["user", "item"], "value", "CSR")
        >>> tensor.dims, tensor.shape, tensor.labels("item").tolist()
        (('user', 'item'), (10, 2), ['pen', 'ink'])
        """
        held = self._metadata.labels
        if held is None or dimension not in held.dims:
            known = "; none has one" if held is None else f"; they are {', '.join(held.dims):.200}"
            raise IndexError(f"no dimension has the name {dimension!r:.40}{known}")
        return held.columns[dimension].array() if dimension in held.columns else None

    @property
    def iso(self) -> bool:
        """Whether one value stands for all stored ones."""
        held = self._whole._held
        return held.iso if isinstance(held, Tree) else self._whole._tree.iso

    @property
    def number_of_stored_values(self) -> int:
        """The number of stored entries; with a structure, those of its triangle. A view counts its entries."""
        held = self._held
        if isinstance(held, Through):
            whole = held.view is None and not held.map.padded
            return held.stored.number_of_stored_values if whole else len(held.unpack()[1])
        tree = held if isinstance(held, Tree) and not held.gaps and not held.shares else self._tree
        return tree.count()

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays and values in memory; an iso tensor has one value."""
        held = self.stored._held
        tree = held if isinstance(held, Tree) else self._tree
        sizes = [len(array) * array.dtype.itemsize for array in tree.arrays.values()]
        return sum(sizes) + (1 if tree.iso else len(tree.values)) * tree.values.dtype.itemsize

    def __repr__(self) -> str:
        if isinstance(self._held, Through):
            return self._head() if self._held.view is not None else f"{self._head()}\n{self._held.stored!r}"
        lines = [] if isinstance(self._held, View) else self._tree_lines()
        return "\n".join([self._head(), *lines])

    def _repr_html_(self) -> str:
        """What a notebook shows: the text, and a picture of a tensor that is small and in memory. No array is read."""
        shown: str = importlib.import_module(f"{_PACKAGE}.looking.drawing").html_of(self)
        return shown

    def report(self) -> Report:
        """A report, which a notebook shows and `write` makes an HTML page of.

        The report tells the shape, the levels with their bytes, where the entries lie, how long the fibers are, which
        formats take fewer bytes, and faults. A tensor in a file is read in parts where its levels allow it.

        Raises
        ------
        LimitError : memory does not suffice.

        >>> from binsparse_levels import pack_dense
        >>> report = pack_dense([[0, 2], [3, 0]], "CSR").report()
        >>> report.write("a.html")
        >>> report.faults
        ()
        """
        made: Report = importlib.import_module(f"{_PACKAGE}.looking.report").report_on(self)
        return made

    def draw(self, dimensions: Sequence[int] | None = None) -> str:
        """Draw the tensor as an SVG: a small one as its level tree, a large one as a spy plot.

        Parameters
        ----------
        dimensions : one or two dimensions for a spy plot; by default a large tensor takes its first two.

        Raises
        ------
        IndexError, OptionError : the dimensions cannot be drawn.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").draw()[:4]
        '<svg'
        """
        picture: str = importlib.import_module(f"{_PACKAGE}.looking.drawing").draw(self, dimensions)
        return picture

    def _head(self) -> str:
        shape = " × ".join(map(str, self._shape)) or "scalar"
        fill = "" if self.fill_value is None else f", fill {self.fill_value}"
        if isinstance(self._held, Through):
            viewed = "" if self._held.view is None else ", a view"
            return f"<Tensor {shape} {self.dtype}{viewed}{fill}, map {self._metadata.map}>"
        if isinstance(self._held, View):
            return f"<Tensor {shape} {self.dtype}, a view{fill}, {self._format}>"
        iso = ", iso" if self.iso else ""
        structure = f", {self.structure}" if self.structure else ""
        count = len(self._held.values) if self._held.lazy else self.number_of_stored_values
        entries = f"{count} stored value{'' if count == 1 else 's'}"
        return f"<Tensor {shape} {self.dtype}{iso}, {entries}{fill}{structure}, {self._format}>"

    def _tree_lines(self) -> list[str]:
        lines = []
        tree = self._held
        assert isinstance(tree, Tree)
        n: int | None = 1
        for depth, place in enumerate(tree.places):
            arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
            covered = self._format.order[place.depth : place.depth + place.level.rank]
            sizes = ", ".join(f"{k} (size {size})" for k, size in zip(covered, place.dims, strict=True))
            fibers = "" if n is None else f", {n} fiber{'s' if n != 1 else ''}"
            held = "".join(f", {place.arrays[role].name}[{len(array)}]" for role, array in arrays.items())
            said = f"dimension {sizes}" if sizes else "no dimension"
            lines.append(f"{'  ' * depth}└ {place.level}: {said}{fibers}{held}")
            below, _ = place.level.lengths({role: len(array) for role, array in arrays.items()}, place.dims, n)
            if below is None and n is not None and not tree.lazy:  # no array of a file is read for this
                below = place.level.size(arrays, place.dims, n)
            n = below
        lines.append(f"{'  ' * len(self._format.levels)}└ element: values[{len(tree.values)}]")
        return lines

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Tensor is not made dense implicitly; call to_dense()")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for names that other libraries use, say what to call."""
        hint = f"; use {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: call `equals`. Sets and dictionaries hold tensors by identity, as `is` tells it."""
        raise TypeError("tensors are not compared by ==; call equals(), or compare what to_scipy or to_dense returns")

    __hash__ = object.__hash__

    def __enter__(self) -> Tensor:
        """The tensor itself. At the end of the block, the file that `open` has opened is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file()

    def __reduce__(self) -> tuple[Any, ...]:
        stored = self.stored
        tree = stored._tree
        values = one_value(tree.values) if tree.iso else tree.values
        held = (stored._format, stored._shape, dict(tree.arrays), values, len(tree.values), tree.iso)
        labels = None if self._metadata.labels is None else self._metadata.labels.loaded()
        return _unpickle, (*held, replace(self._metadata, labels=labels))

    # Parts of it

    def __getitem__(self, key: Any) -> Any:
        """Select by integers, slices, an ellipsis, arrays of integers and masks, with numpy's rules.

        An integer for every dimension gives a numpy scalar. Integers and arrays for all dimensions give an array of
        values. Several arrays beside a slice, or an array of several dimensions, give a list of coordinates in memory.
        All else gives a view, which reads nothing until it is used. A view has no structure and no attributes, but the
        names and labels of its dimensions.

        Raises
        ------
        IndexError : numpy would refuse the key, or it adds a dimension.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2, 0], [3, 0, 4]], "CSR")
        >>> int(tensor[1, 2]), tensor[:, ::2].to_dense().tolist()
        (4, [[0, 0], [3, 4]])
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
            return _gather(self, indices, apart)
        if any(sliced) or (not indices and key != ()):
            labels = self._metadata.labels
            view = self._viewed(narrowed(self._view(), indices, apart=apart))
            return view if labels is None else view._labelled(labels.selected(indices, apart, self._shape))
        value = self._value_at(
            [pick(range(size), x, k) for k, (x, size) in enumerate(zip(indices, self._shape, strict=True))]
        )
        if isinstance(self._held, Tree) and not self._held.lazy and self._metadata.structure is None:
            self._reader = value_reader(self._held, self._format.order, self._shape, self._pad())
        return value

    def _view(self) -> View:
        held = self._held
        if isinstance(held, Through):
            return held.viewed()
        return held if isinstance(held, View) else view_of(held, self._format.order, self._metadata.structure)

    def _viewed(self, view: View, format: Format | None = None) -> Tensor:
        """A view of this tensor. format: by default this tensor's, if the view can keep it."""
        rest = Metadata(self._metadata.fill_value, map=self._metadata.map)
        if isinstance(self._held, Through):
            return self._trusted(self._format, view.shape, self._held._replace(view=view), rest)
        kept = len(view.dimensions) == len(self._shape) and not any(level.refuses for level in self._format.levels)
        return self._trusted(format or (self._format if kept else view.format()), view.shape, view, rest)

    def _value_at(self, place: Sequence[int]) -> Any:
        """The value at coordinates in range."""
        held = self._held
        if isinstance(held, Through):
            return held.stored[tuple(int(x[0]) for x in held.places(place))]
        if isinstance(held, View):
            items = list(held.items)
            for k, x in zip(held.dimensions, place, strict=True):
                items[k] = int(items[k][x])  # type: ignore[index]
            place = tuple([items[k] for k in map(held.order.index, range(len(items)))])  # type: ignore[misc]
            structure, order, tree = held.structure, held.order, held.tree
        else:
            structure, order, tree = self.structure, self._format.order, held
        mirrored = structure is not None and not in_triangle(structure, place)  # type: ignore[arg-type]
        q = find_in(tree, [place[k] for k in (order[::-1] if mirrored else order)])
        if q < 0:
            return self._pad()
        value = tree.values[q : q + 1]
        if structure is not None and tree.lazy and tree.padded:
            raise_if(ArrayError, diagonal_problems(structure, [np.array([x]) for x in place], value))
        return (STRUCTURES[structure].mirrored(value) if structure and mirrored else value)[0]

    def _values_at(self, coords: Sequence[Array]) -> Array:
        """The values at coordinates in range, in an array of their shape."""
        if isinstance(self._held, Through):
            return self._held.stored._values_at(self._held.places(coords)).reshape(coords[0].shape)
        whole = [x.ravel() for x in coords]
        tree, mirrored = self._tree_for(len(whole[0])), np.zeros(len(whole[0]), bool)
        if self.structure is not None:
            mirrored = ~in_triangle(self.structure, whole)
            whole = [np.where(mirrored, x, y) for x, y in zip(whole[::-1], whole, strict=True)]
        positions = locate_in(tree, [whole[k] for k in self._format.order])
        if not len(tree.values):
            return np.full(coords[0].shape, self._pad(), self.dtype)
        values = np.array(items_at(tree.values, np.maximum(positions, 0)))
        if self.structure is not None:
            values[mirrored] = STRUCTURES[self.structure].mirrored(values[mirrored])
        np.copyto(values, self._pad(), where=positions < 0)
        return values.reshape(coords[0].shape)

    def locate(self, coords: Sequence[npt.ArrayLike]) -> Array:
        """The positions of entries among `values`, as an int64 array; -1 where nothing is stored.

        Parameters
        ----------
        coords : an integer array for each dimension, all of one length. Of a structure only its triangle is stored.

        Raises
        ------
        IndexError, ArrayError : a coordinate is out of range, or the arrays do not fit each other.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").locate([[2, 1]]).tolist()
        [1, -1]
        """
        columns = checked_places(coords, self._shape)
        if (map := self.map) is not None:
            return self.stored.locate(map.forward(columns))
        return locate_in(self._tree_for(len(columns[0]) if columns else 1), [columns[k] for k in self._format.order])

    def permute(self, axes: Sequence[int]) -> Tensor:
        """The same entries with the dimensions in another order. The arrays are shared.

        Parameters
        ----------
        axes : dimension k of the result is dimension axes[k] of this tensor.

        Raises
        ------
        FormatError : `axes` is no permutation.

        >>> from binsparse_levels import pack
        >>> pack([[0], [1], [2]], [1], (2, 3, 5), "sparse(3)").permute((2, 0, 1)).shape
        (5, 2, 3)
        """
        order = checked_axes(axes, self.ndim)
        held = self._held
        if isinstance(held, Through):
            if held.view is not None:
                return self._viewed(held.view.permuted(order))
            return held.stored.with_map(held.map.permuted(order))._labelled(self._metadata.labels, order)
        format = in_order(self._format.levels, [order.index(k) for k in self._format.order])
        structure = self.structure
        if structure is not None and order == [1, 0]:
            structure = transposed(structure)
        held = held.permuted(order) if isinstance(held, View) else held
        shape = tuple(self._shape[k] for k in order)
        permuted = self._trusted(format, shape, held, replace(self._metadata, structure=structure))
        return permuted._labelled(self._metadata.labels, order)

    def _labelled(self, labels: Labels | None, order: Sequence[int] | None = None) -> Tensor:
        """The same tensor with the labels of another one, of which it may have the dimensions in another order."""
        if labels is None:
            return self
        changed = replace(self._metadata, labels=labels if order is None else labels.permuted(order))
        return self._trusted(self._format, self._shape, self._held, changed)

    @property
    def T(self) -> Tensor:
        """The same entries with the dimensions reversed."""
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> Tensor:
        """Read the entries into memory. A view gets arrays of its own, and no more than it needs is read.

        Parameters
        ----------
        format : by default the format does not change.

        Raises
        ------
        ArrayError, ContainerError, FormatError, LimitError : as `read` and `convert` raise them.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR")[1:].load("COO").values.tolist()
        [3]
        """
        _ = self._tree
        if (map := self.map) is not None:
            return self.stored.load(format).with_map(map)._labelled(self._metadata.labels)
        return self if format is None else self.convert(format)

    def slabs(self, dimension: int, *, max_bytes: int) -> Iterator[tuple[range, Tensor]]:
        """Iterate over parts along a dimension: the coordinates of each part, and a tensor in memory.

        Along the outermost stored dimension of dense and sparse levels, each entry is read once. Along another, it is
        read once to count, and once for each part. With other kinds, a part that turns out too large is halved. A
        structure is expanded first, and a map is removed.

        Parameters
        ----------
        dimension : counted from 0, or from -1 backwards.
        max_bytes : the most that the arrays of a part take.

        Raises
        ------
        LimitError : one coordinate alone takes more.
        IndexError : there is no such dimension.

        >>> from binsparse_levels import pack_dense
        >>> [(part, slab.shape) for part, slab in pack_dense([[0, 2], [3, 0]], "CSR").slabs(0, max_bytes=100)]
        [(range(0, 2), (2, 2))]
        """
        if self._metadata.map is not None:
            yield from self.without_map().slabs(dimension, max_bytes=max_bytes)
            return
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
        """Check every invariant again. Raises ArrayError with the place of every fault.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").check()
        """
        self.stored._check(order=True)

    def _check(self, *, order: bool) -> None:
        raise_if(ArrayError, self._tree.check(self._format.order, order=order))
        self._check_structure()

    def _check_structure(self) -> None:
        if self.structure is not None:
            raise_if(FormatError, structure_problems(self.structure, self._shape, self.dtype))
            if not self._padded:
                raise_if(ArrayError, triangle_problems(self.structure, self.unpack()[0]))

    @property
    def _padded(self) -> bool:
        """Whether the format may store cells that were no entries."""
        return self._format.padded

    def unpack(self) -> tuple[tuple[Array, ...], Array]:
        """The stored entries in stored order: a tuple of int64 coordinates for each dimension, and the values.

        With a structure, these are the entries of its triangle. With a map, padding holds no entries.

        >>> from binsparse_levels import pack_dense
        >>> coords, values = pack_dense([[0, 2], [3, 0]], "CSR").unpack()
        >>> [x.tolist() for x in coords], values.tolist()
        ([[0, 1], [1, 0]], [2, 3])
        """
        return self._held.unpack() if isinstance(self._held, Through) else self._entries(np.int64)

    def _entries(self, dtype: npt.DTypeLike) -> tuple[tuple[Array, ...], Array]:
        """As `unpack`, with coordinates of that type."""
        columns, positions = packing.unpack_tree(self._tree, dtype)
        coords: list[Array] = [columns[0]] * len(self._shape) if columns else []
        for column, dimension in zip(columns, self._format.order, strict=True):
            coords[dimension] = column
        values = items_at(self._tree.values, positions)
        if self._metadata.structure is not None and self._padded:
            kept = in_triangle(self._metadata.structure, coords)
            return tuple(x[kept] for x in coords), values[kept]
        return tuple(coords), values

    def to_dense(self, fill: Any = None, *, limits: Limits = DEFAULT_LIMITS) -> Array:
        """A numpy array of the tensor's shape and type. A structure is expanded.

        Parameters
        ----------
        fill : the value of cells that are not stored; by default the fill value, or zero.
        limits : `dense_bytes` is the most that the array takes.

        Raises
        ------
        LimitError : the array is larger.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").to_dense(fill=7).tolist()
        [1, 7, 2]
        """
        if self.ndim > 64:
            raise LimitError(Problem("shape", f"numpy has no arrays of {self.ndim} dimensions"))
        limits.hold("dense_bytes", self.size * self.dtype.itemsize, "shape", "the size in bytes of the dense array")
        if self._metadata.map is not None:
            return self.without_map(limits=limits).to_dense(fill, limits=limits)
        rest = self._pad() if fill is None else checked_fill(fill, self.dtype)
        if self.structure is None and not self._tree.arrays and len(self._tree.values) == self.size:
            cells = self._tree.values.reshape(self._tree.dims)
            return np.array(cells.transpose(np.argsort(self._format.order)) if self.ndim else cells, order="C")
        if self.structure is not None:
            return self.convert(coordinates(2)).expand_structure().to_dense(rest, limits=limits)
        blank = np.zeros((), self.dtype)
        blank[...] = rest
        steps = [math.prod(self._shape[k + 1 :]) for k in self._format.order]
        return scatter_tree(self._tree, steps, self._shape, blank)

    def __matmul__(self, other: npt.ArrayLike) -> Array:
        """The product with a dense vector or matrix: a sum over the last dimension of the tensor; see `einsum`.

        >>> from binsparse_levels import pack_dense
        >>> (pack_dense([[0, 2], [3, 0]], "CSR") @ [1, 10]).tolist()
        [20, 3]
        """
        found: Array = importlib.import_module(f"{_PACKAGE}.compute").product(self, other)
        return found

    def with_map(self, map: IndexMap) -> Tensor:
        """See this tensor through a map: a tensor of shape `map.shape` that stores the same arrays.

        Parameters
        ----------
        map : its `stored_shape` is the shape of this tensor. If this tensor has a map too, the result has one map that
            does what both do. Values stored at padding are no entries.

        Raises
        ------
        FormatError : the shapes differ, this tensor has a structure, or the maps do not become one.

        >>> from binsparse_levels import IndexMap, pack
        >>> stored = pack([[1, 2]], [2, 3], 4, "CVEC", fill_value=0)
        >>> stored.with_map(IndexMap.grouping((2, 2), (0, 1), ())).to_dense().tolist()
        [[0, 2], [3, 0]]
        """
        stored, own = self.stored, self.map
        if stored.structure is not None:
            raise FormatError(Problem("structure", "a tensor with a map has none; call expand_structure() first"))
        found = map if own is None else map.then(own)
        if found.stored_shape != stored._shape:
            what = f"stores a tensor of shape {found.stored_shape}, and this one has {stored._shape}"
            raise FormatError(Problem("map", what))
        rest = replace(stored._metadata, map=found, labels=None)
        return self._trusted(stored._format, found.shape, Through(stored, found), rest)

    def without_map(self, format: FormatLike | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
        """The same entries without a map.

        Parameters
        ----------
        format : by default a tensor with a map becomes a list of coordinates, and another stays as it is.

        Raises
        ------
        FormatError, LimitError : as `convert` raises them.

        >>> from binsparse_levels import pack_dense
        >>> str(pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").without_map("CSR").format)
        'CSR'
        """
        held = self._held
        if not isinstance(held, Through):
            return self if format is None else self.convert(format, limits=limits)
        target = coordinates(self.ndim) if format is None else format
        if held.view is not None:
            return held.selected().convert(target, limits=limits)._labelled(self._metadata.labels)
        return self._packed(*held.unpack(), target, limits, map=None)

    def dm(self) -> DimensionMap:
        """The strides and offsets of a map that groups dimensions, of a view too; see `IndexMap.dm`.

        Raises FormatError for another map, or none.

        >>> from binsparse_levels import IndexMap, pack_dense
        >>> grouped = pack_dense([[0, 2], [3, 0]], "sparse", map=IndexMap.grouping((2, 2), (0, 1), ()))
        >>> grouped.dm().strides
        ((2, 1),)
        """
        held = self._held
        if not isinstance(held, Through):
            raise FormatError(Problem("map", "the tensor has none; give it one by convert(format, map=…)"))
        return held.map.dm() if held.view is None else held.map.dm(held.view.items, held.view.dimensions)

    def convert(self, format: FormatLike, *, map: MapLike | None = None, limits: Limits = DEFAULT_LIMITS) -> Tensor:
        """The same entries in another format.

        Formats with one order of the dimensions share the values, and the indices that list every entry. A format that
        stores more than entries, such as one that ends with a dense level, is padded with the fill value, or zero. The
        padding counts as entries from then on; `drop_fill` removes it.

        Parameters
        ----------
        format : of the stored tensor.
        map : an index map or its notation. By default the tensor keeps its map; `without_map` removes it. A new map
            expands the structure.

        Raises
        ------
        FormatError : the format cannot hold the tensor.
        LimitError : the arrays would be too large.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.convert("CSC").values.tolist(), tensor.convert("sparse", map="(1 0)").values.tolist()
        ([3, 2], [3, 2])
        """
        if map is not None or self._metadata.map is not None:
            return converted(self, format, map, limits)._labelled(self._metadata.labels)
        parsed, _ = checked_format(format, self._shape, limits)
        if parsed.canonical() == self._format.canonical():
            return self._with(parsed, self._tree)
        if self.structure is not None:
            raise_if(FormatError, mirror_problems(self.structure, parsed, self._pad()))
            if self._padded:
                return self._packed(*self.unpack(), parsed, limits)
        stored_at = np.argsort(self._format.order)
        order = tuple(int(stored_at[k]) for k in parsed.order)
        return self._with(parsed, packing.convert_tree(self._tree, parsed.levels, order, self._pad(), limits))

    def with_attributes(self, attributes: Mapping[str, Any] | None, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
        """The same tensor with other attributes, which replace all that it has. The arrays are shared.

        Parameters
        ----------
        attributes, limits : as for Tensor. None removes them.

        Raises
        ------
        TypeError, DescriptorError, LimitError : the attributes are no JSON, or too long.

        >>> from binsparse_levels import pack
        >>> tensor = pack([[0, 2]], [1, 2], 3, "CVEC").with_attributes({"unit": "m"})
        >>> dict(tensor.attributes)
        {'unit': 'm'}
        """
        changed = replace(self._metadata, attributes=checked_json(attributes, limits))
        return self._trusted(self._format, self._shape, self._held, changed)

    def drop_fill(self) -> Tensor:
        """A tensor of the same format without the entries that equal the fill value, or zero if there is none.

        A format that ends with a dense level stores them again; convert it first.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [0, 2], 3, "CVEC").drop_fill().values.tolist()
        [2]
        """
        if (map := self.map) is not None:
            return self.stored.drop_fill().with_map(map)._labelled(self._metadata.labels)
        fill = self._pad()
        coords, values = self.unpack()
        with np.errstate(invalid="ignore"):
            kept = (values != fill) & ~((values != values) & bool(fill != fill))
        if kept.all():
            return self
        return self._packed([x[kept] for x in coords], values[kept], self._format, DEFAULT_LIMITS)

    def _packed(
        self,
        coords: Sequence[Array],
        values: Array,
        format: FormatLike,
        limits: Limits = DEFAULT_LIMITS,
        *,
        iso: bool | None = None,
        shape: Sequence[int] | None = None,
        **changes: Any,
    ) -> Tensor:
        """A tensor of these entries, otherwise like this one. shape: where it is another. changes: in the metadata."""
        parsed, sizes = checked_format(format, self._shape if shape is None else shape, limits)
        iso = (self.iso if iso is None else iso) and bool(coords or len(values))
        entries = entries_of(parsed, sizes, coords, one_value(values).reshape(1) if iso else values, iso)
        tree = packing.pack_entries(parsed.levels, entries, self._pad(), "error", limits)
        return self._trusted(parsed, sizes, tree, replace(self._metadata, **changes))

    def astype(self, dtype: npt.DTypeLike) -> Tensor:
        """The same tensor with values of another type, cast as numpy casts them. The other arrays are shared.

        Parameters
        ----------
        dtype : a type of numpy.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1.5, 2.5], 3, "CVEC").astype("int8").values.tolist()
        [1, 2]
        """
        if (map := self.map) is not None:
            return self.stored.astype(dtype).with_map(map)._labelled(self._metadata.labels)
        tree = self._tree.blanked()
        check_value_type(np.dtype(dtype))
        if self.structure is not None:
            raise_if(FormatError, structure_problems(self.structure, self._shape, np.dtype(dtype)))
        if tree.iso:
            values = repeat_one(one_value(tree.values).reshape(1).astype(dtype), len(tree.values))
        else:
            values = tree.values.astype(dtype)
        fill = None if self.fill_value is None else self.fill_value.astype(values.dtype)
        cast = tree.with_values(values, tree.iso)
        return self._with(self._format, cast, fill_value=fill)

    def equals(self, other: Tensor) -> bool:
        """Whether both have the same shape, entries and fill value, in whatever formats and through whatever maps.

        NaN equals NaN. Types do not matter, only values, as in numpy. A stored fill value counts as an entry.

        Parameters
        ----------
        other : a tensor; anything else is not equal.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.equals(tensor.convert("COO")), tensor.equals(tensor.T)
        (True, False)
        """
        if not isinstance(other, Tensor) or self._shape != other._shape:
            return False
        fills = self.fill_value, other.fill_value
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
        """The same matrix without a structure: it stores the entries of both triangles in the same format.

        >>> from binsparse_levels import pack
        >>> lower = pack([[0, 1], [0, 0]], [1, 5], (2, 2), "CSR", structure="symmetric_lower")
        >>> lower.expand_structure().to_dense().tolist()
        [[1, 5], [5, 0]]
        """
        if self.structure is None:
            return self
        # All mirror images stand before or behind the entries, in order within each fiber. Only the first stored
        # dimension has to be sorted.
        above = STRUCTURES[self.structure].lower != (self._format.order == (0, 1))
        mirrored = STRUCTURES[self.structure].mirrored
        if (whole := mirror_tree(self._tree, mirrored, above=above, limits=DEFAULT_LIMITS)) is not None:
            return self._with(self._format, whole, structure=None)
        given = self._entries(index_dtype(self._shape, 2 * len(self._tree.values)))
        coords, values = expand(self.structure, *given, mirrored_first=above)
        iso = self.iso and bool(len(values) == 0 or (values == values[0]).all())
        entries = entries_of(self._format, self._shape, coords, one_value(values).reshape(1) if iso else values, iso)
        if all(level.ordered for level in self._format.levels):
            entries = replace(entries, ordered_dims=1, trusted=True)
        tree = packing.pack_entries(self._format.levels, entries, self._pad(), "error", DEFAULT_LIMITS)
        return self._with(self._format, tree, structure=None)

    def with_structure(self, structure: str) -> Tensor:
        """The same matrix with one triangle stored, the inverse of `expand_structure`.

        Parameters
        ----------
        structure : one of the six structures of Binsparse, such as "symmetric_lower".

        Raises ArrayError, with a place, for triangles that contradict each other, and FormatError for a shape, type or
        map that no structure has.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[1, 5], [5, 0]], "CSR").with_structure("symmetric_lower").number_of_stored_values
        2
        """
        if self._metadata.map is not None:
            raise FormatError(Problem("map", "a tensor with a map has no structure; call without_map() first"))
        whole = self.expand_structure()
        raise_if(FormatError, structure_problems(structure, whole._shape, whole.dtype))
        raise_if(FormatError, mirror_problems(structure, whole._format, whole._pad()))
        raise_if(ArrayError, symmetry_problems(structure, *whole._sorted()))
        coords, values = whole.unpack()
        kept = in_triangle(structure, coords)
        half = whole._packed([x[kept] for x in coords], values[kept], whole._format, DEFAULT_LIMITS)
        return half._with(half._format, half._tree, structure=structure)

    def _diagonal_problems(self) -> list[Problem]:
        """Faults of the diagonal of a dense matrix with a structure, which has to equal its mirror image."""
        if self.structure is None or not self._padded:
            return []
        return list(diagonal_problems(self.structure, *self.unpack()))

    def _stored(
        self, version: str = VERSION, *, narrow: bool = False, bitpacked: bool | Collection[str] = False
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """The header and the arrays as a container holds them. Raises ArrayError for types without a name."""
        raise_if(ArrayError, self._diagonal_problems())
        metadata = replace(self._metadata, map=self.map)
        if self.structure is not None:
            i, j = self.unpack()[0]
            own = {**metadata.descriptor_attributes, "number_of_diagonal_elements": int(np.count_nonzero(i == j))}
            metadata = replace(metadata, descriptor_attributes=own)
        stored = self.stored
        return encode_tree(stored._tree, stored._format, stored._shape, metadata, version, narrow, bitpacked)

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor, a dictionary with the key `binsparse`. The protocol is a draft and may change."""
        return self._stored()[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, as a container holds them. The protocol is a draft and may change."""
        return self._stored()[1]

    def _sorted(self) -> tuple[tuple[Array, ...], Array]:
        """All entries in lexicographic order, the structure expanded."""
        if not self.ndim:  # a list without coordinates would always have one entry
            return self.unpack()
        if self.structure is None:
            return self.without_map(coordinates(self.ndim)).unpack()
        coords, values = expand(self.structure, *self.unpack())
        entries = entries_of(coordinates(self.ndim), self._shape, coords, values, False)
        tree = packing.pack_entries(coordinates(self.ndim).levels, entries, self._pad(), "error", DEFAULT_LIMITS)
        return tuple(packing.unpack_tree(tree)[0]), tree.values

    def _pad(self) -> Any:
        """The value of cells that are not stored: the fill value, or zero."""
        return pad_of(self._metadata.fill_value, self._source.values.dtype)


# Names of other libraries, and what to use here.
_ELSEWHERE = {
    "asformat": "convert(format)",
    "attrs": "attributes",
    "close": "the tensor of open() in a with block",
    "compute": "load()",
    "coords": "unpack()",
    "copy": "the tensor itself, which is immutable",
    "data": "values",
    "dot": "tensor @ array, or einsum",
    "indices": "arrays['indices_1'], and so on for each level",
    "indptr": "arrays['pointers_to_1'], and so on for each level",
    "max": "reduce(tensor, axis, 'max')",
    "mean": "reduce(tensor, axis, 'mean')",
    "min": "reduce(tensor, axis, 'min')",
    "nnz": "number_of_stored_values",
    "nse": "number_of_stored_values",
    "numpy": "to_dense()",
    "reshape": "to_sparse(tensor).reshape(shape), or convert(format, map=…)",
    "save": "write(path, tensor)",
    "sum": "reduce(tensor, axis, 'sum')",
    "swapaxes": "permute(axes)",
    "toarray": "to_dense()",
    "tocoo": "to_scipy(tensor, 'coo')",
    "tocsc": "to_scipy(tensor, 'csc')",
    "tocsr": "to_scipy(tensor, 'csr')",
    "todense": "to_dense()",
    "tolist": "to_dense().tolist()",
    "transpose": "permute(axes), or T",
}


def _gather(tensor: Tensor, indices: Sequence[Any], apart: bool) -> Tensor:
    """The entries at several index arrays beside slices, as a list of coordinates. indices, apart: of `parse_key`."""
    named = [k for k, index in enumerate(indices) if not isinstance(index, slice)]
    points = broadcast([indices[k] for k in named], [tensor.shape[k] for k in named])
    shape = points[0].shape
    part: Tensor = tensor[tuple(index if isinstance(index, slice) else slice(None) for index in indices)]
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
    return part._packed(columns, values[entries], coordinates(len(sizes)), shape=sizes, map=None)


def _unpickle(
    format: Format,
    shape: tuple[int, ...],
    arrays: Mapping[str, Array],
    values: Array,
    count: int,
    iso: bool,
    metadata: Metadata,
) -> Tensor:
    dims = tuple(shape[k] for k in format.order)
    whole = repeat_one(values.reshape(1), count) if iso else values
    return Tensor._trusted(format, shape, Tree(format.levels, dims, arrays, whole, iso), metadata)


def entries_of(format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, iso: bool) -> Entries:
    order = format.order
    return Entries(tuple(shape[k] for k in order), tuple(coords[k] for k in order), values, iso, order)


def one_value(values: Array) -> Array:
    """The value of an iso tensor, as an array without dimensions."""
    return values[0:1].reshape(()) if len(values) else np.zeros((), values.dtype)


def _frozen(format: Format, tree: Tree) -> Tree:
    """The tree with read-only arrays, and the levels as they were spelled."""
    arrays = {name: _read_only(array) for name, array in tree.arrays.items()}
    return Tree(format.levels, tree.dims, arrays, _read_only(tree.values), tree.iso)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
