"""Every notebook runs from top to bottom, and its stored outputs are those of a run.

`python tests/test_notebooks.py NOTEBOOK…` runs notebooks and stores their outputs; without names, all of them.
"""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def run(path):
    import nbformat  # here, because the import costs a second that runs without this test need not take
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    options = {"kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
    where = {"metadata": {"path": str(path.parent)}}  # as in Jupyter
    NotebookClient(notebook, timeout=None, resources=where, **options).execute()
    return notebook


def said(cell):
    """The text that a cell has printed, and its result as text. Pictures may differ in their styles."""
    return [output.get("text") or output.get("data", {}).get("text/plain") for output in cell.get("outputs", [])]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_as_stored(path):
    import nbformat

    stored, fresh = nbformat.read(path, as_version=4), run(path)
    assert any(said(cell) for cell in stored.cells)
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        if "times" in before.metadata.get("tags", ()):  # measured, so that no two runs print the same
            continue
        assert said(before) == said(after), f"run tests/test_notebooks.py {path.name} to store the outputs"


if __name__ == "__main__":
    import nbformat

    for path in map(Path, sys.argv[1:] or NOTEBOOKS):
        executed = run(path)
        executed.metadata.language_info = {"name": "python"}  # not the version of this Python
        nbformat.write(executed, path)
