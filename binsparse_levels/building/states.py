"""What tells that a file, a folder or an object has changed since a build began."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..containers.base import is_url, split_path, touching
from ..containers.objects.asking import asked, bucket_of, obstore_module
from ..errors import ContainerError, PathMissingError, Problem
from ..io.kinds import Place

_HEADERS = "zarr.json", ".zattrs", "binsparse.json", "values.ra"


@contextlib.contextmanager
def unchanged(place: Any, known: Any, state: Callable[[Any], Any]) -> Iterator[None]:
    """Raise ContainerError where a place is not as it was known, before the block or behind it."""
    for again in (False, True):
        if state(place) != known:
            raise ContainerError(Problem(str(place), "has changed since the build began; pass another work="))
        if not again:
            yield


def state_of_tensor(place: Place) -> Any:
    """The state of the file of a tensor, or of all files in its folder, or of its header at a URL; None where there is
    no such thing.
    """
    if not isinstance(place, str | os.PathLike):
        return None
    path, group = split_path(place)
    if not is_url(path):
        return _state_of_folder(os.path.join(path, group or "")) if os.path.isdir(path) else state_of(path)
    for name in _HEADERS:
        with contextlib.suppress(ContainerError):  # a store that only another library knows
            return state_of(f"{path}/{group}/{name}" if group else f"{path}/{name}")
    return None


def _state_of_folder(path: str) -> list[int]:
    """The number of files, their bytes, and the time of the newest."""
    count = size = newest = 0
    for folder, _, names in os.walk(path):
        for name in names:
            status = os.stat(os.path.join(folder, name))
            count, size, newest = count + 1, size + status.st_size, max(newest, status.st_mtime_ns)
    return [count, size, newest]


def state_of(path: str) -> list[Any]:
    """What changes where a file or an object changes: its size, and its time or tag."""
    if is_url(path):
        with touching(path):
            told = asked(obstore_module().head, *bucket_of(path))
        return [told["size"], told["e_tag"] or str(told["last_modified"])]
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise PathMissingError(Problem(path, "no such file")) from None
    return [status.st_size, status.st_mtime_ns]
