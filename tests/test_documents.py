"""README and site: examples print what the pages show, links lead somewhere, and nothing public is missing.

All blocks of `python` and `bash` of a page run, in its order. A block of `text` after one of them is its output.
A picture that the code of a page writes is compared, too. `python tests/test_documents.py PAGE…` runs pages and stores
their outputs and pictures; without names, all of them.
"""

import argparse
import contextlib
import fnmatch
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from helpers import servers

import binsparse_levels
from binsparse_levels import cli, errors
from binsparse_levels.io.kinds import KINDS
from binsparse_levels.levels import LEVELS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def extension(name, folder="extensions"):
    """A module of the site."""
    spec = importlib.util.spec_from_file_location(name, DOCS / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COPIES = extension("repository_links").COPIES
PICTURES = extension("draw", "images").PICTURES
PAGES = [ROOT / name for name in ("README.md", *COPIES) if (ROOT / name).is_file()]
PAGES += sorted(path for path in DOCS.rglob("*.md") if str(path.relative_to(DOCS)) not in COPIES.values())
PUBLIC = {*binsparse_levels.__all__, "open"}


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


def blocks(path, language):
    """The blocks of code in a language, each with as many empty lines before it as the page has lines."""
    text = path.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text[: block.start(1)].count("\n") + block[1] for block in found]


def text_of(name):
    return (DOCS / name).read_text()


def commands():
    """The parser of each command."""
    return next(action.choices for action in cli._parser()._actions if isinstance(action.choices, dict))


# Examples

_PIECE = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_OPTIONAL = re.compile(r"^import (torch|icechunk|tiledb)$", re.MULTILINE)  # blocks with these need them
# Tests before may have taken the memory that these pages allow, and TileDB warns at every later fork.
_ALONE = re.compile(r"import tiledb|memory=|--memory")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def call(line):
    """Run a line of bash: a call of the command line, or of Python. What `pip` installs is here already."""
    program, *words = shlex.split(line, comments=True)
    if program == "binsparse-levels":
        assert cli.main(words) == 0, line
    elif program == "python":
        assert words[0] == "-c", line
        exec(words[1], {})
    else:
        assert [program, *words[:1]] == ["pip", "install"], line


