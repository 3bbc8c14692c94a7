"""A kind of file: how it is recognised, and the module that reads and writes it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..containers.interface import Container
from ..errors import OptionError, Problem
from .interface import Foreign


class Kind(NamedTuple):
    """A kind of file.

    Parameters
    ----------
    module : str, Container or Foreign
        The functions that read and write such files, or the module with these as `FUNCTIONS`. A leading dot means this
        package; a plug-in gives an absolute name.
    suffixes : tuple of str, default ()
        Endings of paths, in lower case.
    options : mapping, default {}
        Fixed options of the module's `writing` or `write`.
    reads, writes : tuple of str, default ()
        Names of the options of reading and writing. `duplicates` and `check` are for `read` alone.
    attributes : tuple of str, default ()
        Names of attributes of a tensor that its files keep, if it is a Foreign. A write warns of others.
    dense : bool, default False
        An array of numpy is written with all its cells, not as a list of those that differ from zero.
    named : bool, default False
        A file contains several tensors by name, and a path names one of them after the colon.
    signature : bytes or tuple of bytes, default ()
        The first bytes of a file, or a tuple of alternatives.
    folder, zip : tuple of str, default ()
        Names of files in a folder, or of members of a zip file, by which it is recognised. A name that begins with *
        is the end of names. A path which becomes that of a file with such an end is recognised like the folder.
    group : tuple of str, default ()
        Names of attributes or members of an HDF5 group, by which it is recognised.
    zarr_group : tuple of str, default ()
        Names of attributes of a Zarr group, by which it is recognised.
    inner : str, default ''
        The field, `group` or `zarr_group`, by which groups of such a file are recognised as of another kind.
    objects : str, default ''
        The class of open objects, as "module:class".
    """

    module: str | Container | Foreign
    suffixes: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    dense: bool = False
    named: bool = False
    signature: bytes | tuple[bytes, ...] = ()
    folder: tuple[str, ...] = ()
    zip: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    zarr_group: tuple[str, ...] = ()
    inner: str = ""
    objects: str = ""

    @property
    def functions(self) -> Container | Foreign:
        """The functions of its module. Raises OptionError for a module without any."""
        return _functions_of(self.module)

    @property
    def foreign(self) -> bool:
        """True for a kind of another system, which reads and writes tensors, not headers and arrays."""
        return isinstance(self.functions, Foreign)

    def marks(self) -> list[object]:
        """Everything by which a file is recognised. No two kinds may share it."""
        signatures = self.signature if isinstance(self.signature, tuple) else (self.signature,)
        fields = ("folder", "zip", "group", "zarr_group")
        return [*self.suffixes, *signatures, *((mark, field) for field in fields for mark in getattr(self, field))]


@functools.cache
def _functions_of(module: str | Container | Foreign) -> Container | Foreign:
    functions: Any = module
    if isinstance(module, str):
        functions = getattr(importlib.import_module(module, __package__.rpartition(".")[0]), "FUNCTIONS", None)
    if not isinstance(functions, Container | Foreign):
        raise OptionError(Problem(f"{module!s:.60}", "has no FUNCTIONS of class Container or Foreign; define them"))
    return functions
