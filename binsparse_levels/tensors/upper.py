"""What a tensor shows of itself as text, and what it asks of the rooms above: pictures, a report, products."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..errors import Problem, within_memory
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
class Upper(Contents, NDArrayOperatorsMixin):
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

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """A function of numpy for each cell, and all operators: of a tensor, and of two; products by `@`.

        The result is a Tensor. Its fill value is the function of the fill values. Where both tensors have labels of a
        dimension, these have to be equal. A dense array is broadcast to the shape of the tensor. A product `@` with a
        dense vector or matrix is an array; see `einsum`.

        Raises
        ------
        ArrayError, LabelError, OptionError : the operands do not fit each other, or the function is not one of cells.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> (2 * tensor + tensor.T).to_dense().tolist(), np.sqrt(tensor).values.round(2).tolist()
        ([[0, 7], [8, 0]], [1.41, 1.73])
        >>> (tensor @ [1, 10]).tolist(), (tensor @ tensor).to_dense().tolist()
        ([20, 3], [[6, 0], [0, 6]])
        """
        if function is np.matmul and method == "__call__" and not options:
            return above("product")(*inputs)
        return above("calculate")(function, method, inputs, options)


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
