"""Ways through files of every kind, and through the command line."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from dataclasses import replace

import naive
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import cli, testing
from binsparse_levels.io.kinds import KINDS
from binsparse_levels.tensors.tensor import inside, remade
from composition.features import BINSPARSE, draw_orders, draw_place
from composition.ways import draw_format, way

SYSTEMS = {name: kind for name, kind in KINDS.items() if kind.foreign}  # files of other systems
ENTRIES = "structure attributes descriptor labels map iso"  # what a file of plain entries lacks


def draw_reader(draw):
    return draw(st.sampled_from([bl.read, bl.open]))


def stored(tensor, draw, folder):
    """A place that holds the tensor."""
    place, options = draw_place(draw, folder)
    bl.write(place, tensor, overwrite=True, **options)
    return place


@way("write", "read", "open", drops="")
def written(tensor, model, draw, folder):
    return draw_reader(draw)(stored(tensor, draw, folder)), model


@way("write", "open", pads=True)
def in_orders(tensor, model, draw, folder):
    assume(tensor.format.rank > 1)
    path = f"{folder}/orders{draw(st.sampled_from(['.h5', '.zarr', '.nc']))}"
    bl.write(path, tensor, orders=draw_orders(draw, tensor.format), overwrite=True)
    return bl.open(path)[...], replace(model, structure=None)  # as every view


@way("write", "list_tensors")
def several(tensor, model, draw, folder):
    path = f"{folder}/several{draw(st.sampled_from(['.h5', '.zarr', '.nc']))}"
    for name in ("first", "second"):
        bl.write(f"{path}:{name}", tensor)
    assert bl.list_tensors(path) == ["first", "second"]
    return draw_reader(draw)(f"{path}:second"), model


@way("write_all", "read_all", drops=ENTRIES, pads=True)
def several_of_sscdf(tensor, model, draw, folder):
    bl.write_all(f"{folder}/several.sscdf", {"first": tensor, "second": tensor})
    return of_system("sscdf", bl.read_all(f"{folder}/several.sscdf")["second"], model)


@way("Tensor.__enter__", "open")
def within(tensor, model, draw, folder):
    with bl.open(stored(tensor, draw, folder)) as opened:
        assert np.array_equal(opened.to_dense(), model.dense, equal_nan=model.dtype.kind in "fc")


@way("write", "read", "open", drops=ENTRIES, pads=True)
def other_system(tensor, model, draw, folder):
    kind = draw(st.sampled_from(sorted(SYSTEMS)))
    suffix = (*SYSTEMS[kind].suffixes, f".{kind}")[0]
    path = f"{folder}/system{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.DialectWarning)  # of attributes that are lost
        bl.write(path, tensor, kind=kind, overwrite=True)
    with_shape = kind in ("frostt", "svmlight")  # which say nothing of rows and columns behind the last entry
    return of_system(kind, bl.read(path, shape=model.shape) if with_shape else draw_reader(draw)(path), model)


def of_system(kind, got, model):
    """What a file of another system gave, as the model has it."""
    result = got.astype(model.dtype) if got.dtype != model.dtype else got.load()
    fill = None if result.fill_value is None else model.pad
    iso = remade(result.with_attributes(None), labels=None)  # some systems name every row and column
    structure = result.structure
    cells = model.cells if kind == "rawarray" else model.entries
    unlabelled = replace(model, fill=fill, entries=cells)
    symmetries = [None if x is None else x.rpartition("_")[0] for x in (structure, model.structure)]
    assert structure is None or symmetries[0] == symmetries[1]  # of Matrix Market always the lower triangle
    return iso if structure is None else iso.expand_structure(), unlabelled


@way("convert", pads=True)
def converted(tensor, model, draw, folder):
    map = draw(testing.maps(model.shape, max_digits=2)) if model.structure is None and draw(st.booleans()) else None
    through = tensor.map if map is None else map
    rank = len(model.shape) if through is None else len(through.stored_shape)
    source, (target, options) = stored(tensor, draw, folder), draw_place(draw, folder)
    memory = draw(st.sampled_from([None, 2**33]))
    format = draw_format(draw, rank) if draw(st.booleans()) else None
    bl.convert(source, target, format, map=map, memory=memory, overwrite=True, **options)
    return bl.read(target), replace(model, mapped=model.mapped or map is not None)


@way("repair", drops="iso", pads=True)
def repaired(tensor, model, draw, folder):
    target = {}
    bl.repair(stored(tensor, draw, folder), target)
    return bl.read(target), model


def grown(tensor):
    """The dimension along which a file with the tensor grows."""
    outer = tensor.format.order[0] if tensor.format.order else 0
    return outer if tensor.map is None or not tensor.ndim else tensor.map.groups[outer][0].dimension


def doubled(model, k):
    """The model of a tensor behind itself along a dimension."""
    size = model.shape[k]
    shape = (*model.shape[:k], 2 * size, *model.shape[k + 1 :])
    labels = model.labels
    if labels is not None and labels[model.dims[k]] is not None:
        labels = labels | {model.dims[k]: 2 * labels[model.dims[k]]}
    return replace(model, shape=shape, entries=naive.join(model.entries, model.entries, k, size), labels=labels)


@way("append", pads=True)
def appended(tensor, model, draw, folder):
    place = stored(tensor, draw, folder)
    bl.append(place, tensor, axis=grown(tensor), existing=draw(st.sampled_from([None, "repeat"])))
    return draw_reader(draw)(place), doubled(model, grown(tensor))


@way("concatenate", pads=True)
def concatenated(tensor, model, draw, folder):
    place, target = stored(tensor, draw, folder), {}
    bl.concatenate([place, place], target)
    return bl.read(target), doubled(model, grown(tensor))


@way("append", "compact", "Tensor.parts", drops="iso", pads=True)
def grown_in_parts(tensor, model, draw, folder):
    place, k = f"{folder}/grown.zarr", draw(st.integers(0, max(len(model.shape), 1) - 1))
    if draw(st.booleans()):
        bl.write(place, tensor)
    else:
        place = stored(tensor, draw, folder)
    bl.append(place, tensor, axis=k, part=True, existing="repeat")
    assert [part.shape for part in bl.open(place).parts] == [model.shape] * 2
    if draw(st.booleans()):
        bl.compact(place)
        assert len(bl.open(place).parts) == 1
    return draw_reader(draw)(place), doubled(model, k)


@way("open", drops="map iso", pads=True)
def several_as_one(tensor, model, draw, folder):
    k = draw(st.integers(0, max(len(model.shape), 1) - 1))
    return bl.open([stored(tensor, draw, folder), stored(tensor, draw, folder)], axis=k), doubled(model, k)


def chunks_of(tensor):
    """The entries, structure expanded, in two chunks."""
    coords, values = tensor.expand_structure().unpack()
    half = len(values) // 2
    return [([x[part] for x in coords], values[part]) for part in (slice(half), slice(half, None))]


@way("write_from", drops="structure descriptor labels iso", pads=True)
def streamed(tensor, model, draw, folder):
    place, options = draw_place(draw, folder)
    options |= {"fill_value": tensor.fill_value, "attributes": dict(tensor.attributes), "map": tensor.map}
    rank = len(model.shape) if tensor.map is None else len(tensor.map.stored_shape)
    memory = draw(st.sampled_from([None, 2**33]))
    bl.write_from(
        iter(chunks_of(tensor)), place, model.shape, draw_format(draw, rank), dtype=model.dtype, memory=memory,
        overwrite=True, **options
    )  # fmt: skip
    return draw_reader(draw)(place), model


@way("build", drops="structure descriptor labels iso", pads=True)
def built(tensor, model, draw, folder):
    chunks, target = chunks_of(tensor), f"{folder}/built.zarr"
    options = {"fill_value": tensor.fill_value, "attributes": dict(tensor.attributes), "map": tensor.map}
    rank = len(model.shape) if tensor.map is None else len(tensor.map.stored_shape)
    given = (lambda k: chunks[k], target, model.shape, draw_format(draw, rank))
    bl.build(*given, count=2, dtype=model.dtype, overwrite=True, **options)
    return draw_reader(draw)(target), model


@way("write_from", drops="structure map iso", pads=True)
def merged(tensor, model, draw, folder):
    """The tensor and some of its entries again. Of padded levels, what equals the padding is no entry."""
    target, labels = {}, inside(tensor).metadata.labels
    named = {} if labels is None or not labels.columns else {"dims": labels.dims, "values": labels.values}
    fill = tensor.fill_value if tensor.fill_value is not None else None
    options = {"duplicates": "first", "dtype": model.dtype, "fill_value": fill, **named}
    bl.write_from([tensor, tensor], target, model.shape, draw_format(draw, len(model.shape)), **options)
    made = bl.read(target)
    padded = tensor.stored.format.padded or made.format.padded
    entries = {k: x for k, x in model.entries.items() if not (padded and naive.equal(x, model.pad))}
    return made, replace(model, entries=entries)


@way("to_dask", "from_dask", drops="structure attributes descriptor labels map iso", pads=True)
def dask(tensor, model, draw, folder):
    import dask as library

    place, target = f"{folder}/dask.h5", {}
    bl.write(place, tensor, overwrite=True)
    array = bl.to_dask(place, chunks=draw(st.sampled_from(["auto", 2])))
    with library.config.set(scheduler="synchronous"):
        got = array.compute()
        dense = got.todense() if hasattr(got, "todense") else got
        assert np.array_equal(dense, model.dense, equal_nan=model.dtype.kind in "fc")
        bl.from_dask(array, target, draw_format(draw, len(model.shape)))
    return bl.read(target), replace(model, fill=model.pad if model.shape else model.dtype.type(0))


@way("write_dataset", drops="structure attributes descriptor map iso", pads=True)
def dataset(tensor, model, draw, folder):
    import xarray

    path, names = f"{folder}/dataset.nc", ["ijkl"[k] for k in range(len(model.shape))]
    whole = xarray.Dataset({"x": (names, bl.to_sparse(tensor))})
    bl.write_dataset(path, whole, {"x": draw_format(draw, len(names))}, overwrite=True)
    return bl.read(f"{path}:x"), replace(model, labels=dict.fromkeys(names), fill=model.pad)


@way("append_dataset", drops="structure attributes descriptor map iso", pads=True)
def grown_dataset(tensor, model, draw, folder):
    import xarray

    path, names = f"{folder}/dataset.zarr", ["ijkl"[k] for k in range(len(model.shape))]
    whole = xarray.Dataset({"x": (names, bl.to_sparse(tensor))})
    bl.write_dataset(path, whole, {"x": draw_format(draw, len(names))}, overwrite=True)
    model = replace(model, labels=dict.fromkeys(names), fill=model.pad)
    if names:
        k = draw(st.integers(0, len(names) - 1))
        bl.append_dataset(path, whole, names[k])
        model = doubled(model, k)
    return bl.read(f"{path}:x"), model


# Commands


def run(*words):
    """The output of a command."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        status = cli.main([str(word) for word in words])
    if status:
        raise bl.BinsparseError(complained.getvalue())
    return said.getvalue()


