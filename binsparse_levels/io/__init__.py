"""Tensors in files: kinds of files, reading, writing, appending."""

from ..containers.interface import Container
from .appending import append, concatenate
from .describing import Description, describe
from .interface import FileTensor, Foreign, Stream
from .kinds import KINDS, Kind, StoreLike, register_kind
from .opening import open
from .reading import list_tensors, open_reader, read, read_all
from .writing import repair, write, write_all, write_arrays

__all__ = [
    "KINDS", "Container", "Description", "FileTensor", "Foreign", "Kind", "StoreLike", "Stream", "append",
    "concatenate", "describe", "list_tensors", "open", "open_reader", "read", "read_all", "register_kind", "repair",
    "write", "write_all", "write_arrays",
]  # fmt: skip
