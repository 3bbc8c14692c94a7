"""The JSON schema of the Zarr convention accepts every Zarr file that a reader shall read."""

import json
import re
from pathlib import Path

import conformance
import jsonschema
import numpy as np
import pyarrow
import pytest
import zarr

import binsparse_levels as bl

FOLDER = Path(__file__).parents[2] / "docs" / "proposal"
PAGE = (FOLDER / "zarr_convention.md").read_text()
CONVENTION = FOLDER / "zarr_convention"
README = (CONVENTION / "README.md").read_text()
SCHEMA = json.loads((CONVENTION / "schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DECLARED = json.loads(re.search(r'"zarr_conventions": (\[.*?\])', README, re.DOTALL)[1])


def faults(path):
    """The faults of the metadata document of a group, by the schema."""
    return [fault.message for fault in VALIDATOR.iter_errors(json.loads((path / "zarr.json").read_text()))]


def declare(path, **keys):
    """Declare the convention in a stored tensor, and add keys to its header."""
    group = zarr.open_group(path, mode="r+")
    group.attrs["zarr_conventions"] = DECLARED
    group.attrs["binsparse"] = {**group.attrs["binsparse"], **keys}


MATRIX = bl.pack([[0, 0, 1, 2, 2], [1, 3, 2, 0, 3]], np.array([5, 7, 1, 4, 2], np.int16), (3, 4), "CSR")
TABLE = pyarrow.table({"day": ["mon", "tue", "tue"], "site": ["a", "b", "a"], "v": [1.0, 2.0, 3.0]})
EXAMPLES = {
    "csr": MATRIX,
    "rank_4": bl.pack(
        [[0, 2], [1, 0], [4, 1], [0, 0]], [1.5, 2.5], (3, 4, 5, 2), "dense, sparse, sparse(2) @ 2, 0, 1, 3"
    ),
    "labels": bl.from_table(TABLE, ["day", "site"], "v", "CSR"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_is_written(tmp_path, name):
    bl.write(tmp_path / "a.zarr", EXAMPLES[name], convention=True)
    found = json.loads((tmp_path / "a.zarr" / "zarr.json").read_text())
    del found["attributes"]["binsparse_levels:arrays"]
    example = json.loads((CONVENTION / "examples" / f"{name}.json").read_text())
    assert found == example
    VALIDATOR.validate(example)
    assert f"(examples/{name}.json)" in README
    assert len(list((CONVENTION / "examples").iterdir())) == len(EXAMPLES)


def test_the_readme_has_the_headings_of_the_template():
    headings = re.findall("^## (.*)$", README, re.MULTILINE)
    wanted = [
        "Description",
        "Motivation",
        "Convention Registration",
        "Applicable To",
        "Properties",
        "Known Implementations",
    ]
    assert [heading for heading in headings if heading in wanted] == wanted
    assert f"**UUID**: {DECLARED[0]['uuid']}" in README


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


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("group", ["", ":/", ":a/b"])
def test_the_option_declares_the_convention_once(tmp_path, kind, group):
    matrix = bl.pack([[0, 0, 2], [1, 3, 0]], np.array([5, 7, 1]), (3, 4), "CSR")
    place = f"{tmp_path}/a.zarr{group}"

    def declared():
        return zarr.open_group(tmp_path / "a.zarr", path=group.strip(":/"), mode="r").attrs.get("zarr_conventions")

    bl.write(place, matrix, kind=kind, convention=True)
    assert declared() == DECLARED
    assert bl.read(place).equals(matrix)
    bl.append(place, matrix)
    assert declared() == DECLARED
    assert bl.open(place)[:3].equals(matrix)
    bl.write(place, matrix, kind=kind, overwrite=True)  # the only content is the tensor: nothing is in the way
    assert declared() is None


def test_other_conventions_stay(tmp_path):
    matrix, path = bl.pack([[0, 0, 2], [1, 3, 0]], np.array([5, 7, 1]), (3, 4), "CSR"), tmp_path / "a.zarr"
    other = {"uuid": "d35379db-88df-4056-af3a-620245f8e347", "name": "multiscales"}
    zarr.create_group(path, attributes={"zarr_conventions": [other]})
    bl.write(f"{path}:/", matrix, convention=True)
    bl.append(path, matrix)
    assert zarr.open_group(path).attrs["zarr_conventions"] == [other, *DECLARED]
    with pytest.raises(bl.BinsparseError, match="zarr_conventions"):
        bl.write(path, matrix, overwrite=True)
    bl.write(f"{path}:/", matrix, overwrite=True)
    assert zarr.open_group(path).attrs["zarr_conventions"] == [other]


def test_a_tensor_written_in_place_declares_it(tmp_path):
    matrix, store = bl.pack([[0, 0, 2], [1, 3, 0]], np.array([5, 7, 1]), (3, 4), "CSR"), zarr.storage.MemoryStore()
    for wanted in (True, False, True):
        bl.write(store, matrix, convention=wanted, orders=["CSC"], overwrite=True)
        group = zarr.open_group(store, mode="r")
        for place in (group, group["order_1_0"]):
            assert place.attrs.get("zarr_conventions", []) == DECLARED * wanted
    bl.write(store, matrix, convention=True, overwrite=True)
    bl.append(store, matrix, part=True)
    assert zarr.open_group(store, mode="r").attrs["zarr_conventions"] == DECLARED


@pytest.mark.parametrize("name", ["a.h5", "a.npz", "a.bspnpy", "a.nc", "a.mtx", "a.h5ad"])
def test_other_containers_refuse_it(tmp_path, name):
    with pytest.raises(bl.OptionError, match="convention"):
        bl.write(tmp_path / name, np.eye(3), convention=True)
    assert not (tmp_path / name).exists()
    with pytest.raises(bl.OptionError, match="convention"):
        bl.write({}, np.eye(3), convention=True)
    with pytest.raises(bl.OptionError, match="convention: expected True or False"):
        bl.write(tmp_path / "a.zarr", np.eye(3), convention="binsparse")
