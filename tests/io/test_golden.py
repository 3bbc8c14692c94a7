"""Files by other programs read to what they hold; malformed ones are refused, in a process of their own."""

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.golden import FILES, GOLDEN, arrays_of, read_leniently, target

from binsparse_levels import BinsparseError, DialectWarning, read, write

MALFORMED = json.loads((GOLDEN / "malformed" / "manifest.json").read_text())["files"]


@pytest.mark.parametrize("entry", FILES, ids=lambda entry: entry["file"])
def test_reads_to_what_it_holds(entry, tmp_path):
    if entry.get("expect_verdict") == "reject":
        for lenient in (False, True):
            with pytest.raises(BinsparseError):
                read(target(entry), lenient=lenient)
        return
    tensor, repairs = read_leniently(target(entry))
    if entry.get("expect_verdict") in ("reject-strict", "accept-lenient") or entry.get("dialect") == "ivirshup":
        assert repairs
    expected = arrays_of(GOLDEN / entry["expect"])
    assert tensor.shape == tuple(expected["shape"])
    assert np.array_equal(tensor.to_dense(), expected["dense"], equal_nan=tensor.dtype.kind in "fc")
    assert tensor.dtype == expected["stored_values"].dtype
    assert tensor.structure == entry.get("structure")
    assert tensor.iso == entry.get("iso", False)
    coords, values = tensor.unpack()
    order = np.lexsort(coords[::-1]) if coords else np.arange(len(values))
    stored = np.array([x[order] for x in coords]).T.reshape(expected["stored_coords"].shape)
    assert np.array_equal(stored, expected["stored_coords"])
    assert np.array_equal(values[order], expected["stored_values"], equal_nan=tensor.dtype.kind in "fc")
    assert (tensor.fill_value is not None) == (entry.get("fill_value") is not None)
    if tensor.fill_value is not None:
        assert np.array_equal(expected["fill_value"].ravel()[0], tensor.fill_value, equal_nan=tensor.dtype.kind in "fc")
    write(tmp_path / "again.h5", tensor)
    again = read(tmp_path / "again.h5")
    assert again.equals(tensor)
    assert again.format.canonical() == tensor.format.canonical()
    assert (again.structure, again.dtype) == (tensor.structure, tensor.dtype)


READER = """
import json, resource, sys, warnings
import binsparse_levels as bl
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    outcomes = []
    for lenient in (False, True):
        try:
            tensor = bl.read(path, lenient=lenient)
        except bl.BinsparseError as error:
            outcomes.append(type(error).__name__)
        else:
            outcomes.append("read")
    print(json.dumps(outcomes), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes():
    paths = [str(GOLDEN / entry["file"]) for entry in MALFORMED]
    run = subprocess.run([sys.executable, "-c", READER, *paths], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(zip(paths, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("entry", MALFORMED, ids=lambda entry: entry["file"])
def test_malformed_files_are_refused(entry, outcomes):
    strict, lenient = outcomes[str(GOLDEN / entry["file"])]
    match entry["verdict"]:
        case "accept":
            assert (strict, lenient) == ("read", "read")
        case "reject":
            assert strict != "read"
            assert lenient != "read"
        case "reject-strict":
            assert strict != "read"
        case "limit":
            assert (strict, lenient) == ("LimitError", "LimitError")
        case verdict:
            assert verdict == "reject-or-lazy"


@pytest.mark.filterwarnings("ignore::binsparse_levels.DialectWarning")
@pytest.mark.parametrize(
    "entry",
    [
        e
        for e in MALFORMED
        if e["verdict"] == "reject-strict"
        if e["file"] != "malformed/json_dup_keys.bsp.h5"  # nobody knows which of the two values is meant
    ],
    ids=lambda e: e["file"],
)
def test_what_can_be_mended_becomes_a_clean_file(entry, tmp_path):
    tensor = read(GOLDEN / entry["file"], lenient=True)
    write(tmp_path / "clean.h5", tensor)
    assert read(tmp_path / "clean.h5").equals(tensor)


def test_repairs_are_told(tmp_path):
    path = GOLDEN / "malformed" / "idx_unsorted.bsp.h5"
    with pytest.warns(DialectWarning, match="not in order, sorted"):
        tensor = read(path, lenient=True)
    tensor.check()
