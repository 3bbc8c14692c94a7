"""What a tensor asks of the rooms above its own: pictures, a report, products."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import numpy.typing as npt

from ..errors import Problem, within_memory
from ..levels.positions import Array
from .above import above
from .contents import Contents, Dimension


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


@within_memory
class Upper(Contents):
    """The methods of a tensor that rooms above this one provide; see `above`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """What a notebook shows: the text, and a picture of a tensor that is small and in memory. No array is read."""
        shown: str = above("html_of")(self)
        return shown

    def report(self) -> Report:
        """A report, which a notebook shows and `write` makes an HTML page of.

        The report contains the representation of the tensor, its picture, the levels with their fibers and bytes, the
        attributes, and faults. A tensor in a file is read in parts where its levels allow it.

        Raises
        ------
        LimitError : memory does not suffice.

        >>> from binsparse_levels import pack_dense
        >>> report = pack_dense([[0, 2], [3, 0]], "CSR").report()
        >>> report.write("a.html")
        >>> report.faults
        ()
        """
        made: Report = above("report_on")(self)
        return made

    def draw(self, dimensions: Dimension | Sequence[Dimension] | None = None) -> str:
        """Draw the tensor as an SVG: a small one as its level tree, a large one as a spy plot.

        Parameters
        ----------
        dimensions : one or two dimensions for a spy plot; by default a large tensor takes its first two.

        Raises
        ------
        IndexError, OptionError : the dimensions cannot be drawn.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").draw()[:4]
        '<svg'
        """
        picture: str = above("draw")(self, dimensions)
        return picture

    def __matmul__(self, other: npt.ArrayLike) -> Array:
        """The product with a dense vector or matrix: a sum over the last dimension of the tensor; see `einsum`.

        >>> from binsparse_levels import pack_dense
        >>> (pack_dense([[0, 2], [3, 0]], "CSR") @ [1, 10]).tolist()
        [20, 3]
        """
        product: Array = above("product")(self, other)
        return product

    def __rmatmul__(self, other: npt.ArrayLike) -> Array:
        """The product of a dense vector or matrix with this matrix or vector: a sum over the first dimension.

        >>> from binsparse_levels import pack_dense
        >>> (np.array([1, 10]) @ pack_dense([[0, 2], [3, 0]], "CSR")).tolist()
        [30, 2]
        """
        product: Array = above("product_from_left")(other, self)
        return product
