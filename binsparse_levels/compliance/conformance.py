"""The conformance files of the proposal: tensors that a reader shall read, and files that it shall refuse.

`python -m binsparse_levels.compliance export FOLDER` writes them. docs/proposal/conformance.md says what they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..containers.base import Storage
from ..errors import OptionError, needing
from ..formats.format import parse_format
from ..interop.arrow import from_table
from ..io import describe, write, write_arrays
from ..tensors.changing import expanded
from ..tensors.packing import pack
from ..tensors.tensor import Tensor

KINDS = [
    "DVEC", "CVEC", "DMATR", "DMATC", "CSR", "CSC", "DCSR", "DCSC", "COOR", "COOC", "element", "bitmap(0)",
    "sparse(2) @ 1, 0", "dense, bitmap", "bitmap(2)", "dense, bits", "bits, sparse", "dense, run", "run", "dense, band",
    "band, sparse", "dense, n_of_m(1, n=3, m=4)", "dense, hashed", "hashed", "bitmap(0), bitmap(2)",
    "sparse, sparse, sparse", "sparse(2), dense @ 2, 0, 1", "dense, sparse(2) @ 1, 2, 0", "run, run, sparse",
    "hashed, bits, band", "dense, mask", "mask(2)", "dense, elias_fano", "elias_fano, mask(2)",
]  # fmt: skip
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip
MAPS = {
    "1, 0": "CSR",
    "(0 1)": "CVEC",
    "0/2, 1/4, 0%2, 1%4": "dense, sparse, dense(2)",
    "(0/4 1/4 0/2%2 1/2%2 0%2 1%2)": "hashed",
}
STRUCTURES = [f"{kind}_{half}" for kind in ("symmetric", "hermitian", "skew_symmetric") for half in ("lower", "upper")]
_COORDS, _VALUES = [[0, 0, 1, 2, 2, 2, 4], [1, 3, 3, 0, 1, 2, 4]], np.array([5, 7, -1, 1, 2, 3, 4], "i2")
_CUBE = [[0, 0, 1, 1, 3], [0, 2, 1, 1, 0], [1, 1, 0, 3, 4]]


def vector(dtype: str = "float64", format: str = "CVEC") -> Tensor:
    with np.errstate(all="ignore"):
        values = np.array([1, 0, 3]).astype(dtype) * (1j if dtype.startswith("complex") else 1)
    return pack([[0, 2, 5]], values.astype(dtype), (6,), format)


def matrix(format: str = "CSR", **options: Any) -> Tensor:
    return pack(_COORDS, _VALUES, (5, 5), format, **options)


def of_format(format: str) -> Tensor:
    rank = parse_format(format).rank
    if rank == 3:
        return pack(_CUBE, np.array([1.5, -0.0, 2.5, 2.5, 4]), (4, 3, 5), format)
    if rank == 0:
        return pack([], [2.5], (), format)
    return matrix(format) if rank == 2 else vector(format=format)


def bit_packed() -> Tensor:
    """Three chunks, with plane 1, and differences of more than 32 bits."""
    return pack([np.arange(0, 900, 3) ** 2], np.arange(-150, 150) * 2**33, (2**20,), "sparse")


def symmetric(structure: str) -> Tensor:
    coords = [[1, 2], [0, 1]] if structure.endswith("lower") else [[0, 1], [1, 2]]
    values = np.array([1.5, 2 + (1j if structure.startswith("hermitian") else 0)])
    return pack(coords, values, (4, 4), "DCSR", structure=structure)


def labelled() -> Tensor:
    with needing("tables"):
        import pyarrow
    table = pyarrow.table({
        "text": ["a", "π", "a"], "truth": [True, False, False], "day": pyarrow.array([0, 9, 9], pyarrow.date32()),
        "time": pyarrow.array([5, 0, 5], pyarrow.timestamp("us", "Europe/Berlin")), "number": [0, 3, 2],
        "value": [1.5, 2.5, 3.5],
    })  # fmt: skip
    names = ["text", "truth", "day", "time", "number"]
    return from_table(table, names, "value", "CSF", labels={"truth": [True, False]})


def sound() -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    """The name of each sound file, its tensor, and the options of `write`."""
    for k, format in enumerate(KINDS):
        yield f"kind_{k:02}", of_format(format), {}
    for dtype in DTYPES:
        yield f"type_{dtype}", vector(dtype), {}
        yield f"iso_{dtype}", pack([[1, 4]], np.array(1, dtype), (6,), "CVEC", fill_value=0), {}
    yield "packed_long", bit_packed(), {"bitpacked": ["indices_0", "values"]}
    yield "packed_short", matrix(), {"bitpacked": ["pointers_to_1", "indices_1", "values"]}
    for k, (map, format) in enumerate(MAPS.items()):
        yield f"map_{k}", matrix(format, map=map), {}
    yield "map_packed", matrix(map="1/2, 0, 1%2", format="CSF"), {"bitpacked": True}
    for structure in STRUCTURES:
        yield structure, symmetric(structure), {}
    yield "labels", labelled().with_attributes({"note": "ä", "list": [1, 0.1, None, {"π": True}]}), {"checksum": True}
    yield "fill", matrix("dense, hashed", fill_value=9), {}
    for k, shape in enumerate([(0,), (3, 0), (0, 2, 3)]):
        yield f"empty_{k}", pack([[]] * len(shape), np.zeros(0), shape, ["sparse", "CSR", "CSF"][k]), {}


class Unsound(NamedTuple):
    """A file that breaks a rule: a tensor of the proposal's example matrix with some things changed.

    format: with a map behind `through`. changes: of arrays by name, and of the header by the path of a key; None
    removes.
    """

    rule: str
    why: str
    format: str
    changes: Mapping[str, Any]
    options: Mapping[str, Any] = MappingProxyType({})


_LEVEL = "binsparse.custom.level"
_DESC = f"{_LEVEL}.level.level_desc"
_MAP = "binsparse.custom.level.digits"
_MAPPED = "dense, sparse, dense through 0/2, 1, 0%2"
_SKEW: dict[str, Any] = {"binsparse.shape": [3, 3], "binsparse.structure": "symmetric_lower"}
_LABELS = "binsparse_levels:labels"
_NAMED: dict[str, Any] = {
    f"{_LABELS}.dims": ["i", "j"], f"{_LABELS}.values": "v", f"{_LABELS}.labels": ["text", None],
    "binsparse.data_types.labels_0": "uint8", "binsparse.data_types.labels_0_offsets": "int64",
    "labels_0": np.frombuffer("bäa".encode(), np.uint8), "labels_0_offsets": np.array([0, 1, 4]),
}  # fmt: skip
_SEALED = {"checksum": True}
_SLOTS = [1, 3, 3, 1, 3, 3, *[3] * 6, 0, 1, 2, *[3] * 3]
_UNREACHED = {
    "hash_keys_1": [2, 0, 0, 4, 1, 3, 0, 0, 2, 0, 0, 0], "hash_ranks_1": [0, 1, 1, 1, 2, 3, 4, 4, 4, 5, 5, 5],
}  # fmt: skip
UNSOUND = [
    Unsound("header", "a key that no version has", "CSR", {"binsparse.strange": 1}),
    Unsound("header", "a version that is not read", "CSR", {"binsparse.version": "0.2.0"}),
    Unsound("header", "a size that is no integer", "CSR", {"binsparse.shape": [3, 4.5]}),
    Unsound("header", "a negative size", "CSR", {"binsparse.shape": [3, -4]}),
    Unsound("header", "no format", "CSR", {"binsparse.format": None}),
    Unsound("header", "a name that is no format", "CSR", {"binsparse.format": "CSX"}),
    Unsound("level", "an unknown level", "dense, bitmap", {_DESC: "binsparse_levels:sieve"}),
    Unsound("level", "an unknown key of a level", "dense, bitmap", {f"{_LEVEL}.level.size": 2}),
    Unsound("level", "ranks that do not add up", "dense, bitmap", {f"{_LEVEL}.level.rank": 2}),
    Unsound("level", "a transpose that is no permutation", "dense, bitmap", {"binsparse.custom.transpose": [0, 0]}),
    Unsound("level", "more slots than cells", "dense, n_of_m(1, n=3, m=4)", {f"{_LEVEL}.level.n": 5}),
    Unsound("level", "a map below another level", "dense, bitmap", {_DESC: "binsparse_levels:map"}),
    Unsound("type", "an unknown type", "CSR", {"binsparse.data_types.values": "int7"}),
    Unsound("type", "an array of another type than declared", "CSR", {"indices_1": np.array([1.0, 3, 0, 1, 2])}),
    Unsound("type", "coordinates that are all one number", "CSR", {"binsparse.data_types.indices_1": "iso[int32]"}),
    Unsound("type", "a boolean of 2", "dense, bitmap", {"bitmap_1": [0, 1, 0, 2, 0, 0, 0, 0, 1, 1, 1, 0]}),
    Unsound("length", "a missing array", "CSR", {"indices_1": None}),
    Unsound("length", "an end too few", "dense, run", {"run_ends_1": [2, 4, 1, 2]}),
    Unsound("length", "a value too many", "CSR", {"values": [5, 7, 1, 2, 3, 4]}),
    Unsound("length", "another number of stored values", "CSR", {"binsparse.number_of_stored_values": 6}),
    Unsound("length", "columns of unequal length", "COO", {"indices_0": [0, 0, 2, 2]}),
    Unsound("length", "a fill value without its array", "CSR", {"binsparse.fill": True}),
    Unsound("length", "a mask too short", "dense, mask", {"mask_1": [10, 0]}),
    Unsound("pointers", "that do not begin with 0", "CSR", {"pointers_to_1": [1, 2, 2, 5]}),
    Unsound("pointers", "that descend", "CSR", {"pointers_to_1": [0, 3, 2, 5]}),
    Unsound("pointers", "that end too early", "CSR", {"pointers_to_1": [0, 2, 2, 4]}),
    Unsound("pointers", "an empty fiber in DCSR", "DCSR", {"indices_0": [0, 1, 2], "pointers_to_1": [0, 2, 2, 5]}),
    Unsound("pointers", "that count other bits than a mask has", "dense, mask", {"pointers_to_1": [0, 3, 3, 5]}),
    Unsound("range", "a coordinate at the size", "CSR", {"indices_1": [1, 4, 0, 1, 2]}),
    Unsound("range", "a negative coordinate", "COO", {"indices_0": [-1, 0, 2, 2, 2]}),
    Unsound("range", "a band that ends behind the dimension", "dense, band", {"band_starts_1": [2, 0, 0]}),
    Unsound("range", "a slot behind the dimension", "dense, n_of_m(1, n=3, m=3)", {"slots_1": _SLOTS}),
    Unsound("range", "a run that ends behind the dimension", "dense, run", {"run_ends_1": [2, 5, 1, 2, 3]}),
    Unsound("order", "coordinates that descend", "CSR", {"indices_1": [3, 1, 0, 1, 2]}),
    Unsound("order", "a coordinate twice", "COO", {"indices_1": [1, 1, 0, 1, 2]}),
    Unsound("order", "runs that overlap", "dense, run", {"run_ends_1": [2, 4, 2, 2, 3]}),
    Unsound("order", "an empty run", "dense, run", {"run_ends_1": [1, 4, 1, 2, 3]}),
    Unsound("order", "slots that descend", "dense, n_of_m(1, n=3, m=4)", {"slots_1": [3, 1, 4, 4, 4, 4, 0, 1, 2]}),
    Unsound("order", "a key twice", "dense, hashed", {"hash_keys_1": [0, 0, 2, 2, 1, 3, 0, 0, 2, 0, 0, 0]}),
    Unsound("bits", "set behind the last cell", "dense, bits", {"bits_1": [10, 23]}),
    Unsound("bits", "set behind the last cell of a mask", "dense, mask", {"mask_1": [10, 0, 23]}),
    Unsound("bits", "too few in the upper half", "dense, elias_fano", {"elias_fano_high_1": np.array([708], "u8")}),
    Unsound("bits", "behind the lower halves", "dense, elias_fano", {"elias_fano_low_1": np.array([43, 0], "u8")}),
    Unsound("order", "numbers that do not ascend", "dense, elias_fano", {"elias_fano_low_1": np.array([3, 0], "u8")}),
    Unsound("range", "numbers of another fiber", "dense, elias_fano", {"pointers_to_1": [0, 3, 3, 5]}),
    Unsound("hash", "a wrong rank", "dense, hashed", {"hash_ranks_1": [0, 0, 0, 1, 2, 3, 4, 4, 5, 5, 5, 5]}),
    Unsound("hash", "no empty slot", "dense, hashed", {"pointers_to_1": [0, 4, 6, 12]}),
    Unsound("hash", "a key that no search reaches", "dense, hashed", _UNREACHED),
    Unsound("map", "digits that leave a gap", _MAPPED, {_MAP: "0/3, 1, 0%2"}),
    Unsound("map", "a dimension that the tensor does not have", _MAPPED, {_MAP: "0/2, 2, 0%2"}),
    Unsound("map", "a dimension that the map leaves out", _MAPPED, {_MAP: "0/2, 0%2, 0/2"}),
    Unsound("map", "text that is no digit", _MAPPED, {_MAP: "0/2, 1, 0%two"}),
    Unsound("packed", "a type without the level", "CSR", {"binsparse.data_types.indices_1": "bitpacked[int32]"}),
    Unsound("packed", "a chunk of 40 bits a number", "CSR", {"indices_1[4]": 40}, {"bitpacked": ["indices_1"]}),
    Unsound("packed", "words that are missing", "CSR", {"indices_1": [5, 0, 1, 0]}, {"bitpacked": ["indices_1"]}),
    Unsound("structure", "entries of the other triangle", "CSR", _SKEW | {"indices_1": [1, 2, 0, 1, 2]}),
    Unsound("structure", "a matrix that is not square", "CSR", {"binsparse.structure": "symmetric_upper"}),
    Unsound("structure", "a name that is not known", "CSR", {"binsparse.structure": "cyclic_lower"}),
    Unsound("labels", "two dimensions of one name", "CSR", _NAMED | {f"{_LABELS}.dims": ["i", "i"]}),
    Unsound("labels", "offsets that descend", "CSR", _NAMED | {"labels_0_offsets": np.array([0, 5, 4])}),
    Unsound("labels", "text that is not UTF-8", "CSR", _NAMED | {"labels_0_offsets": np.array([0, 2, 4])}),
    Unsound("labels", "more labels than coordinates", "CSR", _NAMED | {"labels_0_offsets": np.array([0, 1, 1, 3, 4])}),
    Unsound("checksum", "a changed array", "CSR", {"indices_1": [1, 2, 0, 1, 2]}, _SEALED),
    Unsound("checksum", "a changed header", "CSR", {"author": "somebody else"}, _SEALED),
    Unsound("checksum", "half of a seal", "CSR", {"binsparse_levels:sealed": None}, _SEALED),
]  # fmt: skip


def container(case: Unsound) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of an unsound file."""
    format, _, map = case.format.partition(" through ")
    example = pack([[0, 0, 2, 2, 2], [1, 3, 0, 1, 2]], np.array([5, 7, 1, 2, 3], "i2"), (3, 4), format, map=map or None)
    store: dict[str, Any] = {}
    write(store, example, **case.options)
    header = json.loads(json.dumps(store.pop("binsparse")))
    arrays = {name: np.array(array) for name, array in store.items()}
    for place, value in case.changes.items():
        name, at = re.fullmatch(r"([^\[]*)(?:\[(\d+)\])?", place).groups()  # type: ignore[union-attr]
        if at is not None:
            arrays[name][int(at)] = value
        elif name in header["binsparse"]["data_types"] or isinstance(value, np.ndarray):
            arrays.pop(name, None)
            if value is not None:
                arrays[name] = value if isinstance(value, np.ndarray) else np.array(value, store[name].dtype)
        else:
            _change(header, name.split("."), value)
    return header, arrays


