"""The directive `commands`: every command of the command line, with its arguments, from the parser itself."""

import argparse

from sphinx.util.docutils import SphinxDirective

from binsparse_levels import cli


def parsers():
    """The parser of each command, by name."""
    parser = cli._parser()
    return next(action.choices for action in parser._actions if isinstance(action.choices, dict))


def usage(parser):
    """The call, in lines of at most 96 characters."""
    formatter = argparse.HelpFormatter(parser.prog, width=96)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def arguments(parser):
    """A row for each argument: how it is written, and its help."""
    formatter = argparse.HelpFormatter(parser.prog)
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        written = formatter._format_action_invocation(action)
        text = formatter._expand_help(action) if action.help else ""
        yield f"`{written}`", text.replace("|", "\\|").replace("*", "\\*")


def page():
    """All commands as Markdown."""
    for name, parser in parsers().items():
        text = parser.description
        yield f"## {name}\n\n{text[:1].upper()}{text[1:]}.\n\n```text\n{usage(parser)}\n\n{parser.epilog}\n```\n"
        rows = list(arguments(parser))
        if rows:
            yield ":::{list-table}\n:widths: 30 70\n"
            yield from (f"* - {written}\n  - {text}" for written, text in rows)
            yield ":::\n"


class Commands(SphinxDirective):
    def run(self):
        return self.parse_text_to_nodes("\n".join(page()), allow_section_headings=True)


def setup(app):
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
