"""The rounds of a sweep: every call of every format is timed in each. Its first result is compared."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..engine.tree import alike
from ..errors import ArrayError, BinsparseError, Problem
from ..formats.format import coordinates
from ..levels.base import Array
from ..parallel import uncollected, using_threads
from ..tensors.changing import in_order
from ..tensors.foreign import as_operand
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside
from .machine import evict
from .measuring import Timed, nbytes_of

_SECONDS = 0.01  # of the calls of a round that fill warm caches, and of those that are timed


@dataclass
class Measured:
    """A tensor in a format: its numbers, the calls to time, the reasons of failures, and the marks of measures.

    samples : milliseconds of processor and clock for each round, by the number of threads and the measure.
    error : the largest error of a result. wrong : True if a result differs from that of the source.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    calls: dict[str, Timed] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[int, str], list[tuple[float, float]]] = field(default_factory=dict)
    error: float | None = None
    wrong: bool = False

    def begin(self, name: str, threads: Sequence[int], measure: Callable[[], float | Timed | None], own: Any) -> None:
        """Store a number, or a call to time, which runs once: it compiles, and its result is compared.

        own: the tensors whose arrays a result should not share.
        """
        with self.recording(f"{name}: "):
            made = measure()
            if not isinstance(made, Timed):
                self.numbers |= {} if made is None else {name: made}
                return
            for count in threads:
                with using_threads(count):
                    result = made.call()
                if result is not None and made.wanted is not None:
                    self._compare(name, result, *made.wanted())
            if mark := "; ".join(filter(None, [made.mark, _shared(result, own)])):
                self.marks[name] = mark
            if made.work[0]:
                moved = made.work[1] + (nbytes_of(result) or 0)
                self.numbers |= {f"{name} operations": made.work[0], f"{name} bytes": moved}
            self.calls[name] = made

    def _compare(self, name: str, result: Any, wanted: Any, terms: Any) -> None:
        error = error_of(result, wanted, terms)
        self.error = max(error, self.error or 0.0)
        dtype = result.dtype if hasattr(result, "dtype") else np.asarray(result).dtype
        if error > (float(np.finfo(dtype).eps) ** 0.5 if dtype.kind in "fc" else 0.0):  # half of the digits
            self.wrong = True
            self.failed.append(f"{name}: the result differs from that of the source by {error:.2g}")

    def time(self, threads: int, cold: bool) -> None:
        """Run a round of all calls. A call that fails is not made again."""
        for name in list(self.calls):
            timed = self.calls.pop(name)
            with self.recording(f"{name}: "), using_threads(threads):
                self.samples.setdefault((threads, name), []).append(sample(timed.call, cold))
                self.calls[name] = timed

    @contextlib.contextmanager
    def recording(self, where: str = "") -> Iterator[None]:
        """Record a failure. A kind of a plug-in may raise anything."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
            self.failed.append(where + (str(error.problems[0]) if isinstance(error, BinsparseError) else text))

    def measures(self, names: Sequence[str], threads: int) -> tuple[dict[str, float], dict[str, float]]:
        """The numbers in the order of the names, times as medians; and the facts about the times."""
        found: dict[str, float] = {}
        facts: dict[str, float] = {}
        for name in () if self.wrong else names:
            if pairs := self.samples.get((threads, name)):
                lower, median, upper = np.percentile(pairs, [25, 50, 75], axis=0).tolist()
                found[name] = median[0]
                facts |= {f"{name} lower": lower[0], f"{name} upper": upper[0], f"{name} clock": median[1]}
                facts |= {x: self.numbers[x] for x in (f"{name} operations", f"{name} bytes") if x in self.numbers}
            elif name in self.numbers:
                found[name] = self.numbers[name]
        return found, facts


def sample(call: Callable[[], Any], cold: bool) -> tuple[float, float]:
    """Milliseconds of processor and clock of one call.

    Cold, other data fill the caches before a single call. Warm, calls that are not timed fill them, so that a time does
    not depend on what ran before: SpMV of 600,000 entries is 1.5 times slower at first, and settles after six calls.
    """
    with uncollected:  # the collector would visit what other formats have left
        if cold:
            evict()
        else:
            _repeated(call, _SECONDS)
        clock = time.perf_counter()
        done, processor = _repeated(call, 0 if cold else _SECONDS)
        return 1e3 * processor / done, 1e3 * (time.perf_counter() - clock) / done


def _repeated(call: Callable[[], Any], seconds: float) -> tuple[int, float]:
    """Call until the processor has worked for that long, at least once: the number of calls, and its time."""
    begin, done = time.process_time(), 0
    while True:
        call()
        done += 1
        if (taken := time.process_time() - begin) >= seconds:
            return done, taken


def _shared(result: Any, tensors: Sequence[Any]) -> str:
    """Name the arrays of a result that share memory with a tensor."""
    own, *others = (_arrays(x) for x in (result, *tensors))
    whole = [x for arrays in others for x in arrays.values()]
    names = [name for name, array in own.items() if any(np.may_share_memory(array, x) for x in whole)]
    return f"shares {', '.join(names)}" if names else ""


def _arrays(thing: Any) -> dict[str, Any]:
    return {**inside(thing).source.arrays, "values": inside(thing).source.values} if isinstance(thing, Tensor) else {}


def error_of(made: Any, wanted: Any, terms: Any = None) -> float:
    """The largest difference of two results, relative to `terms`, the sums of the magnitudes of what was added.

    A result is an array, a number, a tensor, or a sparse array of another library. Two tensors are compared in the
    cells that either stores. Without `terms`, differences are relative to the largest number of `wanted`. Raises
    ArrayError for different shapes, and for results that are no arrays.
    """
    results = [as_operand(x) for x in ((made, wanted) if terms is None else (made, wanted, terms))]
    if not all(isinstance(x, Tensor) for x in results):
        results = [x.to_dense() if isinstance(x, Tensor) else np.asarray(x) for x in results]
    if results[0].dtype.kind == "O" or results[0].shape != results[1].shape:
        what = f"a result is {type(made).__qualname__} {getattr(made, 'shape', '')}".rstrip()
        raise ArrayError(Problem("", f"{what}; return an array or a tensor of shape {results[1].shape}"))
    first, second, *sums = _cells(results) if isinstance(results[0], Tensor) else results
    with np.errstate(all="ignore"):
        same = alike(first, second)
        if same.all():
            return 0.0
        work = np.result_type(first.dtype, second.dtype, np.float64)
        difference = np.abs(np.subtract(first, second, dtype=work))
        relative = np.where(same, 0, difference / (sums[0] if sums else np.abs(second.astype(work)).max()))
    return float(np.where(np.isnan(relative), np.inf, relative).max())


def _cells(tensors: Sequence[Tensor]) -> list[Array]:
    """The values of each tensor in all cells that any of them stores."""
    shape, listed = tensors[0].shape, [in_order(x) for x in tensors]
    if not shape:
        return [values for _, values in listed]
    coords, lists = [np.concatenate(x) for x in zip(*(x for x, _ in listed), strict=True)], coordinates(len(shape))
    union, _ = pack(coords, True, shape, lists, duplicates="first").unpack()
    found = []
    for tensor, (own, values) in zip(tensors, listed, strict=True):
        at = pack(own, values, shape, lists).locate(union)
        found.append(np.append(values, inside(tensor).pad)[at])  # the last where nothing is stored
    return found
