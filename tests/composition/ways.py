"""Ways to take a tensor: a row for each, with the public names that it goes through and what the result lacks.

A way is a function of a tensor, its model, a function that draws, and a folder. It returns a tensor and its model, or
None after it has compared numbers. The model's metadata stay, but for what the row drops.
"""

from __future__ import annotations

import copy
import datetime
import inspect
import pickle
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import naive
import numpy as np
import pytest
from helpers.strategies import keys
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import Tensor, cli, testing
from binsparse_levels.formats.structure import transposed
from binsparse_levels.levels import LEVELS
from binsparse_levels.tensors.tensor import inside
from composition.features import BINSPARSE

GONE = {
    "fill": {"fill": None},
    "structure": {"structure": None},
    "attributes": {"attributes": {}},
    "descriptor": {"descriptor_attributes": {}},
    "labels": {"labels": None},
    "map": {"mapped": False},
    "iso": {"iso": False},
}


@dataclass(frozen=True)
class Way:
    """names: public names. drops: keys of GONE. pads: the result may store cells that were no entries."""

    run: Callable[..., tuple[Tensor, Any] | None]
    names: tuple[str, ...]
    drops: Collection[str]
    pads: bool

    def __call__(self, tensor, model, draw, folder):
        """The result and its model, or None."""
        made = self.run(tensor, model, draw, folder)
        if made is None:
            return None
        result, expected = made
        lacking = {name: value for key in self.drops for name, value in GONE[key].items()}
        return result, replace(expected, padding=self.pads or expected.padding or model.padding, **lacking)


WAYS: dict[str, Way] = {}


def way(*names, drops="", pads=False):
    """Register a way. names: of methods as `Tensor.load`, of functions as `reduce`, of commands as `command info`."""

    def add(run):
        WAYS[run.__name__] = Way(run, names, drops.split(), pads)
        return run

    return add


# Public names that take no tensor and give none.
WITHOUT = {
    "ALIASES", "Advice", "Band", "Batches", "Bitmap", "Bits", "Dense", "EliasFano", "Explanation", "Format", "Hashed",
    "IndexMap", "Level", "LevelStatistics", "Limits", "Mask", "NOfM", "Problem", "Reads", "Run", "SYNONYMS", "Sparse",
    "Statistics", "Sweep", "get_threads", "list_plugins", "load_plugins", "parse_format", "parse_map",
    "register_anndata", "set_threads", "command completion", "command formats", "command warm-up",
}  # fmt: skip


def public_names():
    """All functions and classes of the package, methods and properties of Tensor, and commands of the command line."""
    methods = [
        f"Tensor.{name}" for name in dir(Tensor)
        if not name.startswith("_") and not isinstance(getattr(Tensor, name), types.MemberDescriptorType)
    ]  # fmt: skip
    special = [
        f"Tensor.{name}" for name in ("__getitem__", "__array_ufunc__", "__eq__", "__array__", "__reduce__",
                                      "__enter__", "__repr__", "_repr_html_", "__binsparse__",
                                      "__binsparse_descriptor__")
    ]  # fmt: skip
    errors = {
        name for name in bl.__all__ if inspect.isclass(getattr(bl, name)) and issubclass(getattr(bl, name), Exception)
    }
    return [*({*bl.__all__, "open"} - errors), *methods, *special, *(f"command {name}" for name in cli._COMMANDS)]


def draw_format(draw, rank):
    return draw(testing.formats(min_rank=rank, max_rank=rank, kinds=tuple(LEVELS.values())))


# Parts


@way("Tensor.__getitem__", drops="structure")
def view(tensor, model, draw, folder):
    key = draw(keys(model.shape))
    got = tensor[key]
    if not isinstance(got, Tensor):
        expected = model.dense[key]
        assert np.shape(got) == expected.shape
        assert all(naive.equal(a, b) for a, b in zip(np.ravel(got), np.ravel(expected), strict=True))
        return None
    shape, entries = naive.select(model.shape, model.entries, key)
    padding = got.format.padded  # of a view, the levels are packed anew
    return got, replace(model, shape=shape, entries=entries, labels=labels_of(model, key), padding=padding)


