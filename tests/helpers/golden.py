"""Real files written by other programs, and functions to read them."""

import json
import warnings
from pathlib import Path

import numpy as np

from binsparse_levels import BinsparseError, read

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


FILES = json.loads((GOLDEN / "manifest.json").read_text())["files"]


def arrays_of(path):
    """The arrays of an .npz file by name."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def target(entry):
    return f"{GOLDEN / entry['file']}" + (f":{entry['group']}" if entry.get("group") else "")


def read_leniently(path):
    """The tensor and its repairs; no repairs if strict reading accepts the file."""
    try:
        return read(path), []
    except BinsparseError:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return read(path, lenient=True), [str(warning.message) for warning in caught]


def names_of(tensor):
    """The names of rows and columns as lists; empty if there are none."""
    labels = [tensor.labels(dim) for dim in tensor.dims or ()]
    return [[] if x is None else x.tolist() for x in labels] or [[]] * tensor.ndim
