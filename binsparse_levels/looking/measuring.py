"""The measures of a tensor in a format: numbers, and calls to time, whose results are those of the source."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from ..compute import einsum
from ..errors import ArrayError, OptionError, Problem, within_memory
from ..formats.format import FormatLike, coordinates
from ..io import open as open_tensor
from ..io import write
from ..levels.base import Level
from ..limits import Limits
from ..tensors.packing import pack, pack_dense
from ..tensors.tensor import Tensor
from .fibers import limit

What: TypeAlias = str | Callable[[Any], Any]  # a measure: its name, or a function of the stored tensor
Build: TypeAlias = Callable[[Tensor], Any]  # stores a tensor, or makes another object that computes with it
Results: TypeAlias = tuple[Any, Any]  # a result of the source, and the sums of the magnitudes of its terms or None

_BITS = ("bits", "narrow", "bitpacked")
MEASURES = (*_BITS, "dictionary", "bytes", "limit", "padding", "pack", "convert", "slice:0", "ij,j->i")
_WIDTH = 16  # the size of dimensions that the tensor does not have, and the coordinates of a slice


@dataclass(frozen=True)
class Setup:
    """The options of `sweep` that all tensors share."""

    measures: Mapping[str, What]
    formats: Mapping[str, FormatLike | Build]
    baselines: Mapping[str, Build]
    threads: tuple[int, ...]
    rounds: int
    cache: str
    seed: int
    sizes: Mapping[str, int]
    operands: Mapping[str, FormatLike]
    dtype: np.dtype[Any] | None
    narrow: bool


@dataclass(frozen=True)
class Timed:
    """A call to time, and a function that makes the result of the source, if there is one to compare.

    work : the operations of a call, and the bytes of its input; (0, 0) if unknown.
    mark : the reason why the time says little about the format.
    """

    call: Callable[[], Any]
    wanted: Callable[[], Results] | None
    work: tuple[int, int] = (0, 0)
    mark: str = ""


class Source:
    """A tensor to store, with the operands and results that all of its formats share."""

    def __init__(self, tensor: Tensor, setup: Setup, limits: Limits) -> None:
        self.tensor, self.setup, self.limits = tensor, setup, limits
        self.entries = tensor.number_of_stored_values
        self._operands: dict[str, list[Any]] = {}
        self._results: dict[What, Results] = {}

    @cached_property
    def _listed(self) -> Tensor:
        """The tensor as a list of coordinates, whose loops are the simplest."""
        return self.tensor.convert(coordinates(self.tensor.ndim)) if self.tensor.ndim else self.tensor

    def sizes(self, letters: str) -> dict[str, int]:
        """The sizes of indices. letters: of the tensor, then of others."""
        free = {x: self.setup.sizes.get(x, _WIDTH) for x in letters[self.tensor.ndim :]}
        return free | dict(zip(letters, self.tensor.shape, strict=False))

    def operands(self, spec: str) -> list[Any]:
        """The operands of an einsum next to the tensor: random, and stored where a format was passed."""
        if spec not in self._operands:
            random, dtype = np.random.default_rng(self.setup.seed), self.setup.dtype
            first, *others = _indices(spec)
            sizes, made = self.sizes(first + "".join(others)), list[Any]()
            for name in others:
                shape = [sizes[x] for x in name]
                self.limits.hold("dense_bytes", 8 * math.prod(shape), name, "the size in bytes of the operand")
                whole = random.random(shape) if dtype is None or dtype.kind in "fc" else random.integers(1, 9, shape)
                whole = whole if dtype is None else whole.astype(dtype)
                made.append(pack_dense(whole, self.setup.operands[name]) if name in self.setup.operands else whole)
            self._operands[spec] = made
        return self._operands[spec]

    def result(self, what: What) -> Results:
        """The result of an einsum, from the list of coordinates, or of a function of the tensor."""
        if what not in self._results:
            self._results[what] = self._product(what) if isinstance(what, str) else (what(self.tensor), None)
        return self._results[what]

    def _product(self, spec: str) -> Results:
        listed, operands = self._listed, self.operands(spec)
        made = terms = einsum(spec, listed, *operands, limits=self.limits)
        if listed.dtype.kind == "c" or (listed.values < 0).any():  # no operand has negative numbers
            terms = einsum(spec, listed.with_values(np.abs(listed.values)), *operands, limits=self.limits)
        return made, terms


def is_known(what: Any) -> bool:
    """True for a function, and for a text that is a measure."""
    if not isinstance(what, str):
        return callable(what)
    return what in MEASURES or "->" in what or (what.startswith("slice:") and what[6:].isdecimal())


@within_memory
def measure(name: str, source: Source, made: Any, format: FormatLike | Build, path: str) -> float | Timed | None:
    """Compute a number, or make a call to time. None is a measure that does not apply.

    made: the tensor in a format, or what a function made of it. path: of a file that may be written.
    """
    what, tensor, entries = source.setup.measures[name], source.tensor, max(source.entries, 1)
    if callable(what):
        return Timed(partial(what, made), partial(source.result, what))
    if "->" in what:
        return _product(what, source, made) if len(_indices(what)[0]) == tensor.ndim else None
    if what == "limit":
        return limit(tensor.size, source.entries) / entries
    if what == "bytes":
        return None if (nbytes := nbytes_of(made)) is None else nbytes / entries
    same = (lambda: (tensor, None)) if isinstance(made, Tensor) else None
    if what == "convert":
        return Timed(partial(stored, source, format), same)
    if not isinstance(made, Tensor):
        return None
    if what == "padding":
        return len(made.stored.values) / entries
    if what in _BITS:
        return 8 * _index_bytes(made, what) / entries
    if what == "dictionary":
        return 8 * _value_bytes(made) / entries
    if what != "pack":
        dimension = int(what.removeprefix("slice:"))
        return _slice(source, made, dimension, path) if dimension < tensor.ndim else None
    if callable(format):
        return None
    options = {"fill_value": tensor.fill_value, "limits": source.limits}
    return Timed(partial(pack, *tensor.unpack(), tensor.shape, format, **options), same)


def stored(source: Source, format: FormatLike | Build) -> Any:
    """The tensor in a format, or what a function makes of it."""
    tensor, narrow = source.tensor, source.setup.narrow
    return format(tensor) if callable(format) else tensor.convert(format, narrow=narrow, limits=source.limits)


def nbytes_of(thing: Any) -> int | None:
    """The bytes of all arrays of a tensor, or of another object with `nbytes`; None if it does not say."""
    found = thing.stored.nbytes if isinstance(thing, Tensor) else getattr(thing, "nbytes", None)
    return None if found is None else int(found)


def _indices(spec: str) -> list[str]:
    """The letters of each operand."""
    return spec.replace(" ", "").partition("->")[0].split(",")


def _product(spec: str, source: Source, made: Any) -> Timed:
    """An einsum of a tensor, by the method `einsum` of another object, or by a call of that object."""
    operands, mark = source.operands(spec), ""
    if isinstance(made, Tensor):
        call = partial(einsum, spec, made, *operands, dtype=source.setup.dtype, limits=source.limits)
        mark = _lacking(made, "no loop, so its entries are unpacked", lambda level: level.loop(root=False) is None)
    elif hasattr(made, "einsum") or callable(made):
        call = partial(made.einsum, spec, *operands) if hasattr(made, "einsum") else partial(made, *operands)
    else:
        what = f"{type(made).__qualname__} has no einsum(spec, *operands) and is no function; add one of these"
        raise ArrayError(Problem("", what))
    letters, own = "".join(_indices(spec)), nbytes_of(made)
    iterations = source.entries * math.prod(source.sizes(letters).values()) // max(source.tensor.size, 1)
    work = 0 if own is None else (1 + len(operands)) * iterations
    return Timed(call, partial(source.result, spec), (work, sum(x.nbytes for x in operands) + (own or 0)), mark)


def _lacking(tensor: Tensor, what: str, lacks: Callable[[Level], bool]) -> str:
    """Name the levels with arrays that lack a method."""
    found = [level for level in tensor.stored.format.levels if level.arrays(0, root=False) and lacks(level)]
    return ", ".join(f"{level} has {what}" for level in found)


def _index_bytes(tensor: Tensor, option: str) -> int:
    """The bytes of all arrays but the values, in memory, or as `write` stores them with the option of that name."""
    arrays: dict[str, Any] = dict(tensor.stored.arrays)
    if option == "bits":
        return sum(x.nbytes for x in arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=option == "narrow", bitpacked=option == "bitpacked")
    return sum(x.nbytes for name, x in store.items() if name in arrays)


def _value_bytes(tensor: Tensor) -> int:
    """The bytes of the values as a dictionary, or as they are if that is not larger."""
    tensor = tensor.stored
    with contextlib.suppress(OptionError):
        tensor = tensor.convert(tensor.format, dictionary=True)
    return tensor.nbytes - _index_bytes(tensor, "bits")


def _slice(source: Source, made: Tensor, dimension: int, path: str) -> Timed:
    """Load the coordinates in the middle of a dimension from a file."""
    write(path, made, overwrite=True)
    middle = made.shape[dimension] // 2
    key = (slice(None),) * dimension + (slice(middle, middle + _WIDTH),)
    view = open_tensor(path, limits=source.limits)[key]
    mark = _lacking(made, "no part, so it is read whole", lambda level: type(level).part is Level.part)
    return Timed(lambda: view[...].load(), lambda: (source.tensor[key].load(), None), mark=mark)
