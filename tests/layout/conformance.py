"""The conformance files of the proposal: tensors that a reader shall read, and files that it shall refuse.

`python tests/layout/conformance.py FOLDER` writes them. docs/proposal/conformance.md says what they are.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from binsparse_levels import Tensor, from_table, pack, parse_format, write
from binsparse_levels.containers.base import Storage
from binsparse_levels.io import describe, write_arrays
from binsparse_levels.tensors.changing import expanded
from binsparse_levels.tensors.tensor import inside

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


def repeating(dtype: str) -> Tensor:
    """Both zeros, NaN, and 300 entries in all."""
    few = np.array([0, -0.0, np.nan, *range(297)], "complex128" if dtype.startswith("complex") else "float64")
    values = few[np.arange(900) ** 2 % 300].astype(dtype)
    return pack([np.arange(0, 1800, 2)], values, (2000,), "CVEC", fill_value=0)


def symmetric(structure: str) -> Tensor:
    coords = [[1, 2], [0, 1]] if structure.endswith("lower") else [[0, 1], [1, 2]]
    values = np.array([1.5, 2 + (1j if structure.startswith("hermitian") else 0)])
    return pack(coords, values, (4, 4), "DCSR", structure=structure)


def labelled() -> Tensor:
    import pyarrow

    times = pyarrow.array([5, 0], pyarrow.timestamp("us", "Europe/Berlin"))
    table = pyarrow.table({
        "text": ["a", "π", "a"], "truth": [True, False, False], "day": pyarrow.array([0, 9, 9], pyarrow.date32()),
        "time": times.take([0, 1, 0]), "number": [0, 3, 2],
        "value": [1.5, 2.5, 3.5],
    })  # fmt: skip
    names = ["text", "truth", "day", "time", "number"]
    return from_table(table, names, "value", "CSF", labels={"truth": [True, False], "time": times}, fill_value=0)


def sound() -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    """The name of each sound file, its tensor, and the options of `write`."""
    for k, format in enumerate(KINDS):
        yield f"kind_{k:02}", of_format(format), {}
    for dtype in DTYPES:
        yield f"type_{dtype}", vector(dtype), {}
        yield f"iso_{dtype}", pack([[1, 4]], np.array(1, dtype), (6,), "CVEC", fill_value=0), {}
    yield "packed_long", bit_packed(), {"bitpacked": ["indices_0", "values"]}
    yield "packed_short", matrix(), {"bitpacked": ["pointers_to_1", "indices_1", "values"]}
    for dtype in ("float64", "complex64"):
        yield f"dictionary_{dtype}", repeating(dtype), {"dictionary": True}
    cells = [[k % 5 for k in range(25)], [k // 5 for k in range(25)]]
    few = pack(cells, np.arange(25, dtype="i2") % 3, (5, 5), "dense, sparse, dense(2)", map=[*MAPS][2])
    yield "dictionary_packed", few, {"dictionary": True, "bitpacked": True}
    for k, (map, format) in enumerate(MAPS.items()):
        yield f"map_{k}", matrix(format, map=map), {}
    yield "map_packed", matrix(map="1/2, 0, 1%2", format="CSF"), {"bitpacked": True}
    for structure in STRUCTURES:
        yield structure, symmetric(structure), {}
    yield "labels", labelled().with_attributes({"note": "ä", "list": [1, 0.1, None, {"π": True}]}), {"checksum": True}
    yield "fill", matrix("dense, hashed", fill_value=9), {}
    for k, shape in enumerate([(0,), (3, 0), (0, 2, 3)]):
        yield f"empty_{k}", pack([[]] * len(shape), np.zeros(0), shape, ["sparse", "CSR", "CSF"][k]), {}


@dataclass(frozen=True)
class Unsound:
    """A file that breaks a rule: a tensor of the proposal's example matrix with some things changed.

    format: with a map behind `through`. changes: of arrays by name, and of the header by the path of a key; None
    removes. Items have the type of the array that they replace, or the type that stands beside them.
    """

    rule: str
    why: str
    format: str
    changes: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def unsound() -> list[Unsound]:
    """The unsound files, as the table `unsound.json` lists them."""
    return [Unsound(**row) for row in json.loads(Path(__file__).with_name("unsound.json").read_text("utf-8"))]


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
        elif isinstance(value, dict):
            arrays[name] = np.array(value["items"], value["type"])
        elif name in header["binsparse"]["data_types"]:
            arrays.pop(name)
            if value is not None:
                arrays[name] = np.array(value, store[name].dtype)
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


def stored_labels(tensor: Tensor) -> dict[str, Any]:
    """The labels of each dimension by name, with times in UTC, as files have them."""
    known = inside(tensor).metadata.labels
    dims = () if known is None else known.dims
    return {dim: known.columns[dim].array() if dim in known.columns else None for dim in dims}


def expected(tensor: Tensor) -> dict[str, Any]:
    """What a reader shall find: a list (coordinates …, value) for each entry, the structure expanded."""
    coords, values = expanded(tensor).unpack()
    fill = [] if tensor.fill_value is None else [_number(tensor.fill_value.tolist())]
    places = zip(*(x.tolist() for x in coords), strict=True) if coords else [()] * len(values)
    return {
        "shape": list(tensor.shape),
        "entries": [[*place, _number(value)] for place, value in zip(places, values.tolist(), strict=True)],
        "fill_value": fill[0] if fill else None,
        "labels": {
            dim: None if x is None else (x.view(np.int64) if x.dtype.kind == "M" else x).tolist()
            for dim, x in stored_labels(tensor).items()
        },
    }


def _number(value: Any) -> Any:
    return [value.real, value.imag] if isinstance(value, complex) else value


def export(folder: str) -> None:
    """Write all files into a new folder: `sound` and `unsound`, each file as .h5 and .zarr beside a .json."""
    os.makedirs(folder)
    for part in ("sound", "unsound"):
        os.mkdir(os.path.join(folder, part))
    for name, tensor, options in sound():
        path = os.path.join(folder, "sound", name)
        write(f"{path}.h5", tensor, **options)
        write(f"{path}.zarr", tensor, compression="none", **options)
        _write_json(path, {"format": str(describe(path + ".h5").descriptor.format), **expected(tensor)})
    for k, case in enumerate(unsound()):
        path = os.path.join(folder, "unsound", f"{case.rule}_{k:02}")
        header, arrays = container(case)
        for suffix, kept in ((".h5", Storage()), (".zarr", Storage(compression="none"))):
            write_arrays(path + suffix, header, arrays, storage=kept)
        _write_json(path, {"rule": case.rule, "why": case.why})


def _write_json(path: str, facts: dict[str, Any]) -> None:
    with open(f"{path}.json", "x", encoding="utf-8") as file:
        json.dump(facts, file, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    export(*sys.argv[1:])
