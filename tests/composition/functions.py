"""Ways through the functions of the package and through other libraries."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import naive
import numba
import numpy as np
import pyarrow
import pytest
from helpers.strategies import masks
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import Tensor
from binsparse_levels.tensors.tensor import inside
from composition.features import arrow_labels
from composition.ways import draw_format, way

# Numbers


def same_numbers(got, expected, dtype):
    """Assert that two arrays hold the same numbers, but for rounding where the type has one."""
    assert np.shape(got) == np.shape(expected)
    tolerance = {"f": 1e-6, "c": 1e-6}.get(dtype.kind, 1e-12)
    if dtype.itemsize // (1 + (dtype.kind == "c")) < 8 and dtype.kind in "fc":
        tolerance = 1e-2 if dtype == np.float16 else 1e-4
    for a, b in zip(np.ravel(got), np.ravel(expected), strict=True):
        assert naive.equal(a, b) or np.isclose(complex(a), complex(b), rtol=tolerance, atol=tolerance, equal_nan=True)


def entries_of(tensor):
    """The values that a tensor stores, by their coordinates."""
    coords, values = tensor.unpack()
    return dict(zip(zip(*(x.tolist() for x in coords), strict=True), values, strict=True))


def draw_axis(draw, model):
    some = draw(st.sets(st.sampled_from(range(len(model.shape))))) if model.shape else set()
    return draw(st.sampled_from([None, tuple(sorted(some))]))


def draw_cells(draw, model):
    """The option `cells`, and the cells that take part."""
    option = draw(st.sampled_from([{}, {"cells": "stored"}]))
    return option, model.entries if option else model.cells


@way("reduce")
def reduce(tensor, model, draw, folder):
    axis, how = draw_axis(draw, model), draw(st.sampled_from(naive.REDUCTIONS))
    option, cells = draw_cells(draw, model)
    cells = model.entries if how == "count" else cells
    got = bl.reduce(tensor, axis, how, **option)
    same_numbers(got, naive.reduce(model.shape, cells, axis, how, model.dtype), model.dtype)


METHODS = "sum", "mean", "var", "std", "min", "max", "any", "all", "count", "prod"


@way(*(f"Tensor.{name}" for name in METHODS))
def reduced_by_method(tensor, model, draw, folder):
    """A method, and numpy's function of its name, are `reduce`."""
    how, axis = draw(st.sampled_from(METHODS)), draw_axis(draw, model)
    expected = np.asarray(bl.reduce(tensor, axis, how))
    asked = tuple(axis) if isinstance(axis, list) else axis
    for got in (getattr(tensor, how)(asked), *([getattr(np, how)(tensor, axis=asked)] if how != "count" else ())):
        assert np.asarray(got).tobytes() == expected.tobytes()


@way("to_pandas")
def pandas(tensor, model, draw, folder):
    frame, made = bl.to_pandas(tensor), bl.to_table(tensor)
    assert list(frame.columns) == made.column_names
    assert len(frame) == made.num_rows == pyarrow.table(tensor).num_rows


@way("to_xarray")
def xarray(tensor, model, draw, folder):
    made = bl.to_xarray(tensor)
    assert made.dims == (model.dims or tuple(f"dim_{k}" for k in range(len(model.shape))))
    assert np.array_equal(made.data.todense(), model.dense, equal_nan=model.dtype.kind in "fc")


@way("statistics")
def statistics(tensor, model, draw, folder):
    axis = draw_axis(draw, model)
    option, cells = draw_cells(draw, model)
    got = bl.statistics(tensor, axis, **option)
    for how in naive.REDUCTIONS:
        if how not in ("any", "all"):
            taken = model.entries if how == "count" else cells
            same_numbers(getattr(got, how), naive.reduce(model.shape, taken, axis, how, model.dtype), model.dtype)


