"""Matrix Market and FROSTT, with the fast parsers and without."""

import builtins
import gzip
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from helpers.strategies import cases
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DialectWarning,
    FormatError,
    LimitError,
    Limits,
    convert,
    kernels,
    pack,
    pack_dense,
    read,
    write,
)
from binsparse_levels.io.files import text_tables
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.fixture(params=["fast", "plain"], autouse=True)
def parser(request, monkeypatch):
    """Every test runs twice: with the kernel and polars however short the text is, and without them."""
    real = builtins.__import__
    fast = request.param == "fast"
    monkeypatch.setattr(text_tables, "_LINE_BYTES", 1)
    monkeypatch.setattr(text_tables, "_LINE_COST", THRESHOLDS.numpy_entries + 1 if fast else 0)

    def without(name, *args, **kwargs):
        if name == "polars":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    if request.param == "plain":
        monkeypatch.setattr(builtins, "__import__", without)
    return request.param


def written(path, text):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(text.encode())
    return path


# Matrix Market


def mmread(path):
    """What scipy reads, as a sparse or a numpy array: without the word, scipy says that its matrices go."""
    return scipy.io.mmread(path, spmatrix=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz"])
@pytest.mark.parametrize("format", ["CSR", "COOC", "dense(2)", "DMATC"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "int64", "uint64", "bool", "complex128"])
def test_mtx_round_trip(tmp_path, name, format, dtype):
    generator = np.random.default_rng(0)
    array = (generator.random((6, 4)) * 100 * (generator.random((6, 4)) < 0.4)).astype(dtype)
    tensor = pack_dense(array, format)
    write(tmp_path / name, tensor)
    again = read(tmp_path / name)
    assert np.array_equal(again.to_dense().astype(dtype), array)
    assert str(again.format) == ("COOR" if "C" in format and format != "DMATC" else "DMATC")
    theirs = mmread(tmp_path / name)
    theirs = theirs.toarray() if scipy.sparse.issparse(theirs) else theirs
    assert np.array_equal(theirs.astype(dtype), array)


@pytest.mark.parametrize("kind", ["symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("array", [True, False])
def test_symmetric_mtx_keeps_its_structure(tmp_path, kind, array):
    half = np.arange(16).reshape(4, 4) * (1 + 2j if kind == "hermitian" else 1)
    full = {"symmetric": half + half.T, "skew-symmetric": half - half.T, "hermitian": half + half.conj().T}[kind]
    scipy.io.mmwrite(tmp_path / "a.mtx", full if array else scipy.sparse.coo_array(full), symmetry=kind)
    tensor = read(tmp_path / "a.mtx")
    assert tensor.structure == f"{kind.replace('-', '_')}_lower"
    assert np.array_equal(tensor.to_dense(), full)
    write(tmp_path / "b.mtx", tensor)
    assert f"coordinate {'complex' if kind == 'hermitian' else 'integer'} {kind}" in (tmp_path / "b.mtx").read_text()
    assert np.array_equal(mmread(tmp_path / "b.mtx").toarray(), full)
    write(tmp_path / "c.h5", tensor)
    assert read(tmp_path / "c.h5").structure == tensor.structure


def test_the_upper_triangle_is_written_as_the_lower(tmp_path):
    tensor = pack([[0, 1], [2, 1]], [1j, 2], (3, 3), "CSR", structure="hermitian_upper")
    write(tmp_path / "a.mtx", tensor)
    again = read(tmp_path / "a.mtx")
    assert again.structure == "hermitian_lower"
    assert np.array_equal(again.to_dense(), tensor.to_dense())


def test_upper_entries_are_an_upper_structure(tmp_path):
    text = "%%MatrixMarket matrix coordinate integer symmetric\n2 2 2\n1 2 5\n2 2 6\n"
    tensor = read(written(tmp_path / "a.mtx", text))
    assert tensor.structure == "symmetric_lower"
    assert tensor.to_dense().tolist() == [[0, 5], [5, 6]]
    mixed = text.replace("2 2 2\n", "2 2 3\n") + "2 1 5\n"
    with pytest.raises(ArrayError, match="more than once"):
        read(written(tmp_path / "a.mtx", mixed))
    assert read(tmp_path / "a.mtx", duplicates="first").to_dense().tolist() == [[0, 5], [5, 6]]


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric", "hermitian"])
@given(st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_entry_of_either_triangle_stands_for_both(tmp_path, symmetry, seed):
    rng = np.random.default_rng(seed)
    field, column = ("complex", " 2 3") if symmetry == "hermitian" else ("real", " 5")
    pairs = {tuple(sorted(pair)): pair for pair in rng.integers(1, 6, (6, 2)).tolist() if pair[0] != pair[1]}
    lines = "".join(f"{i} {j}{column}\n" for i, j in pairs.values())
    text = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n5 5 {len(pairs)}\n{lines}"
    path = written(tmp_path / "a.mtx", text)
    assert np.array_equal(read(path).to_dense(), mmread(path).toarray())
    convert(path, tmp_path / "a.h5", memory=2**34, overwrite=True)
    assert np.array_equal(read(tmp_path / "a.h5").to_dense(), mmread(path).toarray())


@pytest.mark.parametrize(
    ("head", "body", "dense"),
    [
        ("vector coordinate real general\n4 2\n", "1 1.5\n3 2\n", [1.5, 0, 2, 0]),
        ("vector array integer general\n3\n", "4\n0\n6\n", [4, 0, 6]),
        ("tensor coordinate integer general\n%\n2 1 2 2\n", "1 1 1 3\n2 1 2 4\n", [[[3, 0]], [[0, 4]]]),
        ("tensor array real general\n2 3\n", "1\n2\n3\n4\n5\n6\n", [[1, 3, 5], [2, 4, 6]]),
        ("matrix coordinate integer hermitian\n2 2 1\n", "2 1 1\n", [[0, 1], [1, 0]]),
    ],
)
@pytest.mark.parametrize("mark", ["%", "%%"])
def test_any_rank_and_one_percent_sign(tmp_path, head, body, dense, mark):
    path = written(tmp_path / "a.mtx", f"{mark}MatrixMarket {head}{body}")
    assert read(path).to_dense().tolist() == dense
    convert(path, tmp_path / "a.h5", memory=2**34)
    assert read(tmp_path / "a.h5").to_dense().tolist() == dense


@pytest.mark.parametrize("form", ["coordinate", "array"])
def test_a_diagonal_is_its_own_mirror_image(tmp_path, form):
    entries = {"coordinate": "2 2 1\n1 1 7\n", "array": "2 2\n1 5\n2 3\n4 0\n"}[form]
    kind = {"coordinate": "real skew-symmetric", "array": "complex hermitian"}[form]
    with pytest.raises(ArrayError, match="mirror image"):
        read(written(tmp_path / "a.mtx", f"%%MatrixMarket matrix {form} {kind}\n{entries}"))


def test_a_pattern_is_iso_and_back(tmp_path):
    text = "%%MatrixMarket matrix coordinate pattern general\n% comment\n\n3 4 2\n3 4\n1 2\n"
    tensor = read(written(tmp_path / "a.mtx", text))
    assert tensor.iso
    assert tensor.dtype == bool
    assert tensor.unpack()[0][0].tolist() == [0, 2]
    write(tmp_path / "b.mtx", tensor)
    assert (tmp_path / "b.mtx").read_text() == "%%MatrixMarket matrix coordinate pattern general\n3 4 2\n1 2\n3 4\n"


def test_integers_of_any_size_are_exact(tmp_path):
    values = np.array([2**63 - 1, -(2**63), 2**53 + 1])
    for dtype in (np.int64, np.uint64):
        tensor = pack([[0, 1, 2], [0, 1, 2]], values.astype(dtype), (3, 3), "COO")
        write(tmp_path / "a.mtx", tensor, overwrite=True)
        assert np.array_equal(read(tmp_path / "a.mtx").values, tensor.values)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ContainerError),
        ("%%MatrixMarket\n", ContainerError),
        ("%%MatrixMarket vector coordinate real general\n2 2 1\n", ContainerError),
        ("%%MatrixMarket vector coordinate real symmetric\n2 1\n1 1\n", ContainerError),
        ("%%MatrixMarket matrix coordinate quaternion general\n1 1 0\n", ContainerError),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", ContainerError),
        (HEAD, ContainerError),
        (HEAD + "3 4\n", ContainerError),
        (HEAD + "3 -4 1\n", ContainerError),
        (HEAD + "3 4 2\n1 1 5\n", ArrayError),
        (HEAD + "3 4 1\n1 1 5\n2 2 6\n", ArrayError),
        (HEAD + "3 4 1\n0 1 5\n", ArrayError),
        (HEAD + "3 4 1\n4 1 5\n", ArrayError),
        (HEAD + "3 4 1\n1 1 x\n", ArrayError),
        (HEAD + "3 4 1\n1 1\n", ArrayError),
        (HEAD + "3 4 1\n1.5 1 3\n", ArrayError),
        (HEAD + "3 4 1\n99999999999999999999 1 3\n", ArrayError),
        (HEAD + "3 4 2\n1 1 3\n1 1 4\n", ArrayError),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", ArrayError),
        ("%%MatrixMarket matrix array real symmetric\n2 3\n1\n2\n3\n", ArrayError),
    ],
    ids=range(20),
)
def test_malformed_mtx(tmp_path, text, error):
    with pytest.raises(error):
        read(written(tmp_path / "a.mtx", text))


def test_odd_but_valid_mtx(tmp_path):
    text = "%%MatrixMarket  MATRIX Coordinate Real General\n%x\n%\n\n  3   4  2 \n 1\t 1   5e-1\n\n3 4 -7\n"
    tensor = read(written(tmp_path / "a.mtx", text.replace("\n", "\r\n")))
    assert tensor.unpack()[1].tolist() == [0.5, -7]
    assert read(written(tmp_path / "a.mtx", HEAD + "3 4 0\n")).number_of_stored_values == 0


def test_what_mtx_cannot_say(tmp_path):
    for tensor in (
        pack([[0]], [1.0], 3, "CVEC"),
        pack([[0], [0]], [1.0], (3, 3), "CSR", fill_value=7),
        pack([[0], [0]], np.array([0], "M8[s]"), (3, 3), "CSR"),
    ):
        with pytest.raises(FormatError):
            write(tmp_path / "a.mtx", tensor)
    assert os.listdir(tmp_path) == []


# FROSTT


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # the parser is the same for all examples
@given(cases(dtypes=["int64", "float64", "int8", "float32"]), st.sampled_from(["a.tns", "a.tns.gz"]))
def test_tns_round_trip(tmp_path_factory, parser, case, name):
    folder = tmp_path_factory.mktemp("tns")
    tensor = pack(case.coords, case.values, case.shape, case.format)
    if tensor.ndim == 0:
        with pytest.raises(FormatError):
            write(folder / name, tensor)
        return
    write(folder / name, tensor)
    again = read(folder / name, shape=tensor.shape)
    assert again.equals(tensor)
    assert again.dtype == (np.int64 if tensor.dtype.kind == "i" or not len(tensor.values) else np.float64)
    shutil.rmtree(folder)


def test_the_largest_coordinates_are_the_shape(tmp_path):
    path = written(tmp_path / "a.tns", "# a comment\n1 2 3 1.5\n\n4 1  1\t2\n")
    tensor = read(path)
    assert tensor.shape == (4, 2, 3)
    assert tensor.unpack()[1].tolist() == [1.5, 2]
    assert read(path, shape=(9, 9, 9)).shape == (9, 9, 9)
    with pytest.raises(ArrayError):
        read(path, shape=(3, 9, 9))


def test_duplicates_in_text_files(tmp_path):
    path = written(tmp_path / "a.tns", "1 1 2\n1 1 3\n")
    with pytest.raises(ArrayError, match="more than once"):
        read(path)
    assert read(path, duplicates="sum").values.tolist() == [5]
    with pytest.raises(TypeError, match="lenient does not apply"):
        read(path, lenient=True)


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "5\n", "1 2\n1 2 3\n", "0 1 2\n", "1 -1 2\n", "1 x 2\n", "1 2 y\n", "1.5 1 2\n", "1 1 \n"],
)
def test_malformed_tns(tmp_path, text):
    if text == "1 1 \n":
        assert read(written(tmp_path / "a.tns", text)).shape == (1,)
        return
    with pytest.raises(BinsparseError):
        read(written(tmp_path / "a.tns", text))


