"""The report on a tensor: one HTML page that says what it is, where its bytes go, and what is wrong with it.

A tensor in a file is read in parts where its levels allow it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..containers.base import is_url
from ..errors import BinsparseError, LimitError, OptionError, PathMissingError, Problem, within_memory
from ..io import Place, describe
from ..io import open as open_tensor
from ..io.kinds import name_of, split_place
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.tensor import Tensor
from . import page, sections
from .faults import all_faults, faults_of
from .page import size_of
from .reported import Report


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
            return _paged(title, sections.all_of(title, tensor, stored, place))
        except LimitError:
            raise
        except BinsparseError as error:  # such as values whose chunks are damaged
            faults = error.problems
    return _paged(title, sections.beside_faults(title, tensor, faults, stored, place), faults)


def report_on_faults(title: str, faults: Sequence[Problem], place: str = "") -> Report:
    """The report on a file of which not even the header can be read."""
    return _paged(title, sections.of_faults(title, faults, place), faults)


def _where(place: Place) -> str:
    """The path, and the size of a local file."""
    path, _ = split_place(place)
    if not isinstance(path, str) or is_url(path) or not os.path.isfile(path):
        return name_of(place)
    return f"{name_of(place)}, a file of {size_of(os.path.getsize(path))}"


def _paged(title: str, body: str, faults: Sequence[Problem] = ()) -> Report:
    return Report(title, page.page(title, body), page.inline(body), tuple(faults))
