"""Open a tensor in a file, or several files as one tensor."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

from ..containers.base import is_url
from ..errors import FormatError, OptionError, PathMissingError, Problem, within_memory
from ..formats.format import coordinates
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.boxes import Box, Whole
from ..tensors.contents import Dimension, dimension_of
from ..tensors.inside import Metadata
from ..tensors.late_imports import reopened
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.views import Joined
from .fitting import check_alike, joined_labels
from .kinds import Location, StoreLike, name_of, split_place
from .reading import itself, opened

Places: TypeAlias = "StoreLike | Sequence[StoreLike]"


@within_memory
def open(path: Places, *, axis: Dimension = 0, limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """Open a tensor without reading its arrays: only the header and the metadata are read, and compared.

    A selection reads, copies and checks the items that it needs. The file stays open while the tensor or a view of it
    exists. Do not change the file in place during that time. Writes of this package are safe, because they replace the
    file. A text file has no header, so it is read whole.

    Several files become one tensor, in which they follow each other along a dimension. Labels of this dimension are
    concatenated; all else must be equal. A selection opens only the files that it needs, and 256 files stay open.

    In a `with` block, the file is closed at its end. After that, reading from the tensor or a view raises
    ContainerError; loaded tensors remain valid.

    Parameters
    ----------
    path : path or sequence of paths
        A path that `read` accepts; or a list of such paths; or a local path with wildcards, such as `year/*.h5`, whose
        files are taken in the order of their names.
    axis : int or str, default 0
        The dimension along which several files follow each other, by number or name.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    Tensor
        A tensor with lazy arrays.

    Raises
    ------
    FormatError, ArrayError
        The files do not fit together.
    BinsparseError
        See `read`.

    See Also
    --------
    read : Read a tensor into memory, and check everything.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store, other = {}, {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.write(other, bl.pack([[0], [3]], [3.0], (1, 4), "CSR"))
    >>> with bl.open(store) as tensor:
    ...     tensor[2, 0]
    np.float64(2.0)
    >>> bl.open([store, other])[2:].to_dense().tolist()
    [[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]]
    """
    if isinstance(path, list | tuple) and not isinstance(path, Location):
        return _gathered(path, axis, limits)
    if isinstance(path, str | os.PathLike) and glob.has_magic(os.fspath(path)) and (found := _matching(path)):
        return _gathered(found, axis, limits)
    return opened(path, limits, coordinates=True)[0]


def _matching(path: str | os.PathLike[str]) -> list[StoreLike]:
    """The files that match a path with wildcards, sorted; none for an existing path. Raises PathMissingError."""
    place, group = split_place(path)
    if is_url(place) or os.path.exists(place):
        return []
    found = sorted(glob.glob(place))
    if not found:
        raise PathMissingError(Problem(name_of(path), "no file matches; check the wildcards"))
    return [x if group is None else f"{x}:{group}" for x in found]


def _gathered(places: Sequence[StoreLike], axis: Dimension, limits: Limits) -> Tensor:
    """The tensor of several files, which follow each other along a dimension."""
    if not places:
        raise OptionError(Problem("path", "expected at least one file, got none"))
    names = [name_of(x) if isinstance(x, str | os.PathLike) else f"arrays[{k}]" for k, x in enumerate(places)]
    first = opened(places[0], limits, coordinates=True)[0]
    along = dimension_of(first, axis) if first.ndim else 0
    if first.structure is not None or not first.ndim:
        what = f"is a matrix that is {first.structure}" if first.ndim else "is a scalar"
        raise FormatError(Problem(names[0], f"{what}, and is not joined with others; expand_structure() and write it"))
    boxes: list[Box] = []

    def each() -> Iterator[Tensor]:
        """The tensors, none of which stays open if it can be opened again."""
        start = 0
        for k, place in enumerate(places):
            tensor = first if k == 0 else opened(place, limits, coordinates=True)[0]
            check_alike(first, tensor, (names[0], names[k]), along)
            origin = inside(tensor).backing.plan.origin
            again = partial(itself, tensor) if origin is None else partial(reopened, origin, limits)
            corner = tuple(start * (d == along) for d in range(tensor.ndim))
            boxes.append(Box(corner, tensor.shape, tensor.notation, None, again))
            start += tensor.shape[along]
            yield tensor

    labels = joined_labels(each(), names, along)
    length = sum(box.shape[along] for box in boxes)
    shape = tuple(length if d == along else size for d, size in enumerate(first.shape))
    format = first.format if first.map is None else coordinates(first.ndim)
    whole = Whole(boxes, shape, format, inside(first).pad, limits)
    attributes = dict(first.attributes), dict(first.descriptor_attributes)
    tensor = tensor_of(Joined(whole), Metadata(first.fill_value, *attributes, labels))
    inside(tensor).file = whole.close
    return tensor
