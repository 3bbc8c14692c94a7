"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path


def test_every_row_runs():
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "bench", "--entries", "2000", "--rounds", "1", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=root)
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert len(rows) >= 8
    for row in rows:
        assert row["ours"]["minimum"] > 0
