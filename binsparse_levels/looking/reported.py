"""The page that a report is."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..containers.replacing import write_text
from ..errors import Problem


@dataclass(frozen=True, repr=False)
class Report:
    """A page about a tensor. A notebook shows it, and `write` makes a file of it: no scripts, nothing that is loaded.

    Parameters
    ----------
    title : the name of the tensor.
    html : the whole page.
    piece : what a notebook shows, with its own style.
    faults : the faults of the tensor; none if it is sound.
    """

    title: str
    html: str
    piece: str
    faults: tuple[Problem, ...]

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page into a file, atomically. Raises FileExistsError unless `overwrite`; ContainerError."""
        write_text(path, self.html, overwrite)

    def __repr__(self) -> str:
        return f"<Report on {self.title}; write(path) makes a page of it>"

    def _repr_html_(self) -> str:
        return self.piece
