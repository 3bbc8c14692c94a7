"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments):
    command = [sys.executable, "-m", "bench", "--rounds", "1", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_every_row_runs():
    rows = json.loads(run("--entries", "2000", "--json"))["rows"]
    assert len(rows) >= 50
    for row in rows:
        assert row["times"]["ours"]["minimum"] > 0
        assert "scipy" in row["times"] or "scipy" not in row["peers"]
