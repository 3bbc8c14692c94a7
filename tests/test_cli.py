"""The command line as a user calls it: exit status, what goes where, no tracebacks."""

import gzip
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from binsparse_levels import Dense, Format, from_table, pack, pack_dense, read, write
from binsparse_levels.cli import _COMMANDS, _parser, main
from binsparse_levels.thresholds import THRESHOLDS

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


@pytest.mark.slow
def test_the_readme_command(run, tmp_path):
    out = tmp_path / "trigrams.h5"
    status, _, err = run("convert", TRIGRAMS, out, "--format", "dense, sparse, sparse(2) @ 0, 3, 1, 2")
    assert (status, err.count("→")) == (0, 1)
    assert run("check", out)[0] == 0
    status, text, _ = run("info", out)
    assert status == 0
    for word in ("40 × 26 × 26 × 26", "29,329", "sparse(2)", "pointers_to_1", "dimension 3 (size 26)"):
        assert word in text
    assert read(out).equals(read(TRIGRAMS))


def test_bit_packed_arrays_are_converted_and_described(run, path, tmp_path):
    assert run("convert", path, tmp_path / "b.h5", "--bitpacked", "--quiet") == (0, "", "")
    status, text, _ = run("info", tmp_path / "b.h5", "--json")
    found = json.loads(text)["arrays"]["indices_1"]
    assert status == 0
    assert found["data_type"].startswith("bitpacked")
    assert found["length"] == 2
    assert read(tmp_path / "b.h5").equals(read(path))


def test_a_dictionary_is_written_and_described(run, path, tmp_path):
    write(tmp_path / "x.h5", pack_dense(np.arange(60.0) % 3, "DVEC"))
    assert run("convert", tmp_path / "x.h5", tmp_path / "b.h5", "--dictionary", "--bitpacked", "--quiet") == (0, "", "")
    found = json.loads(run("info", tmp_path / "b.h5", "--json")[1])["arrays"]
    assert (found["values"]["data_type"], found["codes"]["data_type"]) == ("dictionary[float64]", "bitpacked[uint8]")
    assert read(tmp_path / "b.h5").equals(read(tmp_path / "x.h5"))
    status, _, error = run("convert", path, tmp_path / "c.h5", "--dictionary")
    assert status
    assert "not smaller" in error
    assert run("convert", tmp_path / "x.h5", tmp_path / "d.h5", "--dictionary", "--memory", "1G")[0]


def test_info_json(run, path):
    status, text, _ = run("info", path, "--json")
    found = json.loads(text)
    assert status == 0
    assert found["format"] == "CSC"
    assert (found["fill"], found["fill_value"]) == (True, "0.0")
    assert "fill value     0.0\n" in run("info", path)[1]
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


WHY = {
    "a.h5": {}, "gzip.h5": {"compression": "gzip"}, "a.zarr": {}, "a.zarr.zip": {}, "a.npz": {},
    "gzip.npz": {"compression": "gzip"}, "a.bspnpy": {}, "a.h5ad": {}, "a.mtx": {}, "a.nc": {},
}  # fmt: skip
SAID = {
    "a.h5": ["of the kind hdf5, because of its signature", "values: read at its offset", "values: 16 bytes at byte"],
    "gzip.h5": ["values: its chunks are read at their offsets, and inflated without the HDF5 library",
                "values: 0 of 1 chunks are in the cache"],
    "a.zarr": ["because of the member 'zarr.json'", "values: read without zarr, in chunks of 5 items (blosc)",
               "values: 0 of 1 chunks are in the cache", "bytes for 1 chunks"],
    "a.zarr.zip": ["because of the member 'zarr.json'", "values: read without zarr"],
    "a.npz": ["because of the member 'binsparse.npy'", "values: read at its place", "values: 16 bytes at byte"],
    "gzip.npz": ["values: read whole by zipfile, because it is deflated", "bytes in the zip file, whole"],
    "a.bspnpy": ["because of the member 'binsparse.json'", "values: read from its file", "values: 16 bytes at byte"],
    "a.h5ad": ["of the kind hdf5", "looks like the kind anndata, because of 'encoding-type'", "data: 16 bytes at byte"],
    "a.mtx": ["of the kind matrix_market, because of its signature", "read whole, because the kind matrix_market"],
    "a.nc": ["of the kind hdf5, because of its signature", "values: read at its offset"],
}  # fmt: skip