@way("Tensor.isel")
def by_number(tensor, model, draw, folder):
    if not model.shape or not model.shape[-1]:
        return
    got = tensor.isel({-1: 0})
    expected = model.dense[..., 0]
    found = got.to_dense() if isinstance(got, Tensor) else got
    assert np.array_equal(found, expected, equal_nan=model.dtype.kind in "fc")


@way("Tensor.sel", drops="structure")
def by_label(tensor, model, draw, folder):
    """Labels, arrays and slices of labels; each dimension is named, or counted where none has a name."""
    asked, key, lacking = {}, [], None
    for k, size in enumerate(model.shape):
        name = k if model.dims is None else draw(st.sampled_from([k, model.dims[k]]))
        known = model.labels[model.dims[k]] if model.dims else None
        labels = list(range(size)) if known is None else known if len(set(known)) == len(known) else []
        how = draw(st.sampled_from(["all", "label", "list", "slice", "lacking"]))
        some = draw(st.lists(st.sampled_from(labels), max_size=3)) if labels else []
        places = [labels.index(x) for x in some]
        if how == "list":
            asked[name], index = np.array(some, object if known else int), np.array(places, int)
        elif how == "slice" and some:
            asked[name], index = slice(some[0], some[-1]), slice(places[0], places[-1] + (known is not None))
        elif how == "label" and some:
            label = np.datetime64(some[0]) if type(some[0]) is datetime.date else some[0]  # pandas finds no date
            asked[name], index = label, places[0]
        else:
            index = slice(None)
            if how == "lacking":
                lacking = asked[name] = "nobody"
        key.append(index)
    if lacking:
        with pytest.raises(bl.LabelError, match="no label 'nobody'") as told:
            tensor.sel(asked)
        assert isinstance(told.value, KeyError)
        return None
    got, expected = tensor.sel(asked), model
    for k in reversed(range(len(key))):  # an array for each dimension selects by itself
        part = (slice(None),) * k + (key[k],)
        shape, entries = naive.select(expected.shape, expected.entries, part)
        expected = replace(expected, shape=shape, entries=entries, labels=labels_of(expected, part))
    if not isinstance(got, Tensor):
        assert naive.equal(got, expected.entries.get((), model.pad))
        return None
    return got, replace(expected, padding=got.format.padded)


def labels_of(model, key):
    """The labels of a view; None for a list of coordinates by index arrays."""
    if model.labels is None:
        return None
    items = list(key)
    if any(item is Ellipsis for item in items):
        at = next(k for k, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(model.shape) - len(items) + 1)
    items += [slice(None)] * (len(model.shape) - len(items))
    arrays = [item for item in items if isinstance(item, list) or np.ndim(item) > 0]
    if len(arrays) > 1 or any(np.ndim(item) > 1 for item in arrays):
        return labels_of_mesh(model, items)
    kept = {}
    for item, size, (name, labels) in zip(items, model.shape, model.labels.items(), strict=True):
        if isinstance(item, slice) or any(item is array for array in arrays):
            chosen = np.arange(size)[item]
            kept[name] = None if labels is None else [labels[k] for k in chosen if k < len(labels)]
    picked = [k for k, item in enumerate(items) if not isinstance(item, slice)]  # by numpy's rule for their dimension
    if arrays and picked != list(range(picked[0], picked[-1] + 1)):
        first = next(name for item, name in zip(items, model.labels, strict=True) if item is arrays[0])
        kept = {first: kept.pop(first), **kept}
    return kept


