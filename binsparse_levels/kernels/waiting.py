"""A line on a terminal while numba compiles. A pipe gets none.

numba reports when it compiles (`numba.core.event`), and nothing when it finds machine code on disk.
"""

import sys

from numba.core import event


class _Listener(event.Listener):
    """Prints one line when the first kernel of this package is compiled."""

    said = False

    def on_start(self, event):
        function = getattr(event.data["dispatcher"], "py_func", None)
        ours = str(getattr(function, "__module__", "")).startswith("binsparse_levels")
        if ours and not self.said and sys.stderr.isatty():
            self.said = True
            print("binsparse_levels: compiling kernels, once on this machine", file=sys.stderr, flush=True)

    def on_end(self, event):
        pass


def report_compiling():
    """Listen to numba from now on."""
    event.register("numba:compile", _Listener())