@pytest.mark.parametrize("name", WHY)
def test_info_says_why_a_file_is_read_so(run, tmp_path, name):
    tensor = pack([[0, 2, 2, 3, 3], [1, 0, 3, 1, 2]], np.arange(5.0), (4, 4), "CSR")
    write(tmp_path / name, tensor, **WHY[name])
    level = logging.getLogger("binsparse_levels").level
    status, text, _ = run("info", tmp_path / name, "--why", "--json")
    found = json.loads(text)["why"]
    assert (status, list(found)) == (0, ["open", "slice [2:3]"])
    lines = "\n".join(found["open"] + found["slice [2:3]"])
    for said in [*SAID[name], "kernels: not used for"]:
        assert said in lines
    assert logging.getLogger("binsparse_levels").level == level
    assert not logging.getLogger("binsparse_levels").handlers
    assert "slice [2:3]\n  " in run("info", tmp_path / name, "--why")[1]
    assert "why" not in json.loads(run("info", tmp_path / name, "--json")[1])


def test_info_says_why_of_any_rank(run, tmp_path):
    for shape in ((), (0,), (1,), (2, 0), (2, 3, 4)):
        write(tmp_path / "a.h5", pack_dense(np.ones(shape), Format((Dense(1),) * len(shape))), overwrite=True)
        assert run("info", tmp_path / "a.h5", "--why")[0] == 0
    assert "omit --lenient" in run("info", tmp_path / "a.h5", "--why", "--lenient")[2]


@pytest.mark.parametrize(
    "name", [pytest.param("rows.svmlight", marks=pytest.mark.slow), "a.h5", "a.zarr", "a.npz", "a.bspnpy"]
)
def test_info_of_labels(run, tmp_path, name):
    (tmp_path / "rows.svmlight").write_text("1 1:2\n0 3:1.5 4:2\n")
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table({"feature": ["a", "b"], "barcode": ["x", "y"], "n": [2, 5]})
    if name != "rows.svmlight":
        write(tmp_path / name, from_table(rows, ["feature", "barcode"], "n", "CSR"))
    found = json.loads(run("info", tmp_path / name, "--json")[1])
    assert "feature" in str(found["dimensions"])
    assert "values" in found["arrays"]
    assert not [x for x in found["arrays"] if "label" in x]


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


@pytest.mark.parametrize("checksum", [None, True])
def test_check_lists_faults_of_every_kind(run, tmp_path, checksum):
    """Each array is damaged by itself, and all are told together."""
    import h5py

    path = tmp_path / "a.h5"
    write(path, pack([[0, 1, 2], [3, 1, 2], [0, 4, 2]], [True, False, True], (5, 7, 5), "CSF"), checksum=checksum)
    with h5py.File(path, "r+") as file:
        file["indices_0"][1], file["pointers_to_2"][1], file["indices_2"][2], file["values"][0] = 9, -3, 77, 5
    problems = json.loads(run("check", path, "--json")[1])["problems"]
    told = {problem["path"].partition("[")[0].removeprefix(f"{path}: ") for problem in problems}
    below = {"indices_2"} if checksum else set()  # which broken pointers hide, but for their checksum
    assert told >= {"indices_0", "pointers_to_2", "values"} | below
    assert len({tuple(problem.items()) for problem in problems}) == len(problems)
    assert len(run("check", path)[1].splitlines()) == len(problems)


def test_check_json(run, path):
    assert json.loads(run("check", path, "--json")[1]) == {"path": str(path), "ok": True, "problems": []}


