"""Arrays of one dimension into a store: whole objects, encoded by threads."""

from __future__ import annotations

from functools import partial

from ...arrays import Pieces
from .chunks import Chunks
from .stores import PartStore

_BATCH = 2**26  # bytes of items that are encoded before they are sent


def write(store: PartStore, chunks: Chunks, pieces: Pieces, start: int = 0) -> None:
    """Write the objects of an array from item `start` on. Precondition: there an object begins."""
    step = max(_BATCH // (chunks.per_file * chunks.dtype.itemsize), 1)
    number = start // chunks.per_index // chunks.chunk
    for piece in pieces.regrouped(chunks.per_file, start):
        parts = [piece[at : at + chunks.per_file] for at in range(0, len(piece), chunks.per_file)]
        for at in range(0, len(parts), step):
            batch = enumerate(parts[at : at + step], number + at)
            store.put_all([(f"{chunks.folder}/{k}", partial(chunks.encoded, part)) for k, part in batch])
        number += len(parts)


def extend(store: PartStore, chunks: Chunks, old: int, pieces: Pieces) -> None:
    """Extend an array of `old` items: write the new items, and again the object in which the old ones end."""
    write(store, chunks, pieces, old // chunks.per_file * chunks.per_file)
