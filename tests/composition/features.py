"""Tensors with any subset of the features, each with a model: what it is, in dictionaries, loops and JSON."""

from __future__ import annotations

import datetime
import itertools
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

import naive
import numpy as np
import pyarrow
from hypothesis import assume
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.formats.structure import STRUCTURES, structure_problems
from binsparse_levels.levels import LEVELS

BINSPARSE = (*testing.VALUE_TYPES, "float16")  # the types that a descriptor holds
OTHERS = ("longdouble", "clongdouble", "datetime64[s]")  # further ones that numpy has
FILLS = ("none", "zero", "other", "nan", "inf")
MAPS = ("none", "groups", "blocks", "morton", "any")
# Each container of arrays with the storage options that it takes.
STORAGE = {
    "memory": (),
    ".h5": ("compression", "chunks"),
    ".zarr": ("compression", "chunks", "shards", "convention"),
    ".zarr.zip": ("compression", "convention"),
    ".npz": ("compression",),
    ".nc": ("compression", "chunks"),
    ".bspnpy": (),
    ".bspra": (),
}
SEALS = ("checksum", "narrow", "bitpacked", "dictionary")
OPTIONS = {"compression": "gzip", "chunks": 2, "shards": 4, "convention": True} | dict.fromkeys(SEALS, True)


@dataclass(frozen=True)
class Model:
    """A tensor as the oracle knows it.

    entries: the values by coordinates, both triangles of a structure among them. labels: of each dimension by name, a
    list or None. padding: whether the tensor may have stored more entries, which have the fill value.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    entries: dict[tuple[int, ...], Any]
    fill: Any = None
    structure: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    descriptor_attributes: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, list[Any] | None] | None = None
    mapped: bool = False
    iso: bool = False
    padding: bool = False

    @property
    def pad(self):
        return np.zeros((), self.dtype)[()] if self.fill is None else self.fill

    @property
    def dense(self):
        return naive.dense(self.shape, self.entries, self.pad, self.dtype)

    @property
    def cells(self):
        """The value of every cell."""
        return dict(np.ndenumerate(self.dense))

    @property
    def dims(self):
        return None if self.labels is None else tuple(self.labels)


@dataclass(frozen=True)
class Case:
    """A tensor, its model, the names of its features, and where it is stored, if it is in a file."""

    tensor: bl.Tensor
    model: Model
    features: frozenset[str]


def check(tensor, model):
    """Assert that a tensor is what its model says. Returns the model with the entries that are stored."""
    assert tensor.shape == model.shape
    assert tensor.dtype == model.dtype
    assert (tensor.fill_value is None) == (model.fill is None)
    assert model.fill is None or naive.equal(tensor.fill_value, model.fill)
    assert tensor.structure == model.structure
    assert dict(tensor.attributes) == model.attributes
    ours = {"number_of_diagonal_elements"}  # what a structure adds in a file
    described = {key: x for key, x in tensor.descriptor_attributes.items() if key not in ours}
    assert described == model.descriptor_attributes
    assert tensor.dims == model.dims
    for name, labels in (model.labels or {}).items():
        told = tensor.labels(name)
        assert (None if told is None else told.tolist()) == labels
    coords, values = tensor.unpack()
    places = list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * len(values)
    stored = dict(zip(places, values, strict=True))
    assert len(stored) == len(places)
    if model.structure is not None:
        stored = naive.mirror(stored, model.structure)
    assert model.entries.keys() <= stored.keys()
    assert all(naive.equal(stored[place], value) for place, value in model.entries.items())
    more = stored.keys() - model.entries.keys()
    assert not more or model.padding
    assert all(naive.equal(stored[place], model.pad) for place in more)
    if tensor.iso:
        assert all(naive.equal(value, values[0]) for value in values)
    ends = bool(more) or model.structure is not None or any(x.padded or x.gaps for x in tensor.stored.format.levels)
    assert tensor.iso or not model.iso or not stored or ends
    now = replace(model, entries=stored, iso=model.iso and tensor.iso)
    dense = tensor.to_dense()
    assert dense.dtype == model.dtype
    assert all(naive.equal(value, dense[place]) for place, value in now.cells.items())
    tensor.check()
    return now


@st.composite
def scalars(draw, dtype):
    """A value of a type: small numbers, and what is no number."""
    number = draw(st.integers(0, 5))
    if dtype.kind in "fc" and draw(st.integers(0, 9)) == 9:
        return dtype.type(draw(st.sampled_from([np.nan, np.inf, -0.0, 0.5])))
    if dtype.kind == "M":
        return np.datetime64(number, "s")
    return dtype.type(number - 2 if dtype.kind in "ifc" else number)


def draw_fill(draw, dtype, fills):
    """The name of the feature, and a fill value."""
    possible = [name for name in fills if dtype.kind in "fc" or name not in ("nan", "inf")]
    name = draw(st.sampled_from(possible))
    if name in ("nan", "inf"):
        return name, dtype.type(float(name))
    other = np.datetime64(9, "s") if dtype.kind == "M" else dtype.type(1)
    return name, {"none": None, "zero": np.zeros((), dtype)[()], "other": other}[name]


def draw_map(draw, shape):
    """The name of the feature, and an index map."""
    name = draw(st.sampled_from(MAPS)) if draw(st.booleans()) else "none"
    rank = len(shape)
    if name == "groups" and rank:
        return name, bl.IndexMap.grouping(shape, *([tuple(range(rank)), ()] if rank > 1 else [(0,), ()]))
    if name == "blocks" and rank:
        digits = [f"{k}/2" for k in range(rank)] + [f"{k}%2" for k in range(rank)]
        return name, bl.parse_map(", ".join(digits), shape)
    if name == "morton":
        return name, bl.IndexMap.morton(shape)
    if name == "any":
        return name, draw(testing.maps(shape, max_digits=2))
    return "none", None


NOON = datetime.datetime(2026, 2, 28, 12, tzinfo=datetime.UTC)
# Labels in ascending order, and Arrow's type of them.
LABELS = {
    "text": (["", "a", "aé", "日本"], pyarrow.string()),
    "integer": ([-5, 0, 7, 2**62], pyarrow.int64()),
    "float": ([-np.inf, -0.5, 0.1, 1e300], pyarrow.float64()),
    "bool": ([False, True], pyarrow.bool_()),
    "date": ([NOON.date() + datetime.timedelta(x) for x in (-(10**5), 0, 1, 2)], pyarrow.date32()),
    "time": ([NOON + datetime.timedelta(hours=x) for x in (-(10**6), 0, 1, 2)], pyarrow.timestamp("us", "Asia/Tokyo")),
}


def arrow_labels(labels):
    """Labels as Arrow's array of their type; no labels are texts."""
    types = {type(x): kind for some, kind in LABELS.values() for x in some}
    return pyarrow.array(labels, types[type(labels[0])] if labels else pyarrow.string())


