"""What this package uses of zarr that zarr does not call public, and what would do instead.

`sync` runs a coroutine on zarr's event loop: stores and groups are asynchronous, and zarr offers no other way to call
them from plain code. `default_buffer_prototype` is an argument of `Store.get`: a default there would do. `members_of`
asks for many members at once: a public `Group.get` of several names would do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from zarr import Group
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

__all__ = ["default_buffer_prototype", "members_of", "sync"]


async def members_of(group: Group, names: Sequence[str]) -> list[Any]:
    """The asynchronous array or group of each name, or the exception that zarr raises for it."""
    return list(await asyncio.gather(*map(group._async_group.getitem, names), return_exceptions=True))
