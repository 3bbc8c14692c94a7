"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from binsparse_levels.building.running import STAGES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def bench(*arguments):
    return run("bench", "--entries", "2000", "--rounds", "1", *arguments)


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_row_runs():
    rows = json.loads(bench("--json"))["rows"]
    assert len(rows) >= 50
    for row in rows:
        assert row["times"]["ours"]["minimum"] > 0
        assert row["verdict"]["word"] in ("below gate", "ok", "ahead of aim", "no peer")


def test_table_and_picture(tmp_path):
    lines = bench("--rows", "unpack", "--picture", str(tmp_path / "board.svg")).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 2
    assert len({line.count("|") for line in table}) == 1
    ElementTree.parse(tmp_path / "board.svg")


def test_growth():
    assert "| 2,000 |" in bench("--growth", "--rows", "rank 2")


def test_building(tmp_path):
    tiny = ["--rows", "20000", "--workers", "1", "--memory", "1GB", "--source", tmp_path]
    told = json.loads(run("bench.building", *tiny, "--json", "--kill"))
    assert told["rows"] == 20000
    assert 0 < told["entries"] < told["rows"]
    stages = {stage["name"]: stage["figures"] for stage in told["stages"]}
    assert list(stages) == ["plan", *STAGES]
    assert stages["partition"]["put"] > 20 * told["rows"]
    lines = run("bench.building", *tiny).splitlines()
    assert len([line for line in lines if line.startswith("|")]) == 2 + len(stages) + 2 + 3


def test_object_stores():
    pytest.importorskip("moto")
    assert "| s3fs | read |" in run("bench.objects", "--rows", "5", "--latency", "0")
