"""Atomic replacement of files and folders, and the lock for those that are read and written again."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from ..errors import (
    ContainerError,
    PathExistsError,
    Problem,
)
from ..system import drop_lock, exchange, is_running, lock_file, to_disk


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise PathExistsError where the path exists, however it is spelled, unless `overwrite`."""
    if not overwrite and (os.path.lexists(path) or os.path.lexists(os.path.realpath(path))):
        raise PathExistsError(Problem(path, "already exists; pass overwrite=True"))


def remove(path: str) -> None:
    """Remove a file or a folder as far as possible. An interrupt is raised after the removal."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
    except KeyboardInterrupt:
        remove(path)
        raise


@contextlib.contextmanager
def replacing(target: str, *, keep: bool = False) -> Iterator[str]:
    """A path beside `target` to write to. The new file replaces the target atomically when the block ends well.

    keep: the file begins as a copy of the target, which is locked meanwhile. Where the block fails, nothing changes.
    The file is synchronized to the disk before the rename, the folder after it.
    """
    if target.endswith(("/", os.sep)):
        raise ContainerError(Problem(target, "is the path of a folder"))
    target = os.path.realpath(target)
    if os.path.exists(target) and not os.path.isfile(target):
        raise ContainerError(Problem(target, "is a directory, a pipe or a device, and is not replaced"))
    folder, part = os.path.dirname(target), part_of(target)
    with hold_lock(target) if keep else contextlib.nullcontext():
        exists = _is_there(target)
        try:
            try:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except OSError as error:
                raise ContainerError(Problem(target, f"cannot be written: {error.strerror}")) from error
            if keep and exists:
                shutil.copyfile(target, part)
            yield part
            to_disk(part)
            if exists:
                shutil.copymode(target, part)
            os.replace(part, target)
        except BaseException:
            remove(part)
            raise
        to_disk(folder)


@contextlib.contextmanager
def replacing_folder(
    target: str, *, keep: bool = False, copy: Callable[[str, str], Any] = shutil.copy2
) -> Iterator[str]:
    """A folder beside `target` to fill. The new folder replaces the target when the block ends well.

    The replacement is atomic where the system can exchange two folders. keep: the folder begins as a copy of the
    target, file by file by `copy`; the target is locked meanwhile. Where the block fails, nothing changes.
    """
    target = os.path.realpath(target)
    parent, part = os.path.dirname(target), part_of(target)
    with hold_lock(target) if keep else contextlib.nullcontext():
        exists = _is_there(target)
        if exists and not os.path.isdir(target):
            raise PathExistsError(Problem(target, "already exists, and is not a folder"))
        try:
            try:
                if keep and exists:
                    shutil.copytree(target, part, symlinks=True, copy_function=copy)
                else:
                    os.mkdir(part)
            except OSError as error:
                raise ContainerError(Problem(target, f"cannot be written: {error.strerror}")) from error
            yield part
            for folder, _, files in os.walk(part):
                for file in (folder, *(os.path.join(folder, file) for file in files)):
                    to_disk(file)
            if exists:
                _exchange(part, target)
            else:
                os.rename(part, target)
            to_disk(parent)
        finally:
            remove(part)


@contextlib.contextmanager
def same_folder(path: Any) -> Iterator[Callable[[], None]]:
    """A function that raises ContainerError if another folder replaced this one."""
    try:
        handle = os.open(path, os.O_RDONLY) if isinstance(path, str) and os.path.isdir(path) else None
    except OSError:  # a folder cannot be opened everywhere
        handle = None

    def unreplaced() -> None:
        if handle is not None and not (os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path))):
            raise ContainerError(Problem(path, "was replaced while it was read; read it again"))

    try:  # as long as it is open, no other folder gets its number
        yield unreplaced
    finally:
        if handle is not None:
            os.close(handle)


_PATIENCE = 60.0  # seconds that one waits for another


_locked: set[tuple[int, str]] = set()  # by thread


@contextlib.contextmanager
def hold_lock(target: str, patience: float | None = None) -> Iterator[None]:
    """Hold the lock of a target within the block. Other threads and processes that want the lock wait.

    The lock is the system's, on a file beside the target, so a killed process releases it. Without locks in the file
    system, nobody waits. patience: seconds to wait. Raises ContainerError where the lock stays taken for longer.
    """
    target = os.path.realpath(target)
    me = threading.get_ident(), target
    if me in _locked:
        yield
        return
    file: IO[bytes] | None = None
    try:
        file = _take_lock(target, _PATIENCE if patience is None else patience)
        _locked.add(me)
        yield
    finally:
        _locked.discard(me)
        if file is not None:
            drop_lock(file)


def _take_lock(target: str, patience: float) -> IO[bytes] | None:
    """The open and locked file of a lock; None without a folder for it."""
    folder, name = os.path.split(target)
    path, end = os.path.join(folder, f".{_short(name)}{_LOCK}"), time.monotonic() + patience
    while True:
        try:
            file = open(path, "r+b", 0, opener=_create)  # noqa: SIM115 (it is closed by whoever holds it)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ContainerError(Problem(target, f"cannot be locked: {error.strerror}")) from error
        if lock_file(file.fileno()):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()  # its owner has removed it
            continue
        file.close()
        if time.monotonic() > end:
            what = f"another process or thread has been writing it for {patience:.0f} seconds; try again later"
            raise ContainerError(Problem(target, what))
        time.sleep(0.01)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def part_of(target: str) -> str:
    """A temporary name beside the target, with the number of the writing process."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{_short(name)}.{os.getpid()}-{secrets.token_hex(4)}.part")


