"""Names of other libraries that a tensor does not have, and what to use instead."""

from __future__ import annotations

# The call in this package, and its names in other libraries.
_NAMES = {
    "arrays['indices_1'], arrays['pointers_to_1'], and so on for each level": "indices indptr",
    "attributes": "attrs",
    "binsparse_levels.einsum": "einsum tensordot vdot inner outer",
    "convert(format)": "asformat",
    "equals(other)": "array_equal allclose",
    "to_dense() and numpy, since the result is dense": "cumsum cumprod median quantile percentile sort argsort",
    "load()": "compute persist",
    "number_of_stored_values": "nse",
    "numpy.concatenate": "concatenate vstack hstack",
    "permute(axes)": "moveaxis",
    "reduce(tensor, axis, 'norm')": "norm",
    "tensor @ other, or einsum": "matmul",
    "the tensor itself, which is immutable": "copy",
    "the tensor of open() in a with block": "close",
    "to_dense()": "toarray todense numpy tolist item",
    "to_scipy(tensor, format)": "tocoo tocsc tocsr tobsr",
    "to_sparse(tensor).reshape(shape), or convert(format, map=…)": "reshape",
    "to_table(tensor), which polars takes": "to_polars to_frame",
    "tensor[:5]": "head",
    "unpack()": "coords nonzero",
    "values": "data",
    "write(path, tensor)": "save",
}
REPLACEMENTS = {name: use for use, names in _NAMES.items() for name in names.split()}


def replacement(name: str, other: str) -> str:
    """Return what to use for a name of another library; `other` if the name is unknown."""
    return REPLACEMENTS.get(name, other)