def test_integers_stay_integers_unless_one_is_not(tmp_path):
    assert read(written(tmp_path / "a.tns", "1 9007199254740993\n")).values.tolist() == [2**53 + 1]
    lines = "".join(f"{k} 7\n" for k in range(1, 3000)) + "3000 0.5\n"
    assert read(written(tmp_path / "a.tns", lines)).dtype == np.float64


def test_a_gzip_file_that_is_cut(tmp_path):
    for name in ("a.tns.gz", "a.mtx.gz"):
        write(tmp_path / name, pack(np.arange(2000).reshape(2, 1000), np.arange(1000.0), (2000, 2000), "COO"))
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(ContainerError):
            read(tmp_path / name)


# Cases that hostile use found


REAL = "%%MatrixMarket matrix coordinate real general\n3 3 1\n"
INTEGER = REAL.replace("real", "integer")


@pytest.mark.parametrize(
    "text",
    [
        REAL + "1 1 1.5D2\n",
        REAL + "1 1 0x10\n",
        REAL + "1 1 1,5\n",
        REAL + "1 1 1.5 junk\n",
        REAL + "1 1 1.5 7\n",
        REAL + '1 1 "1.5"\n',
        INTEGER + "1 1 1e3\n",
        INTEGER + "1 1 1.5\n",
        REAL.replace("real", "pattern") + "1 1 5\n",
        REAL.replace("3 3 1", "3 3 100000000000") + "1 1 1\n",
        "%%MatrixMarket matrix array real symmetric\n90000 90000\n1\n",
    ],
    ids=range(11),
)
def test_numbers_are_read_whole_or_not_at_all(tmp_path, text):
    (tmp_path / "a.mtx").write_text(text)
    with pytest.raises(ArrayError):
        read(tmp_path / "a.mtx")


