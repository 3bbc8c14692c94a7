"""What this package uses of zarr that zarr does not call public, and what would do instead.

`sync` runs a coroutine on zarr's event loop: stores are asynchronous, and zarr offers no other way to call them from
plain code. `default_buffer_prototype` is an argument of `Store.get`: a default there would do. `range_in` gives the
first and the last byte that a request for a range means, for stores that have whole objects.
"""

from __future__ import annotations

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage._utils import _normalize_byte_range_index as range_in

__all__ = ["default_buffer_prototype", "range_in", "sync"]
