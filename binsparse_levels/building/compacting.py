"""Make one tree of the parts of a tensor, while others read it and append to it."""

from __future__ import annotations

import time
from operator import add, le
from typing import Any

from ..containers.interface import part_name
from ..errors import ContainerError, OptionError, Problem, within_memory
from ..formats.extensions import PARTS
from ..formats.format import FormatLike
from ..io.growing import GRACE_SECONDS, check_can_grow, commit
from ..io.kinds import StoreLike, name_of, resolved
from ..io.orders import within
from ..io.parts import Parts, part_of
from ..io.reading import opened
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress
from .to_file import convert


@within_memory
def compact(
    path: StoreLike,
    format: FormatLike | None = None,
    *,
    memory: int | None = None,
    grace: float = GRACE_SECONDS,
    progress: Progress | bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Make one tree of the parts of a tensor that `append(part=True)` has made.

    Others may read the tensor and append to it at the same time: parts that are appended in the meantime remain parts.
    The tree is in a group of its own, which other programs can open: `tensor.parts` names it. Checksums are kept.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        See `append`.
    format : str, Format or mapping, optional
        Format of the tree, and of parts that are appended later; by default that of the first part.
    memory : int, optional
        Bytes that the process may use. By default, all entries are in memory.
    grace : float, default GRACE_SECONDS
        Seconds in which those who have opened the tensor before can read its old parts. Later, the next `append` or
        `compact` removes these. 0 removes them now.
    progress : bool or callable, optional
        True shows a bar, and a callable receives the stage and the steps.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        See `convert`.

    Raises
    ------
    OptionError
        The tensor has no parts.
    ContainerError
        Another program has compacted the tensor in the meantime.
    BinsparseError
        See `convert`.

    See Also
    --------
    append : Append a tensor to a stored one.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.write("days.zarr", bl.pack([[0], [2]], [1.0], (1, 3), "CSR"))
    >>> bl.append("days.zarr", bl.pack([[0], [1]], [2.0], (1, 3), "CSR"), part=True)
    >>> bl.compact("days.zarr")
    >>> tensor = bl.open("days.zarr")
    >>> len(tensor.parts), tensor.to_dense().tolist()
    (1, [[0.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    """
    with resolved(path) as location:
        there, loading = opened(location, limits)
        if loading is None or PARTS not in loading.descriptor.extra:
            raise OptionError(Problem(name_of(path), "the tensor has one part; use convert for another format"))
        check_can_grow(location, there, loading)
        old, new = [box.group for box in there.parts], part_name()
        options = {"checksum": loading.sealed or None, **options}
        inner = within(location, new)
        convert(location, inner, format, memory=memory, progress=progress, limits=limits, **options)
        made, whole = opened(inner, limits)
        assert whole is not None
        check_can_grow(inner, made, whole)  # options of the call may make a tensor that cannot

        def change(parts: Parts, shape: tuple[int, ...]) -> tuple[Parts, tuple[int, ...]]:
            # Also those of parts that were appended before `convert` opened the tensor.
            groups = {x.group for x in parts.boxes if all(map(le, map(add, x.origin, x.shape), made.shape))}
            if not groups.issuperset(old):
                raise ContainerError(Problem(name_of(path), "another program has compacted it in the meantime"))
            boxes = part_of(made, new, [0] * made.ndim), *(x for x in parts.boxes if x.group not in groups)
            return Parts(boxes, {**parts.removed, **dict.fromkeys(groups, time.time())}, parts.fill_value), shape

        header = loading.reader.read_header()
        commit(location, there, header, new, change, limits, like=whole.descriptor, grace=grace)
