"""What describes the package elsewhere says what pyproject.toml says."""

import re
import tomllib
from pathlib import Path

import jinja2
import yaml

import binsparse_levels

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge has another name


def requirement(text):
    """The name and the bounds of a requirement."""
    name, bounds = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?\s*(.*)", text).groups()
    return CONDA_NAMES.get(name, name), frozenset(bounds.split(","))


def recipe():
    text = jinja2.Template((ROOT / ".ci/conda/meta.yaml").read_text(), undefined=jinja2.StrictUndefined)
    return yaml.safe_load(text.render(PYTHON="python"))


def test_the_version_stands_once():
    assert PROJECT["version"] == binsparse_levels.__version__


def test_the_citation():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0"
    assert str(found["version"]) == PROJECT["version"]
    assert found["license"] == PROJECT["license"]
    assert [author["name"] for author in found["authors"]] == [author["name"] for author in PROJECT["authors"]]
    # The keys that schema 1.2.0 demands, and those that it knows of a piece of software.
    demanded = {"authors", "cff-version", "message", "title"}
    known = demanded | {
        "abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url",
        "preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url",
        "version",
    }  # fmt: skip
    assert demanded <= found.keys() <= known
    assert found["type"] == "software"
    assert all({"type", "title", "authors"} <= reference.keys() for reference in found["references"])


def test_the_recipe_for_conda():
    found = recipe()
    assert found["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    needs = found["requirements"]
    python = f"python {PROJECT['requires-python']}"
    wanted = {requirement(text) for text in [python, *PROJECT["dependencies"]]}
    assert {requirement(text) for text in needs["run"]} == wanted
    optional = {requirement(text) for extra in PROJECT["optional-dependencies"].values() for text in extra}
    assert {requirement(text) for text in needs["run_constrained"]} <= optional
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert sorted(found["build"]["entry_points"]) == sorted(scripts)
    assert found["about"]["summary"] == PROJECT["description"]
    assert (ROOT / ".ci/conda" / found["source"]["path"] / "pyproject.toml").exists()


def test_the_oldest_python_is_the_first_of_the_classifiers():
    versions = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]


# What is not public in other libraries, and the file that has it. The file says what would make it public.
PRIVATE = {
    r"zarr\.core|\._async_group|\._async_array": "containers/zarr_internals.py",
    r"xarray\.core": "interop/xarray.py",
}


def test_private_interfaces_of_others_are_in_a_file_each():
    package = Path(binsparse_levels.__file__).parent
    for pattern, place in PRIVATE.items():
        found = {path for path in package.rglob("*.py") if re.search(pattern, path.read_text())}
        assert found == {package / place}
