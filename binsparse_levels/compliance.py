"""The three programs that the compliance suite of Binsparse calls, with exactly its arguments.

    npy_to_binsparse TENSOR.npy PATTERN.npy FILL.npy HEADER.json OUT
    binsparse_to_npy IN TENSOR.npy PATTERN.npy FILL.npy
    binsparse_to_binsparse IN OUT

Only these programs keep the spelling of a header: its format name, a custom tree, an identity transpose. Exit status:
0 for success, 1 for a failure, 2 for a wrong number of arguments.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .arrays import Array
from .errors import FormatError, Problem
from .formats.dtypes import data_type_of, encode, parse_dtype
from .formats.format import Format, named, parse_custom
from .io import open_reader, write_arrays
from .io.file_tensors import Loading, loaded_tensor
from .limits import DEFAULT_LIMITS
from .tensors.encoding import encode_tensor
from .tensors.packing import pack
from .tensors.tensor import Tensor
from .tensors.validation import pad_of

Program: TypeAlias = Callable[[], int]


def _program(work: Callable[..., None]) -> Program:
    """Make a console script whose arguments are the parameters of a function."""
    names = inspect.signature(work).parameters

    @functools.wraps(work)
    def main() -> int:
        arguments = sys.argv[1:]
        if len(arguments) != len(names):
            print(f"usage: {work.__name__} {' '.join(names).upper()}", file=sys.stderr)
            return 2
        try:
            work(*arguments)
        except Exception as error:  # the suite expects an exit status for any error
            print(f"{work.__name__}: error: {error}", file=sys.stderr)
            return 1
        return 0

    return main


@_program
def npy_to_binsparse(tensor_path: str, pattern_path: str, fill_path: str, header_path: str, out: str) -> None:
    """Store the cells that the pattern marks, in the format of the header. Other fields of the header are kept."""
    dense, pattern, fill = (np.load(path, allow_pickle=False) for path in (tensor_path, pattern_path, fill_path))
    with open(header_path, encoding="utf-8") as file:
        template = json.load(file)
    if pattern.shape != dense.shape or fill.size != 1:
        raise ValueError("expected a pattern of the shape of the tensor, and a single fill value")
    format = _format(template)
    pattern = pattern.astype(bool)
    coords = np.nonzero(pattern) if dense.ndim else ()
    tensor = pack(coords, dense[pattern], dense.shape, format)
    if len(tensor.values) != np.count_nonzero(pattern):
        what = f"leaves cells of the dense levels of {format} empty; mark them, or choose another format"
        raise FormatError(Problem("pattern", what))
    types = template.get("data_types", {})
    stored_fill = fill.reshape(1)
    arrays: dict[str, Array] = {
        name: array.astype(np.uint64 if name.startswith("pointers") else np.int64)
        for name, array in tensor.arrays.items()
    }
    arrays |= {"values": tensor.values, "fill_value": stored_fill}
    data_types, encoded = {}, {}
    for name, array in arrays.items():
        data_type = data_type_of(array.dtype, name)
        if name in types:
            data_type = parse_dtype(types[name], f"data_types.{name}")
        if data_type.iso and len(array) and not bool(np.all((array == array[0]) | (array != array))):
            raise FormatError(Problem(name, "is not iso: its values differ; omit iso[…] in data_types"))
        data_types[name] = str(data_type)
        encoded[name] = encode(array, data_type)
    header: dict[str, Any] = {
        "version": "0.1.0",
        "format": template["format"],
        "shape": list(dense.shape),
        "number_of_stored_values": len(tensor.values),
        "fill": True,
        **template,
    }
    header["data_types"] = {**data_types, **types}
    write_arrays(out, {"binsparse": header}, encoded, overwrite=True)


@_program
def binsparse_to_npy(path: str, tensor_path: str, pattern_path: str, fill_path: str) -> None:
    """Write the dense tensor, the pattern of its stored entries and the fill value as .npy files."""
    tensor, fill, _ = _read(path)
    coords, values = tensor.unpack()
    fill = pad_of(fill, tensor.dtype)
    dense = np.full(tensor.shape, fill, np.result_type(values, fill) if len(values) else fill.dtype)
    pattern = np.zeros(tensor.shape, bool)
    dense[coords if tensor.ndim else ...] = values if tensor.ndim else values[0]
    pattern[coords if tensor.ndim else ...] = True
    for target, array in ((tensor_path, dense), (pattern_path, pattern), (fill_path, np.asarray(fill))):
        np.save(target, array)


@_program
def binsparse_to_binsparse(path: str, out: str) -> None:
    """Read a tensor and write it again as version 0.1.0, in the same format and data types."""
    tensor, fill, name = _read(path)
    header, arrays = encode_tensor(tensor, "0.1.0")
    inner = header["binsparse"]
    if fill is not None:  # in its own data type
        data_type = data_type_of(fill.dtype, "fill_value")
        inner["data_types"]["fill_value"] = str(data_type)
        arrays["fill_value"] = encode(np.full(1, fill), data_type)
    if name is None:  # a custom tree keeps its spelling
        inner |= {"format": "custom", "custom": tensor.format.custom()}
    write_arrays(out, {"binsparse": inner}, arrays, overwrite=True)


def _read(path: str) -> tuple[Tensor, Any, str | None]:
    """The tensor, its fill value in its stored data type, and the name of the format in the file."""
    with open_reader(path) as reader:
        loading = Loading(reader, DEFAULT_LIMITS, lenient=True)
        return loaded_tensor(loading.source(), DEFAULT_LIMITS), loading.fill_value(), loading.descriptor.name


def _format(header: dict[str, Any]) -> Format:
    if header["format"] == "custom":
        return parse_custom(header["custom"])
    format = named(header["format"])
    if format is None:
        raise FormatError(Problem("format", f"unknown format {header['format']!r:.60}; see ALIASES"))
    return format