def on_disk(tensor, draw, folder):
    path = f"{folder}/command{draw(st.sampled_from(['.h5', '.zarr', '.npz']))}"
    bl.write(path, tensor, overwrite=True)
    return path


@way("command info", "command list", "command check")
def looked_at(tensor, model, draw, folder):
    path = on_disk(tensor, draw, folder)
    name = draw(st.sampled_from(["info", "list", "check"]))
    run(name, path)
    if name == "info":
        told = json.loads(run(name, path, "--json"))
        whole = told.get("map") or told  # the shape is that of the stored tensor
        assert tuple(whole["shape"]) == model.shape


@way("command draw", "command report", "command advise", "command sweep")
def pictured(tensor, model, draw, folder):
    path = on_disk(tensor, draw, folder)
    run("draw", path, f"{folder}/drawn.svg", "--overwrite")
    run("report", path, "-o", f"{folder}/report.html", "--overwrite")
    run("advise", path)
    run("sweep", path, "--format", "COO", "--measure", "bits", "--repeat", "1")


@way("command convert", "command repair", pads=True)
def by_command(tensor, model, draw, folder):
    path = on_disk(tensor, draw, folder)
    run("convert", path, f"{folder}/by_command.h5", "--overwrite")
    return bl.read(f"{folder}/by_command.h5"), model


@way("command build", drops="fill labels structure attributes descriptor map iso", pads=True)
def by_build(tensor, model, draw, folder):
    """A table of the entries, built by the command."""
    import pyarrow.parquet

    if not model.shape or model.dtype.kind not in "biuf" or model.dtype.name not in BINSPARSE:  # Arrow has no others
        return None
    coords, values = tensor.expand_structure().unpack()
    names = ["ijkl"[k] for k in range(len(coords))]
    columns = dict(zip(names, coords, strict=True)) | {"v": values.astype(model.dtype.newbyteorder("="))}
    pyarrow.parquet.write_table(pyarrow.table(columns), f"{folder}/rows.parquet")
    given = [f"{folder}/rows.parquet", f"{folder}/steps.zarr", "--overwrite"]
    given += ["--shape", ",".join(map(str, model.shape)), "--columns", ",".join([*names, "v"])]
    given += ["--format", str(draw_format(draw, len(model.shape)))]
    run("build", *given, "--nulls", draw(st.sampled_from(["error", "drop"])))
    return bl.read(f"{folder}/steps.zarr"), model
