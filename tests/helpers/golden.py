"""Real files by the real programs, and how the tests read them."""

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
    """The tensor, and the repairs that it took: none in strict mode."""
    try:
        return read(path), []
    except BinsparseError:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            return read(path, lenient=True), [str(warning.message) for warning in told]


def names_of(tensor):
    """The names of rows and columns, a list each; empty where there are none."""
    labels = [tensor.labels(dim) for dim in tensor.dims or ()]
    return [[] if x is None else x.tolist() for x in labels] or [[]] * tensor.ndim
