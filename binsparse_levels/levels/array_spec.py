"""The arrays of a level: their names, classes and types."""

from __future__ import annotations

from typing import Literal, NamedTuple


class ArraySpec(NamedTuple):
    """One array of a level: its stored name, its class, and the dimension of the level to which an index belongs.

    holds: `index` (coordinates), `pointer` (the first child of each fiber, and the end of the last), `integer` (other
    integers), `bool`, `byte`, or `word` (uint64). dtype: the type of integers, such as "uint16", in memory and in
    files; by default any. Then `nbytes` takes it instead of `itemsize`, `fused` returns None, and the kind `refuses`
    tensors: numbers that do not fit are a FormatError.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> ArraySpec("offsets_2", "index", 0, "uint8").dtype
    'uint8'
    """

    name: str
    holds: Literal["index", "pointer", "integer", "bool", "byte", "word"]
    dimension: int | None = None
    dtype: str | None = None

    @classmethod
    def pointers(cls, depth: int) -> ArraySpec:
        """The pointers of a level below `depth` dimensions."""
        return cls(f"pointers_to_{depth}", "pointer")