def _change(header: dict[str, Any], path: list[str], value: Any) -> None:
    *above, key = path
    for step in above:
        header = header.setdefault(step, {})
    if value is None:
        del header[key]
    else:
        header[key] = value


def expected(tensor: Tensor) -> dict[str, Any]:
    """What a reader shall find: a list (coordinates …, value) for each entry, the structure expanded."""
    coords, values = expanded(tensor).unpack()
    fill = [] if tensor.fill_value is None else [_number(tensor.fill_value.tolist())]
    labels = {dim: tensor.labels(dim) for dim in tensor.dims or ()}
    places = zip(*(x.tolist() for x in coords), strict=True) if coords else [()] * len(values)
    return {
        "shape": list(tensor.shape),
        "entries": [[*place, _number(value)] for place, value in zip(places, values.tolist(), strict=True)],
        "fill_value": fill[0] if fill else None,
        "labels": {
            dim: None if x is None else (x.view(np.int64) if x.dtype.kind == "M" else x).tolist()
            for dim, x in labels.items()
        },
    }


def _number(value: Any) -> Any:
    return [value.real, value.imag] if isinstance(value, complex) else value


def export(folder: str) -> None:
    """Write all files into a new folder: `sound` and `unsound`, each file as .h5 and .zarr beside a .json."""
    try:
        os.makedirs(folder)
    except FileExistsError:
        raise OptionError(f"{folder}: already exists; name a new folder") from None
    for part in ("sound", "unsound"):
        os.mkdir(os.path.join(folder, part))
    for name, tensor, options in sound():
        path = os.path.join(folder, "sound", name)
        write(f"{path}.h5", tensor, **options)
        write(f"{path}.zarr", tensor, compression="none", **options)
        _write_json(path, {"format": str(describe(path + ".h5").descriptor.format), **expected(tensor)})
    for k, case in enumerate(UNSOUND):
        path = os.path.join(folder, "unsound", f"{case.rule}_{k:02}")
        header, arrays = container(case)
        for suffix, kept in ((".h5", Storage()), (".zarr", Storage(compression="none"))):
            write_arrays(path + suffix, header, arrays, storage=kept)
        _write_json(path, {"rule": case.rule, "why": case.why})


def _write_json(path: str, facts: dict[str, Any]) -> None:
    with open(f"{path}.json", "x", encoding="utf-8") as file:
        json.dump(facts, file, ensure_ascii=False)
        file.write("\n")