@way("einsum", drops="structure")
def einsum(tensor, model, draw, folder):
    letters = "ijkl"[: len(model.shape)]
    mine = "".join(draw(st.permutations(letters)))[: draw(st.integers(0, len(letters)))]
    new = draw(st.sampled_from(["", "z"]))
    out = "".join(draw(st.permutations([*draw(st.sets(st.sampled_from(letters))), *new]))) if letters else new
    sizes = dict(zip(letters, model.shape, strict=True)) | {"z": 2}
    spec = f"{letters},{mine}{new}->{out}"
    dense = (np.arange(np.prod([sizes[x] for x in mine + new], dtype=int)) % 3).reshape([sizes[x] for x in mine + new])
    dense = dense.astype(np.int64)
    got = bl.einsum(spec, tensor, dense)
    if isinstance(got, Tensor):
        scaled = np.einsum(f"{mine}->{''.join(x for x in letters if x in mine)}", dense)
        steps = [x for x in letters if x in mine]
        with np.errstate(invalid="ignore", over="ignore"):
            entries = {
                place: got.dtype.type(value * scaled[tuple(place[letters.index(x)] for x in steps)])
                for place, value in model.entries.items()
            }
        axes = [letters.index(x) for x in out]
        labels = None if model.labels is None else {model.dims[k]: model.labels[model.dims[k]] for k in axes}
        shape = tuple(model.shape[k] for k in axes)
        fill = None if model.fill is None else got.dtype.type(0)
        return got, replace(
            model,
            shape=shape,
            dtype=got.dtype,
            entries=naive.permute(entries, axes),
            labels=labels,
            fill=fill,
            iso=False,
        )
    wide = np.result_type(naive.SUMS[model.dtype.kind], np.int64)
    with np.errstate(all="ignore"):
        expected = np.einsum(spec, naive.dense(model.shape, model.entries, 0, model.dtype).astype(wide), dense)
    same_numbers(got, expected, model.dtype)
    return None


@way("traffic")
def counted_reads(tensor, model, draw, folder):
    letters = "ijkl"[: len(model.shape)]
    sizes = dict(zip(letters, model.shape, strict=True))
    mine = draw(st.sampled_from(["", *letters]))
    got = bl.traffic(tensor, f"{letters},{mine}->{mine}", np.ones([sizes[x] for x in mine]))
    assert got["values"].items >= len(model.entries) <= got["operands[1]"].items


@way("explain")
def explained(tensor, model, draw, folder):
    """The loops of a reduction and of a product are found where they run."""
    letters = "ijkl"[: len(model.shape)]
    try:
        made = bl.explain(tensor, draw(st.sampled_from(["max", f"{letters},{letters[:1]}->{letters[:1]}"])))
    except bl.OptionError as error:
        assert "no loop runs over its entries" in str(error)  # noqa: PT017
        assert not model.entries
    else:
        assert made.text.startswith("def nest(begin, end, numbers")


@way("Tensor.__array_ufunc__", "pack", drops="structure attributes descriptor map iso", pads=True)
def combined(tensor, model, draw, folder):
    """A function of the tensor and another one of any format, in either order."""
    if model.dtype.kind not in "biufc" or not model.shape:
        return None
    function = draw(st.sampled_from([np.add, np.multiply, np.maximum, np.not_equal]))
    there = [place for place in np.ndindex(*model.shape) if sum(place) % 2][:20]
    coords = np.array(there, np.int64).reshape(len(there), len(model.shape)).T
    try:
        other = bl.pack(coords, np.full(len(there), 2, "i1"), model.shape, draw_format(draw, len(model.shape)))
    except bl.FormatError:  # a kind may refuse a tensor
        return None
    both, cells = (tensor, other), (model.dense, other.to_dense())
    if draw(st.booleans()):
        both, cells = both[::-1], cells[::-1]
    with np.errstate(all="ignore"):
        expected = function(*cells)
        if function is np.multiply and not np.isfinite(model.dense).all():
            return None  # a product with what is not stored is 0
        got = function(*both)
    pad = inside(got).pad
    entries = {x: expected[x] for x in np.ndindex(*model.shape) if not naive.equal(expected[x], pad)}
    return got, replace(model, dtype=expected.dtype, entries=entries, fill=got.fill_value)