def test_complex_infinities_and_zeros(tmp_path):
    values = np.array([complex(1, np.inf), complex(-0.0, -0.0), complex(np.nan, 1)])
    write(tmp_path / "a.mtx", pack([[0, 1, 2], [0, 1, 2]], values, (3, 3), "COOR"))
    assert read(tmp_path / "a.mtx").values.tobytes() == values.tobytes()


def test_the_diagonal_is_not_mirrored(tmp_path):
    tensor = pack([[0], [1]], [4.0], (2, 2), "COOR", structure="skew_symmetric_upper")
    write(tmp_path / "a.mtx", tensor)
    assert np.array_equal(read(tmp_path / "a.mtx").to_dense(), tensor.to_dense())
    with pytest.raises(FormatError, match="mirror image"):
        write(tmp_path / "b.mtx", pack([[0], [0]], [3.0], (2, 2), "COOR", structure="skew_symmetric_upper"))
    with pytest.raises(FormatError, match="unsigned"):
        write(tmp_path / "b.mtx", tensor.astype(np.uint8))


def test_what_text_would_round(tmp_path):
    with pytest.raises(FormatError):
        write(tmp_path / "a.tns", pack([[0]], np.array([2**64 - 1], np.uint64), 3, "CVEC"))
    for name, dtype in [("a.tns", np.longdouble), ("a.mtx", np.longdouble), ("a.mtx", np.clongdouble)]:
        with pytest.raises(FormatError):
            write(tmp_path / name, pack([[0], [0]], np.ones(1, dtype), (3, 3), "COO"))