def draw_labels(draw, shape):
    """Labels of each dimension by name, perhaps fewer than its size, or None."""

    def of(k, size):
        some, _ = LABELS[draw(st.sampled_from([*LABELS, *["text"] * 4]))]
        length = draw(st.sampled_from([size, size, max(size - 1, 0)]))
        return some[:length] if draw(st.booleans()) else None

    return {"ijkl"[k]: of(k, size) for k, size in enumerate(shape)}


@st.composite
def cases(draw, folder, *, max_rank=4):
    """Any tensor, in memory, read, or in a file in the folder that is open."""
    if draw(st.integers(0, 7)) == 7:
        return draw(foreign(folder))
    rank = draw(st.integers(0, max_rank))
    square = rank == 2 and draw(st.booleans())
    sizes = st.integers(0, 4)
    shape = (draw(sizes),) * 2 if square else tuple(draw(st.lists(sizes, min_size=rank, max_size=rank)))
    origin = draw(st.sampled_from(("memory", "read", "open")))
    types = BINSPARSE if origin != "memory" or draw(st.integers(0, 5)) < 5 else OTHERS
    dtype = np.dtype(draw(st.sampled_from(types)))
    possible = [
        name for name in STRUCTURES if dtype.kind in "biufc" and not list(structure_problems(name, shape, dtype))
    ]
    structure = draw(st.sampled_from(possible)) if square and possible and draw(st.booleans()) else None
    mapping, map = ("none", None) if structure else draw_map(draw, shape)
    fill_name, fill = draw_fill(draw, dtype, FILLS if structure is None else FILLS[:2])
    ranks = rank if map is None else len(map.stored_shape)
    assume(ranks <= 6)
    kinds = tuple(LEVELS.values())
    format = draw(testing.formats(min_rank=ranks, max_rank=ranks, kinds=kinds))
    entries = draw_entries(draw, shape, structure, dtype)
    iso = structure is None and draw(st.integers(0, 4)) == 4
    if iso:
        entries = dict.fromkeys(entries, draw(scalars(dtype)))
    attributes = draw(st.sampled_from([{}, {"unit": "m"}, {"é": [None, 1.5, {"": 2**70}]}]))
    model = Model(shape, dtype, entries, fill, None, attributes, mapped=map is not None, iso=iso, padding=True)
    if rank and not iso and structure is None and types is BINSPARSE and dtype.kind != "c" and draw(st.booleans()):
        model = replace(model, labels=draw_labels(draw, shape))
    try:
        tensor = made(model, format, map, structure)
    except bl.FormatError:  # a kind may refuse a tensor
        assume(False)
    if structure is not None:
        model = replace(model, structure=structure, entries=naive.mirror(entries, structure))
    features = {f"kind {level.kind}" for level in format.levels}
    features |= {f"rank {rank}", f"map {mapping}", f"fill {fill_name}", f"type {dtype.kind}", f"from {origin}"}
    features |= {f"structure {structure}"} if structure else set()
    features |= {name for name, there in (("labels", model.labels), ("attributes", attributes), ("iso", iso)) if there}
    if draw(st.integers(0, 3)) == 3:
        tensor, features = tensor.convert(tensor.format, narrow=True), features | {"narrow"}
    if draw(st.integers(0, 3)) == 3 and (coded := with_dictionary(tensor)) is not None:
        tensor, features = coded, features | {"dictionary in memory"}
    features |= {"order"} if format.order != tuple(range(ranks)) else set()
    if origin != "memory":
        place, chosen = draw_place(draw, folder)
        if map is None and rank > 1 and isinstance(place, str) and has_groups(place) and draw(st.booleans()):
            chosen["orders"] = draw_orders(draw, format)
        grows = (
            rank
            and map is structure is None
            and grows_in_parts(place)
            and not {"orders", "bitpacked", "dictionary"} & {*chosen}
        )
        try:
            if grows and draw(st.booleans()):
                write_parts(draw, place, tensor, chosen)
                model, features = replace(model, iso=False), features | {"parts"}
            else:
                chosen = written(place, tensor, chosen)
        except bl.FormatError:  # the kinds of another order may refuse the tensor, and those of a part a slice
            assume(False)
        tensor = getattr(bl, origin)(place)
        features |= {
            f"in {os.path.basename(place).lstrip('0123456789') if isinstance(place, str) else 'a mapping'}",
            *chosen,
        }
    return Case(tensor, check(tensor, model), frozenset(features))


