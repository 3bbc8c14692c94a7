"""A notice while numba compiles, on a terminal only.

numba reports compilation (`numba.core.event`), but not the use of machine code on disk.
"""

import sys

from numba.core import event


class _Listener(event.Listener):
    """Prints one line when the first kernel of this package is compiled."""

    printed = False

    def on_start(self, event):
        function = getattr(event.data["dispatcher"], "py_func", None)
        ours = str(getattr(function, "__module__", "")).startswith("binsparse_levels")
        if ours and not self.printed and sys.stderr.isatty():
            self.printed = True
            print("binsparse_levels: compiling kernels, once on this machine", file=sys.stderr, flush=True)

    def on_end(self, event):
        pass


def report_compiling():
    """Register the listener with numba."""
    event.register("numba:compile", _Listener())