def test_check_notes_labels_that_several_coordinates_have(run, tmp_path):
    tensor, path = pack([[0, 1], [1, 0]], [1.0, 2.0], (3, 2), "CSR"), tmp_path / "a.h5"
    write(path, tensor, dims=["day", "x"], labels={"day": ["mon", "tue", "mon"], "x": [np.nan, np.nan]})
    status, text, _ = run("check", path)
    assert status == 0
    assert "sound" in text
    assert "labels of day: 1 repeat an earlier one, first mon at 2" in text
    assert "labels of x" not in text
    found = json.loads(run("check", path, "--json")[1])
    assert found["ok"]
    assert [note["path"] for note in found["notes"]] == ["labels of day"]


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
        ["draw", "{a}", "b.svg", "--dimensions", "2"],
        ["draw", "{a}", "b.svg", "--dimensions", "0,0"],
        ["draw", "{a}", "b.png"],
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


def test_advise_takes_the_name_of_a_dimension(run, tmp_path):
    write(tmp_path / "a.h5", pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "CSR").with_labels(dims=["7", "day"]))
    found = [run("advise", tmp_path / "a.h5", "--json", "--slices-by", by)[1] for by in ("day", "1", "0")]
    assert found[0] == found[1] != found[2]


def test_advise_and_the_best_format(run, tmp_path, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "numpy_entries", 2**62)
    status, text, err = run("advise", TRIGRAMS, "--slices-by", "2", "--count", "3")
    assert (status, err) == (0, "")
    assert "29,329 entries" in text
    assert "a slice of dimension 2" in text
    found = json.loads(run("advise", TRIGRAMS, "--json", "--kinds", "dense,sparse")[1])
    assert found["shape"] == [40, 26, 26, 26]
    assert len(found["counts"]) == 16
    best = found["formats"][0]
    status, _, err = run("convert", TRIGRAMS, tmp_path / "a.npz", "--format", "best")
    assert status == 0
    assert f"({best['format']}, " in err
    tensor = read(tmp_path / "a.npz")
    assert (str(tensor.format), tensor.nbytes) == (best["format"], best["bytes"])
    assert tensor.equals(read(TRIGRAMS))
    words = ("--compression", "small")
    ranked = json.loads(run("advise", TRIGRAMS, "--json", "--kinds", "dense,sparse", *words)[1])["formats"]
    sizes = [x["compressed_bytes"] for x in ranked[:10]]
    assert sizes == sorted(sizes)
    assert all(size < x["bytes"] for size, x in zip(sizes, ranked, strict=False))
    status, _, err = run("convert", TRIGRAMS, tmp_path / "a.zarr", "--format", "best", *words)
    assert status == 0
    assert f"({ranked[0]['format']}, " in err
    assert read(tmp_path / "a.zarr").equals(read(TRIGRAMS))
    assert run("convert", TRIGRAMS, tmp_path / "b.zarr", "--format", "best", "--compression", "none")[0] == 0


def test_draw(run, path, tmp_path):
    out = tmp_path / "a.svg"
    assert run("draw", path, out) == (0, "", "")
    assert "indices_1" in out.read_text()
    status, _, err = run("draw", path, out, "--dimensions", "1,0")
    assert status == 2
    assert "exists" in err
    assert run("draw", path, out, "--dimensions", "1,0", "--overwrite")[0] == 0
    assert "dimension 1: 4 down, dimension 0: 3 across" in out.read_text()


def test_draw_writes_what_the_suffix_says(run, path, tmp_path):
    for name in ("a.png", "a.pdf", "a"):
        status, _, err = run("draw", path, tmp_path / name)
        assert status == 2
        assert "draw writes SVG" in err
        assert not (tmp_path / name).exists()
    assert run("draw", path, tmp_path / "A.SVG")[0] == 0


def test_formats_lists_everything(run):
    text = run("formats")[1]
    for word in ("dense", "sparse", "DCSC", "COOR", "COO", "@ 1, 0"):
        assert word in text
    for kind in json.loads(run("formats", "--json")[1])["kinds"]:
        assert kind["stores"].endswith(".")
        assert not set("=[]·∏⌈%") & set(kind["stores"]), kind


