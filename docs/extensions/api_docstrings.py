"""Docstrings of the API as reStructuredText: sections become definition lists, public names become links."""

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


def in_rst(lines):
    """The lines of a docstring. In a section, a line without indentation is `name : text`, and others continue it."""
    section = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and re.fullmatch("-{3,}", below):
            yield f".. rubric:: {line}"
            continue
        if re.fullmatch("-{3,}", line):
            section = True
            yield ""
            continue
        section = section and bool(line)
        item = re.match(r"([\w*][\w*, .]*?) ?: (.*)", line) if section else None
        if item:
            yield ", ".join(f"``{name}``" for name in item[1].split(", "))
            yield f"    {linked(item[2])}"
        else:
            yield line if line.startswith((">>>", "...")) else linked(line)


def process(app, what, name, thing, options, lines):
    lines[:] = [] if what == "data" else in_rst(list(lines))  # data would show the docstring of its type


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
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", short_types)
    app.connect("missing-reference", home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
