"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import binsparse_levels
from binsparse_levels.building.running import STAGES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # the board is no part of the package

from bench import machine, results, table  # noqa: E402
from bench.moved import moved  # noqa: E402
from bench.picture import growth_picture  # noqa: E402


def bench(*arguments):
    return run("bench", "--entries", "2000", "--rounds", "1", *arguments)


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
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


def test_results_are_kept_for_each_processor(tmp_path):
    measured = json.loads(bench("--rows", "unpack", "--json", "--keep", str(tmp_path)))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{machine.slug(measured['processor'])}.json"
    bench("--rows", "unpack, uniform, CSR", "--keep", str(tmp_path))
    kept = json.loads(path.read_text())
    assert {"processor", "speeds", "versions", "date", "commit"} <= set(kept)
    assert [row["row"] for row in kept["rows"]] == ["unpack, uniform, CSR", "unpack, uniform, CSF"]
    for row, found in zip(kept["rows"], measured["rows"], strict=True):
        assert row["moved"] == found["moved"]
        assert row["of_copy"] > 0
        best = min(time["minimum"] for time in row["peers"].values())
        assert row["ratio"] == pytest.approx(best / row["ours"]["minimum"])
    other = {**kept, "processor": {"model": "Other", "cores": 3}, "rows": kept["rows"][:1]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    lines = run("bench", "--results", str(tmp_path), "--rows", "unpack").splitlines()
    assert lines[1].startswith("2. Other, 3 cores")
    table = [line for line in lines if line.startswith("|")]
    assert (len(table), {line.count("|") for line in table}) == (2 + 2, {3 + 2 * 4})


def test_what_is_kept_in_the_repository_is_shown():
    files = list(results.FOLDER.glob("*.json"))
    assert files
    shown = run("bench", "--results")
    for path in files:
        kept = json.loads(path.read_text(encoding="utf-8"))
        assert machine.slug(kept["processor"]) == path.stem
        assert kept["processor"]["model"] in shown
        assert all(f"| {row['row']} | {row['entries']:,} |" in shown for row in kept["rows"])


@pytest.mark.parametrize(
    ("model", "generation", "name"),
    [
        ("Intel(R) Xeon(R) Processor", "Emerald Rapids", "intel-xeon-emerald-rapids"),
        ("AMD EPYC 9R45", "Zen 5", "amd-epyc-zen-5"),
        ("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", None, "intel-core-i7-8550u"),
        ("arm", None, "arm"),
    ],
)
def test_names_of_processors(model, generation, name):
    assert machine.slug({"model": model} | ({"generation": generation} if generation else {})) == name


def test_bytes_that_an_operation_moves():
    tensor = binsparse_levels.pack([[0, 1], [1, 2]], [1.0, 2.0], (2, 3), "COO")
    given = 2 * 2 * 4 + 2 * 8
    assert moved(tensor, None) == given
    assert moved(tensor, tensor.convert("CSR")) == given + 3 * 4  # the columns and the values are shared
    assert moved(np.zeros(5), [np.zeros(3), (np.zeros(2),)]) == 80
    assert moved("a path", tensor) is None


def test_before_and_after(tmp_path):
    lines = bench("--rows", "unpack, uniform, CSR", "--against", str(ROOT)).splitlines()
    assert lines[2].endswith("| before | before → ours |")
    assert " ×, ratio " in lines[4]
    command = [sys.executable, "-m", "bench", "--entries", "2000", "--rows", "unpack", "--against", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode
    assert "no package binsparse_levels in it" in ended.stderr


def test_growth(tmp_path):
    assert "| 2,000 |" in bench("--growth", "--rows", "rank 2", "--keep", str(tmp_path))
    written = {path.suffix: path for path in tmp_path.iterdir()}
    assert set(written) == {".md", ".svg"}
    ElementTree.parse(written[".svg"])
    assert "| 1,000 |" in written[".md"].read_text()


def test_jumps_are_marked():
    rows = [
        {
            "row": "pack, rank 2",
            "entries": n,
            "times": {"ours": {"minimum": t}, "ours, 2 threads": {"minimum": t}},
            "peaks": {},
        }
        for n, t in ((1000, 1e-3), (3000, 2e-3), (10_000, 2e-2))
    ]
    assert [(row["entries"], round(factor, 1)) for row, factor in table.jumps(rows)] == [(10_000, 3.0)]
    assert "| 10,000 | 2e+03 / 2e+03 /  ▲ 3.0 |" in "\n".join(table.growth(rows))
    assert growth_picture(rows).count("<circle") == 1


def test_building(tmp_path):
    tiny = ["--rows", "20000", "--workers", "1", "--memory", "1GB", "--source", tmp_path]
    told = json.loads(run("bench.building", *tiny, "--json", "--kill"))
    assert told["rows"] == 20000
    assert 0 < told["entries"] < told["rows"]
    stages = {stage["name"]: stage["figures"] for stage in told["stages"]}
    one_chunk = ["plan", "pack", "join", "write", "commit"]  # which needs no partitions
    assert list(stages) == one_chunk
    assert set(one_chunk) <= {"plan", *STAGES}
    assert sum(figures.get("put", 0) for figures in stages.values()) > 8 * told["entries"]
    lines = run("bench.building", *tiny).splitlines()
    assert len([line for line in lines if line.startswith("|")]) == 2 + len(stages) + 2 + 3


def test_object_stores():
    pytest.importorskip("moto")
    assert "| s3fs | read |" in run("bench.objects", "--rows", "5", "--latency", "0")


def test_files_of_others_are_opened_and_converted():
    lines = run("bench.others", "--entries", "20000").splitlines()
    assert len(lines) == 2 + 19
    assert all(line.endswith("| yes |") for line in lines[2:])
