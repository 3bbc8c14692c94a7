"""Plug-ins: level kinds, containers and kinds of files of other packages, by entry points.

Nothing is loaded because it is installed, or because a file names it: only when a program asks for it.

    [project.entry-points."binsparse_levels.levels"]
    banana = "my_package:Banana"                          a subclass of Level

    [project.entry-points."binsparse_levels.kinds"]
    banana_file = "my_package:KIND"                       a binsparse_levels.io.Kind, whose module has the functions
                                                          `reading` and `writing`, or `read` and `write`
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from .errors import BinsparseError, OptionError, Problem
from .io import Kind, register_kind
from .levels import Level, register

_LEVELS, _KINDS = "binsparse_levels.levels", "binsparse_levels.kinds"


def list_plugins() -> list[str]:
    """The names of all plug-ins that are installed. None is loaded."""
    return sorted({point.name for point in _installed()})


def load_plugins(*names: str) -> list[str]:
    """Load the plug-ins of these names, or all, and register what they bring; the names of what was loaded.

    Loading runs the code of the packages that bring them. Raises OptionError for a name that nobody has, or what is
    neither a level kind nor a kind of file; FormatError for a kind whose name is taken.
    """
    found = [point for point in _installed() if not names or point.name in names]
    missing = set(names) - {point.name for point in found}
    if missing:
        raise OptionError(Problem("plugins", f"no plug-in has the name {min(missing)!r:.40}"))
    for point in found:
        _register(point)
    return sorted({point.name for point in found})


def _installed() -> list[EntryPoint]:
    return [point for group in (_LEVELS, _KINDS) for point in entry_points(group=group)]


def _register(point: EntryPoint) -> None:
    try:
        thing = point.load()
    except BinsparseError:
        raise
    except Exception as error:
        raise OptionError(Problem(point.name, f"cannot be loaded: {error!r}")) from error
    if point.group == _LEVELS and isinstance(thing, type) and issubclass(thing, Level):
        register(thing)
    elif point.group == _KINDS and isinstance(thing, Kind):
        register_kind(point.name, thing)
    else:
        raise OptionError(Problem(point.name, f"{thing!r:.60} is no plug-in of the group {point.group}"))
