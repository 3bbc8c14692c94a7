"""About a hundred errors, as they are met from Python and from the command line. Each says where and how to go on.

A row is a call, the file and the place that its message must name, and the remedy. Patterns, not whole texts: a better
wording is no failure.
"""

import re
import shlex
import shutil

import numpy as np
import pytest

import binsparse_levels as bl
from binsparse_levels.cli import main

ENTRIES = [[0, 0, 1, 2], [0, 2, 1, 3]], [1.0, 2.0, 3.0, 4.0], (3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sound and faulty files."""
    import h5py

    folder = tmp_path_factory.mktemp("messages")
    tensor = bl.pack(*ENTRIES, "CSR")
    for name in ("a.h5", "index.h5", "missing.h5", "shape.h5", "length.h5", "typed.h5", "link.h5", "a.npz", "a.zarr",
                 "cut.zarr", "a.mtx", "a.bspnpy", "g.h5:a", "g.h5:b/c", "g.zarr:x"):  # fmt: skip
        bl.write(f"{folder}/{name}", tensor)
    with h5py.File(folder / "index.h5", "r+") as file:
        file["indices_1"][3] = 7777
    with h5py.File(folder / "missing.h5", "r+") as file:
        del file["indices_1"]
    with h5py.File(folder / "length.h5", "r+") as file:
        del file["values"]
        file["values"] = np.ones(7)
    with h5py.File(folder / "typed.h5", "r+") as file:
        del file["values"]
        file["values"] = np.ones(4, "f4")
    with h5py.File(folder / "link.h5", "r+") as file:
        del file["values"]
        file["values"] = h5py.ExternalLink("a.h5", "values")
    with h5py.File(folder / "shape.h5", "r+") as file:
        file.attrs["binsparse"] = file.attrs["binsparse"].replace('"shape": [3, 4]', '"shape": [3.5, 4]')
    with h5py.File(folder / "other.h5", "w") as file:
        file["images"] = np.ones(3)
        file.create_group("model")["weights"] = np.ones(3)
    shutil.rmtree(folder / "cut.zarr" / "values" / "c")
    (folder / "text.h5").write_text("hello")
    (folder / "a.xyz").write_text("hello")
    (folder / "bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 4 2\n1 1 2.0\n9 1 1.0\n")
    (folder / "word.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 4 2\n1 1 2.0\n2 x 1.0\n")
    (folder / "bad.tns").write_text("1 1 2\n1 x 3\n")
    (folder / "twice.tns").write_text("1 1 2\n1 1 3\n")
    (folder / "a.csv").write_text("i,j,v\n0,1,2.5\n2,3,1.5\n")
    (folder / "bad.npz").write_bytes(b"PK\x03\x04hello")
    (folder / "folder.zarr").mkdir()
    (folder / "d.h5").write_bytes((folder / "a.h5").read_bytes())
    bl.write(folder / "l.h5", tensor.with_labels(dims=["day", "site"], labels={"day": ["mon", "tue", "wed"]}))
    return folder


PYTHON = [
    # Files
    ("bl.read('none.h5')", "none.h5", "no such file", "check the path"),
    ("bl.read('index.h5')", "index.h5", r"indices_1\[3\]", "."),
    ("bl.open('index.h5')[1:].load()", "index.h5", "indices_1", "damaged"),
    ("bl.open('index.h5').sum()", "index.h5", r"indices_1\[3\]", "."),
    ("bl.open('index.h5').to_dense()", "index.h5", r"indices_1\[3\]", "."),
    ("bl.read('missing.h5')", "missing.h5", "indices_1", "."),
    ("bl.open('missing.h5')", "missing.h5", "indices_1", "."),
    ("bl.read('length.h5')", "length.h5", "values", "."),
    ("bl.read('typed.h5')", "typed.h5", "values", r"read\(…, lenient=True\)"),
    ("bl.read('link.h5')", "link.h5", "values", "."),
    ("bl.read('shape.h5')", "shape.h5", r"shape\[0\]", "."),
    ("bl.read('other.h5')", "other.h5", "", "images, model"),
    ("bl.read('g.h5')", "g.h5", "", "g.h5:a"),
    ("bl.open('g.h5')", "g.h5", "", "g.h5:a"),
    ("bl.read('g.h5:aa')", "g.h5:aa", "", "did you mean"),
    ("bl.read('g.h5:b')", "g.h5:b", "", "b/c"),
    ("bl.read('a.h5:x')", "a.h5:x", "", "."),
    ("bl.read('g.zarr')", "g.zarr", "", "g.zarr:x"),
    ("bl.read('folder.zarr')", "folder.zarr", "", "."),
    ("bl.read('cut.zarr')", "cut.zarr", "values", "."),
    ("bl.read('text.h5')", "text.h5", "", "."),
    ("bl.read('a.xyz')", "a.xyz", "", "."),
    ("bl.read('a.csv')", "a.csv", "", "from_table"),
    ("bl.read('bad.mtx')", "bad.mtx", "'9 1 1.0', line 2 of the numbers", "1 to 3, got 9; correct"),
    ("bl.read('word.mtx')", "word.mtx", "line 2 of the numbers", "correct this line"),
    ("bl.read('bad.tns')", "bad.tns", "line 2 of the numbers", "correct this line"),
    ("bl.read('twice.tns')", "twice.tns", r"\(1, 1\), counted from 1", "duplicates="),
    ("bl.read('bad.npz')", "bad.npz", "", "."),
    ("bl.read('a.h5', limits=bl.Limits(array_bytes=8))", "a.h5", "values|indices|pointers", "array_bytes="),
    ("bl.read('a.h5', shape=(3, 4))", "a.h5", "shape", "leave it out"),
    ("bl.read('a.h5', lenien=True)", "a.h5", "lenien", "did you mean lenient?"),
    ("bl.read('a.h5', name='x')", "a.h5", "name", "leave it out"),
    ("bl.read('')", "", "", "."),
    ("bl.read(3)", "", "", "."),
    ("bl.read('a.h5', check='ful')", "", "check", "'full'"),
    ("bl.write('a.h5', T)", "a.h5", "", "overwrite=True"),
    ("bl.write('x/none/a.h5', T)", "x/none", "", "make it first"),
    ("bl.write('a.bin', T)", "a.bin", "suffix", "kind="),
    ("bl.write('a.parquet', T)", "a.parquet", "table", r"use to_pandas\(tensor\).to_parquet\(path\)"),
    ("bl.write('a.csv.gz', T)", "a.csv.gz", "table", r"use to_pandas\(tensor\).to_csv\(path, index=False\)"),
    ("bl.write('b.h5', T, format='CSC')", "b.h5", "format", r"use tensor.convert\('CSC'\)"),
    ("bl.write('b.h5', T, compresion='gzip')", "b.h5", "compresion", "did you mean compression?"),
    ("bl.write('b.h5', T, compression='gzi')", "", "compression", "did you mean gzip?"),
    ("bl.write('b.h5', T, chunks=0)", "", "chunks", "expected int >= 1"),
    ("bl.write('b.npz', T, chunks=3)", "", "chunks.*NPZ", "leave it out"),
    ("bl.write('b.h5', T, kind='hdf')", "", "kind", "did you mean hdf5?"),
    ("bl.write('b.h5', T, spec_version='9.9')", "", "version", "."),
    ("bl.write('b.h5', [[1]])", "", "", "."),
    ("bl.write('b.mtx', T3)", "b.mtx", "", "."),
    ("bl.write('g.h5', T, overwrite=True)", "g.h5", "", "overwrite='file'"),
    ("bl.append('index.h5', T)", "index.h5", r"indices_1\[3\]", "."),
    ("bl.append('a.h5', T3)", "a.h5", "", "."),
    ("bl.append('a.h5', T[:, :2])", "a.h5", "tensor: has size 2 in dimension 1", "make both of one shape"),
    ("np.vstack([T, T[:, 1:]])", "", r"arrays\[1\]: has size 3 .* arrays\[0\] 4", "make both of one shape"),
    ("bl.append('none.h5', T)", "none.h5", "", "."),
    ("bl.convert('none.h5', 'b.h5')", "none.h5", "", "check the path"),
    ("bl.convert('index.h5', 'b.h5', 'CSC')", "index.h5", r"indices_1\[3\]", "."),
    ("bl.convert('a.h5', 'b.h5', 'CSX')", "", "CSX", "did you mean CS[CR]"),
    ("bl.list_tensors('none.h5')", "none.h5", "", "check the path"),
    ("bl.repair('index.h5', 'b.h5')", "index.h5", r"indices_1\[3\]", "."),
    ("bl.open('a.h5', group='x')", "", "group", "PATH:GROUP"),
    ("bl.open('a.h5', 'layers/x')", "", "group", "PATH:GROUP"),
    ("bl.build('a.csv', 'b.zarr', None, 'CSR', columns=['i', 'j', 'v'])", "a.csv", "Parquet", "write_from"),
    ("bl.write_from([(slice(3), T)], 'b.h5', (3, 4), 'CSR')", "", "chunks.*range", "Tensor.slabs"),
    ("bl.write_from([(range(3), bl.to_scipy(T))], 'b.h5', (3, 4), 'CSR')", "", "chunks.*csr_", "Tensor of from_scipy"),
    # Formats and arguments
    ("T.mean('day', cells='stored')", "", "cells", r"reduce\(…, cells='stored'\)"),
    ("T.sum(0, sparse=True)", "", "sparse", "did you mean format?"),
    ("bl.batches(T, batch_size=2)", "", "batch_size", "did you mean size?"),
    ("bl.to_scipy(T.sum(0))", "", "tensor: expected Tensor", r"from_numpy\(array\), or format="),
    ("bl.parse_format('CRS')", "", "'CRS'", "did you mean CSR?"),
    ("bl.parse_format('dense, spars')", "", "'spars'", "did you mean sparse?"),
    ("bl.parse_format('dense, sparse @ 0, 0')", "", "transpose", "permutation"),
    ("bl.parse_format('sparse(0)')", "", "rank", ">= 1"),
    ("bl.parse_format('')", "", "", "."),
    ("bl.pack([[0, 9]], [1.0, 2.0], (5,), 'CVEC')", "", r"coords\[0\]\[1\]", "outside dimension 0"),
    ("bl.pack([[0, 0]], 1.0, 3, 'CVEC')", "", "coords", "'sum'"),
    ("bl.pack([[0, 1]], [1.0], 3, 'CVEC')", "", "values", "."),
    ("bl.pack([[0.5]], [1.0], 3, 'CVEC')", "", r"coords\[0\]", "."),
    ("bl.pack([[0]], [1.0], 3, 'CSR')", "", "CSR", "."),
    ("bl.pack([[0]], ['x'], 3, 'CVEC')", "", "values", "."),
    ("bl.pack([[0]], [1.0], -3, 'CVEC')", "", "shape", "."),
    ("bl.pack([[0]], [1.0], 3, 'CVEC', duplicates='summ')", "", "duplicates", "did you mean sum?"),
    ("bl.pack([[0]], 1.0, 10**12, 'dense')", "", "", "dense_bytes="),
    ("bl.pack([['a']], [1.0], 3, 'CVEC')", "", r"coords\[0\]", "."),
    ("T.convert('CRS')", "", "'CRS'", "did you mean CSR?"),
    ("T.convert('best')", "", "best", r"advise\(tensor\).best"),
    ("bl.concatenate('a.h5', ['b.h5'])", "", "sources", "expected a list of paths"),
    ("bl.from_table(FRAME, 'i', 'v')", "", "dims", r"expected a list of names, .* pass \['i'\]"),
    ("T.convert('CVEC')", "", "CVEC", "."),
    ("T @ np.ones(3)", "", r"operands\[1\]: dimension 0 .* dimension 1 of operands\[0\]", "arrays that match"),
    ("np.ones(5) @ T", "", r"operands\[0\]: dimension 0 .* dimension 0 of operands\[1\]", "arrays that match"),
    ("bl.einsum('ij,jk->ik', T, np.ones((3, 2)))", "", r"operands\[1\]: dimension 0", "arrays that match"),
    ("T + np.ones((2, 2))", "", "", "."),
    ("T.sum(axis=5)", "", "dimension 5", "count from"),
    ("bl.reduce(T, None, 'summ')", "", "how", "did you mean sum?"),
    ("T[0, 0] = 1", "", "tensor", "numpy.where"),
    ("T.sel(day='mon')", "", "", "with_labels"),
    ("L.sel(day='mom')", "", "day", "did you mean 'mon'?"),
    ("L.sel(dax='mon')", "", "dax", "did you mean day?"),
    ("T['x']", "", "", "."),
    ("T.permute([0, 0])", "", "", "permutation"),
    ("T.draw([7])", "", "7", "."),
    ("bl.save", "", "'save'", "write"),
    ("bl.load", "", "'load'", "read"),
    ("bl.raed", "", "'raed'", "did you mean read?"),
    ("bl.advise(T, kinds=['spars'])", "", "spars", "did you mean"),
    ("bl.advise(T, slices_by=9)", "", "9", "."),
    ("bl.to_scipy(T, 'csx')", "", "csx", "did you mean csr?"),
    ("bl.to_scipy(F)", "", "fill value 5.0", "with_values"),
    ("bl.from_scipy(3)", "", "", "."),
    ("bl.from_table(FRAME, ['i'], 'v', 'CVEC')", "", "columns.i", "nulls='drop'"),
    ("bl.from_table(FRAME, ['ii'], 'v', 'CVEC')", "", "columns.ii", "did you mean i?"),
    ("bl.set_threads(0)", "", "threads", "an integer >= 1"),
    ("bl.pack([[0]], [1.0], 3, 'CVEC', duplicate='sum')", "", "duplicate", "did you mean duplicates?"),
    ("bl.pack([[0]], [1], 3, 'CVEC', fill_value='a')", "", "fill_value", "pass a value of this type"),
    ("bl.pack([[0]], [1], 3, 'CVEC', fill_value=1.5)", "", "fill_value", "pass a value of this type"),
    ("bl.array([1])", "", "'array'", "did you mean|use"),
    ("T.save('b.h5')", "", "'save'", "write"),
    ("T.todense()", "", "'todense'", "to_dense"),
]  # fmt: skip

COMMANDS = [
    ("info none.h5", "none.h5", "no such file", "check the path"),
    ("info missing.h5", "missing.h5", "indices_1", "."),
    ("info g.h5:aa", "g.h5:aa", "", "did you mean"),
    ("info other.h5", "other.h5", "", "images, model"),
    ("info a.csv", "a.csv", "", "--columns"),
    ("info typed.h5", "typed.h5", "values", "--lenient"),
    ("check index.h5", "index.h5", r"indices_1\[3\]", "."),
    ("check text.h5", "text.h5", "", "."),
    ("check g.h5", "g.h5", "", "g.h5:a"),
    ("convert index.h5 b.h5 --format CSC", "index.h5", r"indices_1\[3\]", "."),
    ("convert a.h5 b.h5 --format CRS", "", "'CRS'", "did you mean CSR?"),
    ("convert a.h5 b.h5 --compression gzi", "", "--compression", "did you mean gzip?"),
    ("convert a.h5 b.h5 --compresion gzip", "", "--compresion", "did you mean --compression?"),
    ("convert a.h5 d.h5", "d.h5", "", "--overwrite"),
    ("convert a.h5 b.bin", "b.bin", "suffix", "--kind"),
    ("convert a.h5 b.parquet", "b.parquet", "table", r"use to_pandas\(tensor\).to_parquet\(path\) in Python, or"),
    ("convert a.h5 b.h5 --kind hdf", "", "--kind", "did you mean hdf5?"),
    ("convert twice.tns b.h5", "twice.tns", "", "--duplicates"),
    ("convert a.h5 b.h5 --limit dense=3", "", "dense", "did you mean dense_bytes?"),
    ("convert a.h5 b.h5 --limit array_bytes=8", "a.h5", "values|indices|pointers", "--limit array_bytes="),
    ("convert a.h5 b.h5 --shape 3,4", "a.h5", "shape", "leave it out|omit"),
    ("convert a.csv b.h5", "a.csv", "", "--columns"),
    ("convert a.csv b.h5 --columns i,j,w", "a.csv", "w", "did you mean|the table has i, j, v"),
    ("conver a.h5 b.h5", "", "'conver'", "did you mean convert?"),
    ("show a.h5", "", "'show'", "info"),
    ("", "", "COMMAND", "--help"),
    ("info", "", "PATH", "--help"),
    ("advise a.h5 --kinds spars", "", "spars", "did you mean"),
    ("advise a.h5 --slices-by 7", "", "7", "."),
    ("advise l.h5 --slices-by dya", "", "'dya'", "did you mean day?"),
    ("draw a.h5 d.xyz", "d.xyz", "suffix", ".svg"),
    ("draw a.h5 d.svg --dimensions 9", "", "9", "."),
    ("list none.h5", "none.h5", "", "check the path"),
    ("repair a.h5 a.h5", "a.h5", "", "--overwrite"),
    ("--plugin none_such info a.h5", "", "none_such", "."),
]  # fmt: skip


REMEDY = "; .|expected |outside |needs |is not in |requires "
FUNCTIONS = [name for name in dir(bl) if "_" in name and name[0] != "_"]


def faults_of(said, row, elsewhere):
    """What is wrong with a message. elsewhere: a pattern of words that are of no use where the reader is."""
    call, file, place, remedy = row
    said = " ".join(said.split())
    if file and file not in said:
        yield f"{call}\n    does not name {file}: {said}"
    if not re.search(place, said):
        yield f"{call}\n    does not name the place {place}: {said}"
    if not re.search(remedy, said) or not re.search(REMEDY, said):
        yield f"{call}\n    has no remedy {remedy}: {said}"
    if "did you mean" in said and not said.partition("; ")[2].startswith("did you mean"):
        yield f"{call}\n    has its suggestion not first: {said}"
    if found := re.search(elsewhere, said):
        yield f"{call}\n    says {found[0]!r}, which cannot be typed here: {said}"


def test_errors_in_python(folder, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(folder)
    tensor = bl.pack(*ENTRIES, "CSR")
    names = {
        "bl": bl, "np": np, "T": tensor,
        "F": bl.pack(*ENTRIES, "CSR", fill_value=5.0),
        "T3": bl.pack([[0], [1], [2]], [1.0], (2, 3, 4), "COO"),
        "L": tensor.with_labels(dims=["day", "site"], labels={"day": ["mon", "tue", "wed"]}),
        "FRAME": pandas.DataFrame({"i": [0, None], "v": [1.0, 2.0]}),
    }  # fmt: skip
    faults = []
    for row in PYTHON:
        with pytest.raises((bl.BinsparseError, AttributeError, IndexError, TypeError)) as error:
            exec(row[0], dict(names))
        faults += faults_of(str(error.value), row, r"(?<!`)(?<!\w)--\w+(?=[ ;,]|$)(?!`)")
    assert not faults, "\n".join(faults)


def test_errors_of_commands(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    faults, calls = [], "|".join(FUNCTIONS)
    for row in COMMANDS:
        try:
            status = main(shlex.split(row[0]))
        except SystemExit as error:
            status = error.code
        out, err = capsys.readouterr()
        assert status in (1, 2), row
        elsewhere = rf"\w=(True|')|\w\(…|\b({calls})\b(?!( |\([^()]*\)(\.\w+\([^()]*\))* )in Python)"
        said = re.sub("in Python, .*, such as from_table.*", "in Python", err)  # a call to copy
        faults += faults_of(f"{out.replace(chr(10), '; ')} {said}", row, elsewhere)
    assert not faults, "\n".join(faults)
