"""Progress of long calls: a callback, or a bar on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]  # the name of a stage, its finished steps, all its steps

_BAR_CHARACTERS = 30
_SECONDS_UNTIL_BAR = 0.5  # most calls end earlier, without a bar
_SECONDS_BETWEEN_DRAWINGS = 0.1


def reporter(progress: Progress | bool | None) -> Progress | None:
    """The callback of the caller; for True, a bar if standard error is a terminal or a notebook."""
    if isinstance(progress, bool):
        return _Bar().show if progress and (sys.stderr.isatty() or "ipykernel" in sys.modules) else None
    return progress


class _Bar:
    """A bar with the rate and the remaining time. The first drawing includes the bars of earlier stages."""

    def __init__(self) -> None:
        self._begun = self._since = time.monotonic()
        self._drawn, self._stage, self._first = 0.0, "", 0
        self._ended: list[str] = []  # bars that were not drawn

    def show(self, stage: str, done: int, total: int) -> None:
        now, ended = time.monotonic(), done >= total
        if stage != self._stage:
            self._stage, self._first, self._since = stage, done, now
        if now - self._drawn < _SECONDS_BETWEEN_DRAWINGS and not ended:
            return
        rate = (done - self._first) / max(now - self._since, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if rate and not ended else ""
        width = _BAR_CHARACTERS * done // total if total else _BAR_CHARACTERS
        bar = f"{stage:10}{'█' * width:·<{_BAR_CHARACTERS}} {done:,} / {total:,}, {rate:,.0f} a second{left}"
        bar = f"\r{bar}\x1b[K" + ("\n" if ended else "")
        if now - self._begun < _SECONDS_UNTIL_BAR:
            self._ended += [bar] if ended else []
            return
        print(*self._ended, bar, sep="", end="", file=sys.stderr, flush=True)
        self._drawn, self._ended = now, []
