"""Docstrings of public names by numpydoc's grammar."""

import inspect

import pytest
from numpydoc.validate import validate

import binsparse_levels

# A summary may be all there is to say, and stands in the first line, as numpy writes it.
NOT_ASKED = {"ES01", "GL01"}
# Members explain themselves, or have the parameters of the class or the protocol that they belong to.
NOT_OF_MEMBERS = {"EX01", "SA01"}
# `Level` explains what its methods take, once for all kinds. Kinds inherit their docstrings.
NOT_OF_LEVELS = {"PR01", "RT01", "GL08"}
# Only functions of this package make them.
MADE = {"Advice", "Batches"}


def public():
    """The dotted name of what is public, the object, and the codes of numpydoc that do not concern it."""
    for name in binsparse_levels.__all__:
        thing = getattr(binsparse_levels, name)
        if not callable(thing):  # a table; its class has the docstring
            continue
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        made = name in MADE or (is_error and name != "BinsparseError")
        yield name, NOT_ASKED | ({"PR01"} if made else set())
        if not inspect.isclass(thing):
            continue
        codes = NOT_ASKED | (set() if name == "Tensor" else NOT_OF_MEMBERS)
        codes |= NOT_OF_LEVELS if issubclass(thing, binsparse_levels.Level) else set()
        for member, value in inspect.getmembers(thing, inspect.isroutine):
            if not member.startswith("_") and (getattr(value, "__module__", None) or "").startswith("binsparse_levels"):
                yield f"{name}.{member}", codes


def test_public_docstrings_are_those_of_numpydoc():
    faults = [
        f"{name}: {code} {text}"
        for name, codes in public()
        for code, text in validate(f"binsparse_levels.{name}")["errors"]
        if code not in codes
    ]
    assert not faults


@pytest.mark.parametrize("name", ["ALIASES", "SYNONYMS"])
def test_tables_explain_themselves(name):
    assert "Binsparse" in inspect.getdoc(getattr(binsparse_levels, name))
