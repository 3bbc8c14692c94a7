"""A process that works through many items under a limit of memory, watched from outside.

A crash or a hang ends the process, is put down to the item that it was at, and the rest goes on in a new one.
"""

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # waiting for a disk shows nothing more


def limit_memory(more: int = 3 * 2**30) -> None:
    """Let this process have that much address space beyond what it has."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def work(items: Sequence[Any], attempt: Callable[[Any], Any], first: int) -> None:
    """The side of the worker: tell on standard output where it is, and what each item came to."""
    for k in range(first, len(items)):
        print(f"{k}", flush=True)
        print(json.dumps(attempt(items[k])), flush=True)
    os._exit(0)  # threads that still wait are not waited for


def watch(module: str, arguments: Sequence[str], *, patience: float = 60) -> Iterator[tuple[int, Any]]:
    """The other side: the number of each item and its result, `crash` and the signal, or `hang`."""
    first = 0
    while True:
        command = [sys.executable, "-m", f"{FOLDER.name}.{module}", *arguments, "--first", str(first)]
        path = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": path}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            at, ended = first - 1, ""
            for line in _lines(process, patience):
                if line is None:
                    process.kill()
                    ended = "hang"
                elif line.isdigit():
                    at = int(line)
                else:
                    yield at, json.loads(line)
                    first = at + 1
        if process.returncode == 0:
            return
        if at < first:
            raise RuntimeError(f"{module} ended with {process.returncode} before its first item")
        yield at, ended or f"crash {signal.Signals(-process.returncode).name if process.returncode < 0 else ''}"
        first = at + 1


def _processor(process: int) -> float:
    """The seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lines(process: "subprocess.Popen[bytes]", patience: float) -> Iterator[str | None]:
    """What it prints, line by line; None where nothing comes in so many seconds of a processor, or 20 times so many."""
    assert process.stdout
    begin, end = 0.0, time.monotonic() + 20 * patience
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(patience):
                if _processor(process.pid) < begin + patience and time.monotonic() < end:
                    continue  # it waits for a processor
                yield None
                return
            begin, end = _processor(process.pid), time.monotonic() + 20 * patience
            data = os.read(process.stdout.fileno(), 2**16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode() for line in whole)
