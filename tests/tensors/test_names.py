"""Code that errors name instead of calls of other libraries is run, and gives the results of these libraries."""

import pathlib
import pickle
import warnings

import numpy
import pandas
import pytest
import scipy.sparse
import xarray
from numpy.testing import assert_allclose, assert_array_equal

import binsparse_levels as bl
from binsparse_levels import Tensor
from binsparse_levels.tensors.names import OF_PACKAGE, REPLACEMENTS

CELLS = numpy.array([[0, 0.5, 0, 0.25], [0, 0, 0.75, 0], [0.125, 0, 0, 1]])
LABELS = {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2", "b3"]}
TENSOR = bl.pack_dense(CELLS, "CSR", dims=["a", "b"], labels=LABELS).with_attributes({"unit": "m"})
ARRAY = xarray.DataArray(CELLS, LABELS, ["a", "b"], name="value", attrs={"unit": "m"})
LONG = ARRAY.to_series().reset_index()
TABLE = LONG[LONG["value"] != 0].reset_index(drop=True)  # of the stored entries
KNOWN = {
    **{name: getattr(bl, name) for name in bl.__all__},
    "bl": bl,
    "binsparse_levels": bl,
    "numpy": numpy,
    "pandas": pandas,
    "pathlib": pathlib,
    "pickle": pickle,
    "scipy": scipy,
    "xarray": xarray,
    "cells": CELLS,
    "x": ARRAY,
    "table": TABLE,
    "frame": pandas.DataFrame(CELLS, LABELS["a"], LABELS["b"]),
    "s": scipy.sparse.csr_array(CELLS),
    "half": CELLS > 0.4,
}
DAYS = KNOWN["days"] = numpy.array(["2026-01-30", "2026-01-31", "2026-02-01"], "M8[ns]")
MORE = TENSOR.with_labels({"a": ["a1", "a2", "a3"]})
FILES = {"t.csv": "from_csv read_csv", "t.parquet": "from_parquet read_parquet", "t.feather": "read_feather"}
HOLES = numpy.where(numpy.equal(TENSOR, 0.5), numpy.nan, TENSOR)
_ONE = (
    "sqrt trunc ceil floor sin tan arcsin arctan sinh tanh arcsinh arctanh expm1 log1p rint sign exp log conj "
    "conjugate isnan deg2rad rad2deg angle modf real imag nonzero argwhere flatnonzero unique flip tril triu"
)
_OF_AXIS = "nansum nanprod nanmean nanvar nanstd nanmax nanmin nanargmax nanargmin ptp expand_dims"
_OF_AXIS_DENSE = "cumsum cumprod sort argsort median nanmedian"
_OTHERS = {"mul": "*", "multiply": "*", "div": "/", "divide": "/", "truediv": "/", "power": "**", "pow": "**"}
_PANDAS = {
    "melt": "(['a'], ['b'], value_name='v')", "merge": "(table)", "join": "(table, lsuffix='1')",
    "query": "('value > 0.3')", "sample": "(2, random_state=0)", "nlargest": "(3, 'value')",
    "nsmallest": "(3, 'value')", "nunique": "()", "sort_values": "('value')", "value_counts": "()",
    "reset_index": "()", "to_dict": "()", "pivot_table": "(index='a', columns='b')",
}  # fmt: skip
_XARRAY = {
    "broadcast_like": "(x)", "reindex": "(a=['a1', 'zz'])", "rolling": "(a=2).mean()", "shift": "(a=1)",
    "sortby": "('b')", "stack": "(z=('a', 'b'))", "to_dataframe": "('v')", "to_masked_array": "()",
    "to_series": "()", "unstack": "()", "weighted": "(x[0]).mean()",
}  # fmt: skip

# Calls that a tensor refuses: the result of the library, variables of the code, and an expression of its result _.
CALLS = {
    **{f"tensor.{name}": (f"numpy.{name}(cells)",) for name in _ONE.split()},
    **{f"tensor.{name}": (f"numpy.{name}(cells, 1)", {"axis": 1}) for name in _OF_AXIS.split()},
    **{f"tensor.{name}": (f"numpy.{name}(cells, 1)", {"axis": 1}) for name in _OF_AXIS_DENSE.split()},
    **{f"tensor.{name}": (f"cells {sign} 2", {"other": 2}) for name, sign in _OTHERS.items()},
    **{f"tensor.{name}": (f"table.{name}{then}", {}, f"_{then}") for name, then in _PANDAS.items()},
    **{f"tensor.{name}": (f"x.{name}{then}", {}, f"_{then}") for name, then in _XARRAY.items()},
    **{f"tensor.to{name}": (f"s.to{name}()",) for name in ("coo", "csr", "csc", "bsr", "dok", "lil", "dia")},
    **{f"tensor.{name}": ("cells",) for name in ("copy", "sort_indices", "sum_duplicates", "sorted_indices")},
    **{f"tensor.{name}": ("True",) for name in ("has_sorted_indices", "has_canonical_format")},
    **{f"tensor.{name}": ("cells",) for name in ("toarray", "todense", "numpy", "compute", "persist")},
    **{f"tensor.{name}": ("numpy.conj(cells.T)",) for name in ("H", "getH", "adjoint")},
    "tensor.nse": ("len(s.data)",),
    "tensor.getnnz": ("numpy.count_nonzero(cells, 0)", {"axis": 0}),
    **{f"tensor.{name}": ("cells.ravel()",) for name in ("ravel", "flatten")},
    **{f"tensor.{name}": ("True", {"other": TENSOR}) for name in ("array_equal", "identical", "broadcast_equals")},
    **{f"tensor.{name}": ("numpy.sqrt(cells)", {"function": numpy.sqrt}) for name in ("pipe", "apply", "map_blocks")},
    **{f"tensor.{name}": ("numpy.sqrt(cells)", {"function": numpy.sqrt}) for name in ("applymap", "transform")},
    **{f"tensor.{name}": ("cells.mean(0)", {"axis": 0}, "_.mean") for name in ("describe", "agg", "aggregate")},
    **{f"tensor.{name}": ("cells[1]", {"axis": "a", "label": "a1"}) for name in ("loc", "at", "xs")},
    **{f"tensor.{name}": ("cells[1]", {"n": 1}) for name in ("iloc", "iat")},
    **{f"tensor.{name}": ("frame.drop('a1')", {"axis": "a", "label": "a1"}) for name in ("drop", "drop_sel")},
    **{
        f"tensor.{name}": ("list(x.indexes['b'])", {"axis": "b"}, "list(_)")
        for name in ("get_index", "get_level_values")
    },
    **{
        f"tensor.{name}": ("True", {"axis": "a"}, "_.labels('a') is None")
        for name in ("drop_vars", "reset_coords", "drop_indexes")
    },
    **{
        f"tensor.{name}": ("[5, 6, 7]", {"axis": "a", "labels": [5, 6, 7]}, "_.labels('a').tolist()")
        for name in ("assign_coords", "set_index", "set_xindex")
    },
    **{
        f"tensor.{name}": ("x.rename(a='z').dims", {"names": ["z", "b"]}, "_.dims")
        for name in ("rename", "set_axis", "rename_axis", "swap_dims")
    },
    **{
        f"tensor.{name}": (f"numpy.{name}(cells, cells / 2)", {"other": TENSOR / 2})
        for name in ("maximum", "minimum", "fmax", "fmin", "allclose")
    },
    **{
        f"tensor.{name}": ("numpy.concatenate([cells, cells], 0)", {"other": TENSOR, "axis": 0})
        for name in ("append", "concat", "concatenate", "extend", "hstack", "vstack", "row_stack")
    },
    **{
        f"tensor.{name}": ("cells", {"path": "a.h5"}, "_ or read(path)")
        for name in ("save", "savez", "savez_compressed", "to_netcdf", "to_hdf", "to_zarr")
    },
    **{f"tensor.{name}": (f"numpy.{name}(cells, cells)", {"other": TENSOR}) for name in ("vdot", "inner", "tensordot")},
    **{f"tensor.{name}": (f"numpy.{name}(cells, 2, 1)", {"n": 2, "axis": 1}) for name in ("repeat", "roll")},
    **{f"tensor.{name}": (f"numpy.{name}(cells, 2, 1)", {"n": 2, "axis": 1}) for name in ("split", "delete")},
    **{
        f"tensor.{name}": (f"numpy.{name}(cells, 0.3, 1)", {"n": 0.3, "axis": 1}) for name in ("quantile", "percentile")
    },
    **{f"tensor.{name}": (f"numpy.{name}(cells, 0, -1)", {"axis": 0, "n": -1}) for name in ("moveaxis",)},
    "tensor.rollaxis": ("numpy.rollaxis(cells, 1)", {"axis": 1, "n": 0}),
    "tensor.outer": ("numpy.outer(cells[0], cells[1])", {"tensor": TENSOR[0], "other": TENSOR[1]}),
    "tensor.isin": ("x.isin([0.5])", {"other": [0.5]}),
    "tensor.tile": ("numpy.tile(cells, 2)", {"n": 2}),
    "tensor.broadcast_to": ("numpy.broadcast_to(cells, (2, 3, 4))", {"shape": (2, 3, 4)}),
    "tensor.histogram": ("numpy.histogram(cells, 3)", {"n": 3}),
    "tensor.hist": ("numpy.histogram(cells, 3)", {"n": 3}),
    "tensor.pad": ("numpy.pad(cells, 1)", {"n": 1}),
    "tensor.searchsorted": ("numpy.searchsorted(cells[0, :2], 0.3)", {"tensor": TENSOR[0, :2], "n": 0.3}),
    "tensor.average": ("numpy.average(cells, 0, [1, 2, 3])", {"axis": 0, "weights": [1, 2, 3]}),
    "tensor.apply_along_axis": ("cells.sum(0)", {"function": numpy.sum, "axis": 0}),
    "tensor.corr": ("frame.corr()",),
    "tensor.cov": ("frame.cov()",),
    "tensor.corrcoef": ("numpy.corrcoef(cells)",),
    "tensor.diag": ("numpy.diag(cells)",),
    "tensor.diff": ("x.diff('a')", {"n": 1, "axis": "a"}),
    "tensor.einsum": ("numpy.einsum('ij,kj->ik', cells, cells)", {"spec": "ij,kj->ik", "other": TENSOR}),
    "tensor.insert": ("numpy.insert(cells, 1, 7, 0)", {"n": 1, "other": 7, "axis": 0}),
    "tensor.isnull": ("x.isnull()",),
    "tensor.isna": ("frame.where(~half).isna()", {"tensor": numpy.where(TENSOR > 0.4, numpy.nan, TENSOR)}),
    "tensor.notnull": ("x.notnull()",),
    "tensor.notna": ("frame.notna()",),
    "tensor.norm": ("numpy.linalg.norm(cells)",),
    "tensor.svd": ("numpy.linalg.svd(cells)",),
    "tensor.savetxt": ("cells", {"path": "a.txt"}, "_ or numpy.loadtxt(path)"),
    "tensor.where": ("x.where(half)", {"mask": TENSOR > 0.4, "other": numpy.nan}),
    "tensor.mask": ("frame.mask(half, 7)", {"mask": TENSOR > 0.4, "other": 7}),
    "tensor.fillna": ("frame.mask(cells == 0.5).fillna(3)", {"tensor": HOLES, "other": 3}),
    "tensor.resize": ("(5, 6)", {"shape": (5, 6)}, "_.shape"),
    "tensor.to_pickle": ("cells", {"path": "a.pickle"}, "_ and pandas.read_pickle(path)"),
    "tensor.block_diag": ("scipy.sparse.block_diag([s, s])", {"other": TENSOR}),
    "tensor.kron": ("scipy.sparse.kron(s, numpy.eye(2))", {"other": numpy.eye(2)}),
    "tensor.groupby": ("x.groupby('b').sum()", {"axis": "b", "labels": LABELS["b"]}, "_.sum()"),
    "tensor.resample": (
        "x.assign_coords(a=days).resample(a='MS').sum()",
        {"tensor": TENSOR.with_labels({"a": DAYS}), "axis": "a", "frequency": "MS"},
        "_.sum()",
    ),
    "tensor.matmul": ("cells @ cells.T", {"other": TENSOR.T}),
    "tensor.close": ("None",),
    "tensor.indices": ("s.indices",),
    "tensor.indptr": ("s.indptr",),
    "tensor.indices  # of a vector": ("s[[1]].indices", {"tensor": TENSOR[1]}),
    "tensor.indices  # of a view": ("s[1:].indices", {"tensor": TENSOR[1:]}),
    "tensor.indptr  # of a view": ("s[1:].indptr", {"tensor": TENSOR[1:]}),
    "tensor.coords": ("s.tocoo().coords",),
    "tensor.row": ("s.tocoo().row",),
    "tensor.col": ("s.tocoo().col",),
    "tensor.attrs": ("x.attrs", {}, "dict(_)"),
    "tensor.asformat": ("s.asformat('csc')", {"format": "CSC"}),
    "tensor.axes": ("x.dims",),
    "tensor.plot": ("True", {}, "_.startswith('<svg')"),
    "tensor.eliminate_zeros": ("cells",),
    "tensor.prune": ("cells",),
    "tensor.dtypes": ("cells.dtype",),
    "tensor.dropna": ("frame.mask(cells == 0.5).dropna()", {"tensor": HOLES, "axis": "a", "others": "b"}),
    "tensor.index": ("list(frame.index)", {}, "list(_)"),
    "tensor.columns": ("list(frame.columns)", {}, "list(_)"),
    "tensor.indexes": ("list(x.indexes['a'])", {}, "list(_['a'])"),
    "tensor.idxmax": ("list(x.idxmax('b').values)", {"axis": "b"}, "list(_)"),
    "tensor.idxmin": ("list(x.idxmin('b').values)", {"axis": "b"}, "list(_)"),
    "tensor.memory_usage": ("s.data.nbytes + s.indices.nbytes + s.indptr.nbytes",),
    "tensor.get_shape": ("cells.shape",),
    "tensor.empty": ("frame.empty",),
    "tensor.tolist": ("cells.tolist()",),
    "tensor.item": ("0.5", {"tensor": TENSOR[:1, 1:2]}),
    "tensor.data": ("s.data",),
    "tensor.assign_attrs": ("x.assign_attrs(u=1).attrs", {"attributes": {"u": 1}}, "dict(_.attributes)"),
    "tensor.tail": ("x.tail(a=2)", {"n": 2}),
    "tensor.head": ("x.head(a=2)", {"n": 2}),
    "tensor.thin": ("x.thin(a=2)", {"n": 2}),
    "tensor.flipud": ("numpy.flipud(cells)",),
    "tensor.fliplr": ("numpy.fliplr(cells)",),
    "tensor.getcol": ("s.tocsc()[:, [1]]", {"n": 1}),
    "tensor.getrow": ("s[[1]]", {"n": 1}),
    "tensor.to_frame": ("table",),
    "tensor.to_polars": ("table", {}, "_.to_pandas()"),
    "tensor.to_csv": ("table", {"path": "a.csv"}, "_(path, index=False) or pandas.read_csv(path)"),
    "tensor.to_parquet": ("table", {"path": "a.parquet"}, "_(path) or pandas.read_parquet(path)"),
    "tensor.to_json": ("table", {"path": "a.json"}, "_(path) or pandas.read_json(path)"),
    "tensor.to_excel": ("True", {}, "callable(_)"),
    "tensor.info": ("True", {}, "callable(_)"),
    "tensor.items": ("list(table)", {}, "[name for name, _ in _()]"),
    "tensor.iterrows": ("len(table)", {}, "len(list(_()))"),
    "tensor.itertuples": ("len(table)", {}, "len(list(_()))"),
    "tensor.reshape": ("cells.reshape(2, -1)", {"shape": (2, -1)}),
    "tensor.chunk": ("True", {}, "callable(_)"),
    "tensor.interp": (
        "x.assign_coords(a=[0, 1, 2]).interp(a=[0.5])",
        {"tensor": TENSOR.with_labels({"a": [0, 1, 2]})},
        "_(a=[0.5])",
    ),
    "tensor.to_dataarray": ("x", {}, "_.data"),
    "tensor.coarsen": (
        "x.assign_coords(b=range(4)).coarsen(b=2).sum()",
        {"tensor": TENSOR.with_labels({"b": range(4)})},
        "_(b=2).sum()",
    ),
    "tensor.to_dataset": ("x", {}, "_(name='v')['v'].data"),
    "tensor.rank": ("True", {}, "callable(_)"),
    "tensor.spy": ("True", {}, "_ is not None"),
    "tensor.imshow": ("True", {}, "_ is not None"),
    "tensor.setdiag": ("numpy.where(numpy.eye(3, 4), 7, cells)", {"other": 7}),
    # Names that the package lacks
    **{f"bl.{name}": ("cells", {"array": CELLS}) for name in ("array", "asarray", "from_array", "from_dense")},
    **{
        f"bl.{kind}": ("cells", {"array": CELLS})
        for kind in ("coo_array", "csc_array", "csr_array", "coo_matrix", "csc_matrix", "csr_matrix")
    },
    **{
        f"bl.{name}": ("cells", {"table": TABLE, "dims": ["a", "b"], "values": "value"})
        for name in ("from_arrow", "from_dataframe", "from_frame", "from_pandas", "from_polars")
    },
    **{
        f"bl.{name}": ("cells", {"path": path, "dims": ["a", "b"], "values": "value"})
        for path, names in FILES.items()
        for name in names.split()
    },
    **{
        f"bl.{name}": ("cells", {"path": "a.h5"})
        for name in ("check", "load", "load_npz", "loadtxt", "open_dataset", "open_zarr", "validate")
    },
    **{f"bl.{name}": ("True", {}, "isinstance(_, Advice)") for name in ("bench", "benchmark")},
    "bl.from_coo": ("cells", {"coords": TENSOR.unpack()[0], "values": TENSOR.values, "shape": (3, 4), "format": "CSR"}),
    "bl.save_npz": ("cells", {"path": "b.npz"}, "_ or read(path)"),
    "bl.to_arrow": ("table", {}, "_.to_pandas()"),
    "bl.read_h5ad": ("cells", {"path": "a.h5ad"}),
    "bl.align": ("cells[1:]", {"other": MORE, "axis": "a"}),
    "bl.reindex_like": ("cells[1:]", {"other": TENSOR[1:], "axis": "a"}),
    "bl.merge": (
        "numpy.pad(cells, ((0, 1), (0, 0))) + numpy.pad(cells, ((1, 0), (0, 0)))",
        {"other": MORE, "path": "m.h5", "format": "CSR"},
        "_ or read(path)",
    ),
    # Functions of numpy
    **{
        call: (call.replace("tensor", "cells"), {"other": numpy.eye(2), "tensors": [TENSOR] * 5})
        for call in (
            "numpy.sort(tensor, axis=0)",
            "numpy.median(tensor, axis=0, keepdims=True)",
            "numpy.percentile(tensor, 90)",
            "numpy.cumsum(tensor, 1)",
            "numpy.apply_along_axis(sum, 0, tensor)",
            "numpy.pad(tensor, 1)",
            "numpy.rot90(tensor)",
            "numpy.dstack([tensor, tensor])",
            "numpy.histogram(tensor, 5)",
            "numpy.diag(tensor)",
            "numpy.kron(tensor, other)",
            "numpy.linalg.svd(tensor)",
            "numpy.linalg.pinv(tensor)",
            "numpy.fliplr(tensor)",
            "numpy.fft.fft(tensor)",
            "numpy.nanmedian(tensor, axis=0)",
            "numpy.nancumsum(tensor)",
            "numpy.copy(tensor)",
            "numpy.insert(tensor, 1, 7, 0)",
            "numpy.array_split(tensor, 2)",
            "numpy.add.accumulate(tensor, axis=1)",
            "numpy.multiply.outer(tensor, other)",
            "numpy.add(tensor, tensor, where=True)",
            "numpy.add.at(tensor, 0, 0)",
            "numpy.block([tensor, tensor, tensor, tensor, tensor])",
            "numpy.linalg.norm(tensor, 2)",
            "numpy.linalg.norm(tensor, 'nuc')",
            "numpy.sum(tensor, axis=1, initial=2)",
        )
    },
    "numpy.append(tensor, other, axis)": ("numpy.append(cells, cells, 1)", {"other": TENSOR, "axis": 1}),
    "numpy.reshape(tensor, shape)": ("cells.reshape(2, 6)", {"shape": (2, 6)}),
    "numpy.ravel(tensor)": ("cells.ravel()",),
    "numpy.rollaxis(tensor, 1)": ("numpy.rollaxis(cells, 1)", {"axis": 1, "n": 0}),
    "numpy.savez(path, tensor)": ("cells", {"path": "b.npz"}, "_ or read(path)"),
    "numpy.nan_to_num(tensor, nan=other)": ("cells", {"other": numpy.arange(4)}),
    "numpy.tril(tensor + 1)": ("numpy.tril(cells + 1)", {"tensor": TENSOR + 1}),
    "numpy.concatenate([one, other])  # of other labels": (
        "numpy.vstack([numpy.where([1, 1, 1, 0], cells, 0), cells])",
        {"one": TENSOR[:, :3], "other": TENSOR.with_labels({"a": ["a7", "a8", "a9"]}), "path": "c.h5", "format": "CSR"},
        "_ or read(path)",
    ),
    # Operators
    "tensor + other  # of fewer labels": ("cells[1:]", {"other": TENSOR[1:], "axis": "a"}),
    "tensor == other": ("cells == 0.5", {"other": 0.5}),
    "tensor != other": ("cells != 0.5", {"other": 0.5}),
    "tensor == None": ("cells is None", {"other": None}),
    "tensor != None": ("cells is not None", {"other": None}),
    "tensor - other": ("cells - cells.mean(0)", {"other": CELLS.mean(0)}),
    "other - tensor": ("cells.mean(0) - cells", {"other": CELLS.mean(0)}),
    "bool(tensor)": ("cells.any()",),
    "numpy.asarray(tensor)": ("cells",),
    "numpy.from_dlpack(tensor)": ("cells",),
    "tensor['a1']": ("cells[1]", {"axis": "a", "label": "a1"}),
    "tensor[key]": ("x[{'a': 1}]", {"key": {"a": 1}}),
    "tensor[rows, None]": ("cells[[0, 1], None]", {"rows": [0, 1]}),
    "tensor.__setitem__(mask, value)": ("numpy.where(half, 7, cells)", {"mask": TENSOR > 0.4, "value": 7}),
}


def plain(result):
    """A result of any library as a list, an array or a number."""
    if isinstance(result, tuple | list):
        return [plain(x) for x in result]
    if isinstance(result, pandas.DataFrame | pandas.Series):
        return result.to_numpy()
    result = result.to_dense() if isinstance(result, Tensor) else result
    return getattr(result, "todense", lambda: result)()


@pytest.mark.parametrize("call", CALLS)
def test_the_code_of_an_error_gives_the_result(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = CALLS[call]
    peer, given, then = (*row, *({}, "_")[len(row) - 1 :])
    known = {**KNOWN, "tensor": TENSOR, **given}
    if call.startswith("bl."):
        for name in ("a.h5", "a.h5ad"):
            bl.write(name, TENSOR.with_attributes({}))
        TABLE.to_csv("t.csv", index=False)
        TABLE.to_parquet("t.parquet")
        TABLE.to_feather("t.feather")
    for name in ("matplotlib.pyplot", "sparse"):
        if name.partition(".")[0] in str(REPLACEMENTS.get(call.removeprefix("tensor."))):
            known[name.partition(".")[0]] = pytest.importorskip(name) and __import__(name)
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with pytest.raises((AttributeError, BufferError, IndexError, TypeError, bl.BinsparseError)) as caught:
            eval(call, dict(known))
        code = str(caught.value).partition("; use ")[2]
        assert code
        found = plain(eval(then, {**known, "_": eval(code, dict(known))}))
        expected = plain(eval(peer, dict(known)))
    same(found, expected)


def same(found, expected):
    if isinstance(expected, list) or isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    found, expected = numpy.asarray(found), numpy.asarray(expected)
    assert found.shape == expected.shape
    (assert_allclose if expected.dtype.kind in "fc" else assert_array_equal)(found, expected)


def test_each_name_has_a_row():
    assert {f"tensor.{name}" for name in REPLACEMENTS} == {x for x in CALLS if x.removeprefix("tensor.").isidentifier()}
    assert {f"bl.{name}" for name in OF_PACKAGE} == {x for x in CALLS if x.removeprefix("bl.").isidentifier()}


def test_public_functions_are_named():
    for name in bl.__all__:
        if name.islower() and not hasattr(Tensor, name) and name not in REPLACEMENTS:
            with pytest.raises(AttributeError, match=f"; use (binsparse_levels.{name}|{name}\\(tensor\\))$"):
                getattr(TENSOR, name)
    with pytest.raises(AttributeError, match=r"no attribute 'to_list'$"):
        TENSOR.to_list  # noqa: B018
