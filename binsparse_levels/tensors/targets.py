"""Which tensors a target of another system can represent."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..errors import FormatError, Problem, raise_if
from .tensor import Tensor


def check_representable(
    tensor: Tensor,
    target: str,
    path: str | None = None,
    *,
    ranks: Collection[int] | None = None,
    type_fits: bool = True,
    structures: bool = False,
) -> None:
    """Raise FormatError if a target cannot represent the tensor. No target has another fill value than zero.

    path: of a file, for errors, which else name the attribute. ranks: the numbers of dimensions that the target holds.
    type_fits: whether it holds the type of the values. structures: whether it holds structures.
    """
    problems = []
    if ranks is not None and tensor.ndim not in ranks:
        problems.append(Problem(path or "shape", f"{target} holds no tensors of {tensor.ndim} dimensions; slice it"))
    if tensor.structure is not None and not structures:
        what = f"{target} cannot represent {tensor.structure}; call expand_structure() first"
        problems.append(Problem(path or "structure", what))
    if tensor.fill_value is not None and tensor.fill_value != np.zeros((), tensor.dtype)[()]:
        what = f"{target} cannot represent the fill value {tensor.fill_value}, only zero"
        problems.append(Problem(path or "fill_value", what))
    if not type_fits:
        problems.append(Problem(path or "values", f"{target} holds no {tensor.dtype} values; call astype() first"))
    raise_if(FormatError, problems)
