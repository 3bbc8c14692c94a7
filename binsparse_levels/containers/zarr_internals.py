"""Functions of zarr that are not public.

`sync` runs a coroutine on zarr's event loop: stores are asynchronous, and zarr has no public function that calls them
from synchronous code. `default_buffer_prototype` is a required argument of `Store.get`. `range_in` gives the first and
the last byte of a request for a range, for stores that send whole objects only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage._utils import _normalize_byte_range_index as range_in

__all__ = ["awaiting_writes", "default_buffer_prototype", "range_in", "sync"]


@contextlib.contextmanager
def awaiting_writes() -> Iterator[None]:
    """After an error, wait for pending writes of zarr: they would write into a folder that is being removed."""

    async def settle() -> None:
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    try:
        yield
    except BaseException:
        sync(settle())
        raise
