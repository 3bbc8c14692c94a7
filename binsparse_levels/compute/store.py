"""Nests as functions: compiled once, and cached on disk by the checksum of their text.

numba caches machine code only for functions in files. The text is therefore written to a folder that only this user can
write, next to numba's cache. A process runs only text that it has generated, and compares text in a file with it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engine.tree import Form
from ..levels import Level
from ..levels.checksums import marks
from ..system import is_private
from .nest import Leaf, Seen, helpers_of, nest_text


class Nest(NamedTuple):
    """The functions of `nest_text`."""

    function: Callable[..., Any]
    extent: Callable[..., tuple[Any, Any]]
    first: Callable[..., Any] | None


@functools.lru_cache(1024)
def compiled(
    levels: tuple[Level, ...], seen: Seen, leaf: Leaf, form: Form, long: bool, kept: bool = True, split: bool = False
) -> Nest:
    """The nest of these levels with this leaf. kept: cache its machine code on disk. split: as for `nest_text`.

    long: fibers of the last level are long, and sums may be reordered, so that they run in vectors. The order does not
    depend on threads.
    """
    text, reordered = nest_text(levels, seen, leaf, form, split), long or not leaf.totals
    text += "# sums are reordered\n" if reordered else ""  # the text identifies its machine code
    space = _space(helpers_of(levels))
    path = place_text(text) if kept else None
    exec(compile(text, path or "<nest>", "exec"), space)
    return Nest(_fast(space["nest"], path is not None, reordered), space["extent"], space.get("first"))


@functools.lru_cache(1024)
def function_of(
    name: str, text: str, helpers: tuple[tuple[str, Callable[..., Any]], ...], compiled: bool = True
) -> Callable[..., Any]:
    """The function of that name in a text, compiled and cached on disk. helpers: functions that it calls."""
    text += marks(dict(helpers))
    path = place_text(text) if compiled else None
    space = _space(dict(helpers))
    exec(compile(text, path or "<nest>", "exec"), space)
    if not compiled:
        interpreted: Callable[..., Any] = np.errstate(all="ignore")(space[name])  # integers wrap
        return interpreted
    return _fast(space[name], path is not None, False)


def _space(helpers: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """The names that a text may use. numba imports the module of a function that it loads from its cache."""
    from ..kernels import jit

    pieces = {"lowest_bit": jit.lowest_bit, "gathered": jit.gathered}
    return {"np": np, "u8": np.uint64, "__name__": __name__, **pieces, **helpers}


def _fast(function: Callable[..., Any], kept: bool, reordered: bool) -> Callable[..., Any]:
    from ..kernels import jit

    fastmath = {"contract", "reassoc"} if reordered else {"contract"}
    options: Any = {"cache": kept, "fastmath": fastmath, "error_model": "numpy"}
    made: Callable[..., Any] = jit.kernel(function, **options)  # type: ignore[no-untyped-call]
    return made


def place_text(text: str) -> str | None:
    """The path of a file with this text, in a private folder; None if there is no such folder.

    A file with another content is replaced, which also invalidates its machine code in numba's cache.
    """
    from numba import config

    checked = "checked_" if config.BOUNDSCHECK else ""  # type: ignore[attr-defined]
    name = f"nest_{checked}{hashlib.sha256(text.encode()).hexdigest()}.py"
    for folder in _folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(folder):
                continue
            path = folder / name
            if not (_is_regular(path) and path.read_bytes() == text.encode()):
                with tempfile.TemporaryDirectory(dir=folder) as next_to:  # so that a full disk leaves no file
                    Path(next_to, name).write_bytes(text.encode())
                    os.replace(Path(next_to, name), path)
            return str(path)
        except OSError:
            continue
    return None


def _folders() -> list[Path]:
    """The folders for texts: the folder of numba if it is set, else in this package, then in the user's cache."""
    from ..kernels import jit

    numba_folder: str = jit.cache_folder()  # type: ignore[no-untyped-call]
    package = Path(__file__).parent / "__pycache__"
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    ours = [package, *([Path(user) / "binsparse_levels"] if os.path.isabs(user) else [])]
    return [folder / "nests" for folder in ([Path(numba_folder)] if numba_folder else ours)]


def _is_private(folder: Path) -> bool:
    """Return True for a folder, not a link, of this user, in which no other user may write."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and is_private(status)


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
