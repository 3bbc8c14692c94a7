"""Differences of operating systems, one function each. No other module asks for the platform."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
import sys
import threading
from collections.abc import Iterator
from sys import modules
from typing import Any

STANDARD_OUTPUT = "/dev/stdout"  # its path, where it has one
MOST_AT_ONCE = 2**30  # bytes of one read: macOS refuses 2**31 and more
_seeking = threading.Lock()


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """What the system calls its processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def is_running(process: int) -> bool:
    """Whether a process with this number runs on this machine. No signal is sent."""
    if not 0 < process < 2**31:  # 0 and negative numbers mean groups of processes
        return False
    if sys.platform == "win32":  # `os.kill` would end the process, or send it Ctrl-C
        query, refused, still_active = 0x1000, 5, 259
        kernel32 = _kernel32()
        handle = kernel32.OpenProcess(query, False, process)
        if not handle:
            return bool(ctypes.get_last_error() == refused)
        code = ctypes.c_uint32()
        known = kernel32.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
        kernel32.CloseHandle(ctypes.c_void_p(handle))
        return not known or code.value == still_active
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def resident() -> int:
    """The resident memory of this process in bytes; a typical number where the system does not report it."""
    told = None
    if sys.platform == "linux":
        told = _resident_on_linux()
    elif sys.platform == "darwin":
        told = _resident_on_macos()
    elif sys.platform == "win32":
        told = _resident_on_windows()
    return told or 2**27


def release() -> None:
    """Give freed memory back to the system, where a library keeps it: glibc keeps up to 64 MiB for each thread, and
    Arrow what its last tables had (100 MB of tables of 62 MB).
    """
    if (arrow := modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """Allow the process so many bytes beyond its address space, where the system has such a limit."""
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


def _resident_on_linux() -> int | None:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _resident_on_macos() -> int | None:
    basic_info, words = 20, 12  # of four bytes: virtual size (2), resident size (2), times
    info, count = (ctypes.c_uint32 * words)(), ctypes.c_uint32(words)
    try:
        library = ctypes.CDLL(None)
        task = ctypes.c_uint.in_dll(library, "mach_task_self_")
        failed = library.task_info(task, basic_info, info, ctypes.byref(count))
    except (AttributeError, OSError, ValueError):
        return None
    return None if failed else info[2] | info[3] << 32


class _MemoryCounters(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("peak", ctypes.c_size_t),
        ("resident", ctypes.c_size_t),
        ("more", ctypes.c_size_t * 6),
    )


def _resident_on_windows() -> int | None:
    counters = _MemoryCounters(ctypes.sizeof(_MemoryCounters))
    this_process = ctypes.c_void_p(-1)
    told = _kernel32().K32GetProcessMemoryInfo(this_process, ctypes.byref(counters), counters.size)
    return int(counters.resident) if told else None


def exchange(a: str, b: str) -> bool:
    """Exchange two paths atomically. Returns False, without any change, where the system cannot."""
    return _renamed(a, b, 2) == 0


def rename_new(a: str, b: str) -> bool:
    """Rename a file or a folder to a path where nothing is. Returns False, without any change, where something is."""
    error = _renamed(a, b, 1)
    if error in (0, errno.EEXIST):
        return error == 0
    try:
        if os.path.isdir(a) or sys.platform == "win32":
            os.rename(a, b)  # refuses what is there, but for an empty folder
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


def _renamed(a: str, b: str, flags: int) -> int | None:
    """Call renameat2 of Linux with flags. Returns the number of the error, 0 for none, None without this call."""
    if sys.platform != "linux":
        return None
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    at_working_folder = -100
    failed = rename(at_working_folder, os.fsencode(a), at_working_folder, os.fsencode(b), flags)
    return ctypes.get_errno() if failed else 0


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


def begin_to_disk(path: str) -> None:
    """Begin to write a file to the disk, without waiting, where the system can."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(AttributeError, OSError):  # a C library without it; `to_disk` tells of a failure
        begin, write = ctypes.CDLL(None).sync_file_range, 2
        handle = os.open(path, os.O_RDONLY)
        begin(handle, ctypes.c_int64(0), ctypes.c_int64(0), write)
        os.close(handle)


def is_link(status: os.stat_result) -> bool:
    """Whether `status` is that of a symbolic link, or of a junction on Windows."""
    junction = 0xA0000003
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == junction


def is_private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, and nobody else may write to it; True where the system does not tell."""
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def read_at(handle: int, out: Any, at: int) -> int:
    """Read bytes at offset `at` into an array, or a memoryview of bytes, with one system call: MOST_AT_ONCE at most.
    Returns their number, 0 at the end of the file.

    Without `preadv` the file's own offset moves, so no other code may read the file at the same time.
    """
    if hasattr(os, "preadv"):
        return os.preadv(handle, (out,), at)
    into = out if isinstance(out, memoryview) else out.view("u1").data
    with _seeking:
        os.lseek(handle, at, os.SEEK_SET)
        data = os.read(handle, len(into))
    into[: len(data)] = data
    return len(data)


def _kernel32() -> Any:
    windows: Any = ctypes  # mypy knows no `WinDLL` on other systems
    library = windows.WinDLL("kernel32", use_last_error=True)
    library.OpenProcess.restype = ctypes.c_void_p
    return library
