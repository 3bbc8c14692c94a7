"""Differences of operating systems, one function each. No other module checks the platform."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import logging  # noqa: F401 (a fork takes its lock after ours: who holds ours may log)
import os
import platform
import stat
import sys
import threading
from collections.abc import Iterator
from sys import modules
from typing import Any

STANDARD_OUTPUT = "/dev/stdout"  # on systems that have this path
MAX_READ_BYTES = 2**30  # bytes of one read: macOS refuses 2**31 and more
_seeking = threading.Lock()


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """The name of the processor, as reported by the system."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def own_cores() -> list[int] | None:
    """The numbers of the processor cores that this process may use; None if the system does not report them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


@functools.cache
def reported_sizes() -> dict[str, int]:
    """The sizes of caches and memory in bytes or pages, by the names of the C library."""
    names = [x for x in getattr(os, "sysconf_names", ()) if "CACHE_SIZE" in x]
    return {name: os.sysconf(name) for name in [*names, "SC_PHYS_PAGES", "SC_PAGE_SIZE"] if hasattr(os, "sysconf")}


def load() -> dict[str, float]:
    """The mean number of running processes in the last minute, and the frequency in MHz, as the system reports them."""
    found = {"processes": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/cpuinfo", encoding="utf-8") as file:
        found["MHz"] = float(next(line for line in file if line.startswith("cpu MHz")).partition(":")[2])
    return found


def resident() -> int:
    """The resident memory of this process in bytes; a typical number if the system does not report it."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 2**27


def available() -> int | None:
    """The bytes of memory that this process can still get, by the system and by the limits of its container and of the
    process; None if the system reports nothing.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        found.append(1024 * _field("/proc/meminfo", "MemAvailable:"))
    with contextlib.suppress(OSError, ValueError, StopIteration):
        group = "/sys/fs/cgroup/memory."
        used = _field(f"{group}stat", "anon") + _field(f"{group}stat", "shmem")
        found.append(_field(f"{group}max", "") - used)
    with contextlib.suppress(OSError, ValueError, ImportError):
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        if (most_bytes := resource.getrlimit(resource.RLIMIT_AS)[0]) >= 0:
            found.append(most_bytes - now)
    return max(min(found), 0) if found else None


def _field(path: str, name: str) -> int:
    """The number after a name in a file of the system. Raises OSError, ValueError, StopIteration."""
    with open(path) as file:
        return next(int(line.removeprefix(name).split()[0]) for line in file if line.startswith(name))


def release() -> None:
    """Return freed memory to the system. glibc keeps up to 64 MiB per thread, and Arrow the memory of its last tables
    (100 MB for tables of 62 MB).
    """
    if (arrow := modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def exchange(a: str, b: str) -> bool:
    """Exchange two paths atomically. Returns False, without any change, if the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    at_working_folder, exchanging = -100, 2
    return bool(rename(at_working_folder, os.fsencode(a), at_working_folder, os.fsencode(b), exchanging) == 0)


def rename_new(a: str, b: str) -> bool:
    """Rename a file or a folder to a new path. Returns False, without any change, if the path exists."""
    try:
        if os.path.isdir(a) or sys.platform == "win32":
            os.rename(a, b)  # refuses an existing path, except an empty folder
        else:
            os.link(a, b)
            os.unlink(a)
    except OSError as failure:
        if failure.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        if os.path.lexists(b) or os.path.isdir(a):
            raise
        os.rename(a, b)  # the file system has no hard links
    return True


@contextlib.contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """Limit the address space of the process to its current size plus `more` bytes, if the system supports it."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more if soft < 0 else min(soft, now + more), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def to_disk(path: str) -> None:
    """Flush a file or a folder to the disk."""
    flags = os.O_RDONLY
    if sys.platform == "win32":  # Windows flushes only files that are open for writing
        flags = os.O_RDWR
    try:
        handle = os.open(path, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not os.path.isdir(path):  # some systems cannot open a folder
            raise


LOCKS: list[Any] = []  # for which a fork waits: a new process has no thread that would release them
_locked: list[Any] = []


def _lock_all() -> None:
    for lock in LOCKS:  # a thread may add one while it holds another
        lock.acquire()
        _locked.append(lock)


def _release_all() -> None:
    while _locked:
        _locked.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock_all, after_in_parent=_release_all, after_in_child=_release_all)


def is_link(status: os.stat_result) -> bool:
    """Return True for the status of a symbolic link, or of a junction on Windows."""
    junction = 0xA0000003
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == junction


def is_private(status: os.stat_result) -> bool:
    """Return True if the file belongs to this user and no other user may write to it, or if that is unknown."""
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def read_at(handle: int, out: Any, at: int) -> int:
    """Read bytes at offset `at` into an array, or a memoryview of bytes, with one system call: at most MAX_READ_BYTES.
    Returns their number, 0 at the end of the file.

    Without `preadv` the file's own offset moves, so no other code may read the file at the same time.
    """
    if hasattr(os, "preadv"):
        return os.preadv(handle, (out,), at)
    buffer = out if isinstance(out, memoryview) else out.view("u1").data
    with _seeking:
        os.lseek(handle, at, os.SEEK_SET)
        data = os.read(handle, len(buffer))
    buffer[: len(data)] = data
    return len(data)
