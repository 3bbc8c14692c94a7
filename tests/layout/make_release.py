"""Write the golden files of this release: `python tests/layout/make_release.py`. Later releases have to read them.

Each release has a folder, and in it a manifest: for every tensor its file, its entries, and what else is known of it.
"""

import json
from pathlib import Path

import numpy as np
from conformance import (
    DTYPES,
    KINDS,
    MAPS,
    STRUCTURES,
    bit_packed,
    labelled,
    matrix,
    of_format,
    stored_labels,
    symmetric,
    vector,
)

import binsparse_levels as bl

DATA = Path(__file__).parents[1] / "data"


def release():
    """The name of the folder of this release."""
    return "release_" + "_".join(bl.__version__.split(".")[:2])


def cases():
    """For each tensor: the place in the folder, the tensor, and the options of `write`."""
    for k, format in enumerate(KINDS):
        yield f"kinds.h5:kind_{k}", of_format(format), {}
    for dtype in DTYPES:
        yield f"types.h5:{dtype}", vector(dtype), {}
        yield f"types.h5:iso_{dtype}", bl.pack([[1, 4]], np.array(1, dtype), (6,), "CVEC", fill_value=0), {}
    yield "bitpacked.h5:plain", bit_packed(), {"bitpacked": ["indices_0", "values"]}
    yield "bitpacked.h5:short", matrix(), {"bitpacked": ["pointers_to_1", "indices_1", "values"]}
    for k, (map, format) in enumerate(MAPS.items()):
        yield f"maps.h5:map_{k}", matrix(format, map=map), {}
    for structure in STRUCTURES:
        yield f"structures.h5:{structure}", symmetric(structure), {}
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
            for dim, x in stored_labels(tensor).items()
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
