"""Tensors that are larger than memory, or than one machine: converted, written from a stream, built by many processes.

All three run the same steps: split the entries into partitions, pack each, join the trees.
"""

from .bad_rows import BadRows as BadRows
from .estimating import Estimate as Estimate
from .estimating import estimate as estimate
from .steps import Stage as Stage
from .steps import commit as commit
from .steps import plan as plan
from .steps import progress as progress
from .steps import skipped as skipped
from .steps import step as step
from .to_file import convert as convert
from .to_file import write_from as write_from
from .to_store import build as build
