"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def bench(*arguments):
    command = [sys.executable, "-m", "bench", "--entries", "2000", "--rounds", "1", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


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


def test_object_stores():
    pytest.importorskip("moto")
    command = [sys.executable, "-m", "bench.objects", "--rows", "5", "--latency", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "| s3fs | read |" in run.stdout