def printed(language, code, lines, path, names):
    """What a block prints. The line numbers of Python are those of the page."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if language == "python":
            exec(compile("\n" * lines + code, str(path), "exec"), names)
        else:
            for line in code.splitlines():
                call(line)
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())


@contextlib.contextmanager
def bucket(text):
    """The bucket of a page that uses `s3://bucket`, on a server of its own."""
    if '"s3://bucket' not in text:
        yield
        return
    with servers.s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in servers.s3_environment(endpoint).items():
            patch.setenv(name, value)
        servers.new_bucket(endpoint, "bucket")
        yield


def run(path):
    """The text of a page with the outputs of a run, in the current folder. A call of bash may have none on the page."""
    names, text = {}, path.read_text()

    def ran(found):
        language, code, stored = found.groups()
        if not all(map(importlib.util.find_spec, _OPTIONAL.findall(code))):
            return found[0]
        said = printed(language, code, text[: found.start(2)].count("\n"), path, names)
        if not said or (language == "bash" and stored is None):
            return f"```{language}\n{code}```\n"
        return f"```{language}\n{code}```\n\n```text\n{said}```\n"

    with bucket(text):
        return _PIECE.sub(ran, text)


def run_alone(path):
    """As `run`, in a process of its own."""
    command = [sys.executable, __file__, "--show", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pictures(path):
    """The names of the pictures that the code of a page writes."""
    return re.findall(r'open\("(\w+)\.svg", "w"\)', path.read_text())


@pytest.mark.slow
@named([path for path in PAGES if _PIECE.search(path.read_text())])
def test_the_examples_print_what_the_page_shows(path, tmp_path, monkeypatch):
    """The blocks of a page one after the other, as a reader runs them."""
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    assert (run_alone(path) if _ALONE.search(text) else run(path)).splitlines() == text.splitlines()
    for name in pictures(path):
        assert Path(f"{name}.svg").read_text() == text_of(f"images/{name}.svg")


@named(PAGES)
def test_no_block_is_left_out(path):
    """Blocks of another language, or of one with a word after it, do not run."""
    fences = re.findall(r"^ *```+([^{\n].*)$", path.read_text(), re.MULTILINE)
    assert set(fences) <= {"python", "bash", "text", "json", "toml"}


def test_advice_to_install_can_be_followed():
    """The package is on no index. Its extras are installed from a clone."""
    paths = [*PAGES, *(ROOT / "notebooks").glob("*.ipynb")]
    advice = [(path.name, word) for path in paths for word in re.findall(r"pip install ([^`&\n]+)", path.read_text())]
    assert len(advice) > 20
    assert not [(name, word) for name, word in advice if re.search(r"binsparse[-_]levels", word)]
    extras = {extra for _, word in advice for found in re.findall(r"\.\[(.*?)\]", word) for extra in found.split(",")}
    assert len(extras) > 10
    assert extras <= EXTRAS.keys()


def calls():
    """Each call of the command line in a block of a page. Variables of the shell stand for a word."""
    for path in PAGES:
        indented = re.findall(r"^    (.*binsparse-levels .*)$", path.read_text(), re.MULTILINE)
        for line in [*indented, *"".join(blocks(path, "bash")).splitlines()]:
            plain = re.sub(r"\$\w+", "1", re.sub(r"\$\(.*", "1", line))
            for part in map(str.strip, re.split(r"&&|\||\(\) \{", plain)):
                if part.startswith("binsparse-levels "):
                    yield pytest.param(part, id=f"{path.stem}: {part[17:60]}")


@pytest.mark.parametrize("call", list(calls()))
def test_the_calls_of_commands_can_be_parsed(call, monkeypatch):
    monkeypatch.setattr(argparse.ArgumentParser, "error", lambda parser, message: pytest.fail(f"{call}: {message}"))
    cli._parser().parse_args(shlex.split(call)[1:])


# Links and pictures


@named(PAGES)
def test_the_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_drawn_by_the_package(name):
    """As much as their texts say, since colours may change. `python docs/images/draw.py` stores them again."""
    pictures = PICTURES[name](), text_of(f"images/{name}.svg")
    drawn, stored = (re.findall(r">([^<>\n]+)</text>", picture) for picture in pictures)
    assert stored
    assert drawn == stored


def test_every_picture_is_on_a_page():
    text = "".join(path.read_text() for path in PAGES)
    stored = {path.stem for path in (DOCS / "images").glob("*.svg")}
    assert stored == PICTURES.keys() | {name for path in PAGES for name in pictures(path)}
    assert not [name for name in stored if f"images/{name}.svg)" not in text]


# Completeness


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 700


def test_every_public_name_is_in_the_reference():
    pages = "".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.rst"))
    listed = re.findall(r"^\.\. auto\w+:: (\w+)$", pages, re.MULTILINE)
    assert sorted(set(listed)) == sorted(PUBLIC)


def test_the_reference_names_every_kind_and_format():
    text = text_of("reference/level_kinds.md")
    kinds = [kind for kind, made in LEVELS.items() if made.__module__.startswith("binsparse_levels.")]
    assert len(kinds) >= 8
    assert not [word for word in (*kinds, *binsparse_levels.ALIASES) if f"| `{word}` |" not in text]
    assert not [f"| `{kind}` | `{kind}" for kind in kinds if f"| `{kind}` | `{kind}" not in text]


def test_the_reference_names_every_kind_of_file():
    text = text_of("reference/containers.md")
    missing = [suffix for kind in KINDS.values() for suffix in kind.suffixes if f"`{suffix}`" not in text]
    assert not missing


def test_the_reference_names_every_limit_and_error():
    text = text_of("reference/limits_errors.md")
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type) and thing.__name__ in PUBLIC]
    names = [field.name for field in fields(binsparse_levels.Limits)] + [thing.__name__ for thing in classes]
    assert len(names) > 15
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


@named([path for path in PAGES if path.name == "index.md" and path.parent != DOCS])
def test_an_index_says_what_each_page_gives(path):
    pages = {page.name for page in path.parent.iterdir() if page.suffix in (".md", ".rst")} - {"index.md"}
    if path.parent == DOCS / "explanation":
        pages -= {Path(page).name for page in COPIES.values()}  # of a build; they are linked where they come from
    text = path.read_text()
    described = re.findall(r"^(?:- |\| )\[.+?\]\(([\w.]+)\)(?:: | \| )\S.+", text, re.MULTILINE)
    assert not pages - set(described)


def test_every_notebook_is_in_the_site():
    pages = "".join(path.read_text() for path in DOCS.rglob("index.md"))
    patterns = re.findall(r"^\.\./notebooks/(\S+)$", pages, re.MULTILINE)
    names = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert names
    assert not [name for name in names if sum(fnmatch.fnmatch(name, pattern) for pattern in patterns) != 1]


def test_the_page_of_commands_has_every_command_and_argument():
    pytest.importorskip("sphinx")
    page = "".join(extension("command_pages").page())
    assert len(commands()) >= 8
    for name, parser in commands().items():
        assert f"## {name}\n" in page
        section = page.partition(f"## {name}\n")[2].partition("## ")[0]
        for action in parser._actions[1:]:  # without --help
            assert all(option in section for option in action.option_strings)


def test_the_guides_show_every_command():
    """Those that readers call; `progress` and the like are in the guide to batch systems."""
    text = "".join(path.read_text() for path in PAGES)
    missing = [name for name in commands() if not re.search(rf"binsparse-levels {name}\b|--plugin \w+ {name}\b", text)]
    assert not missing


if __name__ == "__main__" and sys.argv[1:2] == ["--show"]:
    sys.stdout.write(run(Path(sys.argv[2])))
elif __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or [page for page in PAGES if _PIECE.search(page.read_text())]):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            (ROOT / page).write_text(run(ROOT / page))
            for name in pictures(ROOT / page):
                shutil.copy(f"{name}.svg", DOCS / "images")
