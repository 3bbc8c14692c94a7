"""Every script of this folder does a task with public names alone; docs/how-to/tasks.md lists them with their lines."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(path for path in HERE.glob("*.py") if not path.stem.startswith("test_"))
TABLE = HERE.parent.parent / "docs" / "how-to" / "tasks.md"


def imported(script):
    """The names of the modules that a script imports."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def lines(script):
    """The number of lines of code: without the docstring, imports, comments and empty lines."""
    text = script.read_text()
    body = [node for node in ast.parse(text).body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    code = [line for node in body for line in text.splitlines()[node.lineno - 1 : node.end_lineno]]
    return sum(1 for line in code if line.strip() and not line.strip().startswith("#"))


def row(script):
    """The row of the table for a script."""
    title = ast.get_docstring(ast.parse(script.read_text())).partition("\n")[0]
    return f"| {title} | `{script.name}` | {lines(script)} |"


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_task_is_done(script, tmp_path):
    for name in imported(script):
        if not name.startswith("binsparse_levels"):
            pytest.importorskip(name)
    paths = [str(HERE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_only_public_names_are_used(script):
    tree = ast.parse(script.read_text())
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)] + list(imported(script))
    assert not [name for name in names if re.search(r"(^|\.)_(?!_)", name)]
    assert ast.get_docstring(tree)


def test_the_table_names_every_task_with_its_lines():
    """`python tests/tasks/test_tasks.py` prints the rows."""
    assert [line for line in TABLE.read_text().splitlines() if ".py` |" in line] == list(map(row, SCRIPTS))


if __name__ == "__main__":
    print(*map(row, SCRIPTS), sep="\n")
