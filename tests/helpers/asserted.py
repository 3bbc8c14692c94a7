"""What is asserted while laws run: calls that threads share change disjoint items, and trees are what they declare."""

import contextlib
import types
from dataclasses import fields, is_dataclass
from unittest import mock

import numpy as np

from binsparse_levels import parallel
from binsparse_levels.engine.tree import Tree, length_problems
from binsparse_levels.tensors.backing import TreeBacking
from binsparse_levels.thresholds import Thresholds

# Values of thresholds with which small data take other paths.
SMALL = {
    "numpy_entries": [-1, 3], "first_entries": [-1, 10], "thread_bytes": [1, 64], "searched_fibers": [0, 1],
    "search_items": [1, 2], "short_items": [0, 1], "counted_entries": [0, 1], "checked_bytes": [1], "checked_numbers":
    [1], "split_bits": [1, 2], "bucket_records": [1, 2], "run_records": [1, 2], "cached_bytes": [0, 16], "head_entries":
    [1, 2], "piece_items": [1, 2], "checked_items": [1, 2], "verified_items": [1, 3], "checked_labels": [1],
    "block_entries": [1, 2, 5], "part_entries": [1, 2, 4], "long_fiber": [0, 1, 2**62],
    "parts_per_thread": [1, 2],
    "parts": [2, 3], "copies": [1, 2], "copy_cost": [0, 1], "reserved_bytes": [0, 64], "map_digits": [0, 2],
    "table_size": [0, 3], "counted_values": [0],
    "row_entries": [1, 2], "sizes_per_entry": [0], "extra_sizes": [0, 1], "zarr_chunk": [1, 2], "bucket_chunk": [1, 2],
    "deflated_chunk": [1, 2],
    "zarr_shard": [1, 4], "hdf5_chunk": [1, 2], "read_gap_bytes": [0, 8], "gap_bytes": [0, 8], "fetched_bytes": [1, 8],
    "sent_bytes": [1, 8], "spooled_bytes": [1], "cached_reads": [1, 2**40], "cached_chunks": [0, 1], "remote_bytes":
    [64], "step_entries": [1, 2, 5], "step_bytes": [1, 64], "shard_items": [1, 2], "sampled_entries": [1],
    "position_entries": [0], "decoded_rows": [1, 2], "chunk_rows": [1, 2], "streamed_rows": [1, 2], "labelled_rows": [1,
    2], "text_bytes": [1, 7], "formatted_rows": [1, 2], "looked_items": [1, 2],
}  # fmt: skip
assert set(SMALL) == {field.name for field in fields(Thresholds)}


@contextlib.contextmanager
def asserted():
    """Assert what calls and trees promise, within the block."""
    with (
        mock.patch.object(parallel, "each", _one_by_one),
        mock.patch.object(Tree, "__init__", _checked),
        mock.patch.object(Tree, "loaded", _from_file(Tree.loaded)),
        mock.patch.object(TreeBacking, "load", _from_file(TreeBacking.load)),
    ):
        yield


def _one_by_one(call, items, threads=None):
    """`parallel.each` without threads: no two calls change the same item of an array that they share."""
    arrays = _writable(call)
    changed, made = [np.zeros(x.shape, bool) for x in arrays], []
    for item in items:
        before = [x.copy() for x in arrays]
        made.append(call(item))
        for x, old, already in zip(arrays, before, changed, strict=True):
            with np.errstate(invalid="ignore"):  # of NaN that signal
                now = (x != old) & ((x == x) | (old == old))
            assert not (now & already).any(), f"{call.__qualname__}: two calls change an item"
            already |= now
    return made


def _writable(*roots):
    """The arrays that functions and objects refer to, and may change."""
    found, seen, left = [], set(), list(roots)
    while left:
        x = left.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, np.ndarray):
            found += [x] if x.flags.writeable and x.dtype != object else []
        elif isinstance(x, types.FunctionType):
            left += [cell.cell_contents for cell in x.__closure__ or ()]
        elif isinstance(x, types.MethodType):
            left.append(x.__self__)
        elif isinstance(x, tuple | list):
            left += x
        elif isinstance(x, dict):
            left += x.values()
        elif is_dataclass(x) or type(x).__module__.startswith("binsparse_levels."):
            left += getattr(x, "__dict__", {}).values()
    return found


_init = Tree.__init__
_reading = []


def _from_file(method):
    """A method that reads trees from a file, and checks them itself."""

    def read(*args):
        _reading.append(method)
        try:
            return method(*args)
        finally:
            _reading.pop()

    return read


def _checked(self, *args, **options):
    """Make a tree, whose levels keep every invariant if they are in memory: sorted, unique, with the right lengths.

    The entries of a list for nests alone may be in any order.
    """
    _init(self, *args, **options)
    arrays = (*self.arrays.values(), self.values)
    if not self.lazy and not _reading and all(isinstance(x, np.ndarray) for x in arrays):
        problems, _ = length_problems(self.levels, self.dims, self.arrays, len(self.values))
        problems = problems or list(self.check(order=self.ascends is None))
        assert not problems, problems
        if self.ascends:
            first = self.arrays["indices_0"]
            assert (first[1:] >= first[:-1]).all()
