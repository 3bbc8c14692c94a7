"""A folder (NAME.bspra) with one .ra file for each array, and the header in binsparse.json.

Any encoding and byte order is read. What is written is little-endian, without encoding and trailer, for all programs.
"""

from __future__ import annotations

import functools

from . import npy_folder

others = functools.partial(npy_folder.others, suffix=".ra")
reading = functools.partial(npy_folder.reading, suffix=".ra")
writing = functools.partial(npy_folder.writing, suffix=".ra")
