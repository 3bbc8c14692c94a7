"""HDF5 files, groups and datasets: opened from a path, a stream, or an open group, without following any link."""

from __future__ import annotations

import contextlib
import gc
import os
from typing import IO, Any

import h5py

from ..errors import ContainerError, PathMissingError, Problem, UnsafeError
from .base import raise_as_ours


class _Stream:
    """A stream that h5py reads while it holds its lock.

    The stream may wait for another thread: fsspec has one for its requests. Garbage of h5py's that is collected there
    would wait for the lock, and each thread for the other. So no garbage is collected meanwhile.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.read, self.seek, self.tell = stream.read, stream.seek, stream.tell  # h5py asks for all three
        self._stream: Any = stream

    def readinto(self, buffer: Any) -> int:
        collects = gc.isenabled()
        gc.disable()
        try:
            count: int = self._stream.readinto(buffer)
        finally:
            if collects:
                gc.enable()
        return count


def opened(path: str | IO[bytes] | h5py.Group) -> contextlib.AbstractContextManager[h5py.Group]:
    """A file that is open for reading, which the block closes; or the group that was passed, which stays open.

    path: a stream is read through Python. Raises ContainerError, PathMissingError.
    """
    if isinstance(path, h5py.Group):
        if not path:
            raise ContainerError(Problem("h5py.Group", "its file is closed; open it again"))
        return contextlib.nullcontext(path)
    try:
        file: contextlib.AbstractContextManager[h5py.Group]
        if isinstance(path, str):  # without properties that only writers need, in two thirds of the time
            file = h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY))
        else:
            file = h5py.File(_Stream(path))
        return file
    except FileNotFoundError:
        raise PathMissingError(Problem(str(path), "no such file")) from None
    except BlockingIOError as error:
        raise ContainerError(Problem(str(path), "another program has it open for writing; close it there")) from error
    except OSError as error:
        raise ContainerError(Problem(str(path), f"cannot be opened as HDF5: {error}")) from error


def walk(file: h5py.Group, group: str | None, *, make: bool = False, track_order: bool | None = None) -> h5py.Group:
    """The group of that path; `make` makes what is missing. track_order: of h5py, for new groups."""
    place: h5py.Group = file
    for part in filter(None, (group or "").split("/")):
        if part in (".", ".."):
            raise ContainerError(Problem(str(group), f"no group has the name {part!r}"))
        child = child_of(place, part, h5py.h5g.GroupID)
        if child is None and not make:
            raise PathMissingError(Problem(str(group), f"no group {part!r} in {place.name}"))
        place = place.create_group(part, track_order=track_order) if child is None else h5py.Group(child)
    return place


def child_of(group: h5py.Group, name: str, kind: type[Any]) -> Any:
    """The identifier of the object of that kind and name, through a hard link alone, or None."""
    try:
        links, key = group.id.links, name.encode()
        try:
            info = links.get_info(key)
        except RuntimeError:
            if links.exists(key):
                raise
            return None
        if info.type != h5py.h5l.TYPE_HARD:
            link = type(group.get(name, getlink=True)).__name__
            raise UnsafeError(Problem(f"{group.name}/{name}", f"a {link} is not followed"))
        child = h5py.h5o.open(group.id, key)
    except Exception as error:
        raise_as_ours(error, name)
    if not isinstance(child, kind):
        raise ContainerError(Problem(f"{group.name}/{name}", f"is no {_CALLED[kind]}"))
    return child


_CALLED = {h5py.h5g.GroupID: "group", h5py.h5d.DatasetID: "dataset"}
