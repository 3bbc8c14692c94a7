"""The open files of this process, on Linux."""

import contextlib
import os


def open_files():
    """The paths of all open descriptors, except those that another thread closes meanwhile."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return found
