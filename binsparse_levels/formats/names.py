"""The tables of the names of predefined formats, which explain themselves."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Aliases(dict[str, T]):
    """Predefined formats of Binsparse by name (version 0.1, section 3.5.1).

    A file has the name if the format of its tensor has one. `parse_format` reads these names, and those of SYNONYMS.
    """


class Synonyms(dict[str, str]):
    """Further names of predefined formats, which are only read (Binsparse 0.1, section 3.5.3)."""
