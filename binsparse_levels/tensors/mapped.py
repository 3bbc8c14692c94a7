"""Tensors that are stored through an index map: the same entries at other coordinates, in a plain tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..engine.emission import Duplicates
from ..engine.packing import RepeatedError, repeated
from ..engine.selection import View, broadcast, narrowed, parse_key, view_of
from ..engine.tree import Tree
from ..errors import FormatError, Problem, within_memory
from ..formats.format import Format, FormatLike, checked_axes, coordinates
from ..formats.index_map import KEY, DimensionMap, IndexMap, MapLike, parse_header, parse_map
from ..limits import DEFAULT_LIMITS, Limits
from . import drawing
from .tensor import Tensor, gather, pack
from .validation import checked_entries, checked_json, checked_places

Array: TypeAlias = npt.NDArray[Any]


@within_memory
class MappedTensor:
    """A tensor that is seen through an index map: its entries are those of `tensor`, which is what is stored, at the
    coordinates where `map` has them. Immutable. Files hold the stored tensor, which anyone can open, and the map.

    tensor: of the shape map.stored_shape, without a structure, or a MappedTensor, the map of which is then collapsed
    with the one that is given. map: the identity where it is None. What is stored at padding is no entry.

    It is a Tensor in what is asked of it: entries, views, conversions. Raises FormatError.
    """

    __slots__ = ("_map", "_tensor", "_view")

    def __init__(self, tensor: Tensor | MappedTensor, map: IndexMap | None = None) -> None:
        inner = tensor.map if isinstance(tensor, MappedTensor) else None
        stored = tensor.tensor if isinstance(tensor, MappedTensor) else tensor
        if stored.structure is not None:
            raise FormatError(Problem("structure", "a mapped tensor has none; call expand_structure() first"))
        if inner is not None:
            map = inner if map is None else map.then(inner)
        found = IndexMap.transpose(stored.shape) if map is None else map
        if found.stored_shape != stored.shape:
            what = f"stores a tensor of shape {found.stored_shape}, and this one has {stored.shape}"
            raise FormatError(Problem("map", what))
        self._tensor = stored
        self._map = found
        self._view: View | None = None  # of the tree of all entries, which is made when it is asked for

    # What it is

    @property
    def tensor(self) -> Tensor:
        """The tensor that is stored; of a view, one of its own, through the map restricted to it."""
        if self._view is not None:
            map, format = self._restricted()
            coords, values = self.unpack()
            self._tensor = _packed(self._tensor, map.forward(coords), values, map.stored_shape, format)
            self._map, self._view = map, None
        return self._tensor

    @property
    def map(self) -> IndexMap:
        """Where the coordinates go; of a view, cut where those of the whole are."""
        return self._map if self._view is None else self._restricted()[0]

    @property
    def format(self) -> Format:
        """That of the stored tensor."""
        return self._tensor.format if self._view is None else self._restricted()[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._map.shape if self._view is None else self._view.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of cells, without padding."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type of the values."""
        return self._tensor.dtype

    @property
    def fill_value(self) -> Any:
        """The value of what is not stored, or None."""
        return self._tensor.fill_value

    @property
    def structure(self) -> None:
        """A mapped tensor has none."""
        return None

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's own JSON."""
        return self._tensor.attributes

    @property
    def descriptor_attributes(self) -> Mapping[str, Any]:
        """The `attributes` inside the descriptor of what is stored."""
        return self._tensor.descriptor_attributes

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The index and pointer arrays of the stored tensor; see Tensor.arrays."""
        return self.tensor.arrays

    @property
    def values(self) -> Array:
        """The values of the stored tensor; see Tensor.values."""
        return self.tensor.values

    @property
    def iso(self) -> bool:
        """Whether one value stands for all stored ones."""
        return self._tensor.iso

    @property
    def number_of_stored_values(self) -> int:
        """How many entries are stored; what stands at padding is none."""
        if self._view is None and not self._map.padded:
            return self._tensor.number_of_stored_values
        return len(self.unpack()[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of the stored tensor."""
        return self.tensor.nbytes

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.shape)) or "scalar"
        if self._view is not None:
            return f"<MappedTensor {shape} {self.dtype}, a view>"
        return f"<MappedTensor {shape} {self.dtype}, map {self._map}>\n{self._tensor!r}"

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a MappedTensor is not made dense implicitly; call to_dense()")

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedTensor, (self.tensor, self.map)

    def dm(self) -> DimensionMap:
        """The grouping of dimensions as strides and offsets, of a view too. Raises FormatError; see IndexMap.dm."""
        return self._map.dm() if self._view is None else self._map.dm(self._view.items, self._view.dimensions)

    # Parts of it

    def __getitem__(self, key: Any) -> Any:
        """A view, which costs nothing until something is asked of it, or a value, or values, as of a Tensor.

        Raises IndexError.
        """
        indices, apart = parse_key(key, self.shape)
        sliced = [isinstance(index, slice) for index in indices]
        arrays = [index for index in indices if isinstance(index, np.ndarray)]
        if any(sliced) and (len(arrays) > 1 or (arrays and arrays[0].ndim > 1)):
            return gather(self, indices, apart)
        view = self._whole()
        if any(sliced) or (not indices and key != ()):
            return self._viewed(narrowed(view, indices, apart=apart))
        columns: list[Any] = list(view.items)
        for k, x in zip(view.dimensions, broadcast(indices, self.shape), strict=True):
            item = view.items[k]
            columns[k] = item.start + item.step * x if isinstance(item, range) else np.asarray(item)[x]
        stored = self._map.forward([x.ravel() for x in np.broadcast_arrays(*columns)])
        if not arrays:
            return self._tensor[tuple(int(x[0]) for x in stored)]
        return self._tensor[tuple(stored)].reshape(np.broadcast_shapes(*(x.shape for x in arrays)))

    def permute(self, axes: Sequence[int]) -> MappedTensor:
        """The same entries with the dimensions in another order: dimension k is dimension axes[k] of this tensor.

        Nothing is moved. Raises FormatError for what is no permutation.
        """
        order = checked_axes(axes, self.ndim)
        if self._view is not None:
            return self._viewed(self._view.permuted(order))
        return MappedTensor(self._tensor, self._map.permuted(order))

    @property
    def T(self) -> MappedTensor:
        """The dimensions in reverse."""
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> MappedTensor:
        """The same entries in memory; see Tensor.load. format: of the stored tensor, where not its own."""
        return MappedTensor(self.tensor.load(format), self.map)

    def locate(self, coords: Sequence[npt.ArrayLike]) -> Array:
        """Where the entries at these coordinates stand among `values`, or -1 for what is not stored; see Tensor.locate.

        Raises IndexError, ArrayError.
        """
        return self.tensor.locate(self.map.forward(checked_places(coords, self.shape)))

    def slabs(self, dimension: int, *, max_bytes: int) -> Iterator[tuple[range, Tensor]]:
        """The entries in parts along a dimension, each a Tensor without a map, by all coordinates; see Tensor.slabs.

        All entries are listed first. Raises LimitError, IndexError.
        """
        return self.to_tensor().slabs(dimension, max_bytes=max_bytes)

    def draw(self, dimensions: Sequence[int] | None = None) -> str:
        """An SVG; see Tensor.draw: of a small tensor the level tree of what is stored, else where its entries lie.

        Raises IndexError, OptionError for dimensions that cannot be drawn.
        """
        if dimensions is None and drawing.is_small(self.tensor._tree):
            return self.tensor.draw()
        return self.to_tensor().draw(dimensions)

    def _whole(self) -> View:
        """The view, or that of everything."""
        if self._view is not None:
            return self._view
        rank = len(self._map.shape)
        no_entries = Tree(coordinates(rank).levels, self._map.shape, {}, np.empty(0, self.dtype))
        return view_of(no_entries, tuple(range(rank)), None)

    def _viewed(self, view: View) -> MappedTensor:
        made = MappedTensor(self._tensor, self._map)
        made._view = view
        return made

    def _restricted(self) -> tuple[IndexMap, Format]:
        """The map and the format of a view."""
        assert self._view is not None
        map, left = self._map.restricted(self._view.dimensions, self._view.shape)
        stored = self._tensor._view()
        return map, stored._replace(dimensions=tuple(stored.dimensions[k] for k in left)).format()

    def _selected(self) -> Tensor:
        """The entries of a view in a plain tensor: those of a window of what is stored, of which the view is taken."""
        view = self._view
        assert view is not None
        windows = self._map.windows(view.items)
        part = self._tensor._view()
        for k, window in enumerate(windows):  # one by one, since an index has one array at most
            key: list[Any] = [slice(None)] * len(windows)
            key[k] = slice(window.start, window.stop, window.step) if isinstance(window, range) else window
            part = narrowed(part, key)
        coords, values = self._tensor._viewed(part).unpack()
        stored = [x * w.step + w.start if isinstance(w, range) else w[x] for x, w in zip(coords, windows, strict=True)]
        rank = len(self._map.shape)
        listed = _packed(self._tensor, *self._seen(stored, values), self._map.shape, coordinates(rank))
        found = view._replace(tree=listed._tree)
        return Tensor._trusted(view.format(), view.shape, found, self.fill_value, None, *_attributes(self._tensor))

    # What it does

    def check(self) -> None:
        """Check every invariant of what is stored; raises ArrayError with every fault and its place."""
        self.tensor.check()

    def unpack(self) -> tuple[tuple[Array, ...], Array]:
        """The stored entries, as of a Tensor, without padding; in the order in which they are stored."""
        if self._view is not None:
            return self._selected().unpack()
        return self._seen(*self._tensor.unpack())

    def _seen(self, stored: Sequence[Array], values: Array) -> tuple[tuple[Array, ...], Array]:
        """The entries at stored coordinates, without those at padding."""
        coords = self._map.backward(stored)
        if self._map.padded:
            kept = np.ones(len(values), bool)
            for x, size in zip(coords, self._map.shape, strict=True):
                kept &= x < size
            if not kept.all():
                return tuple(x[kept] for x in coords), values[kept]
        return coords, values

    def to_tensor(self, format: FormatLike | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Tensor:
        """The same entries in a Tensor of this shape, without a map; by all coordinates where no format is given."""
        target = coordinates(self.ndim) if format is None else format
        if self._view is not None:
            return self._selected().convert(target, limits=limits)
        return _packed(self._tensor, *self.unpack(), self.shape, target, limits)

    def to_dense(self, fill: Any = None, *, limits: Limits = DEFAULT_LIMITS) -> Array:
        """A numpy array of the tensor's shape and type; see Tensor.to_dense."""
        return self.to_tensor(limits=limits).to_dense(fill, limits=limits)

    def convert(
        self, format: FormatLike, map: MapLike | None = None, *, limits: Limits = DEFAULT_LIMITS
    ) -> MappedTensor:
        """The same entries, stored in another format, and through another map where one is given.

        With a map of the same digits the stored tensor is converted as it is. What a format fills up, see
        Tensor.convert, is stored from then on. Raises FormatError, LimitError.
        """
        target = self.map if map is None else parse_map(map, self.shape)
        if self._view is None and sorted(target.groups) == sorted(self._map.groups):
            # Equal groups are of no size but one.
            order = [self._map.groups.index(group) for group in target.groups]
            if len(set(order)) == len(order):
                return MappedTensor(self._tensor.permute(order).convert(format, limits=limits), target)
        coords, values = self.unpack()
        stored = target.forward(coords)
        return MappedTensor(_packed(self._tensor, stored, values, target.stored_shape, format, limits), target)

    def astype(self, dtype: npt.DTypeLike) -> MappedTensor:
        """The same tensor with values of another type; see Tensor.astype."""
        return MappedTensor(self.tensor.astype(dtype), self.map)

    def drop_fill(self) -> MappedTensor:
        """Without the stored entries that equal the fill value; see Tensor.drop_fill."""
        return MappedTensor(self.tensor.drop_fill(), self.map)

    def expand_structure(self) -> MappedTensor:
        """This tensor, since it has no structure."""
        return self

    def equals(self, other: Tensor | MappedTensor) -> bool:
        """Whether both have the same shape, entries and fill value, through whatever maps; see Tensor.equals."""
        return self.to_tensor().equals(without_map(other))

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor of what is stored, with the map beside it. Provisional: the protocol is a draft."""
        return as_stored(self)._stored()[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, without a copy. Provisional: the protocol is a draft."""
        return as_stored(self)._stored()[1]


AnyTensor: TypeAlias = "Tensor | MappedTensor"


def without_map(tensor: AnyTensor) -> Tensor:
    """The same entries in a Tensor: one with a map without it, by all coordinates."""
    return tensor.to_tensor() if isinstance(tensor, MappedTensor) else tensor


@within_memory
def pack_mapped(
    coords: Sequence[npt.ArrayLike] | npt.ArrayLike,
    values: npt.ArrayLike,
    shape: Sequence[int],
    format: FormatLike,
    map: MapLike,
    *,
    duplicates: Duplicates = "error",
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> MappedTensor:
    """A MappedTensor of entries in any order; coords and shape are those of the tensor, the format is that of what is
    stored. Otherwise as `pack`. Raises what `pack` raises.
    """
    parsed = parse_map(map, shape)
    columns, values = checked_entries(coords, values, len(parsed.shape))
    kept = checked_json(attributes, limits)
    try:
        stored = pack(
            parsed.forward(columns),
            values,
            parsed.stored_shape,
            format,
            duplicates=duplicates,
            fill_value=fill_value,
            attributes=kept,
            limits=limits,
        )
    except RepeatedError as error:
        raise repeated([int(x[0]) for x in parsed.backward([[x] for x in error.coords])]) from None
    return MappedTensor(stored, parsed)


def labelled(tensor: Tensor, map: IndexMap) -> Tensor:
    """A stored tensor with its map among the attributes, as files hold it."""
    user, own = _attributes(tensor)
    return _with_attributes(tensor, {**user, KEY: map.header()}, own)


def as_stored(tensor: AnyTensor) -> Tensor:
    """A tensor as a file holds it: the stored one, with its map among the attributes, if it has one."""
    return labelled(tensor.tensor, tensor.map) if isinstance(tensor, MappedTensor) else tensor


def as_written(tensor: Tensor) -> AnyTensor:
    """The inverse: the tensor that was written."""
    user, own = _attributes(tensor)
    if KEY not in user:
        return tensor
    map = parse_header(user.pop(KEY), tensor.shape)
    return MappedTensor(_with_attributes(tensor, user, own), map)


def _with_attributes(tensor: Tensor, user: Mapping[str, Any], own: Mapping[str, Any]) -> Tensor:
    rest = tensor.fill_value, tensor.structure, user, own
    return Tensor._trusted(tensor.format, tensor.shape, tensor._held, *rest)


def _attributes(tensor: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(tensor.attributes), dict(tensor.descriptor_attributes)


def _packed(
    like: Tensor,
    coords: Sequence[Array],
    values: Array,
    shape: Sequence[int],
    format: FormatLike,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """A tensor of these entries, otherwise like that one."""
    one: Any = values
    if like.iso:
        one = values[0] if len(values) else np.zeros((), values.dtype)
    made = pack(coords, one, shape, format, fill_value=like.fill_value, limits=limits)
    return Tensor._trusted(made.format, made.shape, made._tree, made.fill_value, None, *_attributes(like))