@way("Tensor.__array_ufunc__")
def scaled(tensor, model, draw, folder):
    """A function of the tensor and a number, or of the tensor alone."""
    if model.dtype.kind not in "biufc":
        return None
    call = draw(st.sampled_from([lambda x: x * 2, lambda x: x + 1, np.isfinite, lambda x: x > 1, lambda x: 3 * x]))
    with np.errstate(all="ignore"):
        got, expected = call(tensor), call(np.asarray(model.dense))
        entries = {x: expected[x] for x in model.entries}
    padding = model.padding or tensor.structure is not None
    known = {"dtype": expected.dtype, "fill": got.fill_value, "structure": got.structure, "padding": padding}
    return got, replace(model, entries=entries, **known)


@way("einsum")
def contracted(tensor, model, draw, folder):
    """Products of the tensor and itself in another format, over any indices."""
    rank = len(model.shape)
    if not 1 <= rank <= 3:
        return
    other, letters = tensor.without_map(draw_format(draw, rank)) if tensor.structure is None else tensor, "ijk"[:rank]
    theirs = "".join("lmn"[k] if draw(st.booleans()) else x for k, x in enumerate(letters))
    out = "".join(draw(st.lists(st.sampled_from(sorted({*letters, *theirs})), unique=True)))
    spec = f"{letters},{theirs}->{out}"
    got = bl.einsum(spec, tensor, other)
    if np.isfinite(model.dense).all():
        wide = model.dense.astype(naive.SUMS.get(model.dtype.kind, np.int64))
        with np.errstate(all="ignore"):
            expected = np.einsum(spec, wide, wide)
        same_numbers(got.to_dense() if isinstance(got, Tensor) else got, expected, model.dtype)


@way("einsum", drops="structure")
def over_semiring(tensor, model, draw, folder):
    """Some cells of products over a semiring: of the tensor alone, with arrays, or with itself in another format."""
    rank, letters = len(model.shape), "ijk"[: len(model.shape)]
    if not 1 <= rank <= 3:
        return None
    name = draw(st.sampled_from(list(naive.SEMIRINGS)))
    how = draw(st.sampled_from([*["alone", "array", "tensor"] * 3, "three"]))
    theirs = "".join("lmn"[k] if draw(st.booleans()) else x for k, x in enumerate(letters))
    operands = [(letters, tensor, model.entries)]
    if how == "tensor":
        other = tensor.without_map(draw_format(draw, rank)) if tensor.structure is None else tensor
        operands.append((theirs, other, entries_of(other.expand_structure())))
    elif how != "alone":
        one = np.ones((), model.dtype)
        operands += [(theirs, model.dense, model.cells), ("", one, {(): one[()]})]
        operands = draw(st.permutations(operands[: 2 + (how == "three")]))
    texts, given, entries = zip(*operands, strict=True)
    sizes = dict(zip("".join(texts), (n for x in given for n in np.shape(x)), strict=True))
    out = "".join(draw(st.lists(st.sampled_from(sorted(sizes)), unique=True)))
    mask, allowed = draw(masks(tuple(sizes[x] for x in out)))
    memory = draw(st.sampled_from([None, 2**16]))
    got = bl.einsum(f"{','.join(texts)}->{out}", *given, semiring=name, mask=mask, memory=memory)
    add, multiply, end = naive.SEMIRINGS[name]
    counts = name == "plus_pair" and len(given) > 1  # values take no part
    cast = bool if got.dtype == bool or counts else got.dtype.type
    with np.errstate(all="ignore"):
        entries = [{place: cast(value) for place, value in x.items()} for x in entries]
        sums = naive.einsum(texts, entries, out, add, multiply)
    expected = np.full(allowed.shape, naive.identity(end, got.dtype), got.dtype)
    for place, value in sums.items():
        if allowed[place]:
            expected[place] = value
    if name != "plus_times" or np.isfinite(model.dense).all():  # elsewhere, a product with what is not stored is 0
        same_numbers(got.to_dense() if isinstance(got, Tensor) else got, expected, model.dtype)
    if not isinstance(got, Tensor):
        return None
    entries, fill = entries_of(got), naive.identity(end, got.dtype)
    assert all(place in sums and allowed[place] for place in entries)
    labels = {name: got.labels(name) for name in got.dims} if got.dims else None  # of which `named_product` is the law
    labels = labels and {name: told if told is None else told.tolist() for name, told in labels.items()}
    fill = None if model.fill is None and not fill else fill
    known = {"shape": expected.shape, "dtype": got.dtype, "entries": entries, "labels": labels, "iso": False}
    return got, replace(model, fill=fill, **known)


