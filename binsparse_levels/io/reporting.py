"""Report on a tensor in a file, whatever state the file is in."""

from __future__ import annotations

import os

from ..containers.base import is_url
from ..errors import BinsparseError, LimitError, OptionError, PathMissingError, within_memory
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.page import size_of
from ..tensors.report import Report, report_on, report_on_faults
from .kinds import Place, name_of, split_place
from .reading import describe, open


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
        with open(place, limits=limits) as tensor:
            return report_on(tensor, title, stored, where)
    except (PathMissingError, OptionError, LimitError):
        raise
    except BinsparseError as error:
        return report_on_faults(title, error.problems, where)


def _where(place: Place) -> str:
    """The path, and the size of a local file."""
    path, _ = split_place(place)
    if not isinstance(path, str) or is_url(path) or not os.path.isfile(path):
        return name_of(place)
    return f"{name_of(place)}, a file of {size_of(os.path.getsize(path))}"
