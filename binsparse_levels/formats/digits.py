"""Digits of coordinates: those of blocks, and how arrays of coordinates are taken apart and put together again."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArrayError, FormatError, Problem, raise_if
from ..levels.base import Array
from ..limits import INT64_MAX, as_integer, as_integers
from .shapes import range_problems

Item: TypeAlias = "int | range | Array"  # the wanted coordinates of a dimension: an integer, a range, or any

_TABLE = 2**11  # entries of a lookup table for several digits
_AT_MOST = 2**12  # coordinates of a merged dimension that a window lists


class Digit(NamedTuple):
    """The digit (x // stride) % radix of the coordinate x in a dimension.

    less: another dimension, or -1. With it, x is the difference to the coordinate y there, from 0 on: x - y + the size
    of that dimension - 1, as diagonals are numbered.
    """

    dimension: int
    stride: int
    radix: int
    less: int = -1

    @property
    def significance(self) -> tuple[int, bool]:
        """The sort key of a dimension's digits. A digit of radix 1 comes before another of the same stride."""
        return self.stride, self.radix != 1

    @property
    def asked(self) -> tuple[int, ...]:
        """The dimensions whose coordinates make it."""
        return (self.dimension,) if self.less < 0 else (self.dimension, self.less)

    def text(self, leading: bool) -> str:
        less = f"-{self.less}" if self.less >= 0 else ""
        over = f"/{self.stride}" if self.stride != 1 else ""
        return f"{self.dimension}{less}{over}" + ("" if leading else f"%{self.radix}")


class Part(NamedTuple):
    """A summand of a coordinate: a digit of a stored coordinate, times `factor`.

    The digit is (x // the product of `below`) % `radix` of the stored coordinate x; without `radix`, it is the most
    significant one. A radix is a number, or the Digit that leads its dimension and so depends on the dimension's size.
    """

    below: tuple[int | Digit, ...]
    radix: int | Digit | None
    factor: int


def extent(shape: Sequence[int], dimension: int, less: int = -1) -> int:
    """The number of values of the coordinate of a dimension, or of its difference from another."""
    return shape[dimension] if less < 0 else max(shape[dimension] + shape[less] - 1, 0)


_DIGIT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/([0-9]{1,19}))?(?:%([0-9]{1,19}))?")
_GROUP = re.compile(r"\s*(?:\(([^(),]*)\)|([^(),\s]+))\s*")


def parse_group(text: str, shape: Sequence[int]) -> tuple[Digit, ...]:
    """The digits of a stored dimension. Raises FormatError."""
    match = _GROUP.fullmatch(text)
    if match is None:
        raise FormatError(f"expected digits such as 0/4%2 or (0 1), got {text.strip()!r:.40}")
    return tuple(_parse_digit(digit, shape) for digit in (match[1] or match[2] or "").split())


