"""Tensors in files: kinds of files, reading, writing, appending."""

from .appending import append, concatenate
from .kinds import KINDS, Kind, StoreLike, register_kind
from .reading import Description, describe, list_tensors, open, open_reader, read, read_all
from .writing import repair, write, write_all, write_arrays

__all__ = [
    "KINDS", "Description", "Kind", "StoreLike", "append", "concatenate", "describe", "list_tensors", "open",
    "open_reader", "read", "read_all", "register_kind", "repair", "write", "write_all", "write_arrays",
]  # fmt: skip