# Bounds and ends


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.sampled_from(["banner", "comment", "size"]), length=st.integers(80, 300), packed=st.booleans())
def test_a_line_of_the_head_is_no_longer_than_a_header_may_be(tmp_path, line, length, packed):
    lines = {"banner": HEAD[:-1], "comment": "%", "size": "3 3 1"}
    lines[line] = lines[line].ljust(length, " " if line != "comment" else "x")
    path = written(tmp_path / ("a.mtx.gz" if packed else "a.mtx"), "\n".join([*lines.values(), "1 2 1.5", ""]))
    limits = Limits(header_bytes=200, array_bytes=1000, dense_bytes=1000)
    if length < 200:
        assert read(path, limits=limits).to_dense()[0, 1] == 1.5
    else:
        with pytest.raises(LimitError, match="header_bytes"):
            read(path, limits=limits)


def check_refused_within(most, path, error, match):
    """Assert that a file is refused, within this number of bytes."""

    def refused():
        with pytest.raises(error, match=match):
            read(path)

    refused()  # loads what is loaded once
    tracemalloc.start()
    try:
        refused()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_what_is_not_read_takes_no_memory(tmp_path):
    path = written(tmp_path / "a.mtx.gz", f"{HEAD}%{'x' * 2**24}\n1 1 1\n1 1 1.0\n")
    check_refused_within(2**23, path, LimitError, "header_bytes")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["a.mtx", "a.tns"]))