# What is written or filled (.d: to be zipped), and a folder that stood aside for a new one (.old).
_LEFTOVER = re.compile(r"\.(.+)\.([0-9]+)-[0-9a-f]{8}\.part(\.d|\.old)?", re.DOTALL)


_LOCK = ".binsparse_levels.lock"  # how the name of a lock ends


def clean_folder(folder: str) -> list[tuple[str, str]]:
    """Remove the leftovers of killed writers from a folder. Returns each path and its outcome.

    Files of a running process of this machine are kept. A tensor that was set aside returns to its empty place.
    Raises ContainerError for a path that is not a folder.
    """
    found = []
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        raise ContainerError(Problem(ascii(folder), f"cannot be cleaned: {error}")) from None
    for name in names:
        if name.startswith(".") and name.endswith(_LOCK):
            found.append((os.path.join(folder, name), _clean_lock(os.path.join(folder, name[1 : -len(_LOCK)]))))
            continue
        match = _LEFTOVER.fullmatch(name)
        if match is None:
            continue
        path, target = os.path.join(folder, name), os.path.join(folder, match[1])
        if is_running(int(match[2])):
            found.append((path, f"kept, process {match[2]} is writing it"))
        elif match[3] == ".old" and len(os.fsencode(match[1])) > _LONGEST - 4:
            found.append((path, "kept, its own name was cut short"))
        else:
            try:
                found.append((path, _clean_up(path, target if match[3] == ".old" else None)))
            except OSError as error:
                found.append((path, f"kept: {error}"))
    return found


def _clean_lock(target: str) -> str:
    """Remove a lock that nobody holds. Returns the outcome."""
    try:
        with hold_lock(target, 0):
            return "removed"
    except ContainerError:
        return "kept, a process holds it"


def _clean_up(path: str, target: str | None) -> str:
    """Remove a leftover, or put it back where its place is empty. Returns the outcome."""
    if target is not None and not os.path.lexists(target):
        os.rename(path, target)
        return f"put back as {target}"
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return "removed"


def _is_there(path: str) -> bool:
    """Whether the path exists. Raises ContainerError for an impossible path."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be written: {error.strerror}")) from error
    return True


def _exchange(a: str, b: str) -> None:
    """Exchange two folders: atomically on Linux, elsewhere by two renames."""
    if exchange(a, b):
        return
    aside = f"{a}.old"
    try:
        os.rename(b, aside)
        os.rename(a, b)
    except BaseException:
        if not os.path.lexists(b):
            os.rename(aside, b)
        raise
    remove(aside)


_LONGEST = 200  # bytes


def _short(name: str) -> str:
    """The beginning of a file name, short enough for an affix: a name has at most 255 bytes. Characters stay whole."""
    while len(os.fsencode(name)) > _LONGEST:
        name = name[:-1]
    return name