@way("einsum")
def named_product(tensor, model, draw, folder):
    """A product with the same tensor under other names and labels, which agree, are missing, or are of other things."""
    rank, names = len(model.shape), model.dims
    if not 1 <= rank <= 3 or 0 in model.shape:
        return
    k, how = draw(st.integers(0, rank - 1)), draw(st.sampled_from(["same", "none", "names", "labels"]))
    labels = [None if names is None else model.labels[name] for name in names or range(rank)]
    theirs, called, other = list(labels), list(names or [None] * rank), tensor
    if how == "none" and names is not None:
        other, theirs[k] = tensor.with_labels({k: None}), None
    elif how == "names":
        called = [f"n{x}" for x in range(rank)]
        other = tensor.with_labels({}, dims=called)
    elif how == "labels":
        theirs[k] = [f"other {x}" for x in range(model.shape[k])]
        other = tensor.with_labels({k: theirs[k]})
    letters = "ijk"[:rank]
    others = "".join("lmn"[d] if draw(st.booleans()) else x for d, x in enumerate(letters))
    out = "".join(draw(st.lists(st.sampled_from(sorted({*letters, *others})), unique=True)))
    known, by_name = {}, {}
    for x, told, name in zip(letters + others, labels + theirs, [*(names or [None] * rank), *called], strict=True):
        known.setdefault(x, []).extend([] if told is None else [told])
        by_name.setdefault(x, set()).update([] if name is None else [name])

    def call():
        return bl.einsum(f"{letters},{others}->{out}", tensor, other, memory=draw(st.sampled_from([None, 2**16])))

    if any(len(told) == 2 and told[0] != told[1] for told in known.values()):
        with pytest.raises(bl.LabelError):
            call()
        return
    made = call()
    if not isinstance(made, Tensor) or made.dims is None:
        assert not isinstance(made, Tensor) or names is None
        return
    single = [min(by_name[x]) if len(by_name[x]) == 1 else None for x in out]
    assert made.dims == tuple(x if x and single.count(x) == 1 else f"dim_{d}" for d, x in enumerate(single))
    for d, x in enumerate(out):
        told = made.labels(d)
        assert (told is None) == (not known[x])
        assert told is None or told.tolist() == known[x][0]
    bl.write(store := {}, made)
    again = bl.read(store)
    assert again.equals(made)
    assert again.dims == made.dims == bl.to_xarray(again).dims


@way("Tensor.__array_ufunc__")
def product(tensor, model, draw, folder):
    columns = draw(st.sampled_from([(), (2,)]))
    other = np.arange(np.prod([model.shape[-1] if model.shape else 1, *columns])).reshape(-1, *columns)
    with np.errstate(all="ignore"):
        dense = model.dense.astype(np.result_type(naive.SUMS.get(model.dtype.kind, np.int64), np.int64))
        same_numbers(tensor @ other, dense @ other, model.dtype)
        if len(model.shape) <= 2:
            left = np.arange(np.prod([*columns, model.shape[0]])).reshape(*columns, -1)
            same_numbers(left @ tensor, left @ dense, model.dtype)


@numba.njit
def _add_0(state, value):
    state[0] += 1
    state[1] += value


@numba.njit
def _add_1(state, i, value):
    state[0] += 1 + i
    state[1] += value


@numba.njit
def _add_2(state, i, j, value):
    state[0] += 1 + i + 7 * j
    state[1] += value


@numba.njit
def _add_3(state, i, j, k, value):
    state[0] += 1 + i + 7 * j + 49 * k
    state[1] += value


@numba.njit
def _add_4(state, i, j, k, m, value):
    state[0] += 1 + i + 7 * j + 49 * k + 343 * m
    state[1] += value


BODIES = (_add_0, _add_1, _add_2, _add_3, _add_4)


