"""Zarr, versions 3 and 2, in any store of zarr's: a group with a Zarr array for each array; the header is an attribute.

The header is nested twice, as other programs read it: attributes["binsparse"] = {"binsparse": {…}, the user's JSON}.
"""

from __future__ import annotations

from .zarr_reading import AT, ROOT, ZarrReader, list_groups, mark, others, reading
from .zarr_stores import opened
from .zarr_writing import ZarrWriter, extend, new_metadata, writing

__all__ = [
    "AT",
    "ROOT",
    "ZarrReader",
    "ZarrWriter",
    "extend",
    "list_groups",
    "mark",
    "new_metadata",
    "opened",
    "others",
    "reading",
    "writing",
]
