"""Reports: right numbers, escaped text, a bounded size, faults that are told, and files that are read in parts."""

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.golden import GOLDEN
from hypothesis import given

import binsparse_levels as bl
from binsparse_levels import BinsparseError, from_table, pack, pack_dense, testing, write
from binsparse_levels.engine import packing
from binsparse_levels.levels import LEVELS
from binsparse_levels.looking.report import report_on
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import THRESHOLDS

MALFORMED = sorted((GOLDEN / "malformed").glob("*.h5"))
VOID = {"meta", "link", "path", "line", "rect"}


def report(place):
    with bl.open(place) as tensor:
        return report_on(tensor, getattr(place, "name", "Tensor"))


class Page(HTMLParser):
    """The text of a page, whose elements are closed in order, and its tables as rows of cells."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.words, self.rows = [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "iframe", "object", "form")
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if "style" in self.stack:
            return
        self.words.append(data)
        if "td" in self.stack or "th" in self.stack:
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(self.words)


@given(testing.tensors(max_rank=4, kinds=tuple(LEVELS.values())))
def test_any_tensor_has_a_report(tensor):
    made = tensor.report()
    assert made.faults == ()
    text = Page(made.html).text
    assert "✓ sound" in text
    assert repr(tensor) in text
    for name in tensor.arrays:
        assert name in text
    assert len(made.html.encode()) < 100_000
    assert made._repr_html_() in made.html


def test_the_numbers_are_right():
    tensor = pack([[0, 0, 2, 5], [1, 3, 3, 0]], [1.5, -2.5, 0.0, 3.5], (6, 4), "CSR", fill_value=0)
    page = Page(tensor.report().html)
    assert "In memory: 76 bytes, 19 an entry" in page.text
    rows = {row[0]: row[1:] for row in page.rows if row}
    assert rows["dense"] == ["0 (6)", "1", "6", "6", "6", "1", "0", "0"]
    assert rows["sparse"] == ["1 (4)", "6", "4", "0", "2", "0.167", "44", "2"]


def lengths_of(tensor, monkeypatch, at_once):
    monkeypatch.setattr(THRESHOLDS, "looked_items", at_once)
    return [(x.positions, x.children, x.longest, dict(x.counts)) for x in bl.levels_of(tensor)]


@pytest.mark.parametrize("format", ["dense, sparse, sparse", "sparse, dense, sparse", "sparse, sparse(2)", "sparse(3)"])
@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 1000])
def test_fiber_lengths_in_parts(format, at_once, monkeypatch):
    random = np.random.default_rng(0)
    coords = [random.integers(0, size, 60) for size in (9, 5, 40)]
    tensor = pack(coords, np.ones(60), (9, 5, 40), format, duplicates="first")
    expected = []
    for _, _, pointers, positions in packing.expand_levels(inside(tensor).tree):
        lengths = np.diff(pointers)
        expected.append((len(lengths), len(positions), lengths.max(), Counter(lengths.tolist())))
    assert lengths_of(tensor, monkeypatch, at_once) == expected


def test_what_a_file_may_say_is_escaped():
    hostile = "</style><script>alert(1)</script>\"'<img src=x onerror=alert(1)>"
    values = np.array([(hostile,), ("&amp;\x01",)], [("text", "U90")])
    tensor = pack([[0, 1]], values, 3, "CVEC", attributes={hostile: [hostile]})
    made = tensor.report()
    page = Page(made.html)
    assert hostile.replace('"', '\\"') in page.text
    assert "\x01" not in made.html
    assert Page(report_on(tensor, hostile).html)


def test_the_page_forbids_to_load_and_to_run_anything():
    made = pack_dense(np.eye(3), "CSR").report()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', made.html)[1]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert set(re.findall(r'(?:src|href|url)[=(]"?(\w+:)', made.html)) == {"data:"}
    assert set(re.findall(r"https?://[^\"]*", made.html)) == {"http://www.w3.org/2000/svg"}  # a name of XML


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(2**62, 2**62, 2**62), (2,) * 60, (1000,) * 6])
def test_the_size_is_bounded(shape):
    random = np.random.default_rng(0)
    coords = [random.integers(0, size, 20000) for size in shape]
    tensor = pack(coords, random.normal(size=20000), shape, "COO", duplicates="first", attributes={"x": "<" * 500_000})
    assert 10_000 < len(tensor.convert("CSF").report().html.encode()) < 100_000


def test_a_page_is_written_once(tmp_path):
    made = pack_dense(np.eye(3), "CSR").report()
    made.write(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(FileExistsError, match="overwrite=True"):
        made.write(tmp_path / "a.html")
    made.write(tmp_path / "a.html", overwrite=True)
    assert "write(path)" in repr(made)


# Views and maps


MAPS = [None, "0/2, 1/4, 0%2, 1%4", "(0 1)"]


@pytest.mark.parametrize("map", MAPS)
def test_views_and_maps(map):
    cells = np.arange(48).reshape(6, 8) % 5
    tensor = pack_dense(cells, "COO", map=map) if map else pack_dense(cells, "COO")
    text = Page(tensor.report().html).text
    assert repr(tensor) in text
    viewed = Page(tensor[1:, ::2].report().html).text
    assert "<Tensor 5 × 4" in viewed


# Files


CONTAINERS = ["a.h5", "a.zarr", "a.npz", "a.bspnpy", "a.nc"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_file_has_the_report_of_its_tensor(tmp_path, name):
    random = np.random.default_rng(0)
    coords = [random.integers(0, 300, 4000) for _ in range(3)]
    tensor = pack(coords, random.normal(size=4000), (300,) * 3, "dense, sparse, sparse", duplicates="sum")
    path = tmp_path / name
    bl.write(path, tensor, **({"chunks": 1000} if name.endswith((".h5", ".zarr")) else {}))
    found, own = Page(report(path).html), Page(tensor.report().html)
    assert "✓ sound" in found.text
    assert found.rows == own.rows
    assert name in found.text


def test_a_file_is_not_loaded_for_its_report(tmp_path):
    bl.write(tmp_path / "a.h5", pack_dense(np.eye(9), "CSR"))
    with bl.open(tmp_path / "a.h5") as tensor:
        assert tensor.report().faults == ()
        assert inside(tensor).source.lazy


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.name.partition(".")[0])
def test_a_damaged_file_gives_a_report_on_its_faults(path):
    try:
        bl.read(path)
        expected = ()
    except BinsparseError as error:
        expected = error.problems
    try:
        made = report(path)
    except BinsparseError as error:  # the header has no tensor to report on
        assert expected
        with pytest.raises(type(error)):
            bl.open(path)
        return
    page = Page(made.html)
    assert bool(made.faults) == bool(expected)
    assert ("✗ faulty" in page.text) == bool(expected)
    assert path.name in page.text
    for fault in made.faults[:50]:
        assert fault.message[:100] in page.text


@given(testing.tensors(max_rank=3))
def test_a_report_finds_the_faults_that_read_finds(tensor):
    store = {}
    bl.write(store, tensor)
    for changed in testing.damaged(store, most=2):
        try:
            bl.read(changed)
            sound = True
        except BinsparseError:
            sound = False
        try:
            made = report(changed)
        except BinsparseError:
            assert not sound
            continue
        assert (made.faults == ()) == sound
        Page(made.html)


def test_a_tensor_of_too_many_entries_is_not_drawn(monkeypatch):
    monkeypatch.setattr("binsparse_levels.looking.report._DRAWN", 3)
    text = Page(pack_dense(np.eye(4), "CSR").report().html).text
    assert "too many entries to draw" in text
    assert "pointers_to_1" in text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no peak of a process")
def test_the_report_on_a_file_takes_bounded_memory_and_seconds(tmp_path):
    random = np.random.default_rng(0)
    cells = random.permutation(2**25)[: 6 * 10**6]
    write = {"values": np.ones(len(cells)), "shape": (2**12, 2**13), "format": "CSR"}
    bl.write(tmp_path / "a.h5", pack([cells >> 13, cells & (2**13 - 1)], **write))
    code = (
        "import sys, time; from pathlib import Path; import binsparse_levels as bl;"
        "began = time.monotonic();"
        "assert not bl.open(sys.argv[1]).report().faults; print(time.monotonic() - began,"
        "Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    found = subprocess.run([sys.executable, "-c", code, tmp_path / "a.h5"], capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, found.stdout.split())
    assert kilobytes < 280 * 1024  # the entries alone would take 144 MB more
    assert seconds < 60


def test_names_and_labels_of_a_tensor_and_of_its_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"day": [0, 1, 1], "site": ["<x>", "y", "<x>"], "v": [1.0, 2.0, 3.0]})
    tensor = from_table(table, ["day", "site"], "v", "CSR")
    write(tmp_path / "a.h5", tensor)
    for made in (tensor.report(), report(tmp_path / "a.h5"), tensor.T.report()):
        assert {"site (2)", "day (2)"} <= {row[1] for row in Page(made.html).rows if len(row) > 1}
