"""The JSON schema of the Zarr convention accepts every Zarr file that a reader shall read."""

import json
import re
from pathlib import Path

import conformance
import jsonschema
import numpy as np
import pytest
import zarr

import binsparse_levels as bl

FOLDER = Path(__file__).parents[2] / "docs" / "proposal"
PAGE = (FOLDER / "zarr_convention.md").read_text()
SCHEMA = json.loads((FOLDER / "zarr_convention.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DECLARED = json.loads(re.search(r'"zarr_conventions": (\[.*\])', PAGE)[1])


def faults(path):
    """The faults of the metadata document of a group, by the schema."""
    return [fault.message for fault in VALIDATOR.iter_errors(json.loads((path / "zarr.json").read_text()))]


def declare(path, **keys):
    """Declare the convention in a stored tensor, and add keys to its header."""
    group = zarr.open_group(path, mode="r+")
    group.attrs["zarr_conventions"] = DECLARED
    group.attrs["binsparse"] = {**group.attrs["binsparse"], **keys}


@pytest.mark.slow
def test_every_conformance_file_fits_the_schema(tmp_path):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name, tensor, options in conformance.sound():
        path = tmp_path / f"{name}.zarr"
        bl.write(path, tensor, compression="none", **options)
        assert faults(path) == ["'zarr_conventions' is a required property"], name
        declare(path)
        assert faults(path) == [], name
        assert bl.read(path).equals(tensor), name


def test_the_schema_refuses_as_many_unsound_files_as_the_page_says():
    refused = []
    for case in conformance.unsound():
        attributes = {"zarr_conventions": DECLARED, "binsparse": conformance.container(case)[0]}
        if not VALIDATOR.is_valid({"zarr_format": 3, "node_type": "group", "attributes": attributes}):
            refused.append(case.rule)
    assert f"It refuses {len(refused)} of the {len(conformance.unsound())} files" in PAGE
    assert refused.count("header") == 6


def test_orders_of_a_tensor_lie_in_its_group(tmp_path):
    path, matrix = tmp_path / "a.zarr", bl.pack([[0, 0, 2], [1, 3, 0]], np.array([5, 7, 1]), (3, 4), "CSR")
    bl.write(path, matrix, orders=["CSC"])
    declare(path)
    assert faults(path) == []
    bl.append(path, matrix)
    assert faults(path) == []  # the declaration stays
    assert zarr.open_group(path).attrs["binsparse"]["binsparse_levels:orders"] == ["order_1_0"]
    declare(path, **{"binsparse_levels:orders": []})
    assert len(faults(path)) == 1
    assert bl.read(path).equals(bl.read(f"{path}:order_1_0"))