@way("foreach")
def foreach(tensor, model, draw, folder):
    got = bl.foreach(tensor, BODIES[len(model.shape)], np.zeros(2, np.complex128))
    places = sum(1 + sum(x * 7**k for k, x in enumerate(place)) for place in model.entries)
    with np.errstate(all="ignore"):
        total = sum((complex(value) for value in model.entries.values()), 0j)
    same_numbers(got, np.array([places, total]), np.dtype("complex128"))


# Entries


@way("pack", drops="labels")
def pack(tensor, model, draw, folder):
    coords, values = tensor.unpack()
    if not model.shape and not len(values):
        return None
    options = {"fill_value": tensor.fill_value, "structure": tensor.structure, "attributes": tensor.attributes}
    again = bl.pack(
        coords, values, tensor.shape, "COO" if len(model.shape) == 2 else draw_format(draw, len(model.shape)), **options
    )
    return again, replace(model, mapped=False, iso=False, descriptor_attributes={}, padding=True)


# Other libraries. Each takes the entries and the fill value, and nothing else.
FOREIGN = "structure attributes descriptor labels map iso"


def zero_filled(model):
    return replace(model, fill=np.zeros((), model.dtype)[()], padding=True)


@way("to_scipy", "from_scipy", drops=FOREIGN)
def scipy(tensor, model, draw, folder):
    format = draw(st.sampled_from([None, "csr", "csc", "coo", "dok", "lil"]))
    made = bl.to_scipy(tensor, format, copy=draw(st.booleans()))
    assert np.array_equal(made.toarray(), model.dense, equal_nan=model.dtype.kind in "fc")
    if format in ("dok", "lil"):  # they hold no zeros
        return None
    return bl.from_scipy(made), zero_filled(model)


@way("to_sparse", "from_sparse", drops=FOREIGN)
def pydata(tensor, model, draw, folder):
    return bl.from_sparse(bl.to_sparse(tensor)), replace(model, fill=model.pad, padding=True)


@way("to_gcxs", "from_gcxs", drops=FOREIGN)
def gcxs(tensor, model, draw, folder):
    made = bl.from_gcxs(bl.to_gcxs(tensor))
    return made.without_map(), replace(model, fill=model.pad, padding=True)


@way("to_graphblas", "from_graphblas", drops=FOREIGN + " fill")
def graphblas(tensor, model, draw, folder):
    return bl.from_graphblas(bl.to_graphblas(tensor)), replace(model, padding=True)


@way("to_numpy", "from_numpy", "pack_dense", drops=FOREIGN)
def dense(tensor, model, draw, folder):
    array = bl.to_numpy(tensor)
    make = draw(st.sampled_from([bl.from_numpy, bl.pack_dense]))
    format = bl.Format(tuple(bl.Dense(1) for _ in model.shape))
    made = make(array, format, fill_value=model.pad)
    return made, replace(model, fill=model.pad, entries=model.cells, padding=True)


@way("to_torch", "from_torch", drops=FOREIGN)
def torch(tensor, model, draw, folder):
    if find_spec("torch") is None:
        return None
    return bl.from_torch(bl.to_torch(tensor)).without_map(), zero_filled(model)


@way("batches")
def batched(tensor, model, draw, folder):
    made = bl.batches(tensor, draw(st.integers(1, 5)), block=draw(st.integers(1, 3)), format="numpy", rows=True)
    assert sum(len(numbers) for _, numbers in made) == model.shape[0]
    for cells, numbers in made:  # the next epoch
        assert np.array_equal(cells, model.dense[numbers], equal_nan=model.dtype.kind in "fc")


@way("to_table", "from_table", drops="structure attributes descriptor map iso")
def table(tensor, model, draw, folder):
    made = bl.to_table(tensor)
    *dims, values = made.column_names
    format = draw_format(draw, len(model.shape))
    known = (model.labels or {}).items()
    labels = {name: arrow_labels(column) for name, column in known if column is not None}
    again = bl.from_table(made, dims, values, format, shape=model.shape, labels=labels, fill_value=model.fill)
    names = model.labels or {f"dim_{k}": None for k in range(len(model.shape))}
    return again, replace(model, labels=names, padding=True)