def labels_of_mesh(model, items):
    """The labels of a view by an open mesh, as `numpy.ix_` makes it; None where arrays list cells."""
    arrays = {k: np.asarray(item) for k, item in enumerate(items) if not isinstance(item, slice) and np.ndim(item)}
    rank = max(array.ndim for array in arrays.values())
    along = {k: [rank - x.ndim + d for d, n in enumerate(x.shape) if n != 1] for k, x in arrays.items()}
    ends = [axes[0] for axes in along.values() if axes]
    if len(arrays) != rank or any(len(axes) > 1 for axes in along.values()) or len({*ends}) != len(ends):
        return None
    single = iter(k for k, axes in along.items() if not axes)
    mesh = [next((k for k, axes in along.items() if axes == [d]), None) for d in range(rank)]
    mesh = [next(single) if k is None else k for k in mesh]
    picked = [k for k, item in enumerate(items) if not isinstance(item, slice)]
    order = [k for k in range(len(items)) if k not in picked]
    first = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
    order[first:first] = mesh
    kept = {}
    for k in order:
        name, labels = list(model.labels.items())[k]
        chosen = np.arange(model.shape[k])[arrays[k].ravel() if k in arrays else items[k]]
        kept[name] = None if labels is None else [labels[x] for x in chosen if x < len(labels)]
    return kept


@way("Tensor.slabs", drops="structure")
def slabs(tensor, model, draw, folder):
    if not model.shape:
        return
    k = draw(st.integers(0, len(model.shape) - 1))
    parts = list(tensor.slabs(k, max_bytes=2**16))
    assert [x for part, _ in parts for x in part] == list(range(model.shape[k]))
    for part, slab in parts:
        key = (slice(None),) * k + (slice(part.start, part.stop),)
        assert np.array_equal(slab.to_dense(), model.dense[key], equal_nan=model.dtype.kind in "fc")
    return


@way("Tensor.locate", "Tensor.values", "Tensor.arrays")
def locate(tensor, model, draw, folder):
    if not model.shape:
        return
    places = list(np.ndindex(model.shape))
    columns = np.array(places, np.int64).reshape(len(places), len(model.shape)).T
    positions = tensor.locate(list(columns))
    stored = dict.fromkeys(zip(*(x.tolist() for x in tensor.unpack()[0]), strict=True))
    for place, q in zip(places, positions.tolist(), strict=True):
        assert (q >= 0) == (place in stored)
        assert q < 0 or naive.equal(tensor.values[q], model.entries[place])
    return


# The same numbers in another way


@way("Tensor.permute", "Tensor.T")
def permute(tensor, model, draw, folder):
    axes = draw(st.permutations(range(len(model.shape))))
    named = axes if model.dims is None or draw(st.booleans()) else [model.dims[k] for k in axes]
    result = tensor.T if axes == list(range(len(axes)))[::-1] else tensor.permute(named)
    labels = None if model.labels is None else {model.dims[k]: model.labels[model.dims[k]] for k in axes}
    structure = transposed(model.structure) if model.structure and axes == [1, 0] else model.structure
    shape = tuple(model.shape[k] for k in axes)
    return result, replace(
        model, shape=shape, entries=naive.permute(model.entries, axes), labels=labels, structure=structure
    )


@way("Tensor.convert", pads=True)
def convert(tensor, model, draw, folder):
    small = {option: draw(st.booleans()) for option in ("narrow", "dictionary")}
    if model.structure is None and draw(st.booleans()):
        map = draw(testing.maps(model.shape, max_digits=2))
        format = draw_format(draw, len(map.stored_shape))
        return tensor.convert(format, map=map, **small), replace(model, mapped=True)
    rank = len(model.shape) if tensor.map is None else len(tensor.map.stored_shape)
    return tensor.convert(draw_format(draw, rank), **small), model


@way("Tensor.astype", drops="")
def astype(tensor, model, draw, folder):
    wide = {"b": "int64", "i": "float64", "u": "float64", "f": "complex128"}.get(model.dtype.kind, model.dtype.str)
    dtype = np.dtype(draw(st.sampled_from([wide, model.dtype.str])))
    entries = {place: dtype.type(value) for place, value in model.entries.items()}
    fill = None if model.fill is None else dtype.type(model.fill)
    return tensor.astype(dtype), replace(model, dtype=dtype, entries=entries, fill=fill)


