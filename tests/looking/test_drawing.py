"""Pictures: well-formed whatever the tensor holds, with everything that they are to show."""

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


def test_a_spy_plot_has_ticks_at_round_coordinates_and_a_scale():
    svg = large().draw()
    words, lines = texts(svg), drawn(svg)["line"]
    down, across = words[words.index("60") + 1 : -2], ["0", "20", "40", "60"]
    assert words[2:6] == across
    assert down == ["0", "50", "100", "150", "200", "250"]
    assert words[-2:] == ["1", "3 entries in a cell, logarithmic"]
    frame = next(r for r in drawn(svg)["rect"] if r.get("class") is None)
    left, top = float(frame.get("x")), float(frame.get("y"))
    assert [float(x.get("x1")) - left for x in lines[:4]] == pytest.approx(
        [3 * (x + 0.5) for x in (0, 20, 40, 60)], abs=0.1
    )
    places = [y + 0.5 for y in range(0, 300, 50)]
    assert [float(x.get("y1")) - top for x in lines[4:]] == pytest.approx(places, abs=0.1)
    ones = texts(pack_dense(np.eye(100), "CSR").draw())
    assert ones[-1] == "80"  # cells with one entry need no scale
    assert len(texts(pack([[0], [1]], [1.0], (10**4, 2), "COO").draw([0, 1]))) < 12  # no two ticks in a few pixels


def axes():
    return pytest.importorskip("matplotlib.figure").Figure().add_subplot()


@pytest.mark.parametrize(("dimensions", "cell"), [((0, 1), "3 × 1"), ((1, 0), "1 × 3"), ((0,), "3")])
def test_a_spy_plot_of_matplotlib_has_the_counts_at_their_coordinates(dimensions, cell):
    ax, tensor = axes(), large()
    image = tensor.draw(dimensions, ax=ax)
    counts, left, right, bottom, top = np.zeros((300, 70), int), *image.get_extent()
    np.add.at(counts, tensor.unpack()[0], 1)
    binned = counts.reshape(100, 3, 70).sum(1)
    wanted = {(0, 1): binned, (1, 0): binned.T, (0,): binned.sum(1)[None]}[dimensions]
    assert np.array_equal(image.get_array().filled(0), wanted)
    sizes = [1, *(tensor.shape[k] for k in dimensions)][-2:]
    assert (left, right, bottom, top) == (-0.5, sizes[1] - 0.5, sizes[0] - 0.5, -0.5)
    assert ax.get_xlabel() == f"dimension {dimensions[-1]}"
    bar = ax.figure.axes[-1]
    assert bar.get_ylabel() == f"entries in a cell of {cell}"
    ax.figure.draw_without_rendering()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("shape", "sizes"), [((5, 5), (5, 5)), ((0, 5), (1, 5)), ((2**40, 9), (2**40, 9)), ((7,), (1, 7))]
)
def test_a_spy_plot_of_few_entries_has_no_scale(shape, sizes):
    ax, count = axes(), min(*shape, 3)
    image = pack([np.arange(count)] * len(shape), 1.0, shape, f"sparse({len(shape)})").draw(ax=ax)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, sizes[1] - 0.5), (sizes[0] - 0.5, -0.5))
    assert image.get_array().count() == (count if max(shape) < 128 else 3)
    assert ax.figure.axes == [ax]
    ax.figure.draw_without_rendering()


def test_a_spy_plot_has_the_names_of_dimensions():
    tensor, ax = pack_dense(np.eye(3), "CSR", dims=["user", "day"]), axes()
    tensor.draw(ax=ax)
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("user", "day")
    assert "user: 3 down, day: 3 across" in texts(tensor.draw([0, 1]))
    for wrong in (3, "ax", pytest):
        with pytest.raises(OptionError, match="ax: expected the axes"):
            tensor.draw(ax=wrong)
    with pytest.raises(OptionError, match="one or two different"):
        pack((), [1], (), "element").draw(ax=ax)


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


def facts(tensor):
    """The table of the HTML, and the rest as text."""
    root = ElementTree.fromstring(tensor._repr_html_())
    rows = {row[0].text: row[1].text for row in root.iter("tr")}
    return rows, "".join(text for pre in root.iter("pre") for text in pre.itertext())


@given(testing.tensors(max_rank=4, kinds=tuple(LEVELS.values())))
def test_the_table_has_the_numbers_of_any_tensor(tensor):
    rows, levels = facts(tensor)
    assert rows["shape"] == (" × ".join(map(str, tensor.shape)) or "scalar")
    assert rows["dtype"] == str(tensor.dtype)
    assert rows["stored values"] == f"{tensor.nnz:,}" + ", all equal" * tensor.iso
    assert rows.get("density") == (f"{tensor.density:.3g}" if tensor.size else None)
    assert rows["bytes"] == f"{tensor.nbytes:,}"
    assert rows["fill value"] == ("none, treated as 0" if tensor.fill_value is None else str(tensor.fill_value)[:200])
    assert levels == repr(tensor).partition("\n")[2]


def test_the_table_has_names_and_labels():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"day": [0, 1, 1], "site": ["a", "b", "a"], "v": [1.5, 2.5, 3.5]})
    tensor = bl.from_table(table, ["day", "site"], "v", "CSR")
    rows, _ = facts(tensor)
    assert list(rows) == ["shape", "dtype", "format", "stored values", "density", "bytes", "fill value", "labels"]
    assert (rows["shape"], rows["labels"]) == ("2 × 2 (day, site)", "site")
    rows, levels = facts(tensor[1:])
    assert list(rows) == ["shape", "dtype", "format", "fill value", "labels"]
    assert (rows["format"], levels) == ("CSR, a view", "")
    store, other = {}, {}
    bl.write(store, tensor)
    bl.write(other, tensor)
    rows, levels = facts(bl.open([store, other]))
    assert (rows["shape"], rows["format"], levels) == ("4 × 2 (day, site)", "CSR, 2 parts", "")


def test_the_table_has_map_and_structure():
    rows, levels = facts(pack_dense(np.eye(4), "sparse(3)", map="0/2, 1, 0%2"))
    assert (rows["map"], rows["stored values"], rows["density"]) == ("0/2, 1, 0%2", "4", "0.25")
    assert "sparse(3)" in levels
    rows, _ = facts(pack([[0, 1], [0, 0]], [1, 2], (2, 2), "CSR", structure="symmetric_lower"))
    assert rows["structure"] == "symmetric_lower"


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
        assert "<svg" not in text
        assert facts(shown)[1] == repr(shown).partition("\n")[2]
    rows, levels = facts(lazy)
    assert rows["stored values"] == str(len(tensor.values))
    assert ("density" in rows) == (format not in ("bitmap(2)", "run, run"))  # else the values do not tell
    for name in tensor.arrays:
        assert name in levels
    assert inside(lazy).source.lazy
    assert "<svg" in tensor._repr_html_()


def test_huge_tensors_are_drawn_on_request_alone(monkeypatch):
    monkeypatch.setattr("binsparse_levels.looking.notebook._DRAWN", 100)
    assert "<svg" not in large()._repr_html_()
    assert cells_of(large().draw())