@st.composite
def foreign(draw, folder):
    """A matrix in a file of scipy, whose entries may be in any order, as there they are."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=2)))
    dtype = np.dtype(draw(st.sampled_from(("int8", "uint32", "int64", "float32", "float64", "complex128"))))
    entries = draw_entries(draw, shape, None, dtype)
    places = draw(st.permutations(sorted(entries)))
    kind, origin = draw(st.sampled_from(("coo", "csr", "csc"))), draw(st.sampled_from(("read", "open")))
    at = np.array(places, np.int32).reshape(-1, 2).T  # as scipy has them
    arrays = {"row": at[0], "col": at[1]}
    values = np.array([entries[place] for place in places], dtype)
    if kind != "coo":
        along = ("csr", "csc").index(kind)
        by = np.argsort(at[along], kind="stable")
        ends = np.cumsum([0, *np.bincount(at[along], minlength=shape[along])], dtype=np.int32)
        arrays, values = {"indptr": ends, "indices": at[1 - along][by]}, values[by]
    path = os.path.join(folder, f"{len(os.listdir(folder))}.npz")
    np.savez(path, format=np.array(kind.encode()), shape=shape, data=values, **arrays)
    features = {"unsorted", f"kind {kind} of scipy", f"from {origin}", f"type {dtype.kind}"}
    return Case(getattr(bl, origin)(path), Model(shape, dtype, entries), frozenset(features))


def draw_entries(draw, shape, structure, dtype):
    places = list(np.ndindex(*shape))
    if structure is not None:
        places = [(i, j) for i, j in places if (i >= j) == structure.endswith("lower") or i == j]
        if not structure.startswith("symmetric"):  # a diagonal has to be its own mirror image
            places = [(i, j) for i, j in places if i != j]
    chosen = draw(st.lists(st.sampled_from(places), unique=True, max_size=8)) if places else []
    return {place: draw(scalars(dtype)) for place in chosen}


def made(model, format, map, structure):
    """The tensor of a model, by `from_table` where it has labels."""
    places = list(model.entries)
    coords = np.array(places, np.int64).reshape(len(places), len(model.shape)).T
    values = np.array(list(model.entries.values()), model.dtype)
    options = {"fill_value": model.fill, "attributes": model.attributes, "map": map}
    if model.labels is None:
        if model.iso and len(values):
            values = values[:1].reshape(())
        if not model.shape and np.ndim(values) and len(values) == 0:
            assume(False)  # a scalar has an entry
        return bl.pack(coords, values, model.shape, format, structure=structure, **options)
    labels = {name: arrow_labels(x) for name, x in model.labels.items() if x is not None}
    columns = {}
    for k, name in enumerate(model.labels):
        known = labels.get(name)
        assume(known is None or not places or coords[k].max() < len(known))
        columns[name] = pyarrow.array(
            [x if known is None else known[x].as_py() for x in coords[k].tolist()],
            pyarrow.int64() if known is None else known.type,
        )
    columns["value"] = pyarrow.array(values.astype(model.dtype.newbyteorder("=")))
    return bl.from_table(
        pyarrow.table(columns), list(model.labels), "value", format, shape=model.shape, labels=labels, **options
    )


def with_dictionary(tensor):
    """The tensor with a dictionary of values; None if that is not smaller, or if Binsparse does not have the type."""
    try:
        return tensor.convert(tensor.format, dictionary=True)
    except (bl.OptionError, bl.ArrayError) as error:
        if not re.search("dictionary|no data type", str(error)):
            raise
        return None


def written(place, tensor, chosen):
    """Write a tensor, and return the options. A dictionary is left out if it is not smaller."""
    try:
        bl.write(place, tensor, overwrite=True, **chosen)
    except bl.OptionError as error:
        if not str(error).startswith("dictionary"):
            raise
        chosen = {option: x for option, x in chosen.items() if option != "dictionary"}
        bl.write(place, tensor, overwrite=True, **chosen)
    return chosen


def has_groups(place):
    return place.partition(":")[0].endswith((".h5", ".zarr", ".nc", ".zarr.zip"))


def grows_in_parts(place):
    return isinstance(place, str) and place.partition(":")[0].endswith(".zarr")


def write_parts(draw, place, tensor, chosen):
    """Write a tensor as up to four parts: slices along any dimension, and slices of the first along another."""
    k = draw(st.integers(0, tensor.ndim - 1))
    cuts = sorted(draw(st.lists(st.integers(0, tensor.shape[k]), min_size=1, max_size=3)))
    slabs = [tensor[(slice(None),) * k + (slice(a, b),)] for a, b in itertools.pairwise([0, *cuts, tensor.shape[k]])]
    j = draw(st.integers(0, tensor.ndim - 1))
    at = draw(st.integers(0, slabs[0].shape[j]))
    first, second = (slabs[0][(slice(None),) * j + (part,)] for part in (slice(at), slice(at, None)))
    bl.write(place, first, overwrite=True, **chosen)
    bl.append(place, second, axis=j, part=True)
    for slab in slabs[1:]:
        bl.append(place, slab, axis=k)


def draw_orders(draw, format):
    """Formats of any kinds, one or two, that store the dimensions in other orders than a format."""
    others = [order for order in itertools.permutations(range(format.rank)) if order != format.order]
    orders = draw(st.lists(st.sampled_from(others), unique=True, min_size=1, max_size=2))
    rank = {"min_rank": format.rank, "max_rank": format.rank, "kinds": tuple(LEVELS.values())}
    return [bl.Format(draw(testing.formats(**rank)).levels, order) for order in orders]


def draw_place(draw, folder):
    """A place, and options of `write` that its container takes."""
    suffix = draw(st.sampled_from(list(STORAGE)))
    chosen = draw(st.sets(st.sampled_from([*STORAGE[suffix], *SEALS]), max_size=2))
    if "shards" in chosen:
        chosen.add("chunks")
    name = f"{len(os.listdir(folder))}{suffix}"
    if has_groups(suffix) and draw(st.integers(0, 3)) == 3:
        name += ":group"
    return {} if suffix == "memory" else os.path.join(folder, name), {
        option: OPTIONS[option] for option in sorted(chosen)
    }
