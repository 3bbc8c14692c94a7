"""Make trigrams.tns.gz: how often three letters follow each other in the docstrings of the standard library.

A tensor of rank 4 with the dimensions (module, letter, next letter, letter after that). Modules count from 1 in the
order of MODULES, the letters a … z are 1 … 26. Text is taken in lower case, any other character ends a word, and a
trigram lies within one word. A package counts with its __init__.py alone. Modules are parsed, never imported. The
counts differ between versions of Python, so the file says which one it was made with.
"""

import ast
import gzip
import importlib.util
import platform
import re
from collections import Counter
from pathlib import Path

MODULES = [
    "argparse", "ast", "bisect", "calendar", "collections", "configparser", "contextlib", "csv", "datetime",
    "difflib", "doctest", "enum", "fractions", "functools", "gzip", "heapq", "inspect", "ipaddress", "json",
    "logging", "pathlib", "pdb", "pickle", "platform", "pydoc", "random", "shutil", "socket", "ssl", "statistics",
    "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "timeit", "turtle", "typing", "zipfile",
]  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(module: str) -> list[str]:
    """The docstrings in the source of a top-level module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{module}: no source")
    nodes = ast.walk(ast.parse(Path(spec.origin).read_bytes()))
    return [ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED)]


def trigrams(texts: list[str]) -> Counter[tuple[int, ...]]:
    """How often each three letters, as numbers from 1, follow each other."""
    found = [three for text in texts for three in re.findall("(?=([a-z]{3}))", text.lower())]
    return Counter(tuple(ord(letter) - ord("a") + 1 for letter in three) for three in found)


def main() -> None:
    """Write the file beside this script."""
    counts = [(k, sorted(trigrams(docstrings(module)).items())) for k, module in enumerate(MODULES, 1)]
    entries = [(k, *letters, count) for k, found in counts for letters, count in found]
    if [max(column) for column in zip(*entries, strict=True)][:4] != [len(MODULES), 26, 26, 26]:
        raise SystemExit("the largest coordinates do not tell the shape")
    lines = [
        "# Counts of letter trigrams in the docstrings of modules of the Python standard library",
        "# columns: module, letter, next letter, letter after that (all from 1; a is 1, z is 26), count",
        f"# made with Python {platform.python_version()} by make_trigrams.py",
        f"# modules, from 1: {' '.join(MODULES)}",
        *(" ".join(map(str, entry)) for entry in entries),
    ]
    # No name and no time go into the file, so that the same counts make the same bytes.
    path = Path(__file__).with_name("trigrams.tns.gz")
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
