"""A tensor in a few lines of text, from its metadata alone."""

from __future__ import annotations

from .contents import Contents
from .held import Stored


def text_of(tensor: Contents) -> str:
    """`repr(tensor)`: a line, and a line for each level where the arrays are its own."""
    held = tensor._held
    shape = " × ".join(map(str, held.shape)) or "scalar"
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
    return "\n".join([head, *_lines(held.stored)])


def _lines(stored: Stored) -> list[str]:
    """The levels of a tree, each with its dimensions, its number of fibers and the lengths of its arrays."""
    tree, lines = stored.tree, []
    n: int | None = 1
    for depth, place in enumerate(tree.places):
        arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
        covered = stored.format.order[place.depth : place.depth + place.level.rank]
        sizes = ", ".join(f"{k} (size {size})" for k, size in zip(covered, place.dims, strict=True))
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
