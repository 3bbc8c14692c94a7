"""The command line as a user calls it: exit status, what goes where, no tracebacks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from binsparse_levels import pack, read, write
from binsparse_levels.cli import main

DATA = Path(__file__).parent / "data"
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
