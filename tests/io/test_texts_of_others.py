"""Texts of other programs: graphs of METIS, matrices with tables of names, Harwell-Boeing, tables that are refused."""

import contextlib
import gzip
import re

import numpy as np
import pandas
import pytest
import scipy.io
import scipy.sparse as sp
from helpers import layouts
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.thresholds import using_thresholds


@st.composite
def graphs(draw):
    """The text of a graph, its cells, and whether it has weights."""
    size = draw(st.integers(1, 5))
    pairs = [(i, j) for i in range(size) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    digits = draw(st.sampled_from(["", "0", "1", "10", "11", "011", "100", "101", "111"]))
    ncon = draw(st.sampled_from([None, 1, 3])) if digits else None
    padded = digits.zfill(3)
    before = int(padded[0]) + int(padded[1]) * (ncon or 1)
    cells, neighbours = {}, [[] for _ in range(size)]
    for i, j in chosen:
        weight = draw(st.integers(-9, 2**40)) if padded[2] == "1" else 1
        for a, b in ((i, j), (j, i)):
            cells[a, b] = weight
            neighbours[a] += [b + 1, *[weight] * (padded[2] == "1")]
    lines = [f"{size} {len(chosen)} {digits} {ncon or ''}".strip()]
    for row in neighbours:
        lines += ["% 7 7 7"] * draw(st.booleans())
        lines.append(draw(st.sampled_from(["", " "])) + " ".join(map(str, [*[6] * before, *row])))
    end = draw(st.sampled_from(["\n", "\r\n", " \n"]))
    lines += [""] * draw(st.integers(0, 2))
    return "".join(line + end for line in lines), size, cells, bool(before)


@given(graphs(), st.booleans(), st.sampled_from([3, 10, 2**20]))
def test_graphs_of_metis(tmp_path_factory, graph, packed, block):
    text, size, cells, warned = graph
    path = tmp_path_factory.getbasetemp() / ("a.graph.gz" if packed else "a.graph")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    warning = pytest.warns(bl.DialectWarning, match="of vertices") if warned else contextlib.nullcontext()
    with using_thresholds(text_bytes=block), warning:
        tensor = bl.read(path)
    assert tensor.shape == (size, size)
    coords, values = tensor.unpack()
    assert dict(zip(zip(*(x.tolist() for x in coords), strict=True), values.tolist(), strict=True)) == cells


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the numbers of vertices"),
        ("2\n2\n1\n", "expected the numbers of vertices"),
        ("2 1 2\n2\n1\n", "fmt"),
        ("2 1 0001\n2\n1\n", "fmt"),
        ("2 -1\n2\n1\n", "correct this line"),
        ("2 2\n2\n1\n", "2 neighbours for 2 edges"),
        ("2 1\n2\n", "1 lines for 2 vertices"),
        ("999999999999999999 0\n\n", "1 lines for 999999999999999999 vertices"),
        ("2 1 1\n2 1.5.\n1 1.5\n", "no number of type float64"),
        ("2 1 1\n2 9223372036854775808\n1 1\n", "no number of type int64"),
        ("2 1 1\n2.0 1\n1 1\n", "no number of type int64"),
        ("2 1 1\n2 5\n1\n", "vertex 2.*does not fit the first line"),
        ("2 1\n1\n0\n", "vertex 2: coordinates count from 1 to 2, got 0"),
        ("2 1\n3\n1\n", "vertex 1: coordinates count from 1 to 2, got 3"),
        ("2 1\n2\n1\n\n1\n", "more lines than its 2 vertices"),
    ],
)
def test_faults_of_graphs_are_told(tmp_path, text, message):
    (tmp_path / "a.graph").write_text(text)
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(tmp_path / "a.graph")


@given(st.lists(st.floats() | st.integers(-(2**53), 2**53), min_size=3, max_size=3), st.sampled_from([3, 2**20]))
def test_weights_of_graphs_may_have_fractions(tmp_path_factory, weights, block):
    """As NetworKit writes them. Comments do not decide the type."""
    path, (a, b, c) = tmp_path_factory.getbasetemp() / "a.graph", weights
    path.write_text(f"% 1.5\n3 3 1\n2 {a}\t3 {b}\t\n1 {a}\t\n% 1.5\n1 {b}\t3 {c}\t\n")
    dtype = float if any(isinstance(x, float) for x in weights) else int
    expected = np.array([[0, a, b], [a, 0, 0], [b, 0, c]], dtype)
    with using_thresholds(text_bytes=block):
        tensor = bl.read(path)
        bl.convert(path, path.with_suffix(".h5"), memory=2**34, overwrite=True)
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.to_dense(), expected)
    assert bl.read(path.with_suffix(".h5")).equals(tensor)


def test_a_loop_may_be_listed_once(tmp_path):
    (tmp_path / "a.graph").write_text("2 2\n1 2\n1\n")
    assert bl.read(tmp_path / "a.graph").to_dense().tolist() == [[True, True], [True, False]]
    bl.convert(tmp_path / "a.graph", tmp_path / "a.h5", memory=2**34)
    assert bl.read(tmp_path / "a.h5").equals(bl.read(tmp_path / "a.graph"))


