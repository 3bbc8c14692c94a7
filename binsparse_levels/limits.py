"""Limits on what a file may ask for; each can be raised by whoever trusts the file."""

from dataclasses import dataclass

from .errors import LimitError, Problem

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call. Passing one raises LimitError, which names it.

    rank: dimensions of a tensor (numpy's own limit is 64). nesting: levels of a tree, and of brackets in JSON.
    header_bytes: length of the JSON header. array_bytes: any one array that is read. dense_bytes: what a dense level
    makes without an entry asking for it: pointers, padding, `to_dense`.
    """

    rank: int = 64
    nesting: int = 256
    header_bytes: int = 2**20
    array_bytes: int = 2**36
    dense_bytes: int = 2**34

    def hold(self, limit: str, asked: int, path: str, what: str) -> None:
        """Raise LimitError where `asked` passes the limit of that name."""
        allowed = getattr(self, limit)
        if asked > allowed:
            raise LimitError(Problem(path, f"{what} is {asked}, more than the limit {limit}={allowed}"))


DEFAULT_LIMITS = Limits()
