"""The measures of a tensor in a format: bits, and times in rounds, of the clock and of the processor."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..compute import einsum
from ..compute.traffic import traffic
from ..errors import BinsparseError, within_memory
from ..formats.format import FormatLike
from ..io import open as open_tensor
from ..io import write
from ..limits import Limits
from ..parallel import using_threads
from ..system import processor_name
from ..tensors.changing import in_order
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..version import __version__
from .fibers import limit

_WIDTH = 16  # the size of dimensions that the tensor does not have, and the coordinates of a slice
_POINTS, _POINT_SECONDS = 200, 0.1  # a round looks up entries until it reaches one of the two
_IDLE, _BUSY = 0.8, 1.2  # least and most processor time, per second and per thread, without a warning


@dataclass
class Measured:
    """A tensor in a format: its numbers, the calls to time, and the reasons of failures.

    samples : milliseconds of clock and processor for each round, by the number of threads and the measure.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    samples: dict[tuple[int, str], list[tuple[float, float]]] = field(default_factory=dict)

    def begin(self, name: str, threads: Sequence[int], measure: Callable[[], Any]) -> None:
        """Store a number, or a call to time, which runs once so that it compiles."""
        with self._recording(name):
            made = measure()
            if callable(made):
                for count in threads:
                    with using_threads(count):
                        made()
                self.calls[name] = made
            elif made is not None:
                self.numbers[name] = made

    def time(self, threads: int) -> None:
        """Run a round of all calls."""
        for name, call in list(self.calls.items()):
            with self._recording(name), using_threads(threads):
                clock, processor = time.perf_counter(), time.process_time()
                done = call()
                processor, clock = time.process_time() - processor, time.perf_counter() - clock
                each = 1e3 / (done if name == "point" else 1)
                self.samples.setdefault((threads, name), []).append((each * clock, each * processor))

    @contextlib.contextmanager
    def _recording(self, name: str) -> Iterator[None]:
        """Record a failure, and do not make the call again. A kind of a plug-in may raise anything."""
        try:
            yield
        except Exception as error:
            self.calls.pop(name, None)
            self.failed.append(f"{name}: {reason(error)}")

    def measures(self, names: Sequence[str], threads: int) -> tuple[dict[str, float], dict[str, float]]:
        """The numbers in the order of the names, times as medians; and the facts about the rounds of the times."""
        found: dict[str, float] = {}
        rounds: dict[str, float] = {}
        for name in names:
            if pairs := self.samples.get((threads, name)):
                lower, median, upper = np.percentile(pairs, [25, 50, 75], axis=0).tolist()
                found[name] = median[0]
                rounds |= {f"{name} lower": lower[0], f"{name} upper": upper[0]}
                rounds |= {f"{name} processor": median[1], f"{name} rounds": len(pairs)}
            elif name in self.numbers:
                found[name] = self.numbers[name]
        return found, rounds


def warning_of(measures: Mapping[str, float], rounds: Mapping[str, float], threads: int) -> str:
    """Name the times whose processor time differs from the clock time by more than a fifth."""
    found = []
    for name, processor in rounds.items():
        timed = name.removesuffix(" processor")
        if timed != name and not _IDLE <= (busy := processor / max(measures[timed], 1e-9)) <= _BUSY * threads:
            found.append(f"{timed}: {busy:.2f} of {threads} processors worked")
    return "; ".join(found)


def reason(error: Exception) -> str:
    """The text of an error, in one line."""
    if isinstance(error, BinsparseError):
        return str(error.problems[0])
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"


