"""Reports and pictures in a real browser: nothing is loaded, no complaints, legible text; what is wide scrolls."""

import json

import numpy as np
import pyarrow
import pytest
from helpers.browser import browser

import binsparse_levels as bl

pytestmark = pytest.mark.slow

LEGIBLE = 4.5  # of WCAG 2, level AA
# The short texts in cells of tables that are broken into several lines.
BROKEN = """
const lines = range => new Set([...range.getClientRects()].map(x => Math.round(x.top))).size;
const short = [...document.querySelectorAll('td')].filter(x => x.textContent.length <= 12);
const whole = x => { const range = document.createRange(); range.selectNodeContents(x); return range; };
return short.filter(x => lines(whole(x)) > 1).map(x => x.textContent);
"""
HOSTILE = '</pre></style><script>window.hit = 1</script><img src=x onerror="window.hit = 1"><b style="color:#fff">'


@pytest.fixture(scope="module")
def window():
    with browser() as made:
        yield made


def entries(shape, count, seed=0):
    generator = np.random.default_rng(seed)
    coords = [(generator.random(count) ** 2 * size).astype(np.int64) for size in shape]
    return bl.pack(coords, generator.normal(size=count), shape, "COO", duplicates="first")


def faulty(path):
    """A file that `list_tensors` shows, with a pointer that descends."""
    store = {}
    bl.write(store, bl.pack([[0, 1], [1, 0]], [1.0, 2.0], (3, 4), "CSR", attributes={"x": HOSTILE}))
    store["pointers_to_1"] = np.array([0, 2, 1, 2], np.int32)
    return store


PAGES = {
    "rank 4": lambda folder: entries((40, 2600, 26, 300), 30000).convert("dense, sparse, sparse(2)").report(),
    "hostile": lambda folder: entries((5, 6), 9).with_attributes({HOSTILE: [HOSTILE] * 3, "long": "x" * 5000}).report(),
    "rank 24": lambda folder: entries((3,) * 24, 500).convert("CSF").report(),
    "huge": lambda folder: bl.pack([[0, 2**61], [5, 2**40]], [1e300, -1e-300], (2**62, 2**41), "DCSR").report(),
    "labels": lambda folder: bl.from_table(
        pyarrow.table({"x" * 70: ["a", "b"], HOSTILE: [HOSTILE, "c"], "v": [1, 2]}), ["x" * 70, HOSTILE], "v", "CSR"
    ).report(),
    "faulty": lambda folder: bl.open(faulty(folder)).report(),
    "one value": lambda folder: bl.pack_dense(np.ones((2, 2)), "dense, band").report(),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_report_is_legible_fits_and_loads_nothing(window, name, tmp_path):
    made = PAGES[name](tmp_path)
    assert bool(made.faults) == (name == "faulty")
    path = tmp_path / "a.html"
    made.write(path)
    assert path.stat().st_size < 100_000
    for dark in (False, True):
        for width in (400, 1400):
            window.open(path.as_uri(), dark=dark, width=width)
            texts = window.texts()
            assert len(texts) > 8
            assert [text for text in texts if text[1] < LEGIBLE] == []
            assert window.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            assert window.run("return [window.hit || 0, document.querySelectorAll('script').length]") == [0, 0]
            assert {url for url in window.requested() if not url.startswith("data:")} == {path.as_uri()}
            assert window.run(BROKEN) == []
            assert window.complaints() == []
        background = window.run("return getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


# The variables that these programs set, and the colours of their pages.
HOSTS = {
    "JupyterLab, light": (":root{--jp-content-font-color1:rgba(0,0,0,.87)}body{background:#fff;color:rgba(0,0,0,.87)}"),
    "JupyterLab, dark": (":root{--jp-content-font-color1:#fff}body{background:#111;color:#fff}"),
    "VS Code, light": (":root{--vscode-editor-foreground:#3b3b3b}body{background:#fff;color:#3b3b3b}"),
    "VS Code, dark": (":root{--vscode-editor-foreground:#ccc}body{background:#1f1f1f;color:#ccc}"),
    "plain, light": "",
    "plain, dark": "body{background:#101418;color:#eee}",
}


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("host", HOSTS)
def test_what_a_notebook_shows_has_the_colours_of_the_page(window, host, system, tmp_path):
    small = bl.pack([[0, 2, 0], [1, 0, 3], [4, 4, 1]], [1.5, 2.5, 3.5], (3, 4, 5), "dense, sparse, sparse")
    bl.write(tmp_path / "a.h5", small)
    shown = [small, entries((300, 70), 5000), bl.open(tmp_path / "a.h5"), bl.advise(small), small.report()]
    body = "".join(f"<div>{x._repr_html_()}</div>" for x in shown)
    path = tmp_path / "a.html"
    page = f"<!doctype html><meta charset=utf-8><title>x</title><style>{HOSTS[host]}</style><body>{body}"
    path.write_text(page, encoding="utf-8")
    window.open(path.as_uri(), dark=system == "dark", width=1000)
    texts = window.texts()
    words = json.dumps(texts)
    assert "pointers_to_1" in words
    assert "dimension 0: 300 down" in words
    assert "fibers" in words
    assert [text for text in texts if text[1] < LEGIBLE] == []
    strokes = "return [...document.querySelectorAll('.bsp rect, .bsp line')].map(x => getComputedStyle(x).stroke)"
    assert len(set(window.run(strokes))) <= 3  # the colour of the page, that of pointers, and none
    assert window.complaints() == []


def test_long_text_wraps_and_wide_pictures_scroll(window, tmp_path):
    wide = bl.pack([np.arange(60), np.arange(60)], np.arange(60) * 1e10, (60, 60), "DCSR")
    many = entries((3,) * 30, 50)
    path = tmp_path / "a.html"
    page = f"<!doctype html><meta charset=utf-8><title>x</title>{wide._repr_html_()}{many._repr_html_()}"
    path.write_text(page, encoding="utf-8")
    window.open(path.as_uri(), width=400)
    assert window.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert window.run("return [...document.querySelectorAll('pre')].every(x => x.scrollWidth <= x.clientWidth)")


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_in_a_file_has_the_colours_of_the_system(window, dark, tmp_path):
    path = tmp_path / "a.svg"
    path.write_text(bl.pack_dense(np.eye(3), "CSR").draw(), encoding="utf-8")
    window.open(path.as_uri(), dark=dark)
    fill = window.run("return getComputedStyle(document.querySelector('text')).fill")
    assert fill == ("rgb(230, 237, 243)" if dark else "rgb(36, 41, 47)")
