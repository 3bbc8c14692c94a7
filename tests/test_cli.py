"""The command line as a user calls it: exit status, what goes where, no tracebacks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from binsparse_levels import pack, read, write
from binsparse_levels.cli import main

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
TRIGRAMS = str(DATA / "trigrams.tns.gz")


@pytest.fixture
def run(capsys):
    def call(*arguments):
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as error:
            status = error.code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return call


@pytest.fixture
def path(tmp_path):
    write(
        tmp_path / "a.h5", pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSC", fill_value=0, attributes={"x": "\x1b[1m"})
    )
    return tmp_path / "a.h5"


def test_the_readme_command(run, tmp_path):
    out = tmp_path / "trigrams.h5"
    status, _, err = run("convert", TRIGRAMS, out, "--format", "dense, sparse, sparse(2) @ 0, 3, 1, 2")
    assert (status, err) == (0, "")
    assert run("check", out)[0] == 0
    status, text, _ = run("info", out)
    assert status == 0
    for word in ("40 × 26 × 26 × 26", "29329", "sparse(2)", "pointers_to_1", "dimension 3 (size 26)"):
        assert word in text
    assert read(out).equals(read(TRIGRAMS))


def test_bit_packed_arrays_are_converted_and_described(run, path, tmp_path):
    assert run("convert", path, tmp_path / "b.h5", "--bitpacked") == (0, "", "")
    status, text, _ = run("info", tmp_path / "b.h5", "--json")
    found = json.loads(text)["arrays"]["indices_1"]
    assert status == 0
    assert found["data_type"].startswith("bitpacked")
    assert found["length"] == 2
    assert read(tmp_path / "b.h5").equals(read(path))


def test_info_json(run, path):
    status, text, _ = run("info", path, "--json")
    found = json.loads(text)
    assert status == 0
    assert found["format"] == "CSC"
    assert found["shape"] == [3, 4]
    assert found["number_of_stored_values"] == 2
    assert found["arrays"]["indices_1"] == {"data_type": "int32", "length": 2, "bytes": 8}
    assert found["bytes"] == 8 + 5 * 4 + 16 + 8
    assert found["attributes"] == {"x": "\x1b[1m"}
    assert "\x1b" not in run("info", path)[1]


def test_info_of_a_text_file(run):
    status, text, _ = run("info", TRIGRAMS, "--json")
    assert status == 0
    assert json.loads(text)["shape"] == [40, 26, 26, 26]


@pytest.mark.parametrize("name", ["ptr_negative", "json_garbage", "level_list"])
def test_faulty_files_are_explained(run, name):
    path = DATA / "golden" / "malformed" / f"{name}.bsp.h5"
    status, text, err = run("check", path)
    assert status == 1
    assert str(path) in text
    assert "fault" in err
    status, text, err = run("check", path, "--json")
    assert status == 1
    assert err == ""
    found = json.loads(text)
    assert not found["ok"]
    assert found["problems"][0]["message"]


def test_check_json(run, path):
    assert json.loads(run("check", path, "--json")[1]) == {"path": str(path), "ok": True, "problems": []}


def test_dialects_are_read_when_asked_and_told(run, tmp_path):
    path = DATA / "golden" / "malformed" / "idx_unsorted.bsp.h5"
    assert run("convert", path, tmp_path / "b.h5")[0] == 1
    status, _, err = run("convert", path, tmp_path / "b.h5", "--lenient")
    assert status == 0
    assert "sorted" in err
    assert run("check", tmp_path / "b.h5")[0] == 0
    assert run("info", DATA / "golden" / "malformed" / "shape_float.bsp.h5", "--lenient")[2].startswith(
        "binsparse-levels: warning"
    )


def test_convert_options(run, tmp_path):
    (tmp_path / "a.tns").write_text("1 1 2\n1 1 3\n")
    assert run("convert", tmp_path / "a.tns", tmp_path / "a.h5")[0] == 1
    arguments = ("convert", tmp_path / "a.tns", tmp_path / "a.h5", "--duplicates", "sum", "--shape", "5,6")
    assert run(*arguments)[0] == 0
    assert read(tmp_path / "a.h5").shape == (5, 6)
    status, _, err = run(*arguments)
    assert status == 2
    assert "exists" in err
    assert run(*arguments, "--overwrite")[0] == 0
    assert run("convert", tmp_path / "a.h5", f"{tmp_path}/a.h5:g", "--format", "COO")[0] == 0
    assert run("convert", f"{tmp_path}/a.h5:g", tmp_path / "b.mtx")[0] == 0
    assert np.array_equal(read(tmp_path / "b.mtx").to_dense(), read(tmp_path / "a.h5").to_dense())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["info"],
        ["convert", "{a}"],
        ["convert", "{a}", "{b}", "--format", "crs"],
        ["convert", "{a}", "{b}", "--format", "sparse(3)"],
        ["convert", "{a}", "{b}", "--shape", "a,b"],
        ["convert", "{a}", "{b}", "--shape", "3,4"],
        ["convert", "{a}", "{b}.xyz"],
        ["convert", "{a}", "{a}"],
        ["convert", "{a}", "{b}/none/c.h5"],
        ["convert", "{a}", "{b}", "--duplicates", "all"],
        ["convert", "{a}", "{b}", "--format", "best", "--memory", "1G"],
        ["advise", "{a}", "--slices-by", "2"],
        ["advise", "{a}", "--kinds", "bogus"],
        ["draw", "{a}", "{b}", "--dimensions", "2"],
        ["draw", "{a}", "{b}", "--dimensions", "0,0"],
        ["draw", "{a}", "{b}/none/c.svg"],
    ],
)
def test_wrong_calls(run, path, arguments):
    places = {"a": path, "b": path.parent / "b.h5"}
    status, out, err = run(*(argument.format(**places) for argument in arguments))
    assert (status, out) == (2, "")
    assert err


@pytest.mark.parametrize("content", [None, b"", b"hello", b"%%MatrixMarket matrix\n"])
def test_faulty_inputs(run, tmp_path, content):
    if content is not None:
        (tmp_path / "a.h5").write_bytes(content)
    for command in (["info"], ["check"], ["convert"]):
        status, _, err = run(*command, tmp_path / "a.h5", *([tmp_path / "b.h5"] if command == ["convert"] else []))
        assert status == 1
        assert len(err.splitlines()) == 1


def test_advise_and_the_best_format(run, tmp_path):
    status, text, err = run("advise", TRIGRAMS, "--slices-by", "2", "--count", "3", "--picture", tmp_path / "a.svg")
    assert (status, err) == (0, "")
    assert "29,329 entries" in text
    assert "a slice of dimension 2" in text
    assert "<svg" in (tmp_path / "a.svg").read_text()
    found = json.loads(run("advise", TRIGRAMS, "--json", "--kinds", "dense,sparse")[1])
    assert found["shape"] == [40, 26, 26, 26]
    assert len(found["counts"]) == 16
    best = found["formats"][0]
    status, _, err = run("convert", TRIGRAMS, tmp_path / "a.npz", "--format", "best")
    assert (status, err) == (0, f"binsparse-levels: best format: {best['format']}\n")
    tensor = read(tmp_path / "a.npz")
    assert (str(tensor.format), tensor.nbytes) == (best["format"], best["bytes"])
    assert tensor.equals(read(TRIGRAMS))


def test_draw(run, path, tmp_path):
    out = tmp_path / "a.svg"
    assert run("draw", path, out) == (0, "", "")
    assert "indices_1" in out.read_text()
    status, _, err = run("draw", path, out, "--dimensions", "1,0")
    assert status == 2
    assert "exists" in err
    assert run("draw", path, out, "--dimensions", "1,0", "--overwrite")[0] == 0
    assert "dimension 1: 4 down, dimension 0: 3 across" in out.read_text()


def test_formats_lists_everything(run):
    text = run("formats")[1]
    for word in ("dense", "sparse", "DCSC", "COOR", "COO", "@ 1, 0"):
        assert word in text


def test_as_a_module_and_without_numba():
    code = (
        "import sys; from binsparse_levels.cli import main; status = main(sys.argv[1:]);"
        "assert not {'numba', 'zarr', 'scipy', 'rich'} & set(sys.modules), sys.modules.keys(); sys.exit(status)"
    )
    path = str(DATA / "golden" / "handmade" / "CSR_spec01.bsp.h5")
    run = subprocess.run([sys.executable, "-c", code, "info", path], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    run = subprocess.run(
        [sys.executable, "-m", "binsparse_levels", "--version"], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.startswith("binsparse-levels 0.")


# Tables, and builds by many processes

COLUMNS = ("--columns", "i,j,v")
TABLES = (".parquet", ".csv", ".arrow", ".feather")
ENTRIES = {"i": [2, 0, 2, 1], "j": [1, 3, 1, 0], "v": [1.5, 2.5, 3.0, 4.0]}
SUMMED = [[0, 0, 0, 2.5], [4, 0, 0, 0], [0, 4.5, 0, 0]]


def write_table(path, columns=ENTRIES):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, feather, ipc, parquet

    table = pyarrow.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=2)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path))
    else:
        with ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    return path


@pytest.mark.parametrize("suffix", TABLES)
def test_tables_are_converted(run, tmp_path, suffix):
    path, out = write_table(tmp_path / f"a{suffix}"), tmp_path / "a.h5"
    assert run("convert", path, out, *COLUMNS, "--format", "CSC", "--duplicates", "sum") == (0, "", "")
    assert str(read(out).format) == "CSC"
    assert read(out).to_dense().tolist() == SUMMED
    assert run("convert", path, out, *COLUMNS, "--shape", "5,4", "--duplicates", "first", "--overwrite")[0] == 0
    assert read(out).shape == (5, 4)
    assert str(read(out).format) == "COOR"
    assert read(out).to_dense()[2, 1] == 1.5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no peak of a process")
def test_tables_are_converted_in_bounded_memory(tmp_path):  # 559 MiB without a bound
    rows, generator = 6 * 10**6, np.random.default_rng(0)
    columns = {"i": generator.integers(0, 3000, rows), "j": generator.integers(0, 3000, rows), "v": np.ones(rows)}
    path = write_table(tmp_path / "a.csv", columns)
    code = (
        "import sys; from pathlib import Path; from binsparse_levels.cli import main; status = main(sys.argv[1:]);"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]); sys.exit(status)"
    )
    words = ["convert", path, tmp_path / "a.zarr", *COLUMNS, "--duplicates", "sum", "--memory", "500M"]
    made = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=280)
    assert made.returncode == 0, made.stderr
    assert 1024 * int(made.stdout) < 500 * 2**20
    assert read(tmp_path / "a.zarr").values.sum() == rows


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "--columns"),
        (("--columns", "i,j,x"), 2, "no such column; the table has i, j, v"),
        (("--columns", "v,j,i"), 1, "coordinates are integers"),
        (COLUMNS, 1, "more than once"),
        ((*COLUMNS, "--narrow"), 2, "leave them out"),
        ((*COLUMNS, "--format", "best"), 2, "leave them out"),
        ((*COLUMNS, "--shape", "2,4"), 1, "outside"),
        ((*COLUMNS, "--memory", "1K"), 1, "pass at least"),
    ],
)
def test_wrong_tables_are_refused(run, tmp_path, words, status, said):
    path = write_table(tmp_path / "a.csv")
    code, out, err = run("convert", path, tmp_path / "a.h5", *words)
    assert (code, out) == (status, "")
    assert said in err
    assert [x.name for x in tmp_path.iterdir()] == ["a.csv"]


def test_columns_are_those_of_a_table(run, path, tmp_path):
    status, _, err = run("convert", path, tmp_path / "b.h5", *COLUMNS)
    assert status == 2
    assert "--columns" in err


SUMS = (*COLUMNS, "--shape", "3,4", "--format", "CSR", "--duplicates", "sum")


@pytest.mark.parametrize("where", [(), ("--processes", "2"), "cluster"])
def test_build(run, tmp_path, where, request):
    write_table(tmp_path / "a.parquet")
    target, work = tmp_path / "a.zarr", tmp_path / "work"
    if where == "cluster":
        distributed = pytest.importorskip("distributed")
        cluster = distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0")
        request.addfinalizer(cluster.close)
        where = ("--client", cluster.scheduler_address)
    stored = ("--fill-value", "0", "--dtype", "float32", "--compression", "none", "--chunks", "2", "--shards", "4")
    assert run("build", tmp_path / "*.parquet", target, *SUMS, "--work", work, *where, *stored) == (0, "", "")
    found = read(target)
    assert (found.to_dense().tolist(), found.fill_value, found.dtype) == (SUMMED, 0, np.float32)
    assert run("build", tmp_path / "*.parquet", target, *SUMS)[0] == 2  # it exists
    assert run("build", tmp_path / "*.parquet", target, *SUMS, "--overwrite") == (0, "", "")


def test_tensors_are_built(run, tmp_path):
    for k, name in enumerate("ab"):
        write(tmp_path / f"{name}.h5", pack([[k], [k + 1]], [1.0], (3, 4), "CSR"))
    both = (tmp_path / "a.h5", tmp_path / "b.h5", tmp_path / "c.zarr")
    assert run("build", *both, "--shape", "3,4", "--format", "CSC") == (0, "", "")
    assert read(tmp_path / "c.zarr").to_dense().sum() == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--client", "tcp://127.0.0.1:1", "--processes", "2"), "leave out"),
        (("--fill-value", "x"), "expected a number"),
        (("--dtype", "x"), "dtype"),
        (("--format", "band, sparse"), "take dense and sparse levels"),
        (("--memory", "lots"), "number of bytes"),
    ],
)
def test_wrong_builds_are_refused(run, tmp_path, words, said):
    write_table(tmp_path / "a.parquet")
    status, _, err = run("build", tmp_path / "a.parquet", tmp_path / "a.zarr", *SUMS, *words)
    assert status == 2
    assert said in err
    assert not (tmp_path / "a.zarr").exists()


def test_steps_are_planned_run_and_committed(run, tmp_path):
    write_table(tmp_path / "a.parquet")
    target, work = tmp_path / "a.zarr", tmp_path / "work"
    assert run("progress", work)[0] == 1  # no plan yet
    assert run("plan", tmp_path / "a.parquet", target, *SUMS, "--work", work) == (0, "", "")
    assert run("commit", work)[0] == 1
    assert run("step", work, "pack", 0)[0] == 1  # before others
    assert run("step", work, "nonsense", 0)[0] == 2
    seen = []
    while True:
        told = json.loads(run("progress", work, "--json")[1])
        assert told["work"] == str(work)
        waiting = [stage for stage in told["stages"] if stage["done"] != stage["total"]]
        if waiting[0]["name"] == "commit":
            break
        seen.append(waiting[0]["name"])
        assert run("step", work, seen[-1], *range(waiting[0]["total"])) == (0, "", "")
    assert len(seen) == len(set(seen)) > 4
    assert run("commit", work) == (0, "", "")
    assert read(target).to_dense().tolist() == SUMMED
    assert run("commit", work) == (0, "", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the scripts are for bash")
def test_the_scripts_for_batch_systems_run(tmp_path, monkeypatch):
    build, steps = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "how-to" / "cluster.md").read_text(), re.DOTALL)
    rows, generator = 2000, np.random.default_rng(0)
    columns = {name: generator.integers(0, 5000, rows) for name in "ijk"}
    (tmp_path / "rows").mkdir()
    write_table(tmp_path / "rows" / "a.parquet", {**columns, "value": np.ones(rows)})
    sbatch = 'for id in 0 1; do SLURM_ARRAY_TASK_ID=$id SLURM_ARRAY_TASK_COUNT=2 bash "$4" "$5" "$6" || exit; done'
    ours = f'exec "{sys.executable}" -m binsparse_levels "$@"'
    for name, text in {"build.sh": build, "steps.sh": steps, "sbatch": sbatch, "binsparse-levels": ours}.items():
        (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o700)
    text = (tmp_path / "build.sh").read_text().replace("/scratch/$USER", str(tmp_path))
    (tmp_path / "build.sh").write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = subprocess.run(["bash", "build.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert made.returncode == 0, made.stderr
    expected = pack(list(columns.values()), np.ones(rows), (5000,) * 3, "sparse, sparse, sparse", duplicates="sum")
    assert read(tmp_path / "tensor.zarr").equals(expected)