@within_memory
def measure(
    name: str, source: Tensor, tensor: Tensor, format: FormatLike, path: str, seed: int, limits: Limits
) -> float | Callable[[], Any] | None:
    """Compute a number, or make a call to time. None is a measure that does not apply to the tensor."""
    entries, random = source.number_of_stored_values, np.random.default_rng(seed)
    if name == "limit":
        return limit(source.size, entries) / max(entries, 1)
    if name == "padding":
        return len(tensor.stored.values) / max(entries, 1)
    if name in ("bits", "narrow", "bitpacked"):
        return 8 * _index_bytes(tensor, name) / max(entries, 1)
    if name == "pack":
        return partial(pack, *source.unpack(), source.shape, format, limits=limits)
    if name == "convert":
        return partial(source.convert, format, limits=limits)
    if name == "point":
        coords, values = source.unpack()
        if not len(values):
            return None
        at = random.integers(0, len(values), _POINTS)
        return partial(_look_up, tensor, list(zip(*(x[at].tolist() for x in coords), strict=True)))
    if (dimension := sliced(name)) is not None:
        return _slice(tensor, dimension, path, limits) if dimension < tensor.ndim else None
    equation = name.removeprefix("traffic:")
    first, *others = equation.replace(" ", "").partition("->")[0].split(",")
    if len(first) != tensor.ndim:
        return None
    sizes = dict(zip(first, tensor.shape, strict=True))
    operands = []
    for letters in others:
        shape = [sizes.get(letter, _WIDTH) for letter in letters]
        limits.hold("dense_bytes", 8 * math.prod(shape), letters, "the size in bytes of the operand")
        operands.append(random.random(shape))
    if name != equation:
        return sum(x.bytes for x in traffic(tensor, equation, *operands).values()) / max(entries, 1)
    return partial(einsum, name, tensor, *operands, limits=limits)


def sliced(name: str) -> int | None:
    """The dimension of `slice:DIMENSION`."""
    head, _, dimension = name.partition(":")
    return int(dimension) if head == "slice" and dimension.isdecimal() else None


def _index_bytes(tensor: Tensor, option: str) -> int:
    """The bytes of all arrays but the values, in memory, or as `write` stores them with the option of that name."""
    arrays: dict[str, Any] = dict(tensor.stored.arrays)
    if option == "bits":
        return sum(x.nbytes for x in arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=option == "narrow", bitpacked=option == "bitpacked")
    return sum(x.nbytes for name, x in store.items() if name in arrays)


def _look_up(tensor: Tensor, places: Sequence[tuple[int, ...]]) -> int:
    """Look up entries for at most a tenth of a second, and return their number."""
    end = time.perf_counter() + _POINT_SECONDS
    for done, place in enumerate(places, 1):
        tensor[place]
        if time.perf_counter() > end:
            return done
    return len(places)


def _slice(tensor: Tensor, dimension: int, path: str, limits: Limits) -> Callable[[], Any]:
    """Load the coordinates in the middle of a dimension from a file."""
    write(path, tensor, overwrite=True)
    middle = tensor.shape[dimension] // 2
    opened = open_tensor(path, limits=limits)
    view = opened[(slice(None),) * dimension + (slice(middle, middle + _WIDTH),)]
    return lambda: view[...].load()


def described(name: str, tensor: Tensor) -> dict[str, Any]:
    """The name, shape, type and checksum of a tensor: the SHA-256 of its entries in the order of the coordinates.

    Tensors with the same entries have the same checksum, whatever their formats.
    """
    coords, values = in_order(tensor)
    digest = hashlib.sha256(f"{tensor.shape} {tensor.dtype.name}".encode())
    for array in (*coords, values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    shape, dtype = list(tensor.shape), tensor.dtype.name
    return {"name": name, "shape": shape, "dtype": dtype, "entries": len(values), "sha256": digest.hexdigest()}


def machine() -> dict[str, Any]:
    """The processor with its flags, the system, and the versions of the libraries that the times depend on."""
    import h5py
    import llvmlite  # type: ignore[import-untyped]
    import numba
    from llvmlite import binding

    flags: dict[str, bool] = {}
    with contextlib.suppress(RuntimeError):  # LLVM does not know every system
        flags = binding.get_host_cpu_features()
    return {
        "processor": processor_name(), "target": binding.get_host_cpu_name(),
        "flags": sorted(name for name, has in flags.items() if has), "system": platform.platform(),
        "python": platform.python_version(), **{x.__name__: x.__version__ for x in (np, numba, llvmlite, h5py)},
        "binsparse_levels": __version__,
    }  # fmt: skip


def load() -> float | None:
    """The mean number of running processes in the last minute; None where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