def test_a_file_that_is_cut_within_a_line_is_told(tmp_path, data, name):
    """Within the last number, too, where what is left is a number."""
    values = np.array(data.draw(st.lists(st.integers(10, 10**6), min_size=1, max_size=4))) / 8
    at = np.arange(len(values))
    write(tmp_path / name, pack([at, at], values, (99, 99), "COO"), overwrite=True)
    whole = (tmp_path / name).read_bytes()
    cut = data.draw(st.integers(whole.index(b"\n") + 1, len(whole) - 1))
    assume(whole[cut - 1 : cut] != b"\n")
    (tmp_path / name).write_bytes(whole[:cut])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DialectWarning)
        with pytest.raises((BinsparseError, DialectWarning)):
            read(tmp_path / name)


@given(
    st.sampled_from(["real", "integer", "unsigned-integer", "complex", "pattern"]),
    st.sampled_from(["general", "symmetric", "skew-symmetric", "hermitian"]),
    st.dictionaries(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.integers(0, 9), max_size=3),
    st.sampled_from(["CSR", "dense, band", "COO"]),
)
def test_a_stream_is_converted_as_a_whole_text(tmp_path_factory, field, symmetry, entries, format):
    path = str(tmp_path_factory.mktemp("mtx") / "a.mtx")
    ends = {"pattern": "", "complex": " {0} {0}"}.get(field, " {0}")
    rows = "".join(f"{i} {j}{ends.format(x)}\n" for (i, j), x in entries.items())
    text = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n3 3 {len(entries)}\n{rows}"
    with builtins.open(path, "w") as file:
        file.write(text)
    made = []
    for options in ({}, {"memory": 2**34}):
        place = {}
        try:
            convert(path, place, format, **options)
            made.append(read(place))
        except BinsparseError:
            made.append(None)
    refused = [tensor is None for tensor in made]
    assert all(refused) or not any(refused)
    if not any(refused):
        assert made[0].equals(made[1])
        assert made[0].structure == made[1].structure


def test_a_line_that_is_too_short_is_parsed_within_the_cells(tmp_path, monkeypatch):
    kernel = kernels.text.parse_table
    monkeypatch.setattr(kernels.text, "parse_table", getattr(kernel, "py_func", kernel))  # numpy checks the indices
    with np.errstate(over="ignore"), pytest.raises(ArrayError, match="expected 3 numbers, got 2"):
        read(written(tmp_path / "a.mtx", HEAD + "3 4 1\n1 1\n"))


@pytest.mark.parametrize("name", ["a.mtx", "a.tns"])
@given(data=st.data())
def test_coordinates_out_of_range_are_told_by_their_line(tmp_path_factory, name, data):
    """The message has the line, its number among the lines after the head, and what the text says."""
    path, count = tmp_path_factory.getbasetemp() / name, data.draw(st.integers(1, 6))
    head = f"%%MatrixMarket matrix coordinate real general\n7 7 {count}\n" if name == "a.mtx" else ""
    lines = [f"{k + 1} {k + 1} 1.5" for k in range(count)]
    bad = data.draw(st.integers(0, count - 1))
    wrong = data.draw(st.sampled_from([0, -1, *[8, 99] * (name == "a.mtx")]))
    words = [str(bad + 1), str(bad + 1), "1.5"]
    words[data.draw(st.integers(0, 1))] = str(wrong)
    lines[bad] = " ".join(words)
    for k in sorted(data.draw(st.lists(st.integers(0, count), max_size=3)), reverse=True):
        lines.insert(k, data.draw(st.sampled_from(["", "%" if name == "a.mtx" else "#"])))
    path.write_text(head + "".join(f"{line}\n" for line in lines))
    for call in (read, lambda path: convert(path, path.with_suffix(".h5"), memory=2**34, overwrite=True)):
        block = using_thresholds(text_bytes=data.draw(st.sampled_from([9, 2**20])))
        with block, pytest.raises(ArrayError, match=rf"coordinates count from 1.*, got {wrong};") as caught:
            call(path)
        found = re.search(r"(?:, after line (\d+))?: '([^']*)', line (\d+) of the numbers", str(caught.value))
        assert found[2] == lines[int(found[1] or 0) + int(found[3]) - 1] == " ".join(words)


