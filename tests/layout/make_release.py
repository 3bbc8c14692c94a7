"""Write the golden files of this release: `python tests/layout/make_release.py`. Later releases have to read them.

Each release has a folder, and in it a manifest: for every tensor its file, its entries, and what else is known of it.
"""

import json
from pathlib import Path

import numpy as np

import binsparse_levels as bl

DATA = Path(__file__).parents[1] / "data"
COORDS = [[0, 0, 1, 2, 2, 2, 4], [1, 3, 3, 0, 1, 2, 4]]
VALUES = [5, 7, -1, 1, 2, 3, 4]
CUBE = [[0, 0, 1, 1, 3], [0, 2, 1, 1, 0], [1, 1, 0, 3, 4]]
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


def release():
    """The name of the folder of this release."""
    return "release_" + "_".join(bl.__version__.split(".")[:2])


def vector(dtype="float64", format="CVEC"):
    with np.errstate(all="ignore"):
        values = np.array([1, 0, 3]).astype(dtype) * (1j if dtype.startswith("complex") else 1)
    return bl.pack([[0, 2, 5]], values.astype(dtype), (6,), format)


def matrix(format="CSR", **options):
    return bl.pack(COORDS, np.array(VALUES, "i2"), (5, 5), format, **options)


def of_format(format):
    parsed = bl.parse_format(format)
    if parsed.rank == 3:
        return bl.pack(CUBE, np.array([1.5, -0.0, 2.5, 2.5, 4]), (4, 3, 5), format)
    if parsed.rank == 0:
        return bl.pack([], [2.5], (), format)
    return matrix(format) if parsed.rank == 2 else vector(format=format)


def symmetric(structure):
    coords = [[1, 2], [0, 1]] if structure.endswith("lower") else [[0, 1], [1, 2]]
    values = np.array([1.5, 2 + (1j if structure.startswith("hermitian") else 0)])
    return bl.pack(coords, values, (4, 4), "DCSR", structure=structure)


def labelled():
    import pyarrow

    table = pyarrow.table({
        "text": ["a", "π", "a"], "truth": [True, False, False], "day": pyarrow.array([0, 9, 9], pyarrow.date32()),
        "time": pyarrow.array([5, 0, 5], pyarrow.timestamp("us", "Europe/Berlin")), "number": [0, 3, 2],
        "value": [1.5, 2.5, 3.5],
    })  # fmt: skip
    names = ["text", "truth", "day", "time", "number"]
    return bl.from_table(table, names, "value", "CSF", labels={"truth": [True, False]})


def cases():
    """For each tensor: the place in the folder, the tensor, and the options of `write`."""
    for k, format in enumerate(KINDS):
        yield f"kinds.h5:kind_{k}", of_format(format), {}
    for dtype in DTYPES:
        yield f"types.h5:{dtype}", vector(dtype), {}
        yield f"types.h5:iso_{dtype}", bl.pack([[1, 4]], np.array(1, dtype), (6,), "CVEC", fill_value=0), {}
    long = bl.pack([np.arange(0, 900, 3) ** 2], np.arange(-150, 150) * 2**33, (2**20,), "sparse")
    yield "bitpacked.h5:plain", long, {"bitpacked": ["indices_0", "values"]}
    yield "bitpacked.h5:short", matrix(), {"bitpacked": ["pointers_to_1", "indices_1", "values"]}
    for k, (map, format) in enumerate(MAPS.items()):
        yield f"maps.h5:map_{k}", matrix(format, map=map), {}
    for kind in ("symmetric", "hermitian", "skew_symmetric"):
        for triangle in ("lower", "upper"):
            yield f"structures.h5:{kind}_{triangle}", symmetric(f"{kind}_{triangle}"), {}
    attributes = {"note": "ä", "list": [1, 0.1, None, {"π": True}]}
    whole = labelled().with_attributes(attributes)
    for place in ("labels.h5", "labels.nc", "labels.zarr.zip", "labels.npz", "labels.bspnpy", "labels.bspra"):
        yield place, whole, {"checksum": True}
    yield "version_2.zarr", matrix("dense, hashed", fill_value=9), {"kind": "zarr2"}
    yield "chunks.zarr", matrix(), {"chunks": 2, "shards": 4, "compression": "gzip"}
    yield "chunks.h5:deflated", matrix(), {"chunks": 3, "compression": "gzip"}
    yield "chunks.h5:fletcher", matrix(), {"chunks": 3}
    yield "old_version.h5", matrix(), {"spec_version": "0.1"}


def described(tensor):
    """What the manifest says of a tensor. Values are texts, so that every number is kept."""
    coords, values = tensor.unpack()
    labels = {dim: tensor.labels(dim) for dim in tensor.dims or ()}
    return {
        "shape": list(tensor.shape),
        "format": str(tensor.format),
        "dtype": tensor.dtype.name,
        "coords": [x.tolist() for x in coords],
        "values": [str(value) for value in values.tolist()],
        "fill_value": None if tensor.fill_value is None else str(tensor.fill_value.tolist()),
        "iso": tensor.iso,
        "structure": tensor.structure,
        "map": None if tensor.map is None else str(tensor.map),
        "attributes": dict(tensor.attributes),
        "labels": {
            dim: None if x is None else ["text" if x.dtype.kind == "T" else x.dtype.name, *map(str, x)]
            for dim, x in labels.items()
        },
        "types": {name: array.dtype.name for name, array in tensor.arrays.items()},
    }


def datasets(folder):
    """Two Datasets of xarray, the same."""
    import sparse
    import xarray as xr

    counts = sparse.COO([[0, 1], [2, 0]], [1.5, 2.5], shape=(2, 3))
    dataset = xr.Dataset(
        {"counts": (("x", "y"), counts, {"unit": "m"}), "dense": ("x", [1.0, 2.0])}, {"y": [3, 4, 5]}, {"title": "t"}
    )
    for name in ("dataset.nc", "dataset.zarr"):
        bl.write_dataset(folder / name, dataset, {"counts": "CSR"})
        yield f"{name}:counts", bl.read(f"{folder / name}:counts")


def make(folder):
    """Write all files and the manifest into a new folder."""
    folder.mkdir()
    manifest = {}
    for place, tensor, options in cases():
        bl.write(f"{folder}/{place}", tensor, **options)
        manifest[place] = described(tensor)
    manifest |= {place: described(tensor) for place, tensor in datasets(folder)}
    text = ",\n".join(f" {json.dumps(place)}: {json.dumps(given)}" for place, given in manifest.items())
    (folder / "manifest.json").write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    make(DATA / release())
