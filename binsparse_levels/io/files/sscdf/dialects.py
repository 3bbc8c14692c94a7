"""The two dialects of sscdf: their formats, types, and objects by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import h5py
import numpy as np

from ....containers.base import wrap_errors
from ....errors import Problem, UnsafeError
from ....formats.descriptor import array_classes
from ....formats.dtypes import INTEGERS
from ....formats.format import ALIASES, Format, parse_format


class Spelling(NamedTuple):
    """A format, and the names of its arrays in the file by stored name."""

    format: Format
    arrays: Mapping[str, str]


# The names are those of GraphBLAS, except `scalar` and `scalar_empty`.
_NATIVE: dict[str, tuple[str, dict[str, str]]] = {
    "csr": ("CSR", {"pointers_to_1": "indptr", "indices_1": "col_indices"}),
    "csc": ("CSC", {"pointers_to_1": "indptr", "indices_1": "row_indices"}),
    "hypercsr": ("DCSR", {"pointers_to_1": "indptr", "indices_0": "rows", "indices_1": "col_indices"}),
    "hypercsc": ("DCSC", {"pointers_to_1": "indptr", "indices_0": "cols", "indices_1": "row_indices"}),
    "bitmapr": ("bitmap(2)", {"bitmap_0": "bitmap"}),
    "bitmapc": ("bitmap(2) @ 1, 0", {"bitmap_0": "bitmap"}),
    "fullr": ("DMATR", {}),
    "fullc": ("DMATC", {}),
    "coor": ("COOR", {"indices_0": "rows", "indices_1": "cols"}),
    "cooc": ("COOC", {"indices_1": "rows", "indices_0": "cols"}),
    "sparse": ("CVEC", {"indices_0": "indices"}),
    "bitmap": ("bitmap", {"bitmap_0": "bitmap"}),
    "full": ("DVEC", {}),
    "scalar": ("element", {}),
    "scalar_empty": ("bitmap(0)", {}),
}
NATIVE = {name: Spelling(parse_format(format), arrays) for name, (format, arrays) in _NATIVE.items()}
_JSON = {"CSR": "CSR", "CSC": "CSC", "DCSR": "DCSR", "DCSC": "DCSC", "COOR": "COOR", "COOC": "COOC", "VEC": "CVEC"}
JSON = {  # the array names are those of Binsparse, except the pointers
    word: Spelling(ALIASES[alias], {name: name.replace("to_1", "0") for name in array_classes(ALIASES[alias])})
    for word, alias in _JSON.items()
}
DIALECTS = {"native": NATIVE, "json": JSON}
SIZES: tuple[tuple[str, ...], ...] = ((), ("size",), ("nrows", "ncols"))
INTEGER_TYPES = {name: np.dtype(name) for name in INTEGERS}
NATIVE_TYPES = {"bool": np.dtype(bool), **INTEGER_TYPES, "fp32": np.dtype("f4"), "fp64": np.dtype("f8")}
JSON_TYPES = {"bool": np.dtype(bool), **INTEGER_TYPES, "float32": np.dtype("f4"), "float64": np.dtype("f8")}
VERSION = "1.0"
RESERVED = {"values", "value", *SIZES[1], *SIZES[2]}.union(
    *(spelling.arrays.values() for known in DIALECTS.values() for spelling in known.values())
)


def label_of(path: str, name: str | None) -> str:
    """The name of an object in errors."""
    return path if name is None else f"{path}:{name}"


def groups_of(file: h5py.File) -> dict[str, h5py.Group]:
    """The groups in the root. Raises UnsafeError for a link that leads out of it, or back to it."""
    children = {}
    root = h5py.h5o.get_info(file.id).addr
    for name in file.keys():  # noqa: SIM118 (items would follow links)
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise UnsafeError(Problem(name, f"a {type(link).__name__} is not followed; copy its target into the file"))
        child = file[name]
        if isinstance(child, h5py.Group):
            if h5py.h5o.get_info(child.id).addr == root:
                raise UnsafeError(Problem(name, "is a link to the root of the file; delete it"))
            children[name] = child
    return children


def is_object(group: h5py.Group) -> bool:
    """Return True if a group is marked as an object."""
    return any(key in group.attrs for key in ("metadata", "format", "datatype"))


def names_of(file: h5py.File) -> list[str | None]:
    """The names of the objects, in the order of the file; None for the primary one."""
    with wrap_errors(file.file.filename):
        named = [name for name, group in groups_of(file).items() if is_object(group)]
        return [None, *named] if is_object(file) else [*named]