@pytest.mark.parametrize("name", ["a.mtx", "a.tns", "a.graph"])
@given(at=st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_repeated_coordinates_are_told_as_in_the_text(tmp_path_factory, name, at):
    path, (i, j) = tmp_path_factory.getbasetemp() / name, at
    text = f"{i} {j} 2.5\n" * 2
    if name == "a.mtx":
        text = f"{HEAD}5 5 2\n{text}"
    if name == "a.graph":
        text = "5 1\n" + "".join(f"{j} {j}\n" if k == i else "\n" for k in range(1, 6))
    path.write_text(text)
    for call in (read, lambda path: convert(path, path.with_suffix(".h5"), memory=2**34, overwrite=True)):
        with pytest.raises(ArrayError, match=rf"{name}: .*\({i}, {j}\), counted from 1, is given more than once; pass"):
            call(path)
        assert read(path, duplicates="first").unpack()


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        ("a.mtx", "2 x 2.0", "'x' is no number of type int64"),
        ("a.mtx", "2 2", "expected 3 numbers, got 2"),
        ("a.tns", "1 2.5 7", "'2.5' is no number of type int64"),
        ("a.tns", "1 99999999999999999999 7", "'99999999999999999999' is no number of type int64"),
    ],
)
def test_errors_show_the_line(tmp_path, name, line, fault):
    head = "%%MatrixMarket matrix coordinate real general\n3 3 2\n" if name == "a.mtx" else ""
    (tmp_path / name).write_text(f"{head}1 1 1.0\n{line}\n")
    for call in (read, lambda path: convert(path, tmp_path / "a.h5", memory=2**34)):
        with pytest.raises(ArrayError, match=re.escape(f"'{line}', line 2 of the numbers: {fault}; correct this line")):
            call(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "what", "entries"),
    [
        ("# 4 4\n5 1 1.0\n", "pass shape=", 1),
        ("2 1\n4 4\n5 1 1.0\n", "pass shape=", 1),
        ("2 3\n4 4\n1 1 1.0\n2 2 2.0\n", "2 entries, but 3 by its head", 2),
        ("2\n4 4\n3\n1 1 1.0\n2 2 2.0\n", "2 entries, but 3 by its head", 2),
        ("7 7 3\n1 3 1.5\n2 1 2.5\n7 6 3.5\n", "first line, 7 7 3", 4),
    ],
)
def test_a_head_of_a_tns_file_that_its_entries_contradict(tmp_path, text, what, entries):
    path = written(tmp_path / "a.tns", text)
    with pytest.raises(ArrayError, match=what):
        read(path)
    assert read(path, shape=(9, 9)).nnz == entries


@pytest.mark.parametrize("head", ["# made by hand\n3 2\n2 3 4\n", "3\n2 3 4\n", "# 2 3 4\n"])
def test_sizes_in_the_head_of_a_tns_file(tmp_path, head):
    (tmp_path / "a.tns").write_text(f"{head}1 1 1 1.5\n1 2 3 2.5\n")
    tensor = read(tmp_path / "a.tns")
    assert tensor.shape == (2, 3, 4)
    assert tensor.to_dense()[0, 1, 2] == 2.5
    assert read(tmp_path / "a.tns", shape=(5, 5, 5)).shape == (5, 5, 5)


