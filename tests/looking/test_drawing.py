"""Pictures: well-formed whatever the tensor holds, with everything that they are to show."""

import html
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given

import binsparse_levels as bl
from binsparse_levels import OptionError, pack, pack_dense, testing
from binsparse_levels.levels import LEVELS
from binsparse_levels.looking import drawing
from binsparse_levels.tensors.tensor import inside

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg):
    """The elements of a picture, by name."""
    root = ElementTree.fromstring(svg)
    assert root.tag == SVG + "svg"
    width, height = (float(root.get(key)) for key in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    for element in root.iter(SVG + "rect"):
        if element.get("x"):
            assert 0 <= float(element.get("x")) <= width
            assert 0 <= float(element.get("y")) <= height
    return {name: list(root.iter(SVG + name)) for name in ("rect", "line", "text", "path")}


def texts(svg):
    return [element.text or "" for element in drawn(svg)["text"]]


@given(testing.tensors(max_rank=4, kinds=tuple(LEVELS.values())))
def test_any_small_tensor(tensor):
    words = texts(tensor.draw())
    ElementTree.fromstring(f"<div>{tensor._repr_html_()}</div>")
    assert words
    if not drawing.is_small(inside(tensor).tree):
        return
    for name in tensor.arrays:
        assert name in words
    for level in tensor.format.levels:
        assert any(word.startswith(f"{level}: {'dimension' if level.rank else 'no dimension'}") for word in words)


def test_nodes_and_arrays():
    tensor = pack([[0, 2, 0], [1, 0, 3], [4, 4, 1]], [1.5, 2.5, 3.5], (3, 4, 5), "dense, sparse, sparse")
    found = drawn(tensor.draw())
    arrays = sum(map(len, tensor.arrays.values())) + 3
    assert len(found["rect"]) == arrays + 3 + 3 + 3  # the items, and a node for each coordinate
    assert len([r for r in found["rect"] if r.get("class") == "soft"]) == 3  # those that are computed
    words = texts(tensor.draw())
    assert words.count("1.5") == 2  # below its node, and in the array
    stored = [*tensor.arrays, "values (iso)" if tensor.iso else "values"]
    assert [word for word in words if word in stored][-len(stored) :] == stored


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (2, 0, 4)])
def test_empty_and_rank_0(shape):
    rank = len(shape)
    tensor = pack([[] for _ in shape], [] if rank else [7], shape, f"sparse({rank})" if rank else "element")
    assert texts(tensor.draw())
    if rank:
        assert texts(tensor.draw([0]))
        assert "0 entries" in " ".join(texts(tensor.draw(range(min(rank, 2)))))
    else:
        assert "7" in texts(tensor.draw())


def test_what_a_file_may_say_is_escaped():
    values = np.array([("<script>",), ("&amp;\x01",), ("\ud800\n]]>",)], [("text", "U20")])
    tensor = pack([[0, 1, 2]], values, 3, "CVEC", fill_value=np.array(("</pre><b>",), values.dtype)[()])
    shown = tensor._repr_html_()
    ElementTree.fromstring(f"<div>{shown}</div>")
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x01" not in shown
    assert "&amp;amp;\\x01" in shown


def large(shape=(300, 70), count=5000):
    random = np.random.default_rng(0)
    return pack([random.integers(0, size, count) for size in shape], 1.0, shape, "COO", duplicates="first")


def test_a_large_tensor_is_a_spy_plot():
    tensor = large()
    svg = tensor.draw()
    words = " ".join(texts(svg))
    assert "dimension 0: 300 down, dimension 1: 70 across" in words
    assert f"{len(tensor.values):,} entries; a cell of 3 × 1 has up to 3" in words
    assert tensor._repr_html_().count("<svg") == 1


def cells_of(svg):
    """For every cell that is filled, how opaque it is."""
    found = {}
    for path in drawn(svg)["path"]:
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path.get("d")):
            for k in range(int(width)):
                place = (int(y), int(x) + k)
                assert place not in found
                found[place] = float(path.get("fill-opacity"))
    return found


