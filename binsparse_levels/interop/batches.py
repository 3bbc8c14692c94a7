"""Batches of rows of a tensor in a shuffled order, for training; workers and processes of a job share them."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ..engine.views import parse_key
from ..errors import FormatError, OptionError, Problem, check_choice, needing, within_memory
from ..formats.format import Format
from ..io import open as open_tensor
from ..io.kinds import StoreLike
from ..levels import full, listing
from ..levels.positions import Array, children_of, items_at
from ..limits import checked_integer
from ..parallel import using_threads
from ..tensors.foreign import check_representable
from ..tensors.tensor import Tensor, inside, remade

BatchFormat: TypeAlias = Literal["torch_csr", "torch", "scipy", "numpy"]


@dataclass(frozen=True)
class _Plan:
    """The rows of each batch, which depend on these options, the epoch and the number of the process only."""

    count: int  # of all rows
    size: int
    shuffle: bool
    block: int
    buffer: int
    seed: int
    drop_last: bool
    world: int  # the number of processes

    @property
    def length(self) -> int:
        """The number of batches of each process."""
        rows = self.count if self.drop_last else self.count + self.world * self.size - 1
        return rows // (self.world * self.size)

    def order(self, epoch: int) -> tuple[Array, int]:
        """The blocks in the order of an epoch, of which a shorter one stays the last, and the first row of block 0."""
        whole = self.count // self.block
        if not self.shuffle:
            return np.arange(whole + 1), 0
        random = np.random.default_rng([self.seed, epoch])
        return np.append(random.permutation(whole), whole), int(random.integers(self.count + 1))

    def rows(self, order: tuple[Array, int], rank: int, buffer: int) -> Array:
        """The rows of a buffer, ascending. The last process continues with the first rows of the order."""
        share = (self.count + (0 if self.drop_last else self.world - 1)) // self.world
        end = min(min((buffer + 1) * self.buffer, self.length) * self.size, share)
        positions = (rank * share + np.arange(buffer * self.buffer * self.size, end)) % self.count
        block, within = np.divmod(positions, self.block)
        rows: Array = np.sort((order[0][block] * self.block + within + order[1]) % self.count)
        return rows

    def turns(self, workers: int) -> Array:
        """The worker of each batch that a DataLoader returns: it asks them in turn, as long as they have batches."""
        buffer, within = np.divmod(np.arange(self.length), self.buffer)
        worker, own = buffer % workers, buffer // workers * self.buffer + within
        turns: Array = worker[np.lexsort((worker, own))]
        return turns


@within_memory
class Batches:
    """Batches of rows, as `batches` makes them. A loop over it is one epoch.

    A DataLoader of PyTorch takes it with `batch_size=None`. With any number of workers, the batches are the same, in
    another order: each worker loads other buffers. Call `set_epoch` before each epoch then, as workers have copies.

    See Also
    --------
    batches : Iterate over batches of rows of a tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> loop = bl.batches(bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR"), 1, format="numpy")
    >>> len(list(loop)), loop.state_dict()["epoch"]
    (2, 0)
    """

    def __init__(self, tensor: Tensor, plan: _Plan, format: BatchFormat, rank: int, rows: bool) -> None:
        self._tensor, self._plan, self._format, self._rank, self._rows = tensor, plan, format, rank, rows
        self._layout = Format((*full(1), *listing(tensor.ndim - 1)))
        self._epoch = self._done = self._skipped = 0
        self._finished = False  # the last loop
        self._worker: int | None = None  # whose buffers are loaded, if this is the copy of one of several workers

    def __len__(self) -> int:
        """The number of batches of this process in an epoch. All processes of a job have equally many."""
        return self._plan.length

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch; of the next one, if the last loop came to its end."""
        self._epoch, self._finished = self._epoch + self._finished, False
        self._done, self._skipped = self._skipped, 0
        return self._loop(self._epoch, self._done)

    def __getitems__(self, rows: Sequence[int]) -> Any:
        """A batch of these rows, in their order, by one read. Rows may be repeated.

        For your own sampler: `DataLoader(range(len(tensor)), 256, sampler=sampler, collate_fn=batches.__getitems__)`.
        """
        (wanted,), _ = parse_key((np.asarray(rows, None if len(rows) else np.int64),), self._tensor.shape[:1])
        ascending, back = np.unique(wanted, return_inverse=True)
        return self._made(ascending, self._loaded(ascending), back)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next loop.

        The epoch of a state that was loaded continues where it was.

        Parameters
        ----------
        epoch : int
            Number of the epoch, which determines the order of the rows.
        """
        if epoch != self._epoch:
            self._epoch, self._skipped = checked_integer("epoch", epoch, 0), 0
        self._done, self._finished = self._skipped, False

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the last loop, from which another loop continues.

        Workers of a DataLoader count their own.

        Returns
        -------
        dict
            The epoch, and the number of batches (`done`).
        """
        return {**asdict(self._plan), "epoch": self._epoch, "done": self._done, "worker": self._worker}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next loop return the rest of an epoch, with the same options and number of workers.

        Parameters
        ----------
        state : mapping
            Result of `state_dict`.

        Raises
        ------
        OptionError
            The state is of batches with other options.
        """
        for name, mine in asdict(self._plan).items():
            if name not in state or state[name] != mine:
                raise OptionError(Problem(name, f"is {mine!r:.40}, and {state.get(name)!r:.40} in the state"))
        epoch, done = (checked_integer(name, state.get(name), 0) for name in ("epoch", "done"))
        self._epoch, self._done, self._skipped, self._finished = epoch, done, done, False
        self._worker = state.get("worker")

    @within_memory
    def _loop(self, epoch: int, skipped: int) -> Iterator[Any]:
        plan, rank, (worker, workers) = self._plan, self._rank, _worker()
        turns, order = plan.turns(workers), plan.order(epoch)
        if skipped and self._worker is not None:
            worker = self._worker
        else:  # a DataLoader asks worker 0 first, which goes on for the one whose turn it is
            worker = int(worker + (turns[:skipped] + 1)[-1:].sum()) % workers
        self._worker = worker if workers > 1 else None
        returned = np.flatnonzero(turns == worker) + 1  # batches of all workers, with each of this one
        own = int(np.searchsorted(returned, skipped, side="right"))

        def load(buffer: int) -> tuple[int, Array, Tensor]:
            rows = plan.rows(order, rank, buffer)
            with using_threads(1) if workers > 1 else contextlib.nullcontext():
                return buffer, rows, self._loaded(rows)

        buffers = range(worker, -(-plan.length // plan.buffer), workers)[own // plan.buffer :]
        with ThreadPoolExecutor(1, "binsparse_levels") as pool:
            loading = [pool.submit(load, buffer) for buffer in buffers[:1]]
            for following in range(1, len(buffers) + 1):
                buffer, rows, part = loading.pop().result()
                loading += [pool.submit(load, buffer) for buffer in buffers[following : following + 1]]
                places = np.arange(len(rows))
                if plan.shuffle:
                    np.random.default_rng([plan.seed, epoch, rank, buffer]).shuffle(places)
                for start in range(own % plan.buffer * plan.size, len(rows), plan.size):
                    self._done, own = int(returned[own]), own + 1
                    yield self._made(rows, part, places[start : start + plan.size])
        self._done, self._finished = plan.length, True

    def _loaded(self, rows: Array) -> Tensor:
        """These rows in memory, each with a list of coordinates. Precondition: they ascend."""
        return self._tensor[rows].without_map().load(self._layout)  # type: ignore[no-any-return]

    def _made(self, rows: Array, part: Tensor, pick: Array) -> Any:
        """The batch of some of the loaded rows, which `rows` numbers."""
        counts, at = children_of(part.arrays["pointers_to_1"], pick)
        columns = [part.arrays[f"indices_{k}"].take(at) for k in range(1, part.ndim)]
        values = np.require(items_at(part.values, at), requirements=["C", "W"])  # an iso tensor repeats one item
        shape = (len(pick), *part.shape[1:])
        if self._format in ("torch", "numpy"):
            made: Any = np.full(shape, inside(part).pad, part.dtype)
            made[(np.repeat(np.arange(len(pick)), counts), *columns)] = values
        else:
            cells = max(self._plan.size, len(pick)) * shape[1]  # so that all batches have the same type of indices
            integer = np.int32 if cells < 2**31 else np.int64
            made = values, columns[0].astype(integer, copy=False), np.append(0, np.cumsum(counts)).astype(integer)
        if self._format == "scipy":
            import scipy.sparse

            made = scipy.sparse.csr_array(made, shape=shape)
        elif self._format != "numpy":
            import torch

            if self._format == "torch":
                made = torch.from_numpy(made)
            else:
                made = torch.sparse_csr_tensor(*map(torch.from_numpy, made[::-1]), shape, check_invariants=False)
        return (made, rows[pick]) if self._rows else made


def _worker() -> tuple[int, int]:
    """The number of this worker of a DataLoader, and of all its workers; (0, 1) outside."""
    data: Any = sys.modules.get("torch.utils.data")
    info = data and data.get_worker_info()
    return (info.id, info.num_workers) if info else (0, 1)


@within_memory
def batches(
    source: Tensor | StoreLike,
    size: int,
    *,
    shuffle: bool = True,
    block: int = 16,
    buffer: int = 64,
    seed: int = 0,
    format: BatchFormat = "torch_csr",
    drop_last: bool = False,
    rows: bool = False,
    rank: int | None = None,
    world: int | None = None,
) -> Batches:
    """Iterate over batches of rows of a tensor, in another random order in each epoch, for training.

    Blocks of adjacent rows are read in a random order. The rows of a buffer of batches are in memory, where they are
    shuffled; a thread reads the next buffer meanwhile. The order depends on `seed` and the epoch only.

    Parameters
    ----------
    source : Tensor or path
        A Tensor, or a path that `open` accepts. Rows are the coordinates of the first dimension, which the format
        should store outermost: others read the whole tensor for each buffer.
    size : int
        The number of rows of a batch. The last batch may have fewer.
    shuffle : bool, default True
        False keeps the order of the rows.
    block : int, default 16
        The number of adjacent rows that are read together. A larger block is faster, and less random.
    buffer : int, default 64
        The number of batches that are shuffled together. A larger buffer is more random.
    seed : int, default 0
        Seed of the order, an integer >= 0.
    format : {'torch_csr', 'torch', 'scipy', 'numpy'}, default 'torch_csr'
        "torch_csr", "scipy" (a `csr_array`), or a dense "torch" or "numpy" array.
    drop_last : bool, default False
        True drops the rows that fill no batch, or not the same number for all processes of a job. By default, the last
        process repeats some of the first rows instead.
    rows : bool, default False
        True returns pairs of a batch and its row numbers, an array of int64.
    rank, world : int, optional
        The number of this process of a job, and of all processes. By default those of `torch.distributed`, if it is
        initialized.

    Returns
    -------
    Batches
        Batches, an iterable. `len` is the number of batches.

    Raises
    ------
    FormatError
        The tensor has fewer than two dimensions, or the library cannot represent its batches.
    OptionError
        An option is invalid, or the library is missing.
    BinsparseError
        See `open`.

    See Also
    --------
    to_torch : Convert a tensor to a sparse tensor of torch.
    to_scipy : Convert a tensor to a sparse array of scipy.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack([[0, 1, 2], [2, 0, 1]], [1.5, 2.5, 3.5], (3, 3), "CSR")
    >>> for batch, numbers in bl.batches(tensor, 2, format="numpy", shuffle=False, rows=True):
    ...     print(batch.tolist(), numbers)
    [[0.0, 0.0, 1.5], [2.5, 0.0, 0.0]] [0 1]
    [[0.0, 3.5, 0.0]] [2]
    """
    check_choice("format", format, BatchFormat)
    tensor = remade(source if isinstance(source, Tensor) else open_tensor(source), labels=None)
    if tensor.ndim < 2:
        raise FormatError(Problem("shape", f"rows require two dimensions, got {tensor.ndim}; call to_dense()"))
    number, processes = _job(rank, world)
    numbers = {name: checked_integer(name, x) for name, x in (("size", size), ("block", block), ("buffer", buffer))}
    numbers |= {"seed": checked_integer("seed", seed, 0), "count": len(tensor), "world": processes}
    plan = _Plan(shuffle=bool(shuffle), drop_last=bool(drop_last), **numbers)
    _check_format(tensor, format, plan.size)
    if (data := sys.modules.get("torch.utils.data")) is not None:
        data.IterableDataset.register(Batches)  # by this class a DataLoader knows what has an order of its own
    return Batches(tensor, plan, format, number, bool(rows))


def _check_format(tensor: Tensor, format: BatchFormat, size: int) -> None:
    """Raise an error if batches cannot have the format."""
    if format in ("torch_csr", "scipy"):
        fits = format != "scipy" or (tensor.dtype.kind in "biufc" and tensor.dtype != np.float16)
        check_representable(tensor, format, ranks=[2], type_fits=fits, structures=True)
    else:
        nbytes = size * math.prod(tensor.shape[1:]) * tensor.dtype.itemsize
        tensor.limits.hold("dense_bytes", nbytes, "size", "the size in bytes of a dense batch")
    if format == "scipy":
        with needing("scipy"):
            import scipy.sparse  # noqa: F401
    elif format != "numpy":
        with needing("torch"):
            import torch
        try:
            torch.from_numpy(np.empty(0, tensor.dtype))
        except TypeError as error:
            raise FormatError(Problem("values", f"torch does not support this type: {error}; call astype()")) from None


def _job(rank: int | None, world: int | None) -> tuple[int, int]:
    """The number of this process, and of all processes of a job. Raises OptionError."""
    distributed: Any = sys.modules.get("torch.distributed")
    if rank is None and world is None:
        if not distributed or not distributed.is_available() or not distributed.is_initialized():
            return 0, 1
        rank, world = distributed.get_rank(), distributed.get_world_size()
    count, number = checked_integer("world", world), checked_integer("rank", rank, 0)
    if number >= count:
        raise OptionError(Problem("rank", f"expected an integer < {count}, got {number}"))
    return number, count
