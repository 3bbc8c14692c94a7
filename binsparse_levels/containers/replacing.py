"""Atomic replacement of files and folders, and the lock for changes to existing ones."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout

from ..errors import BinsparseError, ContainerError, OptionError, PathExistsError, Problem, warn
from ..parallel import each
from ..system import exchange, rename_new, to_disk
from .base import UNWRITABLE, is_url, write_error
from .direct import folders_below

Overwrite: TypeAlias = bool | Literal["file"]  # replace the existing tensor, or the whole file
Others: TypeAlias = Callable[[str], Collection[str]]  # the names of what a path contains except a tensor at its root

_MAX_LISTED = 8  # in a message
_FLUSH_THREADS = 4
_STALE_SECONDS = 24 * 60 * 60.0  # without a change, after which a temporary file is abandoned


def real_path(path: str) -> str:
    """The absolute path without links.

    Raises ContainerError for an invalid path, links in a circle, or a deleted working folder.
    """
    try:
        real = os.path.realpath(path)
    except FileNotFoundError:
        raise ContainerError(Problem(path, "the working folder was deleted; pass an absolute path")) from None
    except ValueError as error:
        raise ContainerError(Problem(ascii(path), f"cannot be a path: {error}; choose another")) from None
    if os.path.islink(real):
        raise ContainerError(Problem(path, "is a symbolic link in a circle; remove it, or choose another path"))
    return real


def refuse_existing(path: str, overwrite: Overwrite, others: Others | None = None) -> None:
    """Raise PathExistsError if the path exists, in any spelling, unless `overwrite`.

    others: lists what the path contains except the tensor that is replaced. If there is any, only "file" overwrites.
    """
    if overwrite not in (False, True, "file"):
        raise OptionError(Problem("overwrite", f"expected True, False or 'file', got {overwrite!r:.40}"))
    real = real_path(path)
    if not overwrite and (os.path.lexists(path) or os.path.lexists(real)):
        raise PathExistsError(Problem(path, "already exists; pass overwrite=True"))
    if others is not None and overwrite is True and os.path.lexists(real):
        _refuse_others(path, real, others)


def _refuse_others(path: str, real: str, others: Others) -> None:
    try:
        empty = not (os.listdir(real) if os.path.isdir(real) else os.path.getsize(real))
        there = [] if empty else sorted(others(real))
    except BinsparseError as error:
        if isinstance(error.__cause__, BlockingIOError):  # another program is writing it
            raise
        what = f"cannot be listed ({error.problems[0].message}); pass overwrite='file' to replace all of it"
        raise PathExistsError(Problem(path, what)) from error
    refuse_losing(path, there)


def refuse_losing(path: str, there: Sequence[str]) -> None:
    """Raise PathExistsError if a path contains more than a tensor. there: the names of the rest."""
    if there:
        names = ", ".join(f"{name!r:.40}" for name in there[:_MAX_LISTED]) + ", …" * (len(there) > _MAX_LISTED)
        what = f"contains more than a tensor: {names}; pass overwrite='file' to lose these, or another path or group"
        raise PathExistsError(Problem(path, what))


def keeps(path: str, group: str | None, overwrite: Overwrite, others: Others) -> bool:
    """Return True if a write has to keep the content of a file or folder, which requires a copy.

    If the tensor at the root is the only content, a new file is written instead. Raises OptionError.
    """
    if group is None:
        return False
    if overwrite == "file":
        raise OptionError(Problem(f"{path}:{group}", "overwrite='file' replaces the whole file; leave out the group"))
    if group or not overwrite or not os.path.exists(path):
        return True
    try:
        return bool(others(path))
    except BinsparseError:
        return True


def remove(path: str) -> None:
    """Remove a temporary file or folder, or warn that it could not. An interrupt is raised after the removal."""
    try:
        (shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)  # the rest of a folder
        if os.path.lexists(path):
            warn(f"{path}: cannot be removed: {error.strerror}; remove it", RuntimeWarning)
    except KeyboardInterrupt:
        remove(path)
        raise


@contextlib.contextmanager
def replacing(
    path: str,
    overwrite: Overwrite,
    *,
    folder: bool = False,
    keep: bool = False,
    others: Others | None = None,
    within: str | None = None,
) -> Iterator[str]:
    """A path next to `path`: a file to write to, or a folder to fill. It replaces `path` if the block succeeds.

    The replacement is atomic; for folders only if the system can exchange two folders. If the block fails, nothing
    changes. Everything is flushed to the disk before the rename, and the folder above after it. A file that another
    program has created in the meantime is replaced only with `overwrite`. The target is locked during the replacement.
    overwrite, others: as for `refuse_existing`. keep: the file begins as a copy of the old one, which is locked during
    the block; a folder begins with hard links to the files of the old one, which must be replaced and not changed.
    within: the real path of a folder above `path`. It is locked instead, and nothing temporary is made in it.
    """
    if is_url(path):
        raise ContainerError(Problem(path, "is written on a local disk only; copy it from there, or write a .zarr"))
    if not folder and path.endswith(("/", os.sep)):
        raise ContainerError(Problem(path, "is the path of a folder"))
    target = real_path(path)
    if not folder and os.path.exists(target) and not os.path.isfile(target):
        raise ContainerError(Problem(path, "is a directory, a pipe or a device, and is not replaced"))
    outer = within or target
    part = part_of(outer)
    with hold_lock(outer) if keep else contextlib.nullcontext(), _reporting_path(part, target, path):
        for place in {outer, target}:
            _clear_leftovers(place)
        before = signature(target)
        if not keep:
            refuse_existing(path, overwrite, others)
        if folder and os.path.lexists(target) and not os.path.isdir(target):
            raise PathExistsError(Problem(path, "already exists, and is not a folder"))
        _begin(part, target if keep and before is not None else None, folder)
        yield part
        if not folder:
            with contextlib.suppress(FileNotFoundError):  # another program may have removed it
                shutil.copymode(target, part)
        _all_to_disk(part)
        with hold_lock(outer):
            now = signature(target)
            if before is None and (keep or not overwrite):
                if not rename_new(part, target):
                    what = "another program has created it in the meantime, and it is kept; write to another path"
                    raise PathExistsError(Problem(path, what))
            else:
                if keep and now != before:
                    raise ContainerError(Problem(path, "another program has changed it in the meantime; try again"))
                if now not in (None, before) and others is not None and overwrite is True:
                    _refuse_others(path, target, others)
                (exchange_folders if folder and now is not None else os.replace)(part, target)
        to_disk(os.path.dirname(target))


replacing_folder = functools.partial(replacing, folder=True)


def _begin(part: str, old: str | None, folder: bool) -> None:
    """Create an empty file or folder, or a copy of an old one."""
    if folder:
        os.mkdir(part)
        if old is not None:
            link_folder(old, part)
    else:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if old is not None:
            shutil.copyfile(old, part)


def link_folder(old: str, new: str, ignore: Callable[..., Collection[str]] | None = None) -> None:
    """Fill an empty folder with hard links to the files of another, or with copies where there are no links."""
    try:
        shutil.copytree(old, new, symlinks=True, ignore=ignore, copy_function=os.link, dirs_exist_ok=True)
    except OSError:
        remove(new)
        shutil.copytree(old, new, symlinks=True, ignore=ignore)


@contextlib.contextmanager
def _reporting_path(part: str, target: str, path: str) -> Iterator[None]:
    """Raise errors with `path` in place of the part; those of the system as ContainerError. The part is removed."""
    try:
        yield
    except BinsparseError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in UNWRITABLE:
            raise write_error(path, error.__cause__) from error
        named = [Problem(fault.path.replace(part, path), fault.message) for fault in error.problems]
        if named == [*error.problems]:
            raise
        raise type(error)(named) from error
    except OSError as error:
        about = isinstance(error.filename, str) and (error.filename == target or error.filename.startswith(part))
        if not (about or error.errno in UNWRITABLE):
            raise
        raise write_error(path, error) from error
    finally:
        remove(part)


def _all_to_disk(path: str) -> None:
    """Flush a file, or a folder with its content, in threads."""
    there = [path]
    if os.path.isdir(path):
        there = [os.path.join(place, name) for place, names in folders_below(path) for name in ("", *names)]
    each(to_disk, [x for x in there if not os.path.islink(x)], _FLUSH_THREADS)


def write_text(path: str | os.PathLike[str], text: str, overwrite: bool) -> None:
    """Write a text into a file, atomically. Raises PathExistsError unless `overwrite`, ContainerError."""
    with replacing(os.fspath(path), overwrite) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def same_folder(path: Any) -> Iterator[Callable[[], None] | None]:
    """A function that raises ContainerError if another folder replaced this one; None if the path is not a folder."""
    handle = None
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        path = os.path.abspath(path)  # the working folder may change
        with contextlib.suppress(OSError):  # not every system opens folders
            handle = os.open(path, os.O_RDONLY)
    if handle is None:
        yield None
        return

    def unreplaced() -> None:
        if not (os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path))):
            raise ContainerError(Problem(path, "was replaced while it was read; read it again"))

    try:  # while it is open, no other folder gets its inode number
        yield unreplaced
    finally:
        os.close(handle)


LOCK_SECONDS = 60.0  # that a process waits for another
_LOCK = ".binsparse_levels.lock"  # the end of the name of a lock
_LOCKLESS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}  # of a file system without locks


@contextlib.contextmanager
def hold_lock(target: str) -> Iterator[None]:
    """Hold the lock of a target within the block. Other threads and processes that request the lock wait.

    It is a lock of the operating system on a file next to the target, so a killed process releases it. On a file system
    without locks there is no waiting. Raises ContainerError if the lock is not released in time.
    """
    target = real_path(target)
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        yield
        return
    # One lock for each path and thread, which counts how often it is held.
    lock = FileLock(os.path.join(folder, f".{_short(name)}{_LOCK}"), mode=0o666, is_singleton=True)
    try:
        lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.01)
    except Timeout:
        what = f"another process or thread has been writing it for {LOCK_SECONDS:.0f} seconds; try again later"
        raise ContainerError(Problem(target, what)) from None
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise ContainerError(Problem(target, f"cannot be locked: {error.strerror}")) from error
    try:
        yield
    finally:
        if lock.lock_counter < 2:
            with contextlib.suppress(OSError):  # Windows does not remove open files
                os.unlink(lock.lock_file)  # waiting processes notice, and take a new one
        lock.release()


def part_of(target: str) -> str:
    """A temporary name next to the target, with the number of the writing process."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{_short(name)}.{os.getpid()}-{secrets.token_hex(4)}.part")


