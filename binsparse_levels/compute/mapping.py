"""Coordinates through index maps, as text of nests: shifts, masks, divisions, and gathers of bits.

The names `w0d1` are the sizes of the tensor's dimensions, here of dimension 1 above layer 0; see `seeing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..formats.digits import Digit
from ..formats.index_map import Part


def sum_of(base: str, x: str, summands: Sequence[Part], n: int) -> str:
    """The sum of digits of a stored coordinate. Contiguous bits of the result are gathered together."""
    runs: list[tuple[list[Part], list[int]]] = []  # contiguous digits, and their bits in the stored coordinate
    for part in reversed(summands):  # the least significant first
        bits = _bits(part)
        if bits and runs and (last := runs[-1])[1] and last[0][0].factor << len(last[1]) == part.factor:
            runs[-1] = [*last[0], part], [*last[1], *bits]
        else:
            runs.append(([part], bits))
    texts = (_digit(x, parts[0], n) if len(parts) == 1 else _gathered(x, bits, parts[0].factor) for parts, bits in runs)
    return " + ".join([*([base] if base else []), *texts])


def _bits(part: Part) -> list[int]:
    """The bits of a digit in its stored coordinate, if all radices up to its own are powers of two; else none."""
    powers = [_power(radix) for radix in part.below]
    own = None if part.radix is None else _power(part.radix)
    if None in powers or (part.radix is not None and own is None):
        return []
    first = sum(power for power in powers if power is not None)
    return list(range(first, 64 if own is None else first + own))


def _gathered(x: str, bits: list[int], factor: int) -> str:
    """Bits of a stored coordinate, made contiguous. Bit i moves down by bits[i] - i, in steps of 1, 2, 4 and so on."""
    downs = [bit - i for i, bit in enumerate(bits)]
    steps = [[b - down % 2**k for b, down in zip(bits, downs, strict=True) if down >> k & 1] for k in range(6)]
    moves = ", ".join(f"u8({sum(1 << b for b in step)})" for step in steps)
    text = f"gathered({x}, u8({sum(1 << b for b in bits)}), ({moves}))"
    return text if factor == 1 else f"{text} * u8({factor})"


def _digit(x: str, part: Part, n: int) -> str:
    """A digit of a stored coordinate, times its factor; shifts and masks if radices are powers of two."""
    shift = 0
    divisors: list[str] = []
    for radix in part.below:
        power = _power(radix)
        shift, divisors = (shift, [*divisors, _number(radix, n)]) if power is None else (shift + power, divisors)
    text = f"({x} >> u8({shift}))" if shift else x
    if divisors:
        text = f"({text} // ({' * '.join(divisors)}))"
    if part.radix is not None:
        power = _power(part.radix)
        text = f"({text} % {_number(part.radix, n)})" if power is None else f"({text} & u8({2**power - 1}))"
    return text if part.factor == 1 else f"{text} * u8({part.factor})"


def _power(radix: int | Digit) -> int | None:
    """The exponent of a power of two."""
    number = radix.radix if isinstance(radix, Digit) else radix
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


def _number(radix: int | Digit, n: int) -> str:
    """A radix. That of a leading digit is computed from the size of its dimension: texts do not depend on sizes."""
    if isinstance(radix, int):
        return f"u8({radix})"
    size = " + ".join(f"w{n}d{k}" for k in radix.asked)
    more = radix.stride - len(radix.asked)  # the size of a difference is one less than both
    return f"(({size} + u8({more})) // u8({radix.stride}))" if more >= 0 else f"({size} - u8({-more}))"
