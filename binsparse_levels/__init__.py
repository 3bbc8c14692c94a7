"""Sparse tensors of any rank as trees of levels, stored in the Binsparse format.

The names below are the public interface; each is imported when it is first used, so that importing the package costs
numpy alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .advice import Advice as Advice
    from .advice import advise as advise
    from .errors import ArrayError as ArrayError
    from .errors import BinsparseError as BinsparseError
    from .errors import ContainerError as ContainerError
    from .errors import DescriptorError as DescriptorError
    from .errors import DialectWarning as DialectWarning
    from .errors import FormatError as FormatError
    from .errors import IncompleteError as IncompleteError
    from .errors import LimitError as LimitError
    from .errors import OptionError as OptionError
    from .errors import Problem as Problem
    from .errors import UnsafeError as UnsafeError
    from .external import append as append
    from .external import concatenate as concatenate
    from .external import convert as convert
    from .formats import ALIASES as ALIASES
    from .formats import SYNONYMS as SYNONYMS
    from .formats import Format as Format
    from .formats import parse_format as parse_format
    from .interop import from_binsparse as from_binsparse
    from .interop import from_gcxs as from_gcxs
    from .interop import from_graphblas as from_graphblas
    from .interop import from_numpy as from_numpy
    from .interop import from_scipy as from_scipy
    from .interop import from_sparse as from_sparse
    from .interop import from_torch as from_torch
    from .interop import to_gcxs as to_gcxs
    from .interop import to_graphblas as to_graphblas
    from .interop import to_numpy as to_numpy
    from .interop import to_scipy as to_scipy
    from .interop import to_sparse as to_sparse
    from .interop import to_torch as to_torch
    from .io import list_tensors as list_tensors
    from .io import open as open
    from .io import read as read
    from .io import read_all as read_all
    from .io import repair as repair
    from .io import write as write
    from .io import write_all as write_all
    from .levels import Band as Band
    from .levels import Bitmap as Bitmap
    from .levels import Bits as Bits
    from .levels import Dense as Dense
    from .levels import Hashed as Hashed
    from .levels import Level as Level
    from .levels import NOfM as NOfM
    from .levels import Run as Run
    from .levels import Sparse as Sparse
    from .limits import Limits as Limits
    from .mapped import MappedTensor as MappedTensor
    from .mapped import pack_mapped as pack_mapped
    from .maps import IndexMap as IndexMap
    from .maps import parse_map as parse_map
    from .plugins import list_plugins as list_plugins
    from .plugins import load_plugins as load_plugins
    from .tensor import Tensor as Tensor
    from .tensor import pack as pack
    from .tensor import pack_dense as pack_dense
    from .threads import get_threads as get_threads
    from .threads import set_threads as set_threads

_MODULES = {
    "advice": ["Advice", "advise"],
    "errors": [
        "ArrayError", "BinsparseError", "ContainerError", "DescriptorError", "DialectWarning", "FormatError",
        "IncompleteError", "LimitError", "OptionError", "Problem", "UnsafeError",
    ],
    "external": ["append", "concatenate", "convert"],
    "formats": ["ALIASES", "SYNONYMS", "Format", "parse_format"],
    "interop": [
        "from_binsparse", "from_gcxs", "from_graphblas", "from_numpy", "from_scipy", "from_sparse", "from_torch",
        "to_gcxs", "to_graphblas", "to_numpy", "to_scipy", "to_sparse", "to_torch",
    ],
    "io": ["list_tensors", "open", "read", "read_all", "repair", "write", "write_all"],
    "levels": ["Band", "Bitmap", "Bits", "Dense", "Hashed", "Level", "NOfM", "Run", "Sparse"],
    "limits": ["Limits"],
    "mapped": ["MappedTensor", "pack_mapped"],
    "maps": ["IndexMap", "parse_map"],
    "plugins": ["list_plugins", "load_plugins"],
    "tensor": ["Tensor", "pack", "pack_dense"],
    "threads": ["get_threads", "set_threads"],
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME.keys() - {"open"})  # which would hide Python's own where all names are imported


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
