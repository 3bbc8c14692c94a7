"""A line on a terminal for who waits for the compiler. A pipe gets none.

numba tells when it compiles (`numba.core.event`), and nothing when it finds machine code on disk.
"""

import sys
import threading
import time

from numba.core import event

_PATIENCE = 1.0  # seconds of compiling before the line appears


class _Listener(event.Listener):
    """Counts the seconds that functions of this package are compiled, each with those that it calls."""

    def __init__(self):
        self.spent, self.depth, self.told, self.began, self.timer = 0.0, 0, False, 0.0, None

    def on_start(self, event):
        function = getattr(event.data["dispatcher"], "py_func", None)
        ours = str(getattr(function, "__module__", "")).startswith("binsparse_levels")
        if not self.depth and (self.told or not ours or not sys.stderr.isatty()):
            return
        self.depth += 1
        if self.depth == 1:
            self.began = time.monotonic()
            self.timer = threading.Timer(max(0.0, _PATIENCE - self.spent), self.tell)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event):
        if self.depth:
            self.depth -= 1
        if self.timer is not None and not self.depth:
            self.timer.cancel()
            self.timer = None
            self.spent += time.monotonic() - self.began

    def tell(self):
        self.told = True
        print("binsparse_levels: compiling kernels, once on this machine", file=sys.stderr, flush=True)


def tell_who_waits():
    event.register("numba:compile", _Listener())
