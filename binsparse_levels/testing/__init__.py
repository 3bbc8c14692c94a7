"""The laws of level kinds, kinds of files and containers, and hypothesis strategies that draw cases for them.

For authors of kinds and containers. Requires hypothesis. One call checks all laws and prints a line for each:

    testing.check_kind(MyKind)                              a level kind
    testing.check_file_kind("my_kind", "a.file", {"/": x})  a kind of file, for a file with the tensor x

The laws of a level kind are the functions of `testing.kinds`, which tests may also call for a single case. The law of a
container is `check_same`: it returns the tensor that was written.
"""

from __future__ import annotations

from ..levels import LEVELS as LEVELS
from .cases import LevelCase as LevelCase
from .cases import level_cases as level_cases
from .cases import selections as selections
from .drawn import OURS as OURS
from .drawn import PLAIN as PLAIN
from .drawn import VALUE_TYPES as VALUE_TYPES
from .drawn import formats as formats
from .drawn import maps as maps
from .drawn import tensors as tensors
from .file_kinds import check_file_kind as check_file_kind
from .files import check_agreement as check_agreement
from .files import check_refused as check_refused
from .files import check_same as check_same
from .files import check_stored as check_stored
from .files import damaged as damaged
from .generated import n_of_m as n_of_m
from .generated import power_law as power_law
from .generated import rmat as rmat
from .generated import stencil as stencil
from .generated import uniform as uniform
from .kinds import Held as Held
from .kinds import check_kind as check_kind
from .kinds import check_level as check_level
from .kinds import check_loop as check_loop
from .kinds import check_names as check_names
from .kinds import check_parts as check_parts
from .kinds import check_selection as check_selection
