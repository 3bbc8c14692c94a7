"""Every release reads the files that it and all earlier ones wrote, and so does a reader that is not ours."""

import json
import re
import struct

import make_release
import numpy as np
import pytest
import reader
import zarr
from helpers.golden import arrays_of
from make_release import DATA, described
from test_layout import same

import binsparse_levels as bl
from binsparse_levels.formats.dtypes import parse_dtype
from binsparse_levels.levels import OURS

RELEASES = {folder.name: json.loads((folder / "manifest.json").read_text()) for folder in DATA.glob("release_*")}
CASES = [(release, place) for release, manifest in RELEASES.items() for place in manifest]


def header_and_arrays(path, group):
    """What a container holds, by other libraries, as the page on the layout of files says."""
    if path.suffix in (".zarr", ".zip"):
        store = zarr.storage.ZipStore(path, mode="r") if path.suffix == ".zip" else path
        place = zarr.open_group(store, path=group, mode="r", use_consolidated=False)
        return dict(place.attrs["binsparse"]), {name: array[:] for name, array in place.arrays()}
    if path.suffix == ".npz":
        arrays = arrays_of(path)
        return json.loads(arrays.pop("binsparse").item()), arrays
    header = json.loads((path / "binsparse.json").read_text())
    arrays = {file.stem: np.load(file) for file in path.glob("*.npy")}
    for file in path.glob("*.ra"):
        magic, flags, kind, width, size, rank, length = struct.unpack("<8s6Q", file.read_bytes()[:56])
        assert (magic, flags, rank, size) == (b"rawarray", 0, 1, width * length)
        arrays[file.stem] = np.frombuffer(file.read_bytes()[56:], f"<{' iuf'[kind]}{width}")
    return header, arrays


@pytest.mark.parametrize(("release", "place"), CASES)
def test_a_golden_file_is_read(release, place):
    expected, path = RELEASES[release][place], f"{DATA / release / place}"
    tensor = bl.read(path)
    assert described(tensor) == expected
    with bl.open(path) as lazy:
        assert described(lazy.load()) == expected
    if "draft" in release and place.startswith(("maps", "bitpacked")):
        return  # they have no level at the root, which the proposal demands
    file, _, group = place.partition(":")
    file = DATA / release / file
    if file.name.startswith("dataset"):
        tensor = tensor.with_labels({"y": None})  # which is a coordinate at the root
    if file.suffix in (".h5", ".nc"):
        same(reader.tensors(file)[group or "/"], tensor)
    else:
        same(reader.decode(*header_and_arrays(file, group)), tensor)


@pytest.mark.parametrize("name", ["chunks.zarr", "version_2.zarr", "dataset.zarr/counts"])
def test_the_list_of_arrays_in_zarr(name):
    folder = DATA / "release_0_1" / name
    newer = (folder / "zarr.json").exists()

    def metadata(place):
        keys = ["zarr.json"] if newer else [".zarray", ".zattrs"]
        first, *attributes = (json.loads((place / key).read_text()) for key in keys)
        return first | {"attributes": attributes[0]} if attributes else first

    held = json.loads((folder / ("zarr.json" if newer else ".zattrs")).read_text())
    attributes = held["attributes"] if newer else held
    listed, header = attributes["binsparse_levels:arrays"], attributes["binsparse"]
    assert listed["header"] == reader.crc32c(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
    assert listed["arrays"].keys() == header["binsparse"]["data_types"].keys()
    assert listed["bytes"].keys() <= listed["arrays"].keys()
    for array, given in listed["arrays"].items():
        assert given == metadata(folder / array)
        assert given["attributes"]["binsparse_levels:all_chunks_stored"] is True


def test_nothing_is_left_out_of_the_manifests():
    assert "release_0_1" in RELEASES
    for release, manifest in RELEASES.items():
        there = {path.name for path in (DATA / release).iterdir()} - {"manifest.json"}
        assert there == {place.partition(":")[0] for place in manifest}
        for path in (DATA / release).glob("*.h5"):
            groups = {f"{path.name}:{name}".removesuffix(":/") for name in bl.list_tensors(path)}
            assert groups == {place for place in manifest if place.startswith(path.name)}


@pytest.mark.slow
def test_this_release_has_its_golden_files(tmp_path):
    make_release.make(tmp_path / "new")
    new, kept = (
        json.loads((x / "manifest.json").read_text()) for x in (tmp_path / "new", DATA / make_release.release())
    )
    assert new == kept, "a release writes what it wrote; for a new release run tests/layout/make_release.py"


def test_the_golden_files_have_everything():
    """Every level kind, predefined name, data type, structure and kind of map."""
    tensors = RELEASES[make_release.release()].values()
    formats = " ".join(x["format"] for x in tensors)
    wanted = [kind.kind for kind in OURS] + list(bl.ALIASES)
    assert not [word for word in wanted if not re.search(rf"\b{word}\b", formats)]
    assert {x["dtype"] for x in tensors} == {parse_dtype(t, "").dtype.name for t in (
        "bint8", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
        "complex[float32]", "complex[float64]",
    )}  # fmt: skip
    assert len({x["structure"] for x in tensors}) == 7
    assert sum(x["map"] is not None for x in tensors) >= 4
    assert any(x["iso"] for x in tensors)
    assert any(x["attributes"] and x["labels"] for x in tensors)
