"""Convert, write and build tensors that are larger than memory, in one process or in many.

All three run the same steps: they split the entries into partitions, pack each, join the trees.
"""

from .compacting import compact as compact
from .to_file import convert as convert
from .to_file import write_from as write_from
from .to_store import build as build
