"""A sweep in a file of JSON lines: a record for each run, and the rows of each tensor when they are measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..errors import OptionError, Problem
from ..system import to_disk

_OF_A_RUN = ("commands", "load")  # items of the record in which two runs of one sweep differ


def begin(path: str | os.PathLike[str], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Append the record of a run, and return the lines of tensors that earlier runs have measured.

    A last line that is not complete is removed. The record gets the commands and loads of all runs. Raises OptionError
    if another sweep, or another machine, wrote the file.
    """
    complete, rest, own = [], b"", json.loads(json.dumps(record))
    if os.path.exists(path):
        with open(path, "rb") as file:
            *complete, rest = file.read().split(b"\n")
    try:
        lines = list(map(json.loads, complete))
        earlier = [line["record"] for line in lines if "rows" not in line]
        changed = [key for x in earlier for key in {**own, **x} if key not in _OF_A_RUN and own.get(key) != x.get(key)]
    except (ValueError, TypeError, KeyError) as error:
        raise OptionError(Problem("store", f"{path} is no file of a sweep; pass another path")) from error
    if changed:
        what = f"{path} was measured with other {', '.join(dict.fromkeys(changed))}; pass another path"
        raise OptionError(Problem("store", what))
    if rest:
        os.truncate(path, sum(len(line) + 1 for line in complete))
    append(path, {"record": own})
    for key in _OF_A_RUN:
        record[key] = [x for each in (*earlier, own) for x in each[key]]
    return [line for line in lines if "rows" in line]


def append(path: str | os.PathLike[str], line: Mapping[str, Any]) -> None:
    """Write a line to the disk."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    to_disk(os.fspath(path))
