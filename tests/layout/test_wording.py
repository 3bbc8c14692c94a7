"""Words that docstrings, comments, messages and pages do not use, with the words of the field."""

import ast
import io
import json
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = ("binsparse_levels/**/*.py", "README.md", "docs/**/*.md", "notebooks/*.ipynb")
PATHS = [path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)]
FILES = sorted(str(path) for path in PATHS if "__pycache__" not in path.parts)
WORDS = {
    r"octets?": "bytes",
    r"whoever|nobody|somebody": "the caller, a thread, no thread",
    r"foresee|foresees|foreseen": "predict",
    r"mend|mends|mended": "fix, repair",
    r"tells?|told|telling": "report, return, show",
    r"behind (each other|one another|the other)": "concatenated, after the other",
    r"beside": "next to, alongside, compared with",
    r"(has|have|knows?|holds?) not(?=[.,;:)])": "does not have, does not know",
    r"of one's own|(is|are) worth": "custom; is faster, pays off",
}
OPENINGS = re.compile(r"(What|Whether|Who|How|That)\b")
# Fenced code, code, formatted values, quotations, and examples.
QUOTED = re.compile(
    r"```.*?```|`[^`]*`|\{[^{}]*\}|\"[^\"\n]*\"|“[^”]*”|^ *(>>>|\.\.\.|>) .*?$", re.DOTALL | re.MULTILINE
)


def pieces(path):
    """The comments and strings of a module, or the text of a page, as pairs of a line number and a text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        return [(number, "".join(cell["source"])) for number, cell in enumerate(cells)]
    if path.suffix == ".md":
        return [(1, text)]
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string.lstrip("rfb").strip("\"'")) for token in tokens if token.type in kinds]


def faults_in(name):
    faults = []
    for line, text in pieces(ROOT / name):
        plain = " ".join(QUOTED.sub(" ", text).split())
        for word, better in WORDS.items():
            found = re.finditer(rf"\b(?:{word})(?!\w)", plain, re.IGNORECASE)
            faults += [f"{name}:{line}: {x[0]!r}: say {better}" for x in found]
    if name.endswith(".py"):
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if documented and (opening := OPENINGS.match(ast.get_docstring(node) or "")):
                faults.append(f"{name}:{getattr(node, 'lineno', 1)}: {opening[0]}: begin with a verb or a noun")
    return faults


def test_words_are_those_of_the_field():
    assert len(FILES) > 200
    faults = [fault for name in FILES for fault in faults_in(name)]
    assert not faults, "\n".join(faults)