# The end of the name of a part; .d is a folder of scratch files, .old a folder that was moved away for a new one.
_LEFTOVER = re.compile(r"[0-9]+-[0-9a-f]{8}\.part(\.d|\.old)?")


def _clear_leftovers(target: str) -> None:
    """Remove day-old files of killed writers. Restore a folder that was moved away, if there is no target."""
    folder, name = os.path.split(target)
    begin = f".{_short(name)}."
    with contextlib.suppress(OSError):
        for left in os.listdir(folder):
            if not left.startswith(begin) or not _LEFTOVER.fullmatch(left, len(begin)):
                continue
            path = os.path.join(folder, left)
            if left.endswith(".old") and begin == f".{name}." and not os.path.lexists(target):
                os.rename(path, target)
            elif _age(path) > _STALE_SECONDS:
                remove(path)


def _age(path: str) -> float:
    """The seconds since a file, or a folder or any folder in it, has changed."""
    folders = [folder for folder, _ in folders_below(path)] if os.path.isdir(path) else []
    found = [os.lstat(x) for x in (path, *folders)]
    return time.time() - max(max(status.st_mtime, status.st_ctime) for status in found)


def signature(path: str) -> tuple[int, ...] | None:
    """Numbers that change with the file or folder at a path; None if there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def exchange_folders(a: str, b: str) -> None:
    """Exchange two folders: atomically on Linux, elsewhere by three renames."""
    if exchange(a, b):
        return
    aside = f"{part_of(b)}.old"  # where the next write looks for it
    try:
        os.rename(b, aside)
        os.rename(a, b)
    except BaseException:
        if not os.path.lexists(b):
            os.rename(aside, b)
        raise
    with contextlib.suppress(OSError):  # the old folder stays whole under the other name
        os.rename(aside, a)


_MAX_NAME_BYTES = 200  # of at most 255, so that affixes fit


def _short(name: str) -> str:
    """The beginning of a file name that fits with an affix, without splitting a character."""
    while len(os.fsencode(name)) > _MAX_NAME_BYTES:
        name = name[:-1]
    return name
