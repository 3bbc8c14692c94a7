"""Tensors times formats: bits, times and errors of results, with a record of the machine that measured them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .. import system
from ..errors import OptionError, Problem, check_choice, within_memory
from ..formats.format import FormatLike
from ..io import read
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..parallel import get_threads
from ..progress import Progress, reporter
from ..tensors.changing import expanded, in_order
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_type
from . import runs
from .machine import bandwidth, machine, origin
from .measuring import MEASURES, Build, Setup, Source, What, is_known, stored
from .measuring import measure as measured
from .rows import Row, Sweep
from .sizes import name_of, named_formats
from .timing import Measured

MEASURED = ("bits", "narrow", "bitpacked", "limit", "padding")  # unless others are named
_Cache = Literal["warm", "cold"]


@within_memory
def sweep(
    tensors: Any,
    formats: FormatLike | Build | Iterable[FormatLike | Build] | Mapping[str, FormatLike | Build],
    measure: What | Sequence[What] | Mapping[str, What] = MEASURED,
    *,
    baselines: Mapping[str, Callable[[Tensor], Any]] | None = None,
    sizes: Mapping[str, int] | None = None,
    operands: Mapping[str, FormatLike] | None = None,
    dtype: npt.DTypeLike | None = None,
    narrow: bool = False,
    cache: _Cache = "warm",
    repeat: int = 5,
    threads: int | Sequence[int] | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | bool | None = None,
) -> Sweep:
    """Store tensors in formats, and measure bits and times. A format that refuses a tensor is a row with its reason.

    Every result is compared with that of the source tensor. A format with a wrong result is a refused row, whose error
    is in the column `error`. A round measures every format once with each number of threads. The first call compiles,
    and is not counted. A measure that does not apply to the rank of a tensor, or to what a function returns, is left
    out. A measure that fails leaves the others of its row.

    Parameters
    ----------
    tensors : Tensor, or several of these
        A tensor, a list, or a mapping from names. A tensor may be an array of another library, or the path of any file
        that `open` takes, such as .mtx and .tns.gz.
    formats : str, Format, callable, or several of these
        A notation, a list, or a mapping from names, such as ``{"BCSR 2×4": "dense, sparse, dense(2) through 0/2, 1/4,
        0%2, 1%4"}``. A function of a tensor is a format, too. It returns a tensor, or another object that measures
        take: an einsum calls its method ``einsum(spec, *operands)``, or else the object with the operands, and "bytes"
        is its `nbytes`.
    measure : str, callable, or several of these, default MEASURED
        Bits of index arrays for each entry, in memory ("bits") and in files ("narrow", "bitpacked"), and the
        information limit of the entries ("limit"); bits of values for each entry, as a dictionary where that is
        smaller ("dictionary"); bytes of all arrays ("bytes") and number of values ("padding") for each entry.
        Milliseconds to "pack" entries, to "convert" the tensor, to load 16 coordinates in the middle of a dimension
        from a file ("slice:0"), of an `einsum` whose first operand is the tensor, such as "ij,j->i", and of a function
        of what is stored, such as ``{"SpGEMM": lambda t: t @ t, "value": lambda t: t[3, 5]}``.
    baselines : mapping of str to callable, optional
        Functions of a tensor by name, such as ``{"scipy": lambda t: to_scipy(t).__matmul__}``. Each returns a function
        of the operands, which is timed for einsums. The rows follow those of the formats.
    sizes : mapping of str to int, optional
        Sizes of the indices of an einsum that the tensor does not have, such as ``{"k": 32}``; by default 16.
    operands : mapping of str to str or Format, optional
        The formats of stored operands by their indices, such as ``{"jk": "CSR"}``; the result is then stored. By
        default, operands are arrays.
    dtype : dtype_like, optional
        Types of the values, the operands and the results; by default those of the tensor, random float64, and the sums.
    narrow : bool, default False
        Convert to formats with the smallest sufficient integers, as `Tensor.convert` does.
    cache : str or PathLike, default 'warm'
        State of the caches of the processor. "warm": a call is repeated, first without being timed; "cold": other data
        fill the caches before each call. Files stay in the memory of the system.
    repeat : int, default 5
        The number of rounds.
    threads : int or sequence of int, optional
        The number of threads, or several, each of which has its own rows; by default `get_threads()`.
    seed : int, default 0
        The seed of the operands, and of the entries that are looked up.
    store : str or PathLike, optional
        The path of a file of JSON lines, which gets the rows of each tensor when they are measured. A run that was
        killed continues from there when it is repeated.
    limits : Limits, optional
        The limits of every tensor; by default its own.
    progress : bool or callable, optional
        Called with "sweeping", the number of finished tensors, and their total. True draws a bar on standard error,
        where that is a terminal or a notebook.

    Returns
    -------
    Sweep
        The rows, with a record of the machine and of the tensors.

    Raises
    ------
    OptionError
        There is no such measure, an option is out of range, or `store` belongs to another sweep or machine.
    BinsparseError
        A tensor cannot be read.

    See Also
    --------
    advise : Rank formats by size.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")
    >>> [(row.format, dict(row.measures)) for row in bl.sweep({"a": tensor}, ["CSR", "COO"], ["bits"]).rows]
    [('CSR', {'bits': 96.0}), ('COO', {'bits': 64.0})]
    >>> rows = bl.sweep(tensor, "COO", {"SpMM": "ij,jk->ik"}, sizes={"k": 2}, repeat=1).rows
    >>> rows[0].error, rows[0].facts["SpMM operations"]
    (0.0, 8)
    """
    if (as_integer(seed) or 0) < 0:
        raise OptionError(Problem("seed", f"expected a number from 0 on, got {seed}"))
    check_choice("cache", cache, _Cache)
    counts = get_threads() if threads is None else threads
    (rounds,) = _positive("repeat", [repeat])
    counts = _positive("threads", counts if isinstance(counts, Sequence) else [counts])
    free = dict(zip(sizes, _positive("sizes", [*sizes.values()]), strict=True)) if sizes else {}
    named, values = dict(named_formats(formats)), None if dtype is None else checked_type(dtype)
    options = counts, rounds, cache, seed, free, operands or {}, values, narrow
    setup = Setup(_measures(measure), named, baselines or {}, *options)
    record = {**machine(), "load": [system.load()], **{name: _plain(value) for name, value in vars(setup).items()}}
    finished = [] if store is None else runs.begin(os.fspath(store), record)
    record |= {"tensors": [], "bandwidth": bandwidth() if any(map(_is_product, setup.measures.values())) else None}
    rows: list[Row] = []
    report, total = reporter(progress), len(tensors) if isinstance(tensors, list | tuple | Mapping) else 1
    for done, (name, tensor) in enumerate(_named(tensors, setup.dtype, limits)):
        record["tensors"].append(facts := described(name, tensor))
        if done >= len(finished):
            found = _rows(name, Source(tensor, setup, limits or tensor.limits))
            if store is not None:
                runs.append(store, {"tensor": facts, "rows": list(map(asdict, found))})
        elif finished[done]["tensor"] == facts:
            found = [Row(**row) for row in finished[done]["rows"]]
        else:
            raise OptionError(Problem("store", f"{store} has another tensor than {name}; pass another path"))
        rows += found
        if report is not None:
            report("sweeping", done + 1, total)
    record["load"].append(system.load())
    return Sweep(tuple(rows), tuple(setup.measures), record)


def _measures(given: Any) -> dict[str, What]:
    """The measures by name."""
    listed = [given] if isinstance(given, str) or callable(given) else given
    found = {}
    for name, what in listed.items() if isinstance(listed, Mapping) else ((None, x) for x in listed):
        if not is_known(what):
            known = f"they are {', '.join(MEASURES)}, einsums and functions"
            raise OptionError(Problem("measure", f"{what!r:.60} is no measure; {known}"))
        found[name_of(what) if name is None else str(name)] = what
    return found


def _is_product(what: What) -> bool:
    return isinstance(what, str) and "->" in what


def _positive(name: str, numbers: Sequence[Any]) -> tuple[int, ...]:
    found = tuple(as_integer(x) or 0 for x in numbers)
    if min(found, default=0) < 1:
        raise OptionError(Problem(name, f"expected a number from 1 on, got {numbers!r:.40}"))
    return found


def _plain(option: Any) -> Any:
    """An option as JSON. A function is its origin, and a format its notation."""
    if isinstance(option, Mapping):
        return {str(key): _plain(x) for key, x in option.items()}
    if isinstance(option, tuple):
        return list(option)
    return origin(option) if callable(option) else option if isinstance(option, int | None) else str(option)


def _named(tensors: Any, dtype: Any, limits: Limits | None) -> Iterator[tuple[str, Tensor]]:
    listed = tensors if isinstance(tensors, list | tuple) else [tensors]
    pairs = tensors.items() if isinstance(tensors, Mapping) else [(_name(k, x), x) for k, x in enumerate(listed)]
    for name, x in pairs:
        tensor = read(x, limits=limits or DEFAULT_LIMITS) if isinstance(x, str | os.PathLike) else as_tensor(x)
        whole = expanded(tensor.load()).without_map(limits=limits)
        yield str(name), whole if dtype is None else whole.astype(dtype)


def _name(number: int, tensor: Any) -> str:
    return os.path.basename(tensor) if isinstance(tensor, str | os.PathLike) else f"tensor {number}"


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


def _rows(name: str, source: Source) -> list[Row]:
    setup = source.setup
    products = [label for label, what in setup.measures.items() if _is_product(what)]
    every = [(*pair, list(setup.measures)) for pair in setup.formats.items()]
    every += [(*pair, products) for pair in setup.baselines.items()]
    found = [Measured() for _ in every]
    with tempfile.TemporaryDirectory() as folder:
        for number, (made, (_, format, labels)) in enumerate(zip(found, every, strict=True)):
            with made.recording():
                tensor = stored(source, format)
                for label in labels:
                    call = partial(measured, label, source, tensor, format, f"{folder}/{number}.h5")
                    made.begin(label, setup.threads, call, (source.tensor, tensor))
        for _ in range(setup.rounds):
            for made in found:
                for count in setup.threads:
                    made.time(count, setup.cache == "cold")
        for made in found:
            made.calls = {}  # which close the files
    rows = []
    for (label, _, labels), made in zip(every, found, strict=True):
        for count in setup.threads:
            numbers, facts = made.measures(labels, count)
            refused = "; ".join(made.failed)
            rows.append(Row(name, label, count, source.entries, numbers, made.error, refused, facts, made.marks))
    return rows
