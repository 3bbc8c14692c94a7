"""Atomic replacement of files and folders, and the lock for those that are read and written again."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout

from ..errors import BinsparseError, ContainerError, OptionError, PathExistsError, Problem
from ..parallel import each
from ..system import begin_to_disk, exchange, is_running, rename_new, to_disk
from .base import FULL, is_url

Overwrite: TypeAlias = bool | Literal["file"]  # replace the tensor that is there, or all of the file
Others: TypeAlias = Callable[[str], Collection[str]]  # the names of what a path holds beside a tensor at its root
_Signature: TypeAlias = tuple[int, int, int, int]

_LISTED = 8  # names in a message
_WAITING = 4  # threads that wait for the disk
_DISK = FULL | {errno.EIO, errno.EROFS}


def real_path(path: str) -> str:
    """The absolute path without links. Raises ContainerError for links in a circle, or a deleted working folder."""
    try:
        real = os.path.realpath(path)
    except FileNotFoundError:
        raise ContainerError(Problem(path, "the working folder was deleted; pass an absolute path")) from None
    if os.path.islink(real):
        raise ContainerError(Problem(path, "is a symbolic link in a circle; remove it, or choose another path"))
    return real


def refuse_existing(path: str, overwrite: Overwrite, others: Others | None = None) -> None:
    """Raise PathExistsError where the path exists, however it is spelled, unless `overwrite`.

    others: lists what the path holds beside the tensor that is replaced; there only "file" overwrites.
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
        what = f"cannot be listed ({error.problems[0].message}); pass overwrite='file' to replace all of it"
        raise PathExistsError(Problem(path, what)) from error
    refuse_losing(path, there)


def refuse_losing(path: str, there: Sequence[str]) -> None:
    """Raise PathExistsError that names what a path holds beside a tensor, if it holds anything."""
    if there:
        names = ", ".join(f"{name!r:.40}" for name in there[:_LISTED]) + ", …" * (len(there) > _LISTED)
        what = f"holds more than a tensor: {names}; pass overwrite='file' to lose these, or name a group (PATH:/)"
        raise PathExistsError(Problem(path, what))