def test_examples_in_the_help(run):
    for name, (_, _, examples, *_) in _COMMANDS.items():
        text = run(name, "--help")[1]
        for example in examples:
            call = f"{name} {example}".strip()
            assert f"  binsparse-levels {call}\n" in text
            words = shlex.split(call.partition(" > ")[0])
            assert _parser().parse_args(words).command == name


def test_several_paths(run, path, tmp_path):
    faulty = DATA / "golden" / "malformed" / "ptr_negative.bsp.h5"
    status, text, err = run("check", path, tmp_path / "none.h5", faulty)
    assert status == 1
    assert [line.partition(":")[0] for line in text.splitlines()] == [str(path), str(faulty)]
    assert [line.split(": ")[2] for line in err.splitlines()] == [str(tmp_path / "none.h5"), str(faulty)]
    assert run("check", path, path, "--quiet") == (0, "", "")
    status, text, _ = run("info", path, path)
    assert (status, text.count("level tree")) == (0, 2)
    texts = run("info", path, path, "--json")[1].replace("}\n{", "}\n\n\n{").split("\n\n\n")
    assert [json.loads(text)["path"] for text in texts] == [str(path)] * 2


def test_convert_says_what_it_did(run, path, tmp_path):
    out, rows = tmp_path / "b.zarr", write_table(tmp_path / "a.csv")
    before = path.stat().st_size
    status, text, err = run("convert", path, out, "--format", "CSR")
    after = sum(x.stat().st_size for x in out.rglob("*") if x.is_file())
    said = f"{path} ({before:,} bytes) → {out} (CSR, {after:,} bytes)"
    assert (status, text, err) == (0, "", f"binsparse-levels: {said}\n")
    assert "(CSC, " in run("convert", path, tmp_path / "c.h5", "--memory", "1G")[2].splitlines()[-1]
    assert "(matrix_market, " in run("convert", path, tmp_path / "c.mtx")[2]
    assert "(COOR, " in run("convert", rows, tmp_path / "d.h5", *COLUMNS, "--duplicates", "sum")[2].splitlines()[-1]
    printed = json.loads(run("convert", path, out, "--format", "CSR", "--overwrite", "--json")[1])
    assert printed == {"path": str(out), "format": "CSR", "bytes": after, "source_bytes": before}


def test_counts_have_separators(run, tmp_path):
    write(tmp_path / "a.h5", pack([np.arange(5000)], np.ones(5000), 12345, "CVEC"))
    for words in (["info"], ["check"], ["list"]):
        text = run(*words, tmp_path / "a.h5")[1]
        assert "5,000" in text
        assert "12,345" in text
        assert not {"5000", "12345", "40000"} & set(text.replace(",", " , ").split()), text


def test_quiet(run, tmp_path):
    path = DATA / "golden" / "malformed" / "idx_unsorted.bsp.h5"
    assert run("convert", path, tmp_path / "b.h5", "--lenient", "--quiet") == (0, "", "")
    status, _, err = run("convert", path, tmp_path / "c.h5", "--quiet")
    assert (status, err.count("error: ")) == (1, 1)


