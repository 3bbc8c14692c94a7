"""The loops of a sum or product: their text, and what the compiler makes of them."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from ..compute import einsum, reduce
from ..compute.nest import nest_text
from ..compute.store import compiled
from ..compute.walk import NESTS
from ..errors import OptionError, Problem, within_memory
from ..tensors.tensor import Tensor


@dataclass(frozen=True, repr=False)
class Explanation:
    """Loops that `explain` found. `str` returns their Python.

    Parameters
    ----------
    text : str
        Python source.
    llvm : str
        Code for LLVM; empty with NUMBA_DISABLE_JIT=1.
    assembly : str
        Machine code; empty with NUMBA_DISABLE_JIT=1.

    See Also
    --------
    explain : Show the loops that compute a sum or product.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> "ret" in bl.explain(bl.pack_dense(np.eye(2), "CSR"), "@").assembly
    True
    """

    text: str
    llvm: str
    assembly: str

    def __str__(self) -> str:
        return self.text


@within_memory
def explain(tensor: Tensor, spec: str, *operands: Any) -> Explanation:
    """Compute a sum or product of a tensor, which is loaded, and return the loops over it.

    Parameters
    ----------
    tensor : Tensor
        Tensor.
    spec : str
        Of `einsum`, such as "ij,j->i"; "@" for the product with a vector; or a reduction: "max", "mean:0".
    *operands
        Dense arrays; by default ones, of size 1 in dimensions that the tensor lacks.

    Returns
    -------
    Explanation
        Source of the loops, with their machine code on demand.

    Raises
    ------
    OptionError, FormatError, ArrayError
        The arguments are invalid, or no loop runs, as without entries.

    See Also
    --------
    einsum : Sum products of tensors and dense arrays.
    traffic : Count the accesses of a product to each array.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> print(bl.explain(bl.pack_dense(np.eye(2), "COO"), "ij->").text.splitlines()[-1])
        out[0] = total
    """
    tensor, found = tensor.load(), dict[Any, tuple[Any, ...]]()
    letters, (how, _, axis) = string.ascii_letters[: tensor.ndim], str(spec).partition(":")
    spec = f"{letters},{letters[-1:]}->{letters[:-1]}" if spec == "@" else str(spec)
    first, *others = (x.strip() for x in spec.partition("->")[0].split(","))
    sizes = dict(zip(first, tensor.shape, strict=False))
    token = NESTS.set(found)
    try:
        if "->" in spec:
            einsum(spec, tensor, *(operands or [np.ones([sizes.get(c, 1) for c in x], tensor.dtype) for x in others]))
        else:
            reduce(tensor, int(axis) if axis.isdecimal() else axis or None, how)
    finally:
        NESTS.reset(token)
    if not found:
        raise OptionError(Problem("tensor", "no loop runs over its entries; pass one with entries, and dense operands"))
    parts = []
    for nest, arguments in found.items():
        function: Any = compiled(*nest, kept=False).function  # functions that numba reads from its cache have no LLVM
        parts.append([nest_text(*nest[:4]).partition("\n\n\n")[0], "", ""])
        if hasattr(function, "inspect_asm"):
            function.compile(types := tuple(map(numba.typeof, arguments)))
            parts[-1][1:] = function.inspect_llvm(types), function.inspect_asm(types)
    return Explanation(*map("\n\n".join, zip(*parts, strict=True)))