def _parse_digit(text: str, shape: Sequence[int]) -> Digit:
    match = _DIGIT.fullmatch(text)
    if match is None:
        raise FormatError(f"expected a digit such as 0, 0/4, 0/4%2 or 1-0, got {text!r:.40}")
    dimension, less, stride = int(match[1]), int(match[2] or -1), int(match[3] or 1)
    if max(dimension, less) >= len(shape) or not stride:
        raise FormatError(f"{text} is no digit of a tensor of {len(shape)} dimensions")
    return Digit(dimension, stride, int(match[4] or -(-extent(shape, dimension, less) // stride)), less)


def fault(chain: Sequence[Digit], dimension: int, size: int) -> str:
    """Why the digits of a dimension, the leading one last, do not make up a coordinate below the size; or nothing."""
    at, sound = 1, bool(chain)
    for digit in chain[:-1]:
        sound &= digit.stride == at and digit.radix > 0
        at *= digit.radix
    if not (sound and chain[-1].stride == at and chain[-1].radix == -(-size // at)):
        text = ", ".join(digit.text(False) for digit in chain[::-1]) or "none"
        return f"the digits of dimension {dimension} of size {size} do not make up its coordinate: {text:.80}"
    beyond = at * chain[-1].radix > INT64_MAX
    return f"dimension {dimension} of size {size} is padded beyond 2**63 - 1" if beyond else ""


def block_sizes(shape: Sequence[int], sizes: Sequence[int | Sequence[int]]) -> list[tuple[int, ...]]:
    """The sizes of nested blocks in every dimension. Each is a multiple of the sizes within it."""
    blocks = []
    for argument in sizes:
        number = as_integer(argument)
        try:
            block = as_integers(argument) if number is None else (number,) * len(shape)  # type: ignore[arg-type]
        except TypeError:  # no sequence
            block = ()
        if len(block) != len(shape) or not all(type(size) is int and size > 0 for size in block):
            what = f"expected {len(shape)} integers >= 1, or one for all dimensions, got {argument!s:.60}"
            raise FormatError(Problem("block", what))
        blocks.append(block)
    if not blocks:
        raise FormatError(Problem("block", "no size is given; give at least one"))
    for outer, inner in itertools.pairwise(blocks):
        if any(a % b for a, b in zip(outer, inner, strict=True)):
            raise FormatError(Problem("block", f"blocks of {inner} do not divide those of {outer}"))
    return blocks


def interleaved(
    shape: Sequence[int], block: Sequence[int], order: Sequence[int] | None = None
) -> tuple[tuple[Digit, ...], ...]:
    """The bits of the numbers of the blocks as one group, or no group without dimensions.

    order: of the dimensions among bits of one significance, the most significant first.
    """
    places = range(len(shape)) if order is None else [order.index(k) for k in range(len(shape))]
    weighted: list[tuple[int, Digit]] = []  # a significance and a digit
    for k, (size, within) in enumerate(zip(shape, block, strict=True)):
        count = -(-size // within)
        bits = max(count - 1, 1).bit_length()
        weighted += [(bit, Digit(k, within << bit, 2)) for bit in range(bits - 1)]
        weighted.append((bits - 1, Digit(k, within << (bits - 1), -(-count >> (bits - 1)))))
    weighted.sort(key=lambda item: (-item[0], places[item[1].dimension]))
    return (tuple(digit for _, digit in weighted),) if weighted else ()


def cut(wanted: Digit, leading: bool, group: Sequence[tuple[Digit, bool]]) -> list[Digit]:
    """A digit of a stored coordinate, written as the digits that make the coordinate: a group, and which of it lead."""
    begin = wanted.stride
    end = None if leading else begin * wanted.radix
    if begin == 1 and leading:
        return [digit for digit, _ in group]
    pieces: list[Digit] = []
    nothing: Digit | None = None  # a digit of radix 1, where the wanted digit would be
    weight = 1  # of the current digit in the stored coordinate
    for i, (digit, leads) in reversed(list(enumerate(group))):
        # A leading first digit may be cut unevenly: the cells beyond it are padding.
        is_open = i == 0 and leads
        above = weight * digit.radix
        for cut in (begin, end or 1):
            cuts_it = weight < cut and (is_open or cut < above or i == 0)
            if (cuts_it and (cut % weight or not (is_open or above % cut == 0))) or not (above or is_open):
                what = f"{wanted.text(leading)} of the second map cuts {digit.text(False)} of the first unevenly"
                raise FormatError(Problem("map", what))
        low = max(begin, weight)
        high = end if is_open else above if end is None else min(end, above)
        stride = digit.stride * (low // weight)
        if high is None:
            pieces.insert(0, digit._replace(stride=stride, radix=-(-digit.radix // (low // weight))))
        elif low < high:
            pieces.insert(0, digit._replace(stride=stride, radix=high // low))
        elif digit.radix == 1 and begin <= weight and (end is None or weight < end):
            pieces.insert(0, digit)
        elif weight <= begin and (begin <= above or is_open):
            nothing = digit._replace(stride=stride, radix=1)
        weight = above
    return pieces if pieces or nothing is None else [nothing]


def in_range(coords: Sequence[npt.ArrayLike], sizes: Sequence[int]) -> list[Array]:
    """Coordinates as int64 arrays. Raises ArrayError for other types, and outside of the sizes."""
    columns = [np.asarray(x) for x in coords]
    if len(columns) != len(sizes):
        what = f"expected an array for each of {len(sizes)} dimensions, got {len(columns)}"
        raise ArrayError(Problem("coords", what))
    problems = [
        Problem(f"coords[{k}]", "has masked items; leave them out") for k, x in enumerate(coords) if np.ma.is_masked(x)
    ]
    for k, (x, size) in enumerate(zip(columns, sizes, strict=True)):
        if x.dtype.kind not in "iu" and x.size:
            problems.append(Problem(f"coords[{k}]", f"expected integers, got {x.dtype}"))
        else:
            problems += range_problems(x, k, size)
    raise_if(ArrayError, problems)
    return [x.astype(np.int64, copy=False) for x in columns]


class Term(NamedTuple):
    """A digit of a coordinate. It adds `factor` times itself to the coordinate `target`."""

    radix: int
    target: int
    factor: int


class Step(NamedTuple):
    """Neighbouring digits of a coordinate: (x // divisor) % modulus, or without modulus if it is 0.

    adds: targets, and the factor or the lookup table that gives the summand.
    """

    source: int
    divisor: int
    modulus: int
    adds: list[tuple[int, int | Array]]


def steps(source: int, terms: Sequence[Term]) -> Iterator[Step]:
    """The digits of a coordinate, the least significant first, grouped as far as a lookup table allows."""
    at, begin = 1, 0
    while begin < len(terms):
        end, product = begin + 1, terms[begin].radix
        while end < len(terms) and 0 < product * terms[end].radix <= _TABLE:
            product *= terms[end].radix
            end += 1
        modulus = product if end < len(terms) else 0
        if end - begin == 1:
            yield Step(source, at, modulus, [(terms[begin].target, terms[begin].factor)])
        else:
            tables: dict[int, Array] = {}
            left = np.arange(product)
            for radix, target, factor in terms[begin:end]:
                tables[target] = tables.get(target, 0) + left % radix * factor
                left = left // radix
            yield Step(source, at, modulus, list(tables.items()))
        at, begin = at * product, end


def steps_forward(groups: Sequence[Sequence[Digit]], ndim: int) -> Iterator[Step]:
    """The digits of every coordinate, added to the stored coordinates of their groups."""
    chains: list[list[tuple[Digit, Term]]] = [[] for _ in range(ndim)]
    for k, group in enumerate(groups):
        weight = 1
        for digit in group[::-1]:
            chains[digit.dimension].append((digit, Term(digit.radix, k, weight)))
            weight *= digit.radix
    for k, chain in enumerate(chains):
        yield from steps(k, [term for _, term in sorted(chain, key=lambda item: item[0].significance)])


def taken(steps: Sequence[Step], columns: Sequence[Array], count: int) -> tuple[Array, ...]:
    """The `count` coordinates that the steps make of the columns."""
    sums: list[Array | None] = [None] * count
    for step in steps:
        x = _quotient(columns[step.source], step.divisor)
        if step.modulus:
            x = _remainder(x, step.modulus)
        for target, factor in step.adds:
            summand = factor[x] if isinstance(factor, np.ndarray) else x * factor if factor != 1 else x
            before = sums[target]
            sums[target] = summand if before is None else before + summand
    return tuple(x for x in sums if x is not None)


def _quotient(x: Array, by: int) -> Array:
    """x // by. Precondition: x >= 0."""
    if by == 1:
        return x
    return x >> (by.bit_length() - 1) if by & (by - 1) == 0 else x // by


def _remainder(x: Array, by: int) -> Array:
    return x & (by - 1) if by & (by - 1) == 0 else x - x // by * by  # the remainder of numpy is slower than this


def window(item: Item, digit: Digit, leading: bool) -> range | Array:
    """Ascending values that include all that a digit has among the wanted coordinates."""
    stride, radix = digit.stride, digit.radix
    if isinstance(item, np.ndarray):
        return np.unique(item // stride if leading else item // stride % radix)
    if isinstance(item, int):
        item = range(item, item + 1)
    item = item if item.step > 0 else item[::-1]
    if not item or (leading and stride == 1):
        return item
    first, last = item[0] // stride, item[-1] // stride
    if leading:
        return range(first, last + 1)
    return range(first % radix, last % radix + 1) if first // radix == last // radix else range(radix)


def differences(item: Item, other: Item, size: int) -> range:
    """All differences of wanted coordinates to those of another dimension of this size, numbered from 0 on."""
    ends = []
    for wanted in (item, other):
        few = range(wanted, wanted + 1) if isinstance(wanted, int) else wanted
        few = few[:: max(len(few) - 1, 1)] if isinstance(few, range) else few  # both ends
        if not len(few):
            return range(0)
        ends.append((int(np.min(few)), int(np.max(few))))
    (low, high), (first, last) = ends
    return range(low - last + size - 1, high - first + size)


def merged(windows: Sequence[range | Array], radices: Sequence[int]) -> range | Array:
    """The window of several digits: all their numbers if these are few, else a range around them."""
    count = math.prod(map(len, windows))
    if count == 0:
        return range(0)
    if count <= _AT_MOST:
        total = np.zeros(1, np.int64)
        for wanted, radix in zip(windows, radices, strict=True):
            total = np.add.outer(total * radix, np.asarray(wanted, np.int64)).reshape(-1)
        return total
    low = high = 0
    for wanted, radix in zip(windows, radices, strict=True):
        low, high = low * radix + int(wanted[0]), high * radix + int(wanted[-1])
    return range(low, high + 1)