def keeps(path: str, group: str | None, overwrite: Overwrite, others: Others) -> bool:
    """Whether a write has to keep what a file or folder holds, which is a copy of it all.

    A tensor at the root that is alone there is written into a new file instead. Raises OptionError.
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
def replacing(path: str, overwrite: Overwrite, *, keep: bool = False, others: Others | None = None) -> Iterator[str]:
    """A path beside `path` to write to. The new file takes its place atomically when the block ends well.

    overwrite, others: as for `refuse_existing`. keep: the file begins as a copy of the old one, which is locked
    meanwhile. Where the block fails, nothing changes. The file is synchronized to the disk before the rename, the
    folder after it. Nothing that another program has put there meanwhile is replaced, unless `overwrite`.
    """
    if path.endswith(("/", os.sep)):
        raise ContainerError(Problem(path, "is the path of a folder"))
    target = real_path(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise ContainerError(Problem(path, "is a directory, a pipe or a device, and is not replaced"))
    with _placing(path, target, overwrite, keep, others) as (part, before, place):
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if keep and before is not None:
            shutil.copyfile(target, part)
        yield part
        to_disk(part)
        if before is not None:
            with contextlib.suppress(FileNotFoundError):  # another program has removed it
                shutil.copymode(target, part)
        place(os.replace)


@contextlib.contextmanager
def replacing_folder(
    path: str, overwrite: Overwrite, *, keep: bool = False, others: Others | None = None
) -> Iterator[str]:
    """A folder beside `path` to fill. The new folder takes its place when the block ends well.

    The replacement is atomic where the system can exchange two folders. keep: the folder begins with hard links to the
    files of the old one, which are to be replaced and not changed. The other parameters are those of `replacing`.
    """
    target = real_path(path)
    with _placing(path, target, overwrite, keep, others) as (part, before, place):
        if before is not None and not os.path.isdir(target):
            raise PathExistsError(Problem(path, "already exists, and is not a folder"))
        if keep and before is not None:
            shutil.copytree(target, part, symlinks=True, copy_function=_link)
        else:
            os.mkdir(part)
        yield part
        _all_to_disk(part)
        place(exchange_folders)


def _all_to_disk(folder: str) -> None:
    """Flush a folder and all in it. Threads wait for the disk together: for 14 files and folders 17 ms where one after
    another took 68, and 20 to 23 while the disk was fast.
    """
    there = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in ("", *names)]
    paths = [path for path in there if not os.path.islink(path)]
    for path in paths:
        begin_to_disk(path)
    each(to_disk, paths, _WAITING)


@contextlib.contextmanager
def _placing(
    path: str, target: str, overwrite: Overwrite, keep: bool, others: Others | None
) -> Iterator[tuple[str, _Signature | None, Callable[[Callable[[str, str], None]], None]]]:
    """The path of a part, the signature of what is at the target, and a function that puts the part there.

    Its argument is the call that replaces a path by another. Errors that tell of the part tell of the path; those of
    the system become ContainerError.
    """
    part = part_of(target)

    def place(replace: Callable[[str, str], None]) -> None:
        now = _signature(target)
        if before is None and (keep or not overwrite):
            if not rename_new(part, target):
                what = "another program has made it meanwhile, and it is kept; write to another path"
                raise PathExistsError(Problem(path, what))
        else:
            if keep and now != before:
                raise ContainerError(Problem(path, "another program has changed it meanwhile; try again"))
            if now not in (None, before) and others is not None and overwrite is True:
                _refuse_others(path, target, others)
            (os.rename if now is None else replace)(part, target)
        to_disk(os.path.dirname(target))

    if is_url(path):
        raise ContainerError(Problem(path, "is written on a local disk only; copy it from there, or write a .zarr"))
    with hold_lock(target) if keep else contextlib.nullcontext():
        try:
            before = _signature(target)
            if not keep:
                refuse_existing(path, overwrite, others)
            yield part, before, place
        except BinsparseError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
                raise _unwritten(path, error.__cause__) from error
            named = [Problem(fault.path.replace(part, path), fault.message) for fault in error.problems]
            if named == [*error.problems]:
                raise
            raise type(error)(named) from error
        except OSError as error:
            about = isinstance(error.filename, str) and (error.filename == target or error.filename.startswith(part))
            if not (about or error.errno in _DISK):
                raise
            raise _unwritten(path, error) from error
        finally:
            remove(part)


def _unwritten(path: str, error: OSError) -> ContainerError:
    remedy = "make room" if error.errno in _DISK else "check the rights"
    remedy = "make the folder" if isinstance(error, FileNotFoundError) else remedy
    what = f"cannot be written: {error.strerror}; nothing has changed; {remedy} or choose another path"
    return ContainerError(Problem(path, what))


def write_text(path: str | os.PathLike[str], text: str, overwrite: bool) -> None:
    """Write a text into a file, atomically. Raises PathExistsError unless `overwrite`, ContainerError."""
    with replacing(os.fspath(path), overwrite) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def same_folder(path: Any) -> Iterator[Callable[[], None] | None]:
    """A function that raises ContainerError if another folder replaced this one; None for what is no folder."""
    if not isinstance(path, str) or not os.path.isdir(path):
        yield None
        return
    path = os.path.abspath(path)  # the working folder may change
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a folder cannot be opened everywhere
        yield None
        return

    def unreplaced() -> None:
        if not (os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path))):
            raise ContainerError(Problem(path, "was replaced while it was read; read it again"))

    try:  # as long as it is open, no other folder gets its number
        yield unreplaced
    finally:
        os.close(handle)


_PATIENCE = 60.0  # seconds that a process waits for another


_LOCKLESS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}  # of a file system without locks
_locked: set[tuple[int, str]] = set()  # by thread


@contextlib.contextmanager
def hold_lock(target: str, patience: float | None = None) -> Iterator[None]:
    """Hold the lock of a target within the block. Other threads and processes that want the lock wait.

    The lock is the system's, on a file beside the target, so a killed process releases it. Without
    locks in the file system, nobody waits. patience: seconds to wait. Raises ContainerError where the lock stays taken
    for longer.
    """
    target = real_path(target)
    folder, name = os.path.split(target)
    me = threading.get_ident(), target
    if me in _locked or not os.path.isdir(folder):
        yield
        return
    patience = _PATIENCE if patience is None else patience
    lock = FileLock(os.path.join(folder, f".{_short(name)}{_LOCK}"), mode=0o666)
    try:
        lock.acquire(timeout=patience, poll_interval=0.01)
    except Timeout:
        what = f"another process or thread has been writing it for {patience:.0f} seconds; try again later"
        raise ContainerError(Problem(target, what)) from None
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise ContainerError(Problem(target, f"cannot be locked: {error.strerror}")) from error
    _locked.add(me)
    try:
        yield
    finally:
        _locked.discard(me)
        with contextlib.suppress(OSError):  # no file is removed on Windows as long as it is open
            os.unlink(lock.lock_file)  # whoever waits for it notices, and takes a new one
        lock.release()


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
    outcomes = []
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        raise ContainerError(Problem(ascii(folder), f"cannot be cleaned: {error}")) from None
    for name in names:
        if name.startswith(".") and name.endswith(_LOCK):
            outcomes.append((os.path.join(folder, name), _clean_lock(os.path.join(folder, name[1 : -len(_LOCK)]))))
            continue
        match = _LEFTOVER.fullmatch(name)
        if match is None:
            continue
        path, target = os.path.join(folder, name), os.path.join(folder, match[1])
        if is_running(int(match[2])):
            outcomes.append((path, f"kept, process {match[2]} is writing it"))
        elif match[3] == ".old" and len(os.fsencode(match[1])) > _LONGEST - 4:
            outcomes.append((path, "kept, its own name was cut short"))
        else:
            try:
                outcomes.append((path, _clean_up(path, target if match[3] == ".old" else None)))
            except OSError as error:
                outcomes.append((path, f"kept: {error}"))
    return outcomes


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


def _signature(path: str) -> _Signature | None:
    """What changes with a file or folder at a path; None where there is nothing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _link(source: str, target: str) -> None:
    """A hard link, or a copy where the system has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)


def exchange_folders(a: str, b: str) -> None:
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