@pytest.mark.parametrize("format", ["COO", "CSC", "dense, sparse @ 1, 0", "DCSR"])
@pytest.mark.parametrize("dimensions", [(0, 1), (1, 0)])
def test_a_spy_plot_shows_every_cell_with_entries(format, dimensions):
    tensor = large().convert(format)
    coords = [tensor.unpack()[0][k] // (3 if k == 0 else 1) for k in dimensions]
    counts = np.zeros((100, 70)[:: 1 if dimensions == (0, 1) else -1], int)
    np.add.at(counts, tuple(coords), 1)
    found = cells_of(tensor.draw(dimensions))
    assert set(found) == set(zip(*(x.tolist() for x in counts.nonzero()), strict=True))
    by_count = {n: {found[place] for place in found if counts[place] == n} for n in range(1, counts.max() + 1)}
    shades = [max(shade) for _, shade in sorted(by_count.items()) if shade]
    assert shades == sorted(shades)
    assert all(len(shade) <= 1 for shade in by_count.values())


def test_a_spy_plot_of_dimensions_of_any_size():
    tensor = pack([[0, 2**62, 2**63 - 2], [1, 5, 0], [3, 3, 3]], 1.0, (2**63 - 1, 9, 2**40), "sparse(3)")
    assert set(cells_of(tensor.draw([0, 1]))) == {(0, 1), (64, 5), (127, 0)}
    assert set(cells_of(tensor.draw([0]))) == {(0, 0), (0, 64), (0, 127)}
    assert len(cells_of(tensor.draw([2, 1]))) == 3


def test_one_dimension_is_a_list_of_one():
    pyarrow = pytest.importorskip("pyarrow")
    tensor = bl.from_table(
        pyarrow.table({"day": [0, 1, 1], "site": [2, 1, 0], "v": [1, 2, 3]}), ["day", "site"], "v", "CSR"
    )
    for one in (1, np.int64(1), "site", -1):
        assert tensor.draw(one) == tensor.draw([one]) == tensor.draw([1])


def test_wrong_dimensions():
    tensor = large()
    for wrong in ([], [0, 0], [0, -2], [0, 1, 0]):
        with pytest.raises(OptionError, match="one or two different"):
            tensor.draw(wrong)
    with pytest.raises(IndexError):
        tensor.draw([2])
    with pytest.raises(OptionError):
        pack((), [1], (), "element").draw([])


def pre(text):
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{html.escape(text)}</pre>'


@pytest.mark.parametrize("format", ["CSR", "dense, band", "dense, hashed", "bitmap(2)", "run, run"])
def test_what_was_not_read_shows_text_alone_and_reads_nothing(tmp_path, monkeypatch, format):
    tensor = pack_dense(np.eye(4), format)
    bl.write(tmp_path / "a.h5", tensor)
    bl.write(tmp_path / "b.h5", pack_dense(np.eye(4), "sparse(3)", map="0/2, 1, 0%2"))
    lazy, mapped = bl.open(tmp_path / "a.h5"), bl.open(tmp_path / "b.h5")

    def refuse(*_):
        raise AssertionError("an array of the file was read")

    monkeypatch.setattr("binsparse_levels.arrays.LazyArray.__getitem__", refuse)
    for shown in (lazy, lazy[1:], mapped, mapped[1:], tensor[:, 1:]):
        before = inside(shown).backing
        text = shown._repr_html_()
        assert inside(shown).backing is before
        assert text == pre(repr(shown))
    assert pre(repr(lazy[1:])).count("\n") == 0  # a view has a head alone
    for name in tensor.arrays:
        assert name in lazy._repr_html_()
    assert inside(lazy).source.lazy
    assert "<svg" in tensor._repr_html_()


def test_huge_tensors_are_drawn_on_request_alone(monkeypatch):
    monkeypatch.setattr("binsparse_levels.looking.drawing._DRAWN_IN_NOTEBOOKS", 100)
    assert "<svg" not in large()._repr_html_()
    assert cells_of(large().draw())
