"""The pictures of the pages, drawn by the package: `python docs/images/draw.py` draws all of them again."""

import contextlib
import io
import runpy
import tempfile
from pathlib import Path

import binsparse_levels as bl
from binsparse_levels import testing

HERE = Path(__file__).parent
CUBE = bl.pack([[0, 0, 0, 2, 2, 2], [0, 0, 2, 1, 3, 3], [1, 4, 0, 3, 0, 2]], [10, 20, 30, 40, 50, 60], (3, 4, 5), "CSF")
MATRIX = bl.pack([[0, 0, 2, 2, 3, 3], [1, 2, 0, 3, 4, 5]], [5, 5, 7, 2, 1, 1], (4, 6), "CSR")
BANDED = bl.pack([[0, 1, 1, 2, 2, 3], [0, 0, 1, 1, 2, 3]], range(1, 7), (4, 4), "CSR")


def single():
    """The tensor of the script in the guide to level kinds."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        runpy.run_path(str(HERE.parent.parent / "tests" / "tasks" / "own_level_kind.py"))
        return bl.read("a.h5").draw()


def pareto():
    """Formats of one tensor by the bits of their indices, in memory and bit-packed in a file."""
    import matplotlib

    tensor = testing.power_law((50, 60, 70), 5_000)
    formats = ["COO", "CSF", "CSF @ 2, 0, 1", "dense, sparse, sparse", "dense, dense, sparse"]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "backend": "svg"}):
        drawn = io.StringIO()
        figure = bl.sweep({"power law": tensor}, formats, ["bits", "bitpacked"]).pareto("bits", "bitpacked")
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()


PICTURES = {
    "level_tree": lambda: CUBE.draw(),
    "coo": lambda: MATRIX.convert("COO").draw(),
    "csr": lambda: MATRIX.draw(),
    "csc": lambda: MATRIX.convert("CSC").draw(),
    "blocks": lambda: BANDED.convert("dense, sparse, dense(2)", map="0/2, 1/2, 0%2, 1%2").draw(),
    "diagonals": lambda: BANDED.convert("sparse, dense", map="1-0, 0").draw(),
    "single": single,
    "power_law": lambda: testing.power_law((50, 60, 70), 5_000).draw([0, 2]),
    "rmat": lambda: testing.rmat(10, 10_000).draw(),
    "stencil": lambda: testing.stencil(12).draw(),
    "pareto": pareto,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw().rstrip() + "\n")
