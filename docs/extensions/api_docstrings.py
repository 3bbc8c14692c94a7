"""Docstrings of the API as reStructuredText: public names become links."""

import re

import binsparse_levels

PUBLIC = {*binsparse_levels.__all__, "open"}


def linked(line):
    """A line with `pack` as a link, and other words in backticks as code."""

    def role(found):
        text = found[1]
        named = text.removesuffix("()")
        known = named.partition(".")[0] in PUBLIC and re.fullmatch(r"[\w.]+", named)
        return f":py:obj:`~binsparse_levels.{named}`" if known else f"``{text}``"

    return re.sub(r"(?<![:`])`([^`]+)`(?!`)", role, line)


def process(app, what, name, thing, options, lines):
    """Links, before Napoleon makes fields of the sections."""
    if what == "data":  # it would show the docstring of its type
        lines.clear()
    lines[:] = [line if line.startswith((">>>", "...")) else linked(line) for line in lines]


def short_types(app, what, name, thing, options, signature, returned):
    """A signature whose aliases of types are names. Sphinx shows the object that it put in their place."""

    def plain(text):
        return text and re.sub(r"TypeAliasForwardRef\('(?:\w+\.)*(\w+)'\)", r"\1", text)

    return plain(signature), plain(returned)


def home(app, env, node, contnode):
    """A public name under the name of its module, as annotations have it, is the one that the package exports."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in PUBLIC:
        return contnode if node.get("reftype") == "class" else None  # a type of an annotation that is not public
    target = f"binsparse_levels.{name}"
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, contnode)


def setup(app):
    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-process-signature", short_types)
    app.connect("missing-reference", home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
