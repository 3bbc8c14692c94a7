"""What tells that a file, a folder or an object has changed since a build began."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..containers.base import is_url, split_path, touching
from ..containers.objects.asking import asked_for, bucket_of, get_bytes, obstore_module
from ..errors import ContainerError, PathMissingError, Problem
from ..io.kinds import Place

_HEADERS = "zarr.json", ".zattrs", "binsparse.json", "values.ra"


@contextlib.contextmanager
def unchanged(place: Any, known: Any, state: Callable[[Any], Any]) -> Iterator[None]:
    """Raise ContainerError where a place is not as it was known, before the block or behind it."""
    _refuse_changed(place, known, state(place))
    yield
    _refuse_changed(place, known, state(place))


def _refuse_changed(place: Any, known: Any, state: Any) -> None:
    if state != known:
        raise ContainerError(Problem(str(place), "has changed since the build began; pass another work="))


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
            return _of_object(asked_for(obstore_module().head, *bucket_of(path)))
    with _there(path):
        return _of_file(os.stat(path))


def bytes_of(path: str, known: Any) -> Any:
    """All bytes of a file or an object, by one request. Raises ContainerError where it is not as it was known."""
    if is_url(path):
        with touching(path):
            told, raw = asked_for(get_bytes, *bucket_of(path))
        _refuse_changed(path, known, _of_object(told))
        return raw
    with touching(path), _there(path), open(path, "rb") as file:
        found = file.read()
        _refuse_changed(path, known, _of_file(os.fstat(file.fileno())))
    return found


@contextlib.contextmanager
def _there(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise PathMissingError(Problem(path, "no such file")) from None


def _of_file(status: os.stat_result) -> list[Any]:
    return [status.st_size, status.st_mtime_ns]


def _of_object(told: Any) -> list[Any]:
    return [told["size"], told["e_tag"] or str(told["last_modified"])]