# Tables of names next to a matrix


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_geo_are_named_by_folder_beginning_or_matrix(tmp_path, end):
    dense = np.arange(15).reshape(5, 3) % 4
    layouts.mex(tmp_path / "a", dense, end == ".gz")
    for file in [*(tmp_path / "a").iterdir()]:
        file.rename(file.with_name(f"GSM1_barcodes_genes_{file.name}"))
    beginning = tmp_path / "a" / "GSM1_barcodes_genes_"
    for place in (tmp_path / "a", beginning, f"{beginning}matrix.mtx{end}"):
        tensor = bl.read(place)
        assert np.array_equal(tensor.to_dense(), dense)
        assert tensor.dims == ("feature", "barcode")
        assert tensor.labels("feature").tolist() == layouts.genes(5)
        assert bl.read(place, names="symbol").labels("feature").tolist() == ["gene"] * 5
        assert bl.read(place, names="symbol").labels("barcode").tolist() == layouts.barcodes(3)
    with pytest.raises(FileNotFoundError, match="no such file"):
        bl.read(tmp_path / "a" / "GSM1_")
    with pytest.raises(bl.OptionError, match="expected 'symbol' or None"):
        bl.read(tmp_path / "a", names="id")


@pytest.mark.parametrize("packed", [False, True])
def test_several_matrices_in_a_folder_are_named(tmp_path, packed):
    (tmp_path / "a").mkdir()
    for name in ("GSM1_", "GSM2_"):
        for file in layouts.mex(tmp_path / name, np.eye(2), packed).iterdir():
            file.rename(tmp_path / "a" / (name + file.name))
    with pytest.raises(bl.ContainerError, match=r"GSM1_matrix.mtx, GSM2_matrix.mtx; name one, such as") as caught:
        bl.read(tmp_path / "a")
    for place in (tmp_path / "a" / "GSM2_", str(caught.value).rpartition("such as ")[2]):
        assert bl.read(place).dims == ("feature", "barcode")


def test_a_matrix_without_all_tables_is_matrix_market(tmp_path):
    path = layouts.mex(tmp_path / "a", np.eye(2), False)
    (path / "barcodes.tsv").unlink()
    assert bl.read(path / "matrix.mtx").dims is None
    with pytest.raises(bl.ContainerError, match=r"has no barcodes.tsv"):
        bl.read(path)


def test_a_table_of_one_column_has_no_symbols(tmp_path):
    path = layouts.mex(tmp_path / "a", np.eye(2), False)
    (path / "features.tsv").write_text("a\nb\n")
    assert bl.read(path).labels("feature").tolist() == ["a", "b"]
    with pytest.raises(bl.ArrayError, match="without a column 2; leave names out"):
        bl.read(path, names="symbol")


# Harwell-Boeing


@given(st.integers(0, 99), st.sampled_from("URSZ"), st.sampled_from([np.int64, np.float64]))
def test_matrices_of_harwell_and_boeing(tmp_path_factory, seed, letter, dtype):
    rng, path = np.random.default_rng(seed), tmp_path_factory.getbasetemp() / "a.hb"
    dense = rng.integers(1, 9, (5, 4 if letter in "UR" else 5)) * (rng.random((5, 1)) < 0.7)
    dense = (dense * np.tri(*dense.shape, -(letter == "Z")) if letter in "SZ" else dense).astype(dtype)
    dense[3, 1] = 7
    scipy.io.hb_write(path, sp.csc_array(dense))
    path.write_text(path.read_text().replace("RUA", f"R{letter}A").replace("IUA", f"i{letter.lower()}a"))
    mirrored = {"S": np.tril(dense, -1).T, "Z": -dense.T}.get(letter, 0)
    tensor = bl.read(path)
    assert tensor.dtype == dtype
    assert np.array_equal(tensor.to_dense(), dense + mirrored)


def test_harwell_boeing_that_scipy_cannot_read_has_its_reason(tmp_path):
    scipy.io.hb_write(tmp_path / "a.hb", sp.csc_array(np.eye(3)))
    text = (tmp_path / "a.hb").read_text()
    changes = {"pattern": text.replace("RUA", "PUA"), "complex": text.replace("RUA", "CUA")}
    lines = text.split("\n")
    lines[1] = lines[1][:56] + "1".rjust(14)
    changes["right hand side"] = "\n".join(lines)
    for reason, changed in changes.items():
        (tmp_path / "b.hb").write_text(changed)
        with pytest.raises(bl.ContainerError, match=f"scipy cannot read it: .*{reason}.*; convert"):
            bl.read(tmp_path / "b.hb")


# Tables

TABLES = {
    "a.csv": "src,dst,w\n0,1,2.5\n2,0,1\n",
    "a.tsv": "src\tdst\tw\n0\t1\t2.5\n2\t0\t1\n",
    "b.csv": '"src";"dst";"w"\n0;1;2.5\n2;0;1\n',
    "a.dat": "0::1::2.5\n2::0::1\n",
    "a.edges": "% sym\n% 2 3 3\n0 1 2.5\n2 0 1\n",
    "a.txt": "# Nodes: 3\n# Edges: 2\n0\t1\n2\t0\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_an_error_has_a_call_that_reads_the_table(tmp_path, name, packed):
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(TABLES[name].encode()) if packed else TABLES[name].encode())
    with pytest.raises(bl.ContainerError, match="is a table") as caught:
        bl.read(path)
    call = re.search(r"such as (from_table\(.*)$", str(caught.value)).group(1)
    tensor = eval(call, {"from_table": bl.from_table, "pandas": pandas})
    weights = [1, 1] if name == "a.txt" else [2.5, 1]
    assert {*zip(*(x.tolist() for x in tensor.unpack()[0]), tensor.unpack()[1].tolist(), strict=True)} == {
        (0, 1, weights[0]),
        (2, 0, weights[1]),
    }
