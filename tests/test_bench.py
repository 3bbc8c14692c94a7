"""A tiny run of every row of the board."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import binsparse_levels

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # the board is no part of the package

from bench import machine, results, table  # noqa: E402
from bench.moved import moved  # noqa: E402
from bench.picture import growth_picture  # noqa: E402
from bench.row import BELOW, OK, OURS, OURS_2, Row, summary, verdict  # noqa: E402


def bench(*arguments):
    return run("bench", "--entries", "2000", "--rounds", "1", *arguments)


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_row_runs():
    rows = json.loads(bench("--quick", "--json"))["rows"]
    assert len(rows) >= 200
    for row in rows:
        assert row["times"]["ours"]["minimum"] > 0
        assert row["verdict"]["behind"] in ("", *row["times"])
        assert row["verdict"]["word"] in ("below gate", "ok", "ahead of aim", "no peer")


def test_table_and_picture(tmp_path):
    lines = bench("--rows", "unpack, 1 a", "--picture", str(tmp_path / "board.svg")).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1
    assert lines[-1].startswith("4 rows: ")
    assert lines[-1].endswith(" behind a peer.")
    ElementTree.parse(tmp_path / "board.svg")


def test_results_are_kept_for_each_processor(tmp_path):
    few = "unpack, 1 a fiber, CSR"
    measured = json.loads(bench("--rows", few, "--json", "--keep", str(tmp_path)))
    path = tmp_path / f"{machine.slug(measured['processor'])}.json"
    assert {x.name for x in tmp_path.iterdir()} == {path.name, path.with_suffix(".svg").name, results.PAGE}
    bench("--rows", f"{few}, as", "--keep", str(tmp_path))
    kept = json.loads(path.read_text())
    assert {"processor", "speeds", "versions", "date", "commit"} <= set(kept)
    assert [row["row"] for row in kept["rows"]] == [few, f"{few}, as stored"]
    for row, found in zip(kept["rows"], measured["rows"], strict=True):
        assert row["moved"] == found["moved"]
        assert row["of_copy"] > 0
        best = min(time["minimum"] for time in row["peers"].values())
        assert row["ratio"] == pytest.approx(best / row["ours"]["minimum"])
    other = {**kept, "processor": {"model": "Other", "cores": 3}, "rows": kept["rows"][:1]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    lines = run("bench", "--results", str(tmp_path), "--rows", "unpack").splitlines()
    assert any(line.startswith("2. Other, 3 cores") for line in lines)
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
    page = (results.FOLDER / results.PAGE).read_text(encoding="utf-8")
    assert page == "\n".join(results.page(results.kept()))


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
    lines = bench("--rows", "unpack, 1 a fiber, CSR", "--against", str(ROOT)).splitlines()
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


def test_a_stream():
    told = run("bench.stream", "--rows", "3e5", "--chunk", "7e4", "--dtype", "int16", "--suffix", ".zarr")
    assert told.startswith("300,000 entries in 5 chunks to .zarr: ")


def test_object_stores():
    pytest.importorskip("moto")
    assert "| s3fs | read |" in run("bench.objects", "--rows", "5", "--latency", "0")


def test_files_of_others_are_opened_and_converted():
    lines = run("bench.others", "--entries", "20000").splitlines()
    assert len(lines) == 2 + 19
    assert all(line.endswith("| yes |") for line in lines[2:])


def test_the_verdict_and_the_last_lines():
    gates = {"scipy": (2, 4), "copy": (0.5, None)}
    made = Row("unpack", 5, lambda _: None, lambda _: None, {}, gates, limits={"copy": lambda _: lambda: None})
    judged = [
        verdict(made, {OURS: 1.0, "scipy": scipy, "numpy": 3.0, "copy": copy})
        for scipy, copy in ((5.0, 1.0), (3.0, 1.0), (1.5, 1.0), (0.5, 1.0), (5.0, 0.4))
    ]
    assert [(one.against, one.word, one.behind) for one in judged] == [
        ("copy", OK, ""), ("scipy", OK, ""), ("scipy", BELOW, ""), ("scipy", BELOW, "scipy"),
        ("copy", BELOW, ""),
    ]  # fmt: skip
    times = {OURS: {"minimum": 2.0}, OURS_2: {"minimum": 1.0}, "scipy": {"minimum": 1.0}}
    rows = [{"row": "unpack", "entries": 5, "times": times, "verdict": one._asdict()} for one in judged]
    assert list(summary(rows)) == [
        "behind scipy, 0.50: unpack, 5",
        "Two threads: 5 rows, 5 at least 1.5 times as fast as with one, 0 slower.",
        "5 rows: 0 ahead of their aim, 2 ok, 3 below their gate, 0 without a peer; 1 behind a peer.",
    ]