@way("Tensor.drop_fill", pads=True)
def drop_fill(tensor, model, draw, folder):
    kept = {place: value for place, value in model.entries.items() if not naive.equal(value, model.pad)}
    return tensor.drop_fill(), replace(model, entries=kept)


@way("Tensor.load", pads=True)
def load(tensor, model, draw, folder):
    rank = len(model.shape) if tensor.map is None else len(tensor.map.stored_shape)
    return tensor.load(draw(st.none()) or (draw_format(draw, rank) if draw(st.booleans()) else None)), model


@way("Tensor.with_attributes")
def with_attributes(tensor, model, draw, folder):
    attributes = draw(st.sampled_from([None, {"unit": "km"}]))
    return tensor.with_attributes(attributes), replace(model, attributes=attributes or {})


@way("Tensor.with_structure")
def with_structure(tensor, model, draw, folder):
    if model.structure is None:
        return None
    return tensor.expand_structure().with_structure(model.structure), model


@way("Tensor.expand_structure", drops="structure iso", pads=True)
def expand_structure(tensor, model, draw, folder):
    return tensor.expand_structure(), model


@way("Tensor.without_map", drops="map", pads=True)
def without_map(tensor, model, draw, folder):
    return tensor.without_map(draw_format(draw, len(model.shape)) if draw(st.booleans()) else None), model


@way("Tensor.with_values", "Tensor.with_labels")
def with_the_same(tensor, model, draw, folder):
    """The same values and labels once more: those of each dimension are removed, and given anew by name or number.

    A file may have fewer labels than coordinates, which `with_labels` refuses.
    """
    made = tensor.with_values(tensor.values[0] if tensor.iso and len(tensor.values) else tensor.values)
    for k, dim in enumerate(tensor.dims or ()):
        key, labels = draw(st.sampled_from([k, dim])), tensor.labels(k)
        if labels is None or len(labels) == tensor.shape[k]:
            made = made.with_labels({key: None}).with_labels({key: labels})
    return made, model


@way("Tensor.with_map", "Tensor.map", "Tensor.stored", drops="labels")
def with_map(tensor, model, draw, folder):
    axes = draw(st.permutations(range(len(model.shape))))
    shape = tuple(model.shape[axes.index(k)] for k in range(len(axes)))
    map = bl.IndexMap.transpose(shape, axes)
    back = [axes.index(k) for k in range(len(axes))]
    result = tensor.with_map(map)
    return result, replace(model, shape=shape, entries=naive.permute(model.entries, back), mapped=True)


@way("Tensor.__reduce__")
def pickled(tensor, model, draw, folder):
    return pickle.loads(pickle.dumps(tensor)), model


@way("Tensor.__reduce__")
def copied(tensor, model, draw, folder):
    return draw(st.sampled_from([copy.copy, copy.deepcopy]))(tensor), model


@way("Tensor.__binsparse__", "Tensor.__binsparse_descriptor__", "from_binsparse")
def protocol(tensor, model, draw, folder):
    class Other:
        __binsparse__ = staticmethod(tensor.__binsparse__)
        __binsparse_descriptor__ = staticmethod(tensor.__binsparse_descriptor__)

    return bl.from_binsparse(Other()), model


@way("as_tensor")
def as_tensor(tensor, model, draw, folder):
    assert bl.as_tensor(tensor) is tensor


@way("Tensor", drops="map labels")
def wrapped(tensor, model, draw, folder):
    """The constructor takes what the properties give."""
    if tensor.map is not None:
        return None
    values = tensor.values[0] if tensor.iso and len(tensor.values) else tensor.values
    metadata = {
        name: getattr(tensor, name) for name in ("fill_value", "structure", "attributes", "descriptor_attributes")
    }
    return Tensor(tensor.format, tensor.shape, tensor.arrays, values, **metadata), model


