"""Progress of long calls: a function of the caller's, or a bar on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]  # the name of a stage, how many steps are done, of how many

_WIDTH = 30  # characters of a bar
_QUIET = 0.5  # seconds before a bar is drawn: most calls have ended by then
_EACH = 0.1  # seconds between two drawings


def reporter(progress: Progress | bool | None) -> Progress | None:
    """What is called with the progress: a function of the caller's, or for True a bar, where somebody sees it."""
    if isinstance(progress, bool):
        return _Bar().show if progress and (sys.stderr.isatty() or "ipykernel" in sys.modules) else None
    return progress


class _Bar:
    """A bar with the rate and the time that is left. The bars of stages that ended unseen come before the first."""

    def __init__(self) -> None:
        self._begun = self._since = time.monotonic()
        self._drawn, self._stage, self._first = 0.0, "", 0
        self._ended: list[str] = []  # bars that were not drawn

    def show(self, stage: str, done: int, total: int) -> None:
        now, ended = time.monotonic(), done >= total
        if stage != self._stage:
            self._stage, self._first, self._since = stage, done, now
        if now - self._drawn < _EACH and not ended:
            return
        rate = (done - self._first) / max(now - self._since, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if rate and not ended else ""
        width = _WIDTH * done // total if total else _WIDTH
        bar = f"{stage:10}{'█' * width}{'·' * (_WIDTH - width)} {done:,} / {total:,}, {rate:,.0f} a second{left}"
        bar = f"\r{bar}\x1b[K" + ("\n" if ended else "")
        if now - self._begun < _QUIET:
            self._ended += [bar] if ended else []
            return
        print(*self._ended, bar, sep="", end="", file=sys.stderr, flush=True)
        self._drawn, self._ended = now, []
