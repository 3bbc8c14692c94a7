"""What a tensor shows of itself as text, and what it asks of the rooms above: pictures, a report, products."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import numpy.typing as npt

from ..errors import Problem, within_memory
from ..levels.positions import Array
from .above import above
from .contents import Contents, Dimension
from .held import Stored


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
    """The text of a tensor, and the methods that rooms above this one provide; see `above`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _text_of(self)

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


def _text_of(tensor: Contents) -> str:
    """A line, and a line for each level where the arrays are the tensor's own. Nothing is read."""
    held = tensor._held
    names = tensor.dims or ()
    shape = " × ".join(map(str, held.shape)) or "scalar"
    shape += f" ({', '.join(names)})" if names else ""
    stored = f", map {held.map}" if held.map is not None else f", {held.format}"
    fill = "" if tensor.fill_value is None else f", fill {tensor.fill_value}"
    if held.viewed:
        return f"<Tensor {shape} {held.dtype}, a view{fill}{stored}>"
    if held.map is not None:
        return f"<Tensor {shape} {held.dtype}{fill}{stored}>\n{tensor.stored!r}"
    iso = ", iso" if tensor.iso else ""
    structure = f", {held.structure}" if held.structure else ""
    tree = held.stored.tree
    count = len(tree.values) if tree.lazy else tensor.number_of_stored_values
    entries = f"{count} stored value{'' if count == 1 else 's'}"
    head = f"<Tensor {shape} {held.dtype}{iso}, {entries}{fill}{structure}{stored}>"
    return "\n".join([head, *_lines(held.stored, names)])


def _lines(stored: Stored, names: Sequence[str]) -> list[str]:
    """The levels of a tree, each with its dimensions, its number of fibers and the lengths of its arrays."""
    tree, lines = stored.tree, []
    n: int | None = 1
    for depth, place in enumerate(tree.places):
        arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
        covered = stored.format.order[place.depth : place.depth + place.level.rank]
        called = [f"{names[k]}, " if names else "" for k in covered]
        sizes = ", ".join(f"{k} ({name}size {n})" for k, name, n in zip(covered, called, place.dims, strict=True))
        fibers = "" if n is None else f", {n} fiber{'s' if n != 1 else ''}"
        lengths = "".join(f", {place.arrays[role].name}[{len(array)}]" for role, array in arrays.items())
        dimensions = f"dimension {sizes}" if sizes else "no dimension"
        lines.append(f"{'  ' * depth}└ {place.level}: {dimensions}{fibers}{lengths}")
        below, _ = place.level.lengths({role: len(array) for role, array in arrays.items()}, place.dims, n)
        if below is None and n is not None and not tree.lazy:  # no array of a file is read for this
            below = place.level.size(arrays, place.dims, n)
        n = below
    lines.append(f"{'  ' * len(tree.levels)}└ element: values[{len(tree.values)}]")
    return lines
