"""alto: one word for each entry, in which the bits of all coordinates are mixed.

From the lowest bit on, the dimensions take turns, so neighbours in any dimension lie near each other, and one copy of a
tensor serves the products of all modes.

    . 5 . 7     masks [0b0101, 0b1010]      the bits of a word that are those of i, and of j
    . . . .     lin   [2, 4, 6, 10, 12]     (0, 1), (2, 0), (2, 1), (0, 3), (2, 2)
    1 2 3 .     ptr   [0, 5]
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numba.extending
import numpy as np
from llvmlite import binding, ir
from numpy import uint64 as u8

from ..errors import FormatError, Problem
from ..levels import ArraySpec, register
from ..levels.base import wrong_lengths
from ..levels.pointers import Pointed, pointer_problems
from ..levels.positions import as_array, children_of, in_window


def gather(word, mask):
    """The bits of a word, or of an array of words, that a mask has, side by side: one instruction of x86, `pext`."""
    out, at = word & u8(0), u8(0)
    for b in range(64):
        if u8(mask) >> u8(b) & u8(1):
            out, at = out | (word >> u8(b) & u8(1)) << at, at + u8(1)
    return out


@numba.extending.intrinsic
def _pext(_, word, mask):
    signature, kind = numba.uint64(numba.uint64, numba.uint64), ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 2)
    return signature, lambda _, b, __, args: b.call(b.module.declare_intrinsic("llvm.x86.bmi.pext.64", (), kind), args)


@numba.extending.overload(gather, inline="always")  # compiled code calls this one; Python runs the loop
def _gather(word, mask):
    return (lambda word, mask: _pext(u8(word), u8(mask))) if binding.get_host_cpu_features().get("bmi2") else gather


pext = numba.njit(lambda word, mask: gather(word, mask))


@register
@dataclass(frozen=True)
class Alto(Pointed):
    """Fiber p has the children ptr[p] … ptr[p+1], whose words `lin` ascend; masks[k] has the bits of coordinate k.

    References
    ----------
    Helal et al., ALTO: adaptive linearized storage of sparse tensors, ICS 2021.
    """

    kind: ClassVar[str] = "alto"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    ordered: ClassVar[bool] = False
    refuses: ClassVar[bool] = True

    def arrays(self, depth, root):
        words = {role: ArraySpec(f"alto_{role}_{depth}", "word") for role in ("masks", "lin")}
        return {"ptr": ArraySpec.pointers(depth)} | words

    def lengths(self, lengths, dims, n):
        return lengths["lin"], wrong_lengths(lengths, {"ptr": None if n is None else n + 1, "masks": len(dims)})

    def _masks(self, dims):
        turns = sorted((b, k) for k, size in enumerate(dims) for b in range(max(size - 1, 0).bit_length()))
        if len(turns) > 64:
            raise FormatError(Problem("alto", f"{len(turns)} bits do not fit a word of 64; cut dimensions by a map"))
        return np.array([sum(1 << at for at, (_, x) in enumerate(turns) if x == k) for k in range(len(dims))], u8)

    def _words(self, coords, masks):
        words = np.zeros(len(coords[0]), u8)
        for x, mask in zip(coords, masks, strict=True):
            for k, b in enumerate(b for b in range(64) if int(mask) >> b & 1):
                words |= (x.astype(u8) >> u8(k) & u8(1)) << u8(b)
        return words

    def build(self, dims, parents, coords, n):
        lin, p = self._words(coords, masks := self._masks(dims)), as_array(parents)
        order = np.lexsort((lin, p))
        p, lin = p[order], lin[order]
        new = np.append(True, (p[1:] != p[:-1]) | (lin[1:] != lin[:-1]))[: len(p)]
        ptr = np.searchsorted(p[new], np.arange(n + 1))
        return {"ptr": ptr, "masks": masks, "lin": lin[new]}, np.cumsum(new)[np.argsort(order)] - 1

    def expand(self, arrays, dims, positions, window):
        counts, child = children_of(arrays["ptr"], as_array(positions))
        coords = [gather(arrays["lin"][child], mask).astype(np.int64) for mask in arrays["masks"]]
        return in_window(counts, coords, child, window)

    def locate(self, arrays, dims, positions, coords):
        lin, ends, words = arrays["lin"], arrays["ptr"].tolist(), self._words(coords, arrays["masks"])
        at = [bisect_left(lin, w, ends[p], ends[p + 1]) for p, w in zip(positions, words, strict=True)]
        found = [q < ends[p + 1] and lin[q] == w for q, p, w in zip(at, positions, words, strict=True)]
        return np.where(found, np.array(at, np.int64), -1)

    def check(self, arrays, dims, n, *, order=True):
        ptr, masks, lin = (arrays[role] for role in ("ptr", "masks", "lin"))
        if problems := list(pointer_problems(ptr, len(lin))):
            yield from problems
            return
        coords = [gather(lin, mask).astype(np.int64) for mask in self._masks(dims)]
        fiber = np.repeat(np.arange(n), np.diff(ptr.astype(np.int64)))
        if (masks != self._masks(dims)).any():
            yield Problem("masks", "are not those of the dimensions")
        elif (self._words(coords, masks) != lin).any() or (np.stack(coords, 1) >= dims).any():
            yield Problem("lin", "a word is outside the dimensions")
        elif order and ((lin[1:] <= lin[:-1]) & (np.diff(fiber) == 0)).any():
            yield Problem("lin", "words do not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (n + 1) * itemsize + 8 * (children + len(dims))

    def helpers(self):
        return {"pext": pext}

    def loop(self, root):
        coords = "".join(f"    i{k} = pext(lin[q], masks[{k}])\n" for k in range(self.rank))
        return f"for q in range(ptr[p], ptr[p + 1]):\n{coords}    yield\n"
