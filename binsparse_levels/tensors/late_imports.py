"""Late imports of functions in higher layers, which the package registers, and the methods of Tensor that call them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ContainerError, OptionError, Problem
from ..formats.format import FormatLike
from ..limits import Limits

Axis: TypeAlias = int | str | Sequence[int | str] | None

_registered: list[tuple[Callable[[str], Any], Collection[str]]] = []


def register(find: Callable[[str], Any], public: Collection[str]) -> None:
    """Register a function that imports functions of higher layers by name. public: the names of the package."""
    _registered[:] = [(find, public)]


@functools.cache
def late_import(name: str) -> Any:
    """A function of a higher layer."""
    return _registered[0][0](name)


def functions() -> list[str]:
    """The names of the public functions. No function is imported."""
    return [name for name in _registered[0][1] if name.islower()]


@dataclass(frozen=True)
class Origin:
    """The file of an opened tensor. Another process opens it again and compares the token."""

    place: str
    token: str


def reopened(origin: Origin, limits: Limits) -> Any:
    """The tensor, opened again. Raises ContainerError if the file has changed."""
    tensor = late_import("open")(origin.place, limits=limits)
    if tensor._inside.backing.plan.origin != origin:
        raise ContainerError(Problem(origin.place, "the file has changed since the tensor was opened; open it again"))
    return tensor


# Methods of Tensor


class Report(Protocol):
    """A page about a tensor, which a notebook shows.

    title: the name of the tensor. html: the whole page. faults: the faults of the tensor; none if it is sound.
    """

    @property
    def title(self) -> str: ...
    @property
    def html(self) -> str: ...
    @property
    def faults(self) -> tuple[Problem, ...]: ...
    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None: ...


def reduction(how: str, what: str, shown: list[Any]) -> Callable[..., Any]:
    """A method that reduces dimensions. shown: the result of the example."""

    def method(
        self: Any,
        axis: Axis = None,
        *,
        dim: Axis = None,
        dtype: npt.DTypeLike | None = None,
        keepdims: bool = False,
        ddof: float = 0,
        format: FormatLike | None = None,
        labelled: bool = False,
    ) -> Any:
        if axis is not None and dim is not None:
            raise OptionError(Problem("dim", "is another name of axis; pass one of them"))
        options = {"dtype": dtype, "keepdims": keepdims, "ddof": ddof, "format": format, "labelled": labelled}
        return late_import("reduce")(self, dim if axis is None else axis, how, **options)

    method.__doc__ = f"""The {what} of all cells along dimensions, stored or not; see `reduce`.

        Parameters
        ----------
        axis, dim : the dimensions to reduce, by number or by name: one, several, or None for all.
        dtype : the type of the result.
        keepdims : keep the reduced dimensions, with size 1.
        ddof : variances divide by the number of cells less `ddof`.
        format : return a sum as a Tensor in this format.
        labelled : return an xarray.DataArray with the names and labels of the remaining dimensions.

        Returns
        -------
        an array of the remaining dimensions, or a scalar; a Tensor if there is a `format`.

        Raises
        ------
        ArrayError, IndexError, LimitError, OptionError : as for `reduce`.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR").{how}(0).tolist()
        {shown}
        """
    method.__name__ = how
    return method


def numpy_method(name: str, call: str, shown: str) -> Callable[..., Any]:
    """A method that is a function of numpy. call, shown: an example, and its result."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__doc__ = f"""`numpy.{name}` of the tensor.

        Parameters
        ----------
        args, kwargs : those of `numpy.{name}` after the array.

        Returns
        -------
        as of `numpy.{name}`; a Tensor if the result is neither a scalar nor an array of reduced dimensions.

        Raises
        ------
        BinsparseError, IndexError : the arguments do not fit, or an option of numpy is not supported.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR").{call}
        {shown}
        """
    method.__name__ = name
    return method


def report(self: Any) -> Report:
    """A report, which a notebook shows and its `write` stores as an HTML page.

    The report contains the representation of the tensor, its picture, the levels with their fibers and bytes, the
    attributes, and faults. A tensor in a file is read in parts if its levels allow it.

    Returns
    -------
    Report with the attributes `title`, `html` and `faults`, and the method `write`.

    Raises
    ------
    LimitError : there is not enough memory.

    >>> from binsparse_levels import pack_dense
    >>> report = pack_dense([[0, 2], [3, 0]], "CSR").report()
    >>> report.write("a.html")
    >>> report.faults
    ()
    """
    made: Report = late_import("report_on")(self)
    return made


def draw(self: Any, dimensions: int | str | Sequence[int | str] | None = None) -> str:
    """Draw the tensor as an SVG: a small one as its level tree, a large one as a spy plot.

    Parameters
    ----------
    dimensions : one or two dimensions for a spy plot; by default the first two of a large tensor.

    Returns
    -------
    str : SVG.

    Raises
    ------
    IndexError, OptionError : the dimensions cannot be drawn.

    >>> from binsparse_levels import pack
    >>> pack([[0, 2]], [1, 2], 3, "CVEC").draw()[:4]
    '<svg'
    """
    picture: str = late_import("draw")(self, dimensions)
    return picture