def test_as_a_module_and_without_numba():
    code = (
        "import sys; from binsparse_levels.cli import main; status = main(sys.argv[1:]);"
        "assert not {'numba', 'zarr', 'scipy'} & set(sys.modules), sys.modules.keys(); sys.exit(status)"
    )
    path = str(DATA / "golden" / "handmade" / "CSR_spec01.bsp.h5")
    run = subprocess.run([sys.executable, "-c", code, "info", path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    run = subprocess.run([sys.executable, "-m", "binsparse_levels", "--version"], capture_output=True, text=True)
    assert run.stdout.startswith("binsparse-levels 0.")


# Looking into files


@pytest.fixture
def groups(tmp_path):
    for name in ("a", "b/c"):
        write(f"{tmp_path}/g.h5:{name}", pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    return tmp_path / "g.h5"


def test_list_of_a_file_of_groups(run, groups, path):
    status, text, err = run("list", groups)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["a", "b/c"]
    assert json.loads(run("list", groups, "--json")[1])["tensors"][1] == {
        "group": "b/c", "shape": [3, 4], "format": "CSR", "number_of_stored_values": 2, "bytes": 40
    }  # fmt: skip
    assert run("info", groups) == (0, text, "")
    for place in (f"{groups}:b", f"{groups}:none"):
        status, out, err = run("info", place)
        assert (status, out) == (1, "")
        assert err.count(f"{place}: ") == 1
    assert run("list", path)[1].splitlines()[2].split()[:4] == ["/", "3", "×", "4"]


def test_list_shows_faulty_tensors(run, groups):
    import h5py

    with h5py.File(groups, "r+") as file:
        del file["a/indices_1"]
    status, text, _ = run("list", groups)
    assert status == 1
    assert "faulty" in text.splitlines()[2]
    assert json.loads(run("list", groups, "--json")[1])["tensors"][0]["error"] == "ArrayError"


def test_limits_are_options(run, path, tmp_path):
    status, _, err = run("convert", path, tmp_path / "b.h5", "--limit", "array_bytes=1")
    assert status == 1
    assert "--limit array_bytes=…" in err
    assert "limits=" not in err
    assert run("convert", path, tmp_path / "b.h5", "--limit", "array_bytes=1K", "--limit", "rank=2")[0] == 0
    for words in (["info", path], ["check", path], ["report", path, "-o", tmp_path / "r.html"]):
        assert run(*words, "--limit", "header_bytes=5")[0] == 1
    assert "choose from rank" in run("info", path, "--limit", "ranks=2")[2]


def test_convert_looks_at_its_target_first(run, path, tmp_path):
    target = tmp_path / "b.h5"
    write(target, read(path))
    status, _, err = run("convert", tmp_path / "missing.h5", target)
    assert status == 2
    assert "already exists; pass --overwrite" in err


def test_columns_of_texts_are_labels(run, tmp_path):
    columns = {"day": [3, 1, 3], "site": ["b", "a", "b"], "v": [1.0, 2.0, 4.0]}
    for suffix in TABLES:
        path, out = write_table(tmp_path / f"a{suffix}", columns), tmp_path / "a.h5"
        words = ("--columns", "day,site,v", "--duplicates", "sum", "--format", "CSR", "--overwrite")
        assert run("convert", path, out, *words, "--quiet") == (0, "", "")
        tensor = read(out)
        assert (tensor.shape, tensor.dims, tensor.labels("site").tolist()) == ((4, 2), ("day", "site"), ["a", "b"])
        assert tensor.to_dense().tolist() == [[0, 0], [2, 0], [0, 0], [0, 5]]


def labelled(labels, dims=("day", "site")):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({dims[0]: [0, 1, 1], dims[1]: labels, "v": [1.0, 2.0, 3.0]})
    return from_table(table, dims, "v", "CSR")


def test_names_and_labels_are_shown(run, tmp_path):
    write(tmp_path / "a.h5", labelled(["x", "y", "x"]))
    assert "day (2), site (2, labels: text)" in run("info", tmp_path / "a.h5")[1]
    named = [{"name": "day", "labels": None}, {"name": "site", "labels": "text"}]
    assert json.loads(run("info", tmp_path / "a.h5", "--json")[1])["dimensions"] == named


# Output: files, standard output, JSON, errors


def test_report(run, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("report", path) == (0, "", "")
    assert "✓ sound" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert run("report", path)[0] == 2  # it exists
    assert run("report", path, "-o", "-")[1].startswith("<!doctype html>")
    faulty = DATA / "golden" / "malformed" / "ptr_negative.bsp.h5"
    status, _, err = run("report", faulty, "-o", tmp_path / "b.html")
    assert status == 1
    assert "1 fault" in err
    assert "pointers_to_1[3]" in (tmp_path / "b.html").read_text(encoding="utf-8")
    status, text, err = run("report", faulty, "-o", tmp_path / "b.html", "--overwrite", "--json")
    assert (status, err) == (1, "")
    assert "pointers_to_1[3]" in json.loads(text)["faults"][0]
    assert run("report", tmp_path / "none.h5")[0] == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("options", ["", "--json"])
def test_standard_output_that_is_full_or_closed(path, options):
    def call(target):
        command = f"{shlex.quote(sys.executable)} -m binsparse_levels info {shlex.quote(str(path))} {options} {target}"
        return subprocess.run(command, shell=True, capture_output=True, text=True)

    full = call("> /dev/full")
    assert (full.returncode, full.stderr) == (1, "binsparse-levels: error: standard output: No space left on device\n")
    closed = call(">&-")
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("word", ["-", "/dev/stdout"])
def test_what_goes_to_standard_output(path, tmp_path, word):
    def call(*words):
        command = [sys.executable, "-m", "binsparse_levels", *map(str, words)]
        return subprocess.run(command, capture_output=True)

    assert call("draw", path, word).stdout.startswith(b"<svg")
    assert call("report", path, "-o", word).stdout.startswith(b"<!doctype html>")
    assert call("draw", path, word, "--json").returncode == 2


def test_convert_has_the_options_of_write(run, path, tmp_path):
    out = tmp_path / "b.zarr"
    words = ("--compression", "gzip", "--chunks", "2", "--shards", "4", "--checksum", "--spec-version", "0.1")
    assert run("convert", path, out, *words, "--quiet") == (0, "", "")
    assert read(out).equals(read(path))
    assert json.loads(run("info", out, "--json")[1])["version"] == "0.1"
    metadata = (out / "values" / "zarr.json").read_text()
    assert "gzip" in metadata
    assert "crc32c" in metadata
    assert run("convert", path, tmp_path / "c.xyz", "--kind", "npz", "--memory", "8G", "--quiet") == (0, "", "")
    assert read(tmp_path / "c.xyz").equals(read(path))
    assert run("convert", path, tmp_path / "d.h5", "--map", "(1 0)", "--memory", "8G", "--quiet") == (0, "", "")
    assert read(tmp_path / "d.h5").notation == "CVEC through (1 0)"
    assert run("convert", tmp_path / "d.h5", tmp_path / "e.h5", "--map", "0, 1", "--memory", "8G", "--quiet") == (
        0,
        "",
        "",
    )
    assert read(tmp_path / "e.h5").map is None
    assert read(tmp_path / "e.h5").equals(read(path))


def test_sweep_has_rows_for_each_number_of_threads(run, path):
    words = ("--format", "CSR", "--format", "sparse through alto", "--measure", "bits", "--threads", "1,2", "--json")
    status, out, _ = run("sweep", path, *words)
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [row["threads"] for row in rows] == [1, 2, 1, 2]
    assert rows[2]["format"] == "sparse through alto"
    assert run("sweep", path, *words[:-2], "0")[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convert", "{a}", "{b}", "--formt", "CSR"], "unrecognized arguments: --formt CSR; did you mean --format?"),
        (["convert", "{a}", "{b}", "--overwrit=1"], "--overwrite"),
        (["conver", "{a}"], "invalid choice: 'conver'; did you mean convert?"),
        (["convert", "{a}", "{b}", "--duplicates", "summ"], "invalid choice: 'summ'; did you mean sum?"),
        (["info"], "see binsparse-levels info --help"),
        (["draw", "{a}", "b.svg", "--dimensions", "7"], "there is no dimension 7"),
        (["draw", "{a}", "b.svg", "--dimensions", "0,0"], "expected one or two different"),
        (["advise", "{a}", "--slices-by", "7"], "there is no dimension 7"),
        (["convert", "{a}", "{a}"], "already exists; pass --overwrite"),
        (["repair", "{a}", "{a}"], "already exists"),
    ],
)
def test_wrong_calls_say_what_is_wrong(run, path, words, said):
    words = [word.format(a=path, b=path.parent / "b.h5") for word in words]
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    status, out, err = run(*words, "--json")
    assert (status, err) == (2, "")
    told = json.loads(out)
    assert (told["ok"], bool(told["error"])) == (False, True)
    assert said in " ".join(fault["message"] for fault in told["problems"])


def test_errors_begin_with_the_path_once(run, tmp_path):
    (tmp_path / "text.h5").write_bytes(b"hello")
    malformed = DATA / "golden" / "malformed"
    for path in (tmp_path / "none.h5", tmp_path / "text.h5", malformed / "idx_unsorted.bsp.h5"):
        for words in (["check"], ["convert", tmp_path / "b.h5"], ["advise"], ["draw", tmp_path / "b.svg"]):
            status, _, err = run(words[0], path, *words[1:])
            if status:
                assert status == 1
                assert err.startswith(f"binsparse-levels: error: {path}: ")
                assert err.count(str(path)) == 1


def test_every_command_prints_json(run, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "a.parquet")
    calls = {
        "info": [path], "list": [path], "check": [path],
        "convert": [path, "b.h5"], "repair": [path, "c.h5"], "advise": [path], "draw": [path, "a.svg"],
        "report": [path], "formats": [], "sweep": [path, "--format", "CSR", "--measure", "bits"],
        "build": ["a.parquet", "a.zarr", *SUMS],
    }  # fmt: skip
    every = next(action.choices for action in _parser()._actions if isinstance(action.choices, dict))
    assert set(every) - set(calls) == {"completion", "warm-up"}
    for command, words in calls.items():
        status, out, err = run(command, *words, "--json")
        assert (status, err) == (0, ""), command
        json.loads(out)


def test_the_exit_statuses_are_in_the_help(run):
    status, text, _ = run("--help")
    assert status == 0
    assert [line.split()[0] for line in text.partition("exit status:")[2].splitlines()[1:]] == ["0", "1", "2", "130"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(run, shell):
    pytest.importorskip("shtab")
    status, text, _ = run("completion", shell)
    assert status == 0
    for word in ("convert", "warm-up", "slices-by"):
        assert word in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_completion_in_a_shell(run, tmp_path):
    pytest.importorskip("shtab")
    (tmp_path / "script").write_text(run("completion", "bash")[1])
    asked = 'COMP_WORDS=(binsparse-levels convert --over) COMP_CWORD=2; _shtab_binsparse_levels; echo "${COMPREPLY[@]}"'
    found = subprocess.run(["bash", "-c", f". {tmp_path}/script; {asked}"], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["--overwrite", "--overwrite-file"], found.stderr


@pytest.mark.slow
def test_what_was_warmed_up_is_not_compiled_again(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def call(*words):
        command = [sys.executable, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout

    told = json.loads(call("-m", "binsparse_levels", "warm-up", "--json"))
    assert told["cache"] == str(tmp_path)

    def compiled():
        return sorted(path.name for path in tmp_path.rglob("*.nbc"))

    before = compiled()
    assert len(before) > 20
    call("-c", "import numpy as np, binsparse_levels as bl; x = np.arange(9000);"
         "from binsparse_levels.thresholds import THRESHOLDS; THRESHOLDS.first_entries = 0;"
         "t = bl.pack([x % 999, x], np.ones(9000), (999, 9000), 'CSR'); t.convert('CSC').check()")  # fmt: skip
    assert compiled() == before


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
    assert run("convert", path, out, *COLUMNS, "--format", "CSC", "--duplicates", "sum", "--quiet") == (0, "", "")
    assert str(read(out).format) == "CSC"
    assert read(out).to_dense().tolist() == SUMMED
    assert run("convert", path, out, *COLUMNS, "--shape", "5,4", "--duplicates", "first", "--overwrite")[0] == 0
    assert read(out).shape == (5, 4)
    assert str(read(out).format) == "COOR"
    assert read(out).to_dense()[2, 1] == 1.5


LISTED = {
    "e.tsv": ("src\tdst\n0\t1\n2\t0\n", ("--columns", "src,dst", "--values", "1")),
    "e.csv.gz": ("src,dst,w\n0,1,1\n2,0,1\n", ("--columns", "src,dst,w")),
    "e.csv": ("src;dst;w\n0;1;1\n2;0;1\n", ("--columns", "src,dst,w")),
    "snap.txt": ("# Nodes: 3\n0\t1\n2\t0\n", ("--comment", "#", "--no-header", "--columns", "0,1", "--values", "1")),
    "u.data": ("0\t1\t1\t88\n2\t0\t1\t89\n", ("--separator", r"\t", "--no-header", "--columns", "0,1,2")),
    "ratings.dat": ("0::1::1\n2::0::1\n", ("--separator", "::", "--no-header", "--columns", "0,1,2")),
}


@pytest.mark.parametrize("name", LISTED)
def test_texts_with_edges_are_converted(run, tmp_path, name):
    pytest.importorskip("pyarrow")
    text, words = LISTED[name]
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert run("convert", tmp_path / name, tmp_path / "a.h5", *words, "--quiet") == (0, "", "")
    assert read(tmp_path / "a.h5").to_dense().tolist() == [[0, 1], [0, 0], [1, 0]]


def test_options_of_tables_are_refused_for_tensors(run, path, tmp_path):
    status, _, err = run("convert", path, tmp_path / "b.h5", "--values", "1")
    assert status == 2
    assert "--columns, --nulls and --values are for tables" in err


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
    made = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert 1024 * int(made.stdout) < 500 * 2**20
    assert read(tmp_path / "a.zarr").values.sum() == rows


def test_a_table_without_an_end_is_told(run, tmp_path):
    (tmp_path / "a.csv").write_text("i,j,v\n1,2,34")
    code, _, err = run("convert", tmp_path / "a.csv", tmp_path / "a.h5", *COLUMNS)
    assert code == 0
    assert "has no end" in err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "--columns"),
        (("--columns", "i,j,x"), 2, "no such column; the table has i, j, v"),
        (("--columns", "i,j,vv"), 2, "no such column; did you mean v? the table has i, j, v"),
        (("--columns", "v,j,i"), 1, "cast it to integers, or to text for labels"),
        (COLUMNS, 1, "more than once"),
        ((*COLUMNS, "--narrow"), 2, "omit them"),
        ((*COLUMNS, "--format", "best"), 2, "omit them"),
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


@pytest.mark.slow
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


def test_rows_are_counted(run, tmp_path):
    write_table(tmp_path / "a.parquet")
    given = ("--columns", "i,j,", "--shape", "?,4", "--format", "CSR", "--duplicates", "sum")
    assert run("build", tmp_path / "a.parquet", tmp_path / "a.zarr", *given, "--nulls", "drop") == (0, "", "")
    assert read(tmp_path / "a.zarr").to_dense().sum() == 4
    assert run("build", tmp_path / "a.parquet", tmp_path / "b.zarr", *given, "--shape", "?,x")[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--client", "tcp://127.0.0.1:1", "--processes", "2"), "omit"),
        (("--fill-value", "x"), "expected a number"),
        (("--dtype", "x"), "dtype"),
        (("--memory", "lots"), "number of bytes"),
    ],
)
def test_wrong_builds_are_refused(run, tmp_path, words, said):
    write_table(tmp_path / "a.parquet")
    status, _, err = run("build", tmp_path / "a.parquet", tmp_path / "a.zarr", *SUMS, *words)
    assert status == 2
    assert said in err
    assert not (tmp_path / "a.zarr").exists()


def test_a_page_never_replaces_its_tensor(run, path, tmp_path):
    before = path.read_bytes()
    status, _, error = run("report", path, "-o", path, "--overwrite")
    assert status != 0
    assert "choose another file" in error
    assert path.read_bytes() == before
    (tmp_path / "a.html").write_text("")
    assert "already exists; pass --overwrite" in run("report", path, "-o", tmp_path / "a.html")[2]


def test_a_file_of_several_tensors_is_replaced_when_asked(run, path, tmp_path):
    for group in ("a", "b"):
        write(f"{tmp_path}/g.h5:{group}", read(path))
    for words in ([], ["--overwrite"]):
        status, _, err = run("convert", path, tmp_path / "g.h5", *words)
        assert status == 2
        assert "overwrite" in err
    assert "--overwrite-file" in err
    assert run("convert", path, tmp_path / "g.h5", "--overwrite-file", "--quiet") == (0, "", "")
    assert read(tmp_path / "g.h5").equals(read(path))
