"""Sparse tensors of any rank as trees of levels, stored in the Binsparse format.

The names below are the public interface. Each is imported on first use, so that importing the package loads only numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .building import build as build
    from .building import convert as convert
    from .building import write_from as write_from
    from .compute import Statistics as Statistics
    from .compute import einsum as einsum
    from .compute import foreach as foreach
    from .compute import reduce as reduce
    from .compute import statistics as statistics
    from .errors import ArrayError as ArrayError
    from .errors import BinsparseError as BinsparseError
    from .errors import ContainerError as ContainerError
    from .errors import DescriptorError as DescriptorError
    from .errors import DialectWarning as DialectWarning
    from .errors import FormatError as FormatError
    from .errors import IncompleteError as IncompleteError
    from .errors import LabelError as LabelError
    from .errors import LimitError as LimitError
    from .errors import OptionError as OptionError
    from .errors import Problem as Problem
    from .errors import UnsafeError as UnsafeError
    from .formats.format import ALIASES as ALIASES
    from .formats.format import SYNONYMS as SYNONYMS
    from .formats.format import Format as Format
    from .formats.format import parse_format as parse_format
    from .formats.index_map import IndexMap as IndexMap
    from .formats.index_map import parse_map as parse_map
    from .interop.anndata import register_anndata as register_anndata
    from .interop.arrow import from_table as from_table
    from .interop.arrow import to_table as to_table
    from .interop.dask import from_dask as from_dask
    from .interop.dask import to_dask as to_dask
    from .interop.graphblas import from_graphblas as from_graphblas
    from .interop.graphblas import to_graphblas as to_graphblas
    from .interop.numpy import from_numpy as from_numpy
    from .interop.numpy import to_numpy as to_numpy
    from .interop.protocol import from_binsparse as from_binsparse
    from .interop.pydata_sparse import from_gcxs as from_gcxs
    from .interop.pydata_sparse import from_sparse as from_sparse
    from .interop.pydata_sparse import to_gcxs as to_gcxs
    from .interop.pydata_sparse import to_sparse as to_sparse
    from .interop.scipy import from_scipy as from_scipy
    from .interop.scipy import to_scipy as to_scipy
    from .interop.torch import from_torch as from_torch
    from .interop.torch import to_torch as to_torch
    from .interop.xarray import write_dataset as write_dataset
    from .io import append as append
    from .io import concatenate as concatenate
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
    from .levels import EliasFano as EliasFano
    from .levels import Hashed as Hashed
    from .levels import Level as Level
    from .levels import Mask as Mask
    from .levels import NOfM as NOfM
    from .levels import Run as Run
    from .levels import Sparse as Sparse
    from .limits import Limits as Limits
    from .looking.advice import Advice as Advice
    from .looking.advice import advise as advise
    from .looking.fibers import LevelStatistics as LevelStatistics
    from .looking.fibers import levels_of as levels_of
    from .looking.sweep import Sweep as Sweep
    from .looking.sweep import sweep as sweep
    from .parallel import get_threads as get_threads
    from .parallel import set_threads as set_threads
    from .plugins import list_plugins as list_plugins
    from .plugins import load_plugins as load_plugins
    from .tensors.foreign import as_tensor as as_tensor
    from .tensors.packing import pack as pack
    from .tensors.packing import pack_dense as pack_dense
    from .tensors.tensor import Tensor as Tensor

_MODULES = {
    "building": ["build", "convert", "write_from"],
    "compute": ["Statistics", "einsum", "foreach", "reduce", "statistics"],
    "errors": [
        "ArrayError", "BinsparseError", "ContainerError", "DescriptorError", "DialectWarning", "FormatError",
        "IncompleteError", "LabelError", "LimitError", "OptionError", "Problem", "UnsafeError",
    ],
    "formats.format": ["ALIASES", "SYNONYMS", "Format", "parse_format"],
    "formats.index_map": ["IndexMap", "parse_map"],
    "interop.anndata": ["register_anndata"],
    "interop.arrow": ["from_table", "to_table"],
    "interop.dask": ["from_dask", "to_dask"],
    "interop.graphblas": ["from_graphblas", "to_graphblas"],
    "interop.numpy": ["from_numpy", "to_numpy"],
    "interop.protocol": ["from_binsparse"],
    "interop.pydata_sparse": ["from_gcxs", "from_sparse", "to_gcxs", "to_sparse"],
    "interop.scipy": ["from_scipy", "to_scipy"],
    "interop.torch": ["from_torch", "to_torch"],
    "interop.xarray": ["write_dataset"],
    "io": [
        "append", "concatenate", "list_tensors", "open", "read", "read_all", "repair", "write", "write_all",
    ],
    "levels": ["Band", "Bitmap", "Bits", "Dense", "EliasFano", "Hashed", "Level", "Mask", "NOfM", "Run", "Sparse"],
    "limits": ["Limits"],
    "looking.advice": ["Advice", "advise"],
    "looking.fibers": ["LevelStatistics", "levels_of"],
    "looking.sweep": ["Sweep", "sweep"],
    "parallel": ["get_threads", "set_threads"],
    "plugins": ["list_plugins", "load_plugins"],
    "tensors.foreign": ["as_tensor"],
    "tensors.packing": ["pack", "pack_dense"],
    "tensors.tensor": ["Tensor"],
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME.keys() - {"open"})  # `import *` would hide Python's own `open`


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