# What tells of a tensor


@way(
    "Tensor.shape", "Tensor.dtype", "Tensor.ndim", "Tensor.size", "Tensor.nbytes", "Tensor.format", "Tensor.notation",
    "Tensor.fill_value",
    "Tensor.structure", "Tensor.attributes", "Tensor.descriptor_attributes", "Tensor.dims", "Tensor.labels",
    "Tensor.iso", "Tensor.number_of_stored_values", "Tensor.nnz", "Tensor.density", "Tensor.limits", "Tensor.check",
    "Tensor.unpack",
    "Tensor.to_dense", "Tensor.equals", "Tensor.__repr__", "Tensor._repr_html_", "Tensor.__eq__", "Tensor.__array__",
)  # fmt: skip
def told(tensor, model, draw, folder):
    """What `features.check` asks of every result, and the rest."""
    assert tensor.ndim == len(model.shape)
    assert tensor.size == len(model.cells)
    assert tensor.nbytes >= 0
    assert tensor.number_of_stored_values == tensor.nnz == len(tensor.unpack()[1])
    assert not tensor.size or tensor.density == tensor.nnz / tensor.size
    assert isinstance(tensor.limits, bl.Limits)
    assert bl.parse_format(str(tensor.format)) == tensor.format
    assert tensor.convert(tensor.notation).notation == tensor.notation
    assert str(model.dtype) in repr(tensor)
    assert tensor._repr_html_()
    assert tensor.equals(tensor)
    for refused in (np.asarray, lambda x: x == x):
        try:
            refused(tensor)
        except TypeError:
            continue
        raise AssertionError(f"{refused} takes a tensor")
    if model.dtype.name in BINSPARSE:
        other = draw(st.sampled_from([np.True_, np.float64(3)])).astype(model.dtype)
        expected = naive.dense(model.shape, model.entries, other, model.dtype)
        assert np.array_equal(tensor.to_dense(other), expected, equal_nan=model.dtype.kind in "fc")
    return


@way("Tensor.report")
def report(tensor, model, draw, folder):
    made = tensor.report()
    assert all("does not come after" in fault.message for fault in made.faults)  # of files in no order
    made.write(f"{folder}/report.html", overwrite=True)
    return


@way("levels_of")
def numbers_of_levels(tensor, model, draw, folder):
    levels = [level.level for level in bl.levels_of(tensor)]
    assert levels == list(tensor.stored.format.levels)


@way("Tensor.draw")
def drawn(tensor, model, draw, folder):
    assert tensor.draw().startswith("<svg")
    return


@way("Tensor.dm")
def dm(tensor, model, draw, folder):
    found = tensor.dm()
    assert found.strides is not None
    return


@way("sweep")
def sweep(tensor, model, draw, folder):
    """A row for the format, with bits, or with the reason of a refusal."""
    made = bl.sweep({"a": tensor}, [draw_format(draw, len(model.shape))], ["bits", "narrow", "limit"], repeat=1)
    assert len(made.rows) == 1


@way("advise", "size_of")
def advise(tensor, model, draw, folder):
    """The first advice can be followed, and that through maps; its bytes are right."""
    for ours in bl.advise(tensor).own:
        assert ours.map is None or tensor.without_map().convert(str(ours)).stored.nbytes == ours.nbytes
    advice = bl.advise(tensor, kinds=list(LEVELS))
    best = advice.candidates[0]
    if best.format.canonical() != tensor.format.canonical():  # which would keep narrow indices
        assert tensor.without_map(best.format).nbytes == best.nbytes
    if not (tensor.iso or any(x.itemsize == 8 for x in inside(tensor).tree.arrays.values())):
        assert bl.size_of(best.format, tensor.shape, advice.counts, tensor.dtype) == best.nbytes
    return
