"""The sizes at which the package takes another path: a kernel instead of numpy, threads, blocks, parts, pieces.

The paths give the same results, so a threshold changes time and memory alone. All are fields of one record. Tests set
them by `using_thresholds`, so that small data take every path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Thresholds:
    """Thresholds by room, with units and reasons. Bytes and items are those of one array."""

    # kernels and threads
    numpy_entries: int = 2**13  # that numpy handles within a millisecond
    first_entries: int = 2**22  # that numpy handles in half of the time that loading numba takes; compiling takes more
    thread_bytes: int = 2**21  # of the work of a thread, at least: about 100 µs, twice the time to wake it

    # levels
    searched_fibers: int = 16  # in which the ends of a window are searched one by one; more fibers are read whole
    search_items: int = 512  # of a file, below which a search would need more reads than it saves
    short_items: int = 2**14  # of a fiber in a file, which is read without a search
    counted_entries: int = 400  # of a fiber, above which a search for its end is faster than reading
    checked_bytes: int = 2**17  # of a mask that are checked together: their counts stay in the cache
    checked_numbers: int = 2**17  # of an Elias-Fano code that are checked together, for the same reason

    # engine
    split_bits: int = 10  # of a partition, at most
    bucket_records: int = 3_000  # in a bucket on average, at most; at least half of that
    run_records: int = 2**15  # that are sorted and emitted together: 512 KiB, which stay in the L2 cache
    cached_bytes: int = 2**24  # that stay in the last cache while entries are written to any place of them
    head_entries: int = 64  # that are checked for order before the others
    piece_items: int = 2**20  # of an array that is joined and written in pieces
    checked_items: int = 2**18  # of an array in memory while a level is checked
    verified_items: int = 2**20  # of a file that are checked together, or read for a checksum

    # labels
    checked_labels: int = 2**16  # that are in memory while they are checked or compared

    # compute
    block_entries: int = 2**20  # of a file at a time: larger blocks are not faster
    part_entries: int = 2**20  # of a part at least: it runs for 0.5 ms, a hundred times longer than its call
    long_fiber: int = 8  # entries on average, above which sums are reordered, and factors applied once
    parts_per_thread: int = 4  # if parts share a result; they are uneven, because fibers differ
    parts: int = 16  # of entries, at most
    copies: int = 8  # of a result, at most, if parts change copies of it
    copy_cost: int = 8  # entries of a part in the time of a copied and merged item
    reserved_bytes: int = 2**30  # of copies of which only a row is used
    table_size: int = 2**20  # of a dimension, at most, of whose selected coordinates a loop has a table: 8 MB
    map_digits: int = 256  # of an index map, at most, if each is a statement in the text of a nest
    counted_values: int = 2**14  # of a product whose accesses Python counts in less time than its loops are compiled
    row_entries: int = 2**14  # of a part of a product of two tensors, at least
    sizes_per_entry: int = 8  # rows and columns of a factor for each entry, above which it has only those with entries
    extra_sizes: int = 2**16  # rows and columns beyond these

    # containers
    zarr_chunk: int = 2**16  # items: a small slice reads little
    bucket_chunk: int = 2**11  # items, in an object store: 25 MB → 1.3 MB for 50 values at scattered places of 2.5 M
    zarr_shard: int = 2**20  # items: a large array needs few files
    hdf5_chunk: int = 2**17  # items, without compression or for small files: smaller chunks are slow, or compress less
    deflated_chunk: int = 2**13  # items, with gzip: 20 rows in a fifth of the time that 2**17 take
    read_gap_bytes: int = 2**12  # between items that one read covers
    gap_bytes: int = 2**15  # between two parts of one request
    fetched_bytes: int = 2**26  # that are fetched before they are used
    sent_bytes: int = 2**26  # of items that are encoded before they are sent
    spooled_bytes: int = 2**26  # of an object that are in memory; a longer one is sent from the disk
    cached_reads: int = 16  # a read is cached if so many of its size fit: a larger one would evict the others
    cached_chunks: int = 2  # of a read, which are cached if they fit
    remote_bytes: int = 2**21  # of a block of a remote HDF5 file: 3 requests open an .h5ad of 0.8 GB

    # building
    step_entries: int = 0  # of a step; 0: as many as the memory allows
    step_bytes: int = 2**25  # that one step writes, before compression
    shard_items: int = 2**20  # of a shard, at least
    sampled_entries: int = 2**16  # of a partition that is too large
    position_entries: int = 2**20  # positions that fit into the memory of every process
    decoded_rows: int = 2**16  # that are decoded together from a Parquet file
    chunk_rows: int = 2**21  # of a table at most, so that there is work for many processes
    streamed_rows: int = 2**17  # of a batch from DuckDB
    labelled_rows: int = 2**20  # whose labels are numbered together
    text_bytes: int = 2**22  # of a text that are parsed together
    formatted_rows: int = 2**17  # that are written to a text file together

    # looking
    looked_items: int = 2**20  # entries, items or children that are counted together


THRESHOLDS = Thresholds()


@contextlib.contextmanager
def using_thresholds(**values: int) -> Iterator[None]:
    """Set thresholds of this process by name within the block.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> with using_thresholds(block_entries=4):
    ...     THRESHOLDS.block_entries
    4
    """
    before = {name: getattr(THRESHOLDS, name) for name in values}
    try:
        for name, value in values.items():
            setattr(THRESHOLDS, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(THRESHOLDS, name, value)
