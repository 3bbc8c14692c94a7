"""Before and after in one run: the same rows, timed alternately with the package of another checkout.

The other package runs in a separate process, with the rows of this benchmark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from binsparse_levels import set_threads

from .measure import timed, touch
from .row import Row

_HERE = Path(__file__).parent.parent
# The package is imported from the other checkout, and bench from this one.
_CODE = """
import sys
sys.path[:0] = [{other!r}]
import binsparse_levels
sys.path[0] = {here!r}
from bench.__main__ import chosen
from bench.against import serve
serve({other!r}, chosen({arguments!r}), {entries})
"""


class Other:
    """The process of the other checkout."""

    def __init__(self, checkout: str, arguments: list[str], entries: int) -> None:
        other = str(Path(checkout).resolve())
        code = _CODE.format(other=other, here=str(_HERE), arguments=arguments, entries=entries)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, number: int) -> bool:
        """Make the data of a row and call its operation. Returns False if the other package does not have it."""
        return bool(self._request(number))

    def seconds(self) -> float:
        """One timing of the current row."""
        return float(self._request("time"))

    def _request(self, question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise SystemExit("the process of the other checkout has ended; see its message above")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(checkout: str, rows: list[Row], entries: int) -> None:
    """Time rows for another process. Its requests are lines of JSON: a row number, then "time" for each round."""
    import binsparse_levels

    if not Path(binsparse_levels.__file__).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: no package binsparse_levels there; pass the root of a checkout")
    answers, sys.stdout = sys.stdout, sys.stderr
    set_threads(1)
    touch(entries)
    row, data = rows[0], None
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(sys.stdin):
            answer: Any = True
            if (question := json.loads(line)) == "time":
                answer = timed(lambda row=row, data=data: row.ours(data), row)
            else:
                row, data, place = rows[question], None, Path(folder, str(number))
                place.mkdir()
                try:
                    data = row.make(place)
                    row.ours(data)
                    row.ours(data)
                except (AttributeError, ImportError, TypeError):  # an earlier package
                    answer = False
            print(json.dumps(answer), file=answers, flush=True)
