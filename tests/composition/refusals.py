"""Unsupported combinations: one table, which the page docs/reference/refusals.md shows.

    python -m tests.composition --refusals

prints the rows as the page has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import binsparse_levels as bl
from binsparse_levels.levels import LEVELS
from binsparse_levels.tensors.tensor import inside
from composition.features import BINSPARSE


class Refusal(NamedTuple):
    """ways: names of ways, or "any". calls: what a user calls. when: whether model and tensor have the cause."""

    ways: str
    calls: str
    error: type[Exception]
    says: str
    what: str
    instead: str
    when: Callable[[Any, Any], bool] = lambda model, tensor: True


def filled(model, tensor):
    return model.fill is not None and model.fill != 0


def other_type(model, tensor):
    return model.dtype.name not in BINSPARSE or not model.dtype.isnative


def mapped(model, tensor):
    return tensor.map is not None


FILES = (
    "written in_orders several grown_in_parts several_as_one within other_system converted repaired appended "
    "concatenated streamed built merged dask dataset looked_at pictured by_command protocol"
)
PARTS = "appended concatenated built by_build grown_in_parts several_as_one"

REFUSALS = (
    Refusal(
        "any", "every conversion to a format", bl.FormatError,
        "more than (one coordinate|3 entries)|has a step of|more than \\d+ (entries|coordinates)|n_of_m",
        "a tensor that the kind cannot represent", "another kind",
        lambda model, tensor: any(kind.refuses for kind in LEVELS.values()),
    ),
    Refusal(
        "any", "every read of blocks or of a whole opened file", bl.ArrayError, "read and convert sort files of other",
        "unsorted entries in an opened file of another system", "`read`",
        lambda model, tensor: inside(tensor).backing.stored.tree.lazy,
    ),
    Refusal(
        "any", "`build`, `write_from`, `convert(memory=)`, `concatenate`, `append`", bl.LimitError,
        "are joined all at once, and do not fit",
        "a kind whose parts are joined from their entries, in less memory than all of these need",
        "more memory, or the levels of CSF or CSR",
    ),
    Refusal(
        "view by_label", "`labels` of a view", bl.ArrayError, "coordinates without labels come before others",
        "fewer labels than coordinates, if unlabelled coordinates precede labelled ones", "another selection",
        lambda model, tensor: tensor.dims is not None,
    ),
    Refusal(
        f"{FILES} convert", "every write to a file, `convert(dictionary=True)`, and `__binsparse__`", bl.ArrayError,
        "no data type for the numpy dtype", "a numpy type that Binsparse does not have", "`astype` before", other_type,
    ),
    Refusal(
        "reduce statistics product einsum contracted named_product over_semiring counted_reads explained foreach "
        "reduced_by_method combined",
        "`reduce`, `statistics`, `einsum`, `@`, `traffic`, `explain`, `foreach`, functions of two operands",
        bl.ArrayError, "arithmetic does not support", "values that are not numbers of at most 8 bytes",
        "`astype` before", other_type,
    ),
    Refusal(
        "reduce statistics reduced_by_method explained", "`reduce`, `statistics`, `explain`", bl.ArrayError,
        "has no (min|max), since no cells take part|has no entries, so no (min|max)",
        "min and max of no cells; for floats with `cells=\"stored\"` they are NaN", "drop the empty dimension",
    ),
    Refusal(
        "einsum contracted named_product product counted_reads explained", "`einsum`, `@`, `traffic`, `explain`",
        bl.FormatError,
        "cells that are not stored have the value",
        "a fill value other than 0", "`to_dense` and numpy", filled,
    ),
    Refusal(
        "over_semiring", "`einsum(semiring=)`", bl.FormatError, "cells that are not stored have the value",
        "a fill value other than 0 and the identity of the sum", "`pack` of the entries without it", filled,
    ),
    Refusal(
        "over_semiring", "`einsum(semiring=)`", bl.ArrayError, "complex numbers have no order",
        "a minimum or maximum of complex values", "another semiring", lambda model, tensor: model.dtype.kind == "c",
    ),
    Refusal(
        "over_semiring", "`einsum(semiring=, mask=)`", bl.OptionError, "take two operands",
        "more than two operands", "two at a time",
    ),
    Refusal(
        "product", "`@`", bl.OptionError, "a scalar has no dimension", "a scalar", "`einsum`",
        lambda model, tensor: not model.shape,
    ),
    Refusal(
        "built", "`build`", bl.FormatError, "a scalar cannot be built in parts", "a scalar", "`pack` and `write`",
        lambda model, tensor: not model.shape,
    ),
    Refusal(
        "advise", "`size_of`", bl.FormatError, "counts do not determine the size of",
        "a kind whose size depends on more than counts", "`convert` and `nbytes`",
    ),
    Refusal(
        "dm", "`Tensor.dm`", bl.FormatError, "the tensor has none", "a tensor without a map",
        "`convert(format, map=…)`",
        lambda model, tensor: tensor.map is None,
    ),
    Refusal(
        "dm", "`Tensor.dm`", bl.FormatError, "which strides cannot represent|has no stride",
        "a map that divides or subtracts dimensions", "a map that groups them", mapped,
    ),
    Refusal(
        "astype", "`astype` of a structure", bl.FormatError, "does not survive a cast|needs complex values",
        "a type that does not preserve the structure", "`expand_structure` before",
        lambda model, tensor: model.structure is not None,
    ),
    Refusal(
        "convert with_map", "`convert(format, map=…)`, `with_map`", bl.FormatError, "with a map has none|no structure",
        "a map and a structure", "`expand_structure` before", lambda model, tensor: model.structure is not None,
    ),
    Refusal(
        "with_map", "`with_map`", bl.FormatError, "do not become one",
        "two maps that divide a dimension at different places", "`without_map` before", mapped,
    ),
    Refusal(
        "convert load converted", "`convert` of a structure", bl.FormatError, "structure",
        "padding that is not symmetric", "a format without padding",
        lambda model, tensor: model.structure is not None,
    ),
    Refusal(
        "appended", "`append`", bl.ArrayError, "would be there twice", "labels that the file has already",
        "`existing=\"skip\"` or `\"repeat\"`", lambda model, tensor: model.labels is not None,
    ),
    Refusal(
        PARTS, "`append`, `concatenate`", bl.ArrayError, "and others follow", "labels for the first coordinates only",
        "labels of all coordinates", lambda model, tensor: model.labels is not None,
    ),
    Refusal(
        PARTS, "`append`, `concatenate`", bl.FormatError, "a scalar, or a matrix with a structure, cannot",
        "a scalar or a structure", "`expand_structure` before",
        lambda model, tensor: not model.shape or model.structure is not None,
    ),
    Refusal(
        "grown_in_parts", "`append(part=True)`", bl.FormatError, "has no parts; write it again without",
        "a scalar, a structure, a map, other orders, bit-packed arrays, a dictionary, Zarr 2",
        "`write` again without it",
    ),
    Refusal(
        "grown_in_parts", "`append(part=True)`, `compact`", bl.OptionError, "this kind of file has no parts",
        "any file but a folder or an object store of Zarr", "`append` without `part`, or `convert` to `.zarr`",
    ),
    Refusal(
        "several_as_one", "`open` of several files", bl.FormatError, "is not joined with others",
        "a scalar or a structure", "`expand_structure` and `write`",
        lambda model, tensor: not model.shape or model.structure is not None,
    ),
    Refusal(
        "scipy graphblas torch", "`to_scipy`, `to_graphblas`, `to_torch`", bl.FormatError, "represent the fill value",
        "a fill value other than 0", "`convert` to a dense format", filled,
    ),
    Refusal(
        "scipy graphblas torch", "`to_scipy`, `to_graphblas`, `to_torch`", bl.FormatError,
        "cannot represent tensors of \\d dimensions|holds no scalars|scipy does not support|Got \\dD",
        "a number of dimensions that the library does not support",
        "a slice", lambda model, tensor: len(model.shape) not in (1, 2),
    ),
    Refusal(
        "batched", "`batches`", bl.FormatError, "rows require two dimensions", "fewer than two dimensions",
        "`to_dense`", lambda model, tensor: len(model.shape) < 2,
    ),
    Refusal(
        "scipy", "`to_scipy`", bl.FormatError, "scipy does not support '(csr|csc|dok|lil)'",
        "a format of scipy for other ranks", "coo", lambda model, tensor: len(model.shape) != 2,
    ),
    Refusal(
        "scipy graphblas torch table pydata gcxs pandas xarray", "`to_*`, `from_*` of a library",
        (bl.FormatError, bl.ArrayError),
        "values: |has no|lacks th(is|e) type|holds no|give numbers|numbers are expected",
        "a value type that the library does not have", "`astype` before",
    ),
    Refusal(
        "other_system several_of_sscdf", "`write`, `write_all` to a file of another system",
        (bl.FormatError, bl.ArrayError, bl.OptionError), "",
        "a tensor that the system cannot represent (rank, type, fill value, structure)", "a container of this package",
    ),
    Refusal(
        "written appended", "`write` to `PATH:/`, `append`", FileExistsError, "contains more than a tensor",
        "an NPZ file or a folder of arrays that contains more than the tensor", "another path, or HDF5 or Zarr",
    ),
    Refusal(
        "in_orders", "`write(orders=…)`", bl.OptionError, "has no other orders", "a map", "`without_map` before", mapped
    ),
    Refusal(
        "any", "`convert(dictionary=True)`, `write(dictionary=True)`", bl.OptionError,
        "dictionary: .*(are not smaller than the values|are more than 65536)",
        "values that a dictionary does not make smaller, or more than 65,536 distinct ones", "leave `dictionary` out",
    ),
    Refusal(
        "streamed", "`write_from`, `convert(memory=)`, `concatenate`", bl.OptionError, "written in pieces",
        "`narrow`, `bitpacked` and `dictionary`, which need whole arrays", "`write` afterwards",
    ),
)  # fmt: skip


def refused(name, model, tensor, error):
    """The row of the table that a refusal has, or None."""
    for row in REFUSALS:
        names = row.ways == "any" or name in row.ways.split()
        errors = isinstance(error, row.error) or type(error) is bl.BinsparseError  # a command prints its error
        if names and errors and re.search(row.says, str(error)) and row.when(model, tensor):
            return row
    return None


def page():
    """The rows as Markdown."""
    lines = ["| call | unsupported | error | instead |", "|---|---|---|---|"]
    for row in REFUSALS:
        errors = row.error if isinstance(row.error, tuple) else (row.error,)
        names = ", ".join(f"`{error.__name__}`" for error in errors)
        lines.append(f"| {row.calls} | {row.what} | {names} | {row.instead} |")
    return "\n".join(lines)
