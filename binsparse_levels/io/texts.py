"""Texts without a signature: those that are recognised by their first lines, and tables, which are refused."""

from __future__ import annotations

import os
import re

from ..errors import ContainerError, Problem

SEPARATORS = ("\t", ";", ",", "::", "|", " ")
_BINARY = {".parquet": "to_parquet(path)", ".arrow": "to_feather(path)", ".feather": "to_feather(path)"}
_TEXTS = (".csv", ".tsv", ".txt", ".dat", ".data", ".edgelist", ".edges")
# Of svmlight, a sample after comments; of Harwell-Boeing, the type and the number of rows on the third line.
_FIRST_LINES = {
    "svmlight": re.compile(rb"(#.*\n|\s)*[-+\d.][-+\d.eE,]*([ \t]+qid:\d+)?[ \t]+\d+:[-+\d.]"),
    "harwell_boeing": re.compile(rb"(.*\n){2}[RCPI][SUHZR][AE] {11}[ \d]{13}\d", re.IGNORECASE),
}


def kind_by_lines(head: bytes) -> str | None:
    """The kind of a text by its first lines."""
    return next((name for name, lines in _FIRST_LINES.items() if lines.match(head)), None)


def suffix_of(path: str) -> str:
    """The suffix of a path in lower case, without that of gzip."""
    return os.path.splitext(path.lower().removesuffix(".gz"))[1]


def refuse_tables(path: str, head: bytes = b"") -> None:
    """Raise ContainerError for the path of a table, which does not say which columns are coordinates.

    head: the first bytes of the file, from which the error takes the arguments of a call that reads it.
    """
    lines = [line for line in head.decode("latin1").splitlines() if line.strip()]
    first = next((line for line in lines if line[0] not in "#%"), "")
    mark = next((x for x in SEPARATORS if x in first.strip()), None)
    if suffix_of(path) not in (*_BINARY, *(_TEXTS if mark else _TEXTS[:2])):
        return
    what = "is a table; `binsparse-levels convert --columns`, or from_table in Python, reads its columns"
    if mark and suffix_of(path) in _TEXTS:
        names = [name.strip('" ') for name in first.strip().split(mark)]
        options = f"sep={mark!r}" + ", engine='python'" * (len(mark) > 1)
        options += f", comment={lines[0][0]!r}" * (lines[0] != first)
        if re.match(r"[-+\d.]", first):  # no header
            names = [f"column_{k}" for k in range(len(names))]
            options += f", names={names}"
        columns = f"{names[:2]}" + "".join(f", {name!r}" for name in names[2:3])
        what += f", such as from_table(pandas.read_csv({path!r}, {options}), {columns})"
    raise ContainerError(Problem(path, what))


def refuse_new_tables(path: str) -> None:
    """Raise ContainerError for the path of a table as a target."""
    if (suffix := suffix_of(path)) in (*_BINARY, *_TEXTS[:2]):
        call = f"to_pandas(tensor).{_BINARY.get(suffix, 'to_csv(path, index=False)')}"
        raise ContainerError(Problem(path, f"is a table, and no kind of tensor; use {call}, or to_table(tensor)"))
