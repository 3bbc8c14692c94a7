"""The text of a tensor, what it refuses, and what higher layers implement: pictures, a report, reductions, products."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..errors import Problem, within_memory
from ..levels.positions import Array
from .backing import TreeBacking
from .contents import Contents, Dimension
from .late_imports import functions, late_import

Axis: TypeAlias = Dimension | Sequence[Dimension] | None
_REDUCTIONS = "sum", "prod", "mean", "var", "std", "min", "max", "any", "all"

# The call in this package, and its names in other libraries.
_NAMES = {
    "arrays['indices_1'], arrays['pointers_to_1'], and so on for each level": "indices indptr",
    "attributes": "attrs",
    "binsparse_levels.einsum": "einsum tensordot",
    "convert(format)": "asformat",
    "equals(other)": "array_equal allclose",
    "load()": "compute persist",
    "number_of_stored_values": "nse",
    "numpy.minimum and numpy.maximum": "clip",
    "numpy.rint": "round around",
    "permute(axes)": "transpose swapaxes moveaxis",
    "reduce(tensor, axis, 'norm')": "norm",
    "tensor @ other, or einsum": "dot matmul",
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
    "write(store, first) and append(store, second), with store = {}": "concatenate vstack hstack",
}
_REPLACEMENTS = {name: use for use, names in _NAMES.items() for name in names.split()}


class Report(Protocol):
    """A page about a tensor, which a notebook shows.

    title: the name of the tensor. html: the whole page. faults: the faults of the tensor; none if it is sound.
    """

    @property
    def title(self) -> str: ...
    @property
    def html(self) -> str: ...
    @property
    def faults(self) -> tuple[Problem, ...]: ...
    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None: ...


def _reduction(how: str, what: str, shown: list[Any]) -> Callable[..., Any]:
    """A method that reduces dimensions. shown: the result of the example."""

    def method(self: Any, axis: Axis = None, *, dtype: npt.DTypeLike | None = None, labelled: bool = False) -> Any:
        return late_import("reduce")(self, axis, how, dtype=dtype, labelled=labelled)

    method.__doc__ = f"""The {what} of all cells along dimensions, stored or not; see `reduce`.

        Parameters
        ----------
        axis : the dimensions to reduce, by number or by name: one, several, or None for all.
        dtype : the type of the result.
        labelled : return an xarray.DataArray with the names and labels of the remaining dimensions.

        Returns
        -------
        an array of the remaining dimensions, or a scalar.

        Raises
        ------
        ArrayError, IndexError, LimitError, OptionError : as for `reduce`.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR").{how}(0).tolist()
        {shown}
        """
    method.__name__, method.__qualname__ = how, f"Tensor.{how}"
    return method


@within_memory
class Delegating(Contents, NDArrayOperatorsMixin):
    """The text of a tensor, the methods that higher layers implement (see `late_import`), and those that it refuses."""

    __slots__ = ()
    __array_priority__ = 1000.0  # numpy calls the tensor first, as in array @ tensor

    def __repr__(self) -> str:
        return _text_of(self)

    def _repr_html_(self) -> str:
        """HTML for a notebook: the text, and a picture of a small tensor in memory. No array is read."""
        shown: str = late_import("html_of")(self)
        return shown

    def report(self) -> Report:
        """A report, which a notebook shows and its `write` stores as an HTML page.

        The report contains the representation of the tensor, its picture, the levels with their fibers and bytes, the
        attributes, and faults. A tensor in a file is read in parts if its levels allow it.

        Returns
        -------
        Report with the attributes `title`, `html` and `faults`, and the method `write`.

        Raises
        ------
        LimitError : there is not enough memory.

        >>> from binsparse_levels import pack_dense
        >>> report = pack_dense([[0, 2], [3, 0]], "CSR").report()
        >>> report.write("a.html")
        >>> report.faults
        ()
        """
        made: Report = late_import("report_on")(self)
        return made

    def draw(self, dimensions: Dimension | Sequence[Dimension] | None = None) -> str:
        """Draw the tensor as an SVG: a small one as its level tree, a large one as a spy plot.

        Parameters
        ----------
        dimensions : one or two dimensions for a spy plot; by default the first two of a large tensor.

        Returns
        -------
        str : SVG.

        Raises
        ------
        IndexError, OptionError : the dimensions cannot be drawn.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").draw()[:4]
        '<svg'
        """
        picture: str = late_import("draw")(self, dimensions)
        return picture

    sum = _reduction("sum", "sums", [3, 2])
    prod = _reduction("prod", "products", [0, 0])
    mean = _reduction("mean", "means", [1.5, 1.0])
    var = _reduction("var", "variances, divided by the number of cells,", [2.25, 1.0])
    std = _reduction("std", "standard deviations", [1.5, 1.0])
    min = _reduction("min", "smallest values", [0, 0])
    max = _reduction("max", "largest values", [3, 2])
    any = _reduction("any", "truth of any", [True, True])
    all = _reduction("all", "truth of all", [False, False])
    count = _reduction("count", "numbers of stored entries", [1, 1])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The stored entries as a table with a row for each, for polars, pandas and duckdb; see `to_table`."""
        return late_import("to_table")(self).__arrow_c_stream__(requested_schema)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Reductions by numpy's functions, such as `numpy.sum(tensor, axis=0)`. Raise TypeError for others."""
        name = {"amin": "min", "amax": "max"}.get(function.__name__, function.__name__)
        if name in ("shape", "ndim", "size") and not kwargs and len(args) == 1:
            return getattr(self, name)
        if name not in _REDUCTIONS or not args or args[0] is not self:
            use = _REPLACEMENTS.get(name, "reduce, einsum or to_dense()")
            raise TypeError(f"numpy.{name} does not accept a Tensor; use {use}")
        return getattr(self, name)(*args[1:], **kwargs)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a numpy function to each cell of one or two tensors; all operators, and products by `@`.

        The result is a Tensor. Its fill value is the function of the fill values. Labels that both tensors have for a
        dimension must be equal. A dense array is broadcast to the shape of the tensor. A product `@` with a dense
        vector or matrix is an array; see `einsum`.

        Raises
        ------
        ArrayError, LabelError, OptionError : the operands do not fit each other, or the function is not elementwise.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> (2 * tensor + tensor.T).to_dense().tolist(), np.sqrt(tensor).values.round(2).tolist()
        ([[0, 7], [8, 0]], [1.41, 1.73])
        >>> (tensor @ [1, 10]).tolist(), (tensor @ tensor).to_dense().tolist()
        ([20, 3], [[6, 0], [0, 6]])
        """
        if function is np.matmul and method == "__call__" and not options:
            return late_import("product")(*inputs)
        return late_import("calculate")(function, method, inputs, options)

    # Operations that types of other libraries support and a tensor refuses

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no truth value; use tensor.nnz, or reduce it by any or all")

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Tensor is not made dense implicitly; call to_dense(), or as_tensor on the other operand")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError. For names of other libraries, the message says what to call."""
        call = f"{name}(tensor)" if name.startswith("to_") else f"binsparse_levels.{name}"
        public = f"the function {call}" if name in functions() else ""
        hint = f"; use {use}" if (use := _REPLACEMENTS.get(name, public)) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: call `equals`. Sets and dictionaries compare tensors by identity."""
        raise TypeError("tensors are not compared by ==; call equals(), or numpy.equal for a tensor of booleans")

    __ne__ = __eq__

    __hash__ = object.__hash__


def _text_of(tensor: Contents) -> str:
    """A line, and a line for each level unless the tensor is a view. Nothing is read."""
    backing = tensor._backing
    names = tensor.dims or ()
    shape = " × ".join(map(str, backing.shape)) or "scalar"
    shape += f" ({', '.join(names)})" if names else ""
    stored = f", map {backing.map}" if backing.map is not None else f", {backing.format}"
    fill = "" if tensor.fill_value is None else f", fill {tensor.fill_value}"
    if backing.viewed:
        return f"<Tensor {shape} {backing.dtype}, a view{fill}{stored}>"
    if backing.map is not None:
        return f"<Tensor {shape} {backing.dtype}{fill}{stored}>\n{tensor.stored!r}"
    iso = ", iso" if tensor.iso else ""
    structure = f", {backing.structure}" if backing.structure else ""
    tree = backing.stored.tree
    count = len(tree.values) if tree.lazy else tensor.number_of_stored_values
    entries = f"{count} stored value{'' if count == 1 else 's'}"
    head = f"<Tensor {shape} {backing.dtype}{iso}, {entries}{fill}{structure}{stored}>"
    return "\n".join([head, *_lines(backing.stored, names)])


def _lines(stored: TreeBacking, names: Sequence[str]) -> list[str]:
    """The levels of a tree, each with its dimensions, its number of fibers and the lengths of its arrays."""
    tree, lines = stored.tree, []
    n: int | None = 1
    for depth, place in enumerate(tree.places):
        arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
        covered = stored.format.order[place.depth : place.depth + place.level.rank]
        called = [f"{names[k]}, " if names else "" for k in covered]
        sizes = ", ".join(f"{k} ({name}size {n})" for k, name, n in zip(covered, called, place.dims, strict=True))
        fibers = "" if n is None else f", {n} fiber{'s' if n != 1 else ''}"
        lengths = "".join(f", {place.arrays[role].name}[{len(array)}]" for role, array in arrays.items())
        dimensions = f"dimension {sizes}" if sizes else "no dimension"
        lines.append(f"{'  ' * depth}└ {place.level}: {dimensions}{fibers}{lengths}")
        below, _ = place.level.lengths({role: len(array) for role, array in arrays.items()}, place.dims, n)
        if below is None and n is not None and not tree.lazy:  # no array of a file is read for this
            below = place.level.size(arrays, place.dims, n)
        n = below
    lines.append(f"{'  ' * len(tree.levels)}└ element: values[{len(tree.values)}]")
    return lines
