"""Tensors that are larger than memory, or than one machine: converted, written from a stream, built by many processes.

All three run the same steps: split the entries into partitions, pack each, join the trees.
"""

from .to_file import convert as convert
from .to_file import write_from as write_from
from .to_store import build as build
