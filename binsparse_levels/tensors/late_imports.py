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
        skipna: bool = False,
        format: FormatLike | None = None,
        labelled: bool = False,
    ) -> Any:
        if axis is not None and dim is not None:
            raise OptionError(Problem("dim", "is another name of axis; pass one of them"))
        along = dim if axis is None else axis
        options = {"dtype": dtype, "keepdims": keepdims, "ddof": ddof, "format": format, "labelled": labelled}
        if skipna:
            if how in ("any", "all", "count"):
                raise OptionError(Problem("skipna", f"is no option of {how}; leave it out"))
            return late_import("numpy_function")(f"nan{how}", (self, along), options)
        return late_import("reduce")(self, along, how, **options)

    method.__doc__ = f"""{what} along dimensions; see `reduce`.

        Parameters
        ----------
        axis, dim : int, str or sequence of these, optional
            Dimensions to reduce, by number or by name. All by default.
        dtype : dtype_like, optional
            Type of the result.
        keepdims : bool, default False
            Keep the reduced dimensions, with size 1.
        ddof : float, default 0
            Variances divide by the number of cells less `ddof`.
        skipna : bool, default False
            Leave out cells that are NaN, as `numpy.nansum` does; not for any, all and count.
        format : str, Format or mapping, optional
            Return a sum as a Tensor in this format.
        labelled : bool, default False
            Return an xarray.DataArray with the names and labels of the remaining dimensions.

        Returns
        -------
        scalar, ndarray, Tensor or xarray.DataArray
            Result with the remaining dimensions. It is a Tensor if there is a `format`.

        Raises
        ------
        ArrayError, IndexError, LimitError, OptionError
            See `reduce`.

        See Also
        --------
        reduce : The function, for arrays of other libraries too.
        groupby : Reduce the coordinates of each group.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack_dense([[0, 2], [3, 0]], "CSR").{how}(0).tolist()
        {shown}
        """
    method.__name__ = how
    return method


def numpy_method(name: str, call: str, shown: str) -> Callable[..., Any]:
    """A method that is a function of numpy. call, shown: an example, and its result."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__doc__ = f"""Apply `numpy.{name}` to the tensor.

        Parameters
        ----------
        *args
            Positional arguments of `numpy.{name}` after the array.
        **kwargs
            Keyword arguments of `numpy.{name}`.

        Returns
        -------
        scalar, ndarray or Tensor
            As `numpy.{name}`. It is a Tensor unless it is a scalar or an array of reduced dimensions.

        Raises
        ------
        BinsparseError, IndexError
            The arguments do not fit, or an option of numpy is not supported.

        See Also
        --------
        numpy.{name} : The function of numpy, which accepts a Tensor.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack_dense([[0, 2], [3, 0]], "CSR").{call}
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
    Report
        Report with the attributes `title`, `html` and `faults`, and the method `write`.

    Raises
    ------
    LimitError
        There is not enough memory.

    See Also
    --------
    Tensor.draw : Draw the tensor as an SVG.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> report = bl.pack_dense([[0, 2], [3, 0]], "CSR").report()
    >>> report.write("a.html")
    >>> report.faults
    ()
    """
    made: Report = late_import("report_on")(self)
    return made


def draw(self: Any, dimensions: int | str | Sequence[int | str] | None = None, *, ax: Any = None) -> Any:
    """Draw the tensor as an SVG: a small one as its level tree, a large one as a spy plot.

    Parameters
    ----------
    dimensions : int, str or sequence of these, optional
        One or two dimensions for a spy plot; by default the first two of a large tensor.
    ax : matplotlib.axes.Axes, optional
        Draw a spy plot on these axes, as `matplotlib.pyplot.spy` does. Of more than 128 coordinates, several share a
        cell, whose colour is its number of entries.

    Returns
    -------
    str or matplotlib.image.AxesImage
        Text of the SVG; with `ax`, the image.

    Raises
    ------
    IndexError, OptionError
        The dimensions cannot be drawn.

    See Also
    --------
    Tensor.report : Make an HTML page about the tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[0, 2]], [1, 2], 3, "CVEC").draw()[:4]
    '<svg'
    """
    return late_import("draw")(self, dimensions, ax)


def matvec(self: Any, x: npt.ArrayLike) -> npt.NDArray[Any]:
    """The product with a dense vector, by the name that `scipy.sparse.linalg.aslinearoperator` calls.

    Parameters
    ----------
    x : array_like
        A vector of length `shape[1]`.

    Returns
    -------
    ndarray
        Array of length `shape[0]`.

    Raises
    ------
    ArrayError
        The tensor is no matrix, or the length differs.

    See Also
    --------
    Tensor.rmatvec : Multiply the conjugate transpose by a dense vector.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack_dense([[0, 2], [3, 0]], "CSR").matvec([1, 10]).tolist()
    [20, 3]
    """
    made: npt.NDArray[Any] = late_import("product")(self, np.ravel(x))
    return made


def rmatvec(self: Any, x: npt.ArrayLike) -> npt.NDArray[Any]:
    """The product of the conjugate transpose with a dense vector; see `matvec`.

    Parameters
    ----------
    x : array_like
        A vector of length `shape[0]`.

    Returns
    -------
    ndarray
        Array of length `shape[1]`.

    Raises
    ------
    ArrayError
        The tensor is no matrix, or the length differs.

    See Also
    --------
    Tensor.matvec : Multiply by a dense vector.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack_dense([[0, 2], [3, 0]], "CSR").rmatvec([1, 10]).tolist()
    [30, 2]
    """
    made: npt.NDArray[Any] = late_import("product")(self.T, np.ravel(x).conj()).conj()
    return made
