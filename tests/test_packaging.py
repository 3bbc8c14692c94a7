"""What describes the package elsewhere says what pyproject.toml says."""

import re
import sys
import tomllib
import types
from contextlib import nullcontext
from pathlib import Path

import yaml

import binsparse_levels

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ARCHIVE = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}.tar.gz"
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge has another name


def requirement(text):
    """The name and the bounds of a requirement."""
    name, bounds = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?\s*(.*)", text).groups()
    return CONDA_NAMES.get(name, name), frozenset(bounds.split(","))


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
    text = (ROOT / ".ci/conda/recipe.yaml").read_text()
    for name, value in yaml.safe_load(text)["context"].items():  # .ci/packages renders it with rattler-build
        text = text.replace(f"${{{{ {name} }}}}", value)
    assert "${{" not in text
    found = yaml.safe_load(text)
    assert found["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert found["source"]["url"].endswith(f"/{ARCHIVE}")
    needs = found["requirements"]
    python = f"python {PROJECT['requires-python']}"
    wanted = {requirement(text) for text in [python, *PROJECT["dependencies"]]}
    assert {requirement(text) for text in needs["run"]} == wanted
    optional = {requirement(text) for extra in PROJECT["optional-dependencies"].values() for text in extra}
    assert {requirement(text) for text in needs["run_constraints"]} <= optional
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert sorted(found["build"]["python"]["entry_points"]) == sorted(scripts)
    assert found["about"]["summary"] == PROJECT["description"]
    assert found["about"]["license"] == PROJECT["license"]


def test_the_recipe_for_spack(monkeypatch):
    """Its directives, which stand-ins record, are those of pyproject.toml in the notation of Spack."""
    said = []
    directives = ("depends_on", "license", "version")
    record = {name: lambda *given, name=name, **options: said.append((name, *given)) for name in directives}
    record["default_args"] = lambda **options: nullcontext()
    bases = {"PythonPackage": type("PythonPackage", (), {})}
    home = "spack_repo.builtin.build_systems.python"
    for name, content in (("spack", {}), ("spack.package", record), (home, bases)):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**content))
    for k in range(1, home.count(".") + 1):
        monkeypatch.setitem(sys.modules, ".".join(home.split(".")[:k]), types.SimpleNamespace())
    made = {"__name__": "package"}
    exec(compile((ROOT / "spack/package.py").read_text(), "package.py", "exec"), made)
    package = made["PyBinsparseLevels"]
    assert " ".join(package.__doc__.split()) == f"{PROJECT['description']}."
    assert package.pypi == f"{PROJECT['name']}/{ARCHIVE}"
    wanted = {("license", PROJECT["license"]), ("version", PROJECT["version"]), ("depends_on", "py-hatchling")}
    for text in [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]:
        name, lower, upper = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<(\d+))?", text).groups()
        most = "" if upper is None else str(int(upper) - 1)
        wanted.add(("depends_on", f"{'' if name == 'python' else 'py-'}{name}@{lower}:{most}"))
    assert set(said) == wanted


# The keys that the schema of scverse/ecosystem-packages, version 2.0, demands, and those that it knows.
DEMANDED = {
    "name": str, "description": str, "project_home": str, "documentation_home": str, "install": dict, "license": str,
    "tags": list, "version": str, "category": str, "contact": list,
}  # fmt: skip
KNOWN = {**DEMANDED, "tutorials_home": str, "publications": list, "logo": str, "test_command": str}


def test_the_entry_for_scverse():
    found = yaml.safe_load((ROOT / "scverse/meta.yaml").read_text())
    assert found.keys() <= KNOWN.keys()
    assert all(isinstance(value, KNOWN[key]) for key, value in found.items())
    assert DEMANDED.keys() - found.keys() == {"project_home", "documentation_home", "contact"}  # need a person
    assert found["name"] == found["install"]["pypi"] == PROJECT["name"]
    assert (found["version"], found["license"]) == (PROJECT["version"], PROJECT["license"])
    assert found["category"] == "ecosystem"
    assert len(set(found["tags"])) == len(found["tags"]) > 0
    assert "## Versions and support" in (ROOT / "docs/SECURITY.md").read_text()  # what its checklist demands


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
