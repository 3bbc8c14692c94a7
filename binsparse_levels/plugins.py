"""Plug-ins: level kinds and kinds of files of other packages, found by entry points.

A plug-in is loaded only when a program requests it, never because it is installed or a file names it. Worker processes
(of a pool, of Dask) load the level kinds that the program has loaded: those with an entry point, and those of packages
that the environment variable BINSPARSE_LEVELS_PLUGINS of these processes lists.

    [project.entry-points."binsparse_levels.levels"]
    banana = "my_package:Banana"                          a subclass of Level

    [project.entry-points."binsparse_levels.kinds"]
    banana_file = "my_package:KIND"                       a binsparse_levels.io.Kind

A Python file that registers level kinds is also a plug-in, as in load_plugins("banana.py").

A Kind contains the functions that read and write its files, a `Foreign` or a `Container` of binsparse_levels.io, or the
name of the module with these as `FUNCTIONS`, and the marks by which its files are recognised.
`testing.check_file_kind` checks its laws.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from .errors import BinsparseError, OptionError, Problem
from .io import Kind, register_kind
from .levels import LEVELS, Level, register
from .levels.registry import ENTRY_POINTS

_KINDS = "binsparse_levels.kinds"


def list_plugins() -> list[str]:
    """List the names of all installed plug-ins, sorted. No plug-in is loaded.

    Returns
    -------
    list of str
        List of str.

    See Also
    --------
    load_plugins : Load plug-ins by name.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> "apple" in bl.list_plugins()
    False
    """
    return sorted({point.name for point in _installed()})


def load_plugins(*names: str) -> list[str]:
    """Load plug-ins by name, or all installed ones, register their kinds, and return their names.

    Loading runs code of the packages that provide the plug-ins.

    Parameters
    ----------
    *names
        Names from `list_plugins`, or paths of Python files that register level kinds, such as "my_kinds.py". Without
        names, all installed plug-ins are loaded.

    Returns
    -------
    list of str
        List of str, sorted.

    Raises
    ------
    OptionError
        A name is unknown, an object is neither a level kind nor a kind of file, a kind of file conflicts with a known
        one, or a Python file fails or registers nothing.
    FormatError
        The name of a level kind is taken.

    See Also
    --------
    list_plugins : List the names of all installed plug-ins, sorted.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.load_plugins("apple")
    Traceback (most recent call last):
    binsparse_levels.errors.OptionError: plugins: no plug-in has the name 'apple'; see list_plugins(), or name a file
    """
    files = [name for name in names if name.endswith(".py")]
    points = [point for point in _installed() if not names or point.name in names]
    known = [point.name for point in points] + files
    for missing in (name for name in names if name not in known):
        what = f"no plug-in has the name {missing!r:.40}; see list_plugins(), or name a file"
        raise OptionError(Problem("plugins", what))
    for point in points:
        _register(point)
    for file in files:
        _run(file)
    return sorted(set(known))


def _installed() -> list[EntryPoint]:
    return [point for group in (ENTRY_POINTS, _KINDS) for point in entry_points(group=group)]


def _register(point: EntryPoint) -> None:
    try:
        thing = point.load()
    except BinsparseError:
        raise
    except Exception as error:
        raise OptionError(Problem(point.name, f"cannot be loaded: {error!r}; install it again")) from error
    if point.group == ENTRY_POINTS and isinstance(thing, type) and issubclass(thing, Level):
        register(thing)
    elif point.group == _KINDS and isinstance(thing, Kind):
        register_kind(point.name, thing)
    else:
        what = f"{thing!r:.60} does not belong to the group {point.group}; name another"
        raise OptionError(Problem(point.name, what))


def _run(path: str) -> None:
    """Import a Python file by its name, like `import` in its folder."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    before = sys.modules.get(name)
    if before is None and spec is not None and spec.loader is not None:
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise OptionError(Problem(path, f"cannot be loaded: {error!r}; correct the file")) from error
    elif before is None or not os.path.samefile(getattr(before, "__file__", None) or os.devnull, path):
        raise OptionError(Problem(path, f"another module has the name {name!r:.40}; rename the file"))
    if all(kind.__module__ != name for kind in LEVELS.values()):
        raise OptionError(Problem(path, "registers no level kind; decorate it with binsparse_levels.levels.register"))