HARD = ["5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "9007199254740993.0000001"]
HARD += ["0.1e-5", ".5", "7.", "+3", "-0", "1E+02", "nan", "-inf", "1e400", "1e-400", "123456789012345678901234567890"]
HARD += [
    "0.000000000000000000000012345678901234567",
    "1" + "0" * 30 + "e-30",
    "1e00000000000000000005",
    "4.35",
    "0e999",
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("gap", [" ", "\t", "   ", " \t "])
@pytest.mark.parametrize("edge", ["", "  ", "\n", "\t\n\n", "  % a comment\n%\n"])
def test_many_numbers_are_read_as_python_reads_them(tmp_path, gap, edge):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 3000, np.uint64).view(float)
    texts = [*HARD, *map(repr, bits[np.isfinite(bits)].tolist()), *map("{:.25g}".format, rng.standard_normal(500))]
    rows = "".join(f"{gap}{k}{gap}1{gap}{text}{edge}\n" for k, text in enumerate(texts, 1))
    tensor = read(written(tmp_path / "a.mtx", f"{HEAD}{len(texts)} 1 {len(texts)}\n{rows}"))
    assert tensor.values.tobytes() == np.array(list(map(float, texts))).tobytes()
    assert np.array_equal(tensor.unpack()[0][0], np.arange(len(texts)))


def test_the_kernel_parses_short_decimals_itself(tmp_path, parser, monkeypatch):
    texts = [f"{k * 10**-e:.{e}f}" for e in range(5) for k in range(1, 2500)] + ["9007199254740992e22", "7e-22"]
    rows = "".join(f"{k} 1 {text}\n" for k, text in enumerate(texts, 1))
    path = written(tmp_path / "a.mtx", f"{HEAD}{len(texts)} 1 {len(texts)}\n{rows}")
    if parser == "fast":
        monkeypatch.delattr(text_tables, "_number")  # Python would take a hundred times as long
    assert read(path).values.tolist() == list(map(float, texts))


@pytest.mark.parametrize(
    "text", ["5 1", "5 1 2 3", "5 1 1_0", "5 1 x", "5 1 1e", "5 1 -", "5 1 1.5.5", "5.0 1 1", "5 1 \0"]
)
def test_the_line_of_a_fault_among_many(tmp_path, text):
    rows = "".join(f"{k} 1 1.5\n" for k in range(1, 2001))
    path = written(tmp_path / "a.mtx", f"{HEAD}2001 1 2001\n{rows}{text}\n")
    with pytest.raises(ArrayError, match="line 2001 of the numbers"):
        read(path)


@pytest.mark.parametrize("text", [str(2**64), "-1", "1.0"])
def test_unsigned_integers_among_many(tmp_path, text):
    head = HEAD.replace("real", "unsigned-integer") + "2001 1 2001\n"
    rows = "".join(f"{k} 1 {2**64 - k}\n" for k in range(1, 2001))
    assert read(written(tmp_path / "a.mtx", f"{head}{rows}2001 1 7\n")).values[0] == 2**64 - 1
    with pytest.raises(ArrayError, match="is no number of type uint64"):
        read(written(tmp_path / "a.mtx", f"{head}{rows}2001 1 {text}\n"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_writes_text(tmp_path):
    """Threads of a library that formats text do not survive a fork."""
    code = (
        "import os, numpy as np, binsparse_levels as bl\n"
        "tensor = bl.pack_dense(np.eye(3000) / 3, 'CSR')\n"
        "bl.write('parent.mtx', tensor)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    bl.write('child.mtx', tensor)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True, timeout=100)
    assert read(tmp_path / "child.mtx").equals(read(tmp_path / "parent.mtx"))


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("size", [2 * 10**7, 2**32, 10**19 - 1])
def test_sizes_of_an_array_take_no_memory(tmp_path, size, symmetry):
    field = "complex" if symmetry == "hermitian" else "real"
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix array {field} {symmetry}\n{size} {size}\n1.0 {'0' * (field != 'real')}\n")
    check_refused_within(2**26, path, ArrayError, "values for shape")


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_a_triangle_in_any_blocks(tmp_path, monkeypatch, symmetry, size):
    monkeypatch.setattr(THRESHOLDS, "text_bytes", 5)
    dense = np.tril(np.arange(1.0, size * size + 1).reshape(size, size), -(symmetry[0:2] == "sk"))
    values = [str(dense[i, j]) for j in range(size) for i in range(j + (symmetry[0:2] == "sk"), size)]
    path = tmp_path / "a.mtx"
    path.write_text("\n".join([f"%%MatrixMarket matrix array real {symmetry}", f"{size} {size}", *values, ""]))
    other = np.tril(dense, -1).T * (-1 if symmetry[0:2] == "sk" else 1)
    np.testing.assert_array_equal(read(path).to_dense(), dense + other)
