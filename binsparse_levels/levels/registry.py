"""The known kinds of level, by name in the notation, and by package and name in files; sending them to other processes.

Two packages may have kinds with the same name. Then the notation of each is `package:kind`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FormatError, Problem
from .base import LEVELS, OWN, Level, layout, level_desc, notation, package_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GALLERY = f"{OWN}.gallery"  # a package of this distribution, which workers may import
ENTRY_POINTS = "binsparse_levels.levels"  # the group in which packages name their kinds
ALLOWED = "BINSPARSE_LEVELS_PLUGINS"  # an environment variable: packages that worker processes may import
_unloaded: dict[str, str] = {}  # the packages of kinds of another process that this process may not load
_RESERVED = ("level", "level_desc", "version")  # keys of a level in a file


def register(kind: type[Level]) -> type[Level]:
    """Register a kind, as a class decorator. The same class defined again, such as in a notebook, replaces it.

    Raises FormatError for another class of the same package with that name, and for a name of this package.
    """
    if not kind.unique:
        what = "lists a coordinate of a fiber twice; a coordinate has one child, so let the level below store both"
        raise FormatError(Problem(kind.kind, what))
    if taken := [field.name for field in fields(kind) if field.name in _RESERVED]:
        raise FormatError(Problem(kind.kind, f"a parameter cannot have the name {taken[0]!r}; choose another name"))
    peers = {name: other for name, other in LEVELS.items() if other.kind == kind.kind and not _is_again(kind, other)}
    for other in peers.values():
        if package_of(other) in (OWN, package_of(kind)):
            what = f"a level kind {kind.kind!r} is registered already by {other!r}; choose another name"
            raise FormatError(what)
    known = [other for other in LEVELS.values() if other.kind != kind.kind] + [*peers.values(), kind]
    LEVELS.clear()
    LEVELS.update({notation(each, known): each for each in known})
    return kind


def _is_again(kind: type[Level], other: type[Level]) -> bool:
    return (kind.__module__, kind.__qualname__) == (other.__module__, other.__qualname__)


def kind_named(name: str) -> type[Level] | None:
    """The kind with a name in the notation, ignoring case; None for an unknown name.

    Raises FormatError for a name of several packages.
    """
    for each in (name, name.lower()):
        peers = [kind for kind in LEVELS.values() if each in (kind.kind, level_desc(kind))]
        if len(peers) > 1:
            both = " and ".join(sorted(level_desc(kind) for kind in peers))
            raise FormatError(f"{each!r} is the name of {both}; write one of these")
        if peers:
            return peers[0]
        if each in _unloaded:
            raise FormatError(f"{each!r} is no level kind here; {_remedy(_unloaded[each], each)}")
    return None


def kind_stored(desc: str, version: object) -> type[Level]:
    """The kind of a `level_desc` in a file. Raises FormatError that says how to load it.

    Files with `binsparse_levels:NAME` and no version for all kinds date from before kinds had packages.
    """
    package, colon, name = desc.partition(":")
    peers = [kind for kind in LEVELS.values() if level_desc(kind) == desc]
    old = [] if peers else [x for x in LEVELS.values() if x.kind == name and package in (OWN, *x.formerly)]
    if len(old) > 1:
        both = " and ".join(sorted(level_desc(kind) for kind in old))
        raise FormatError(f"{desc!r} may be {both}; load the package that wrote it alone")
    if not peers + old:
        raise FormatError(f"unknown level kind {desc!r:.80}; {_remedy(package, name) if colon else _known_kinds()}")
    (kind,) = peers + old
    if package != OWN and version != layout(kind) and not (old and isinstance(version, str)):  # a checksum of old code
        what = f"{desc!r} has the layout {version!r:.40}, and the loaded kind has {layout(kind)!r}"
        if package == "__main__":
            raise FormatError(f"{what}; run the definition that wrote it, or set the same `version` in both")
        raise FormatError(f"{what}; install the release of {package} that wrote it")
    return kind


def _known_kinds() -> str:
    return f"known are element, {', '.join(level_desc(kind) for kind in LEVELS.values())}"


def _remedy(package: str, name: str) -> str:
    if package == "__main__":
        return "the program or notebook that wrote it defines it; run that definition first, or move it to a package"
    if package == OWN:
        return f"{_known_kinds()}; a plug-in may provide it: load_plugins({name!r:.40})"
    if package == GALLERY:
        return f"import {GALLERY}"
    how = f"install and import it, or load_plugins('{package[:40]}.py')"
    if there := _points(package):
        how = f"load_plugins({there[0].name!r:.40})"
    return f"the package {package[:40]!r} provides it: {how}; in worker processes, name it in {ALLOWED}"


def _points(package: str) -> list[EntryPoint]:
    """The entry points of level kinds in a package."""
    from importlib.metadata import entry_points  # 20 ms, which few programs need

    return [point for point in entry_points(group=ENTRY_POINTS) if re.split("[.:]", point.value)[0] == package]


class SentKind(NamedTuple):
    """A kind as it is sent to another process: without code, and without the location of code."""

    package: str
    kind: str
    version: int | str


def sent_kinds() -> tuple[SentKind, ...]:
    """The kinds of other packages that are registered in this process."""
    kinds = (kind for kind in LEVELS.values() if package_of(kind) != OWN)
    return tuple(SentKind(package_of(kind), kind.kind, layout(kind)) for kind in kinds)


def register_sent(kinds: Iterable[SentKind]) -> None:
    """Register the kinds of another process in this process, if it may import their packages.

    It imports the entry points of installed packages, and the packages in the environment variable
    BINSPARSE_LEVELS_PLUGINS, separated by commas. An error of a missing kind names the remedy.
    """
    allowed = {name.strip() for name in os.environ.get(ALLOWED, "").split(",")} - {"", "__main__"}
    known = {level_desc(kind) for kind in LEVELS.values()}
    for package, kind, _ in kinds:
        if f"{package}:{kind}" in known:
            continue
        for point in _points(package):
            loaded = point.load()
            if isinstance(loaded, type) and issubclass(loaded, Level) and loaded.kind == kind:
                register(loaded)
        if package in (GALLERY, *allowed):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(package)
        if not any(level_desc(other) == f"{package}:{kind}" for other in LEVELS.values()):
            _unloaded[kind] = package
