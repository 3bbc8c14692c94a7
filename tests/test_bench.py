"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # the board is no part of the package

from bench import results  # noqa: E402

HEADLINES = {
    "pack CSR", "pack CSF", "CSR → CSC", "SpMV, CSR", "open HDF5, 10 rows, 100 times", "open Zarr, 10 rows, 100 times",
}  # fmt: skip


def bench(*arguments, fails=False):
    command = [sys.executable, "-m", "bench", "--entries", "2000", "--rounds", "1", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert bool(ended.returncode) == fails, ended.stderr
    return ended.stderr if fails else ended.stdout


def test_every_row_runs():
    found = json.loads(bench("--json"))
    assert set(found["rows"]) >= HEADLINES
    assert len(found["rows"]) <= 45
    for name, row in found["rows"].items():
        seconds = found["seconds"][name]
        assert seconds["ours"] > 0
        if row["peer"]:
            assert row["ratio"] == pytest.approx(seconds[row["peer"]] / seconds["ours"], abs=1e-3)


def test_the_table():
    table = [line for line in bench("--rows", "pack CS").splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table[2:]][:3] == [
        "| **pack CSR**",
        "| **pack CSF**",
        "| pack CSR, sorted",
    ]
    assert len({line.count("|") for line in table}) == 1


def test_results_are_kept_for_each_processor(tmp_path):
    measured = json.loads(bench("--rows", "unpack", "--json", "--keep", str(tmp_path)))
    path = tmp_path / f"{results.slug(measured['processor'])}.json"
    assert {x.name for x in tmp_path.iterdir()} == {path.name, results.PAGE}
    bench("--rows", "unpack CSF", "--keep", str(tmp_path))
    kept = json.loads(path.read_text())
    assert {"processor", "cores", "commit", "entries", "rows"} == set(kept)
    assert list(kept["rows"]) == ["unpack CSR", "unpack CSF"]
    assert kept["rows"]["unpack CSR"] == measured["rows"]["unpack CSR"]


def test_what_is_kept_in_the_repository_is_shown():
    assert (results.FOLDER / results.PAGE).read_text(encoding="utf-8") == "\n".join(results.page(results.kept()))


def test_before_and_after(tmp_path):
    lines = bench("--rows", "unpack CSR", "--against", str(ROOT)).splitlines()
    assert lines[2].endswith("| before, ms | before / ours |")
    assert float(lines[4].split("|")[-2]) > 0
    assert "no package binsparse_levels there" in bench("--against", str(tmp_path), fails=True)
