"""Sparse tensors of any rank as trees of levels, stored in the Binsparse format.

`__init__.pyi` lists the public names. Each is imported on first use, so that importing the package loads only numpy.
"""

import importlib
import os
from typing import Any

from .errors import did_you_mean
from .tensors import late_imports


def _homes() -> dict[str, str]:
    """The module of each public name, by the lines `from .module import name as name` of the stub."""
    stub = __spec__.loader.get_data(os.path.join(__path__[0], "__init__.pyi")).decode()  # also in a zip file
    lines = [line.split() for line in stub.splitlines() if line.startswith("from .")]
    return {name: module for _, module, _, name, *_ in lines}


_HOMES = _homes()

__all__ = sorted(_HOMES.keys() - {"open", "__version__"})  # `import *` would hide Python's own `open`


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        use = importlib.import_module(".tensors.names", __name__).instead_of_name(name)
        hint = f"use {use}" if use else did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint and '; '}{hint.strip()}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "open", "__version__", "__all__", "__doc__", "__path__"]


# Functions of higher layers that tensors call and that are not public.
_INTERNAL = {
    "draw": "looking.drawing", "html_of": "looking.notebook", "report_on": "looking.report",
    "product": "compute", "calculate": "compute", "data_array": "interop.xarray",
    "coordinates_in": "interop.xarray_coordinates",
    "numpy_function": "compute.numpy_functions",
}  # fmt: skip


def _find(name: str) -> Any:
    if name not in _INTERNAL:
        return __getattr__(name)
    return getattr(importlib.import_module(f"{__name__}.{_INTERNAL[name]}"), name)


late_imports.register(_find, _HOMES)
