"""The report on a tensor: one HTML page that says what it is, where its bytes go, and what is wrong with it.

A tensor in a file is read in parts where its levels allow it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..containers.base import is_url
from ..errors import BinsparseError, LimitError, OptionError, PathExistsError, PathMissingError, Problem, within_memory
from ..io import Place, describe
from ..io import open as open_tensor
from ..io.kinds import name_of, split_place
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.tensor import Tensor
from . import page, sections
from .faults import all_faults, faults_of
from .page import size_of

_AT_ONCE = 2**20  # items that are checked at once


@dataclass(frozen=True)
class Report:
    """A page about a tensor. A notebook shows it, and `write` makes a file of it: no scripts, nothing that is loaded.

    Parameters
    ----------
    title : the name of the tensor.
    body : the HTML of the page.
    faults : the faults of the tensor; none if it is sound.
    """

    title: str
    body: str
    faults: tuple[Problem, ...] = ()

    @property
    def html(self) -> str:
        """The whole page."""
        return page.page(self.title, self.body)

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page into a file. Raises FileExistsError unless `overwrite`."""
        try:
            with open(path, "w" if overwrite else "x", encoding="utf-8") as file:
                file.write(self.html)
        except FileExistsError:
            raise PathExistsError(Problem(os.fspath(path), "already exists; pass overwrite=True")) from None

    def __repr__(self) -> str:
        return f"<Report on {self.title}; write(path) makes a page of it>"

    def _repr_html_(self) -> str:
        return page.inline(self.body)


@within_memory
def report(place: Place, *, limits: Limits = DEFAULT_LIMITS) -> Report:
    """The report on the tensor at PATH[:GROUP]. A damaged file gives a report that lists the faults.

    Raises PathMissingError, LimitError, and OptionError for a wrong call.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> report(store).faults
    ()
    """
    title, where = os.path.basename(name_of(place).rstrip("/")), _where(place)
    try:
        stored = {name: info.nbytes for name, info in describe(place, limits=limits).arrays.items()}
        with open_tensor(place, limits=limits) as tensor:
            return report_on(tensor, title, stored, where)
    except (PathMissingError, OptionError, LimitError):
        raise
    except BinsparseError as error:
        return report_on_faults(title, all_faults(place, error.problems, limits), where)


def report_on(
    tensor: Tensor, title: str = "Tensor", stored: Mapping[str, int] | None = None, place: str = ""
) -> Report:
    """The report on a tensor. stored: the bytes of each array in its file. place: where the file is.

    Faults are listed, not raised. Raises LimitError where memory does not suffice.
    """
    if tensor._held.viewed:
        tensor = tensor.load()
    faults = faults_of(tensor)
    if not faults:
        try:
            return Report(title, sections.all_of(title, tensor, stored, place))
        except LimitError:
            raise
        except BinsparseError as error:  # such as values whose chunks are damaged
            faults = error.problems
    return Report(title, sections.beside_faults(title, tensor, faults, stored, place), tuple(faults))


def report_on_faults(title: str, faults: Sequence[Problem], place: str = "") -> Report:
    """The report on a file of which not even the header can be read."""
    return Report(title, sections.of_faults(title, faults, place), tuple(faults))


def _where(place: Place) -> str:
    """The path, and the size of a local file."""
    path, _ = split_place(place)
    if not isinstance(path, str) or is_url(path) or not os.path.isfile(path):
        return name_of(place)
    return f"{name_of(place)}, a file of {size_of(os.path.getsize(path))}"
