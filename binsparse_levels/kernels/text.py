"""Numbers in text. Digits become the nearest floating-point number by the algorithm of Eisel and Lemire."""

import numpy as np

from . import jit
from .jit import called, i8, inlined, kernel, u8

MIN_POWER, MAX_POWER = -342, 308  # powers of ten that can follow 19 digits
_DIGITS = u8(19)  # of the longest numbers that always fit in a word
_TAB, _LINE, _RETURN, _SPACE, _PLUS, _MINUS, _POINT, _EXPONENT = 9, 10, 13, 32, 43, 45, 46, 101
_ZERO, _LOWER = u8(48), 32
_EXACT = 23  # powers of ten below have exact floating-point numbers
_EXACT_POWERS = np.array([float(10**k) for k in range(_EXACT)])


@inlined
def _product(a, b):
    """The upper and the lower word of the product of two words."""
    half, mask = u8(32), u8(0xFFFFFFFF)
    one = (a >> half) * (b & mask) + (((a & mask) * (b & mask)) >> half)
    other = (a & mask) * (b >> half) + (one & mask)
    return (a >> half) * (b >> half) + (one >> half) + (other >> half), a * b


@called
def _nearest(digits, power, factor):
    """The bits of the number nearest to digits * 10**power, and True if they are certain.

    factor: the first 64 bits of 10**power.
    """
    if digits <= u8(1 << 53) and -_EXACT < power < _EXACT:  # both are exact, so that one operation rounds once
        if power < 0:
            return np.float64(digits / _EXACT_POWERS[-power]).view(np.uint64), True
        return np.float64(digits * _EXACT_POWERS[power]).view(np.uint64), True
    shift = u8(64) - u8(jit.bit_length(digits))
    upper, lower = _product(digits << shift, factor)
    top = upper >> u8(63)
    fraction, rest = upper >> (top + u8(9)), upper & u8(0x1FF)
    # Further bits of the power may carry; or the number is in the middle of two.
    certain = rest != u8(0x1FF) and not (rest == u8(0) and lower == u8(0) and fraction & u8(3) == u8(1))
    fraction = (fraction + (fraction & u8(1))) >> u8(1)
    exponent = ((217706 * power) >> 16) + 1086 + i8(top) - i8(shift) + i8(fraction >> u8(53))
    return (u8(exponent) << u8(52)) | (fraction & u8((1 << 52) - 1)), certain and 1 <= exponent <= 2046


@kernel
def parse_table(text, comment, of_floats, powers, cells, doubts):
    """Parse lines of numbers separated by white space into cells[column, row]: integers, or the bits of floats.

    If the digits alone do not determine a number, doubts[column, row] is true, and the cell is the offset of its text.
    Returns the number of rows and of doubts; -1 rows if a line has another number of fields. Precondition: the text
    ends with the end of a line.
    """
    at, end, row, doubtful, width = u8(0), u8(len(text)), u8(0), 0, u8(len(of_floats))
    while at < end:
        column = u8(0)
        while True:
            while text[at] == _SPACE or (_TAB <= text[at] <= _RETURN and text[at] != _LINE):
                at += u8(1)
            if text[at] == _LINE or text[at] == comment:
                break
            if column == width:
                return -1, doubtful
            start, digits, power = at, u8(0), 0
            negative = text[at] == _MINUS
            at += u8(negative or text[at] == _PLUS)
            first = at
            while u8(text[at]) - _ZERO < u8(10):
                digits = digits * u8(10) + (u8(text[at]) - _ZERO)
                at += u8(1)
            count = at - first
            if of_floats[column]:
                if text[at] == _POINT:
                    at += u8(1)
                    point = at
                    while u8(text[at]) - _ZERO < u8(10):
                        digits = digits * u8(10) + (u8(text[at]) - _ZERO)
                        at += u8(1)
                    power = i8(point) - i8(at)
                    count += at - point
                while count > _DIGITS and first < at and (text[first] == _ZERO or text[first] == _POINT):
                    count -= u8(text[first] == _ZERO)
                    first += u8(1)
                certain = u8(0) < count <= _DIGITS
                if text[at] | _LOWER == _EXPONENT:
                    at += u8(1)
                    lessened = text[at] == _MINUS
                    at += u8(lessened or text[at] == _PLUS)
                    first, exponent = at, 0
                    while u8(text[at]) - _ZERO < u8(10):
                        exponent = exponent * 10 + i8(u8(text[at]) - _ZERO)
                        at += u8(1)
                    certain = certain and u8(0) < at - first < u8(5)
                    power += -exponent if lessened else exponent
                if digits != u8(0):
                    certain = certain and MIN_POWER <= power <= MAX_POWER
                    if certain:
                        digits, certain = _nearest(digits, power, powers[power - MIN_POWER])
                digits |= u8(negative) << u8(63)
            else:
                certain = u8(0) < count < _DIGITS
                digits = u8(0) - digits if negative else digits
            cells[column, row] = digits
            if not certain or (text[at] > _SPACE and text[at] != comment):
                cells[column, row], doubts[column, row] = start, True
                doubtful += 1
                while text[at] > _SPACE and text[at] != comment:
                    at += u8(1)
            column += u8(1)
        if u8(0) < column < width:
            return -1, doubtful
        row += u8(column > u8(0))
        while text[at] != _LINE:
            at += u8(1)
        at += u8(1)
    return i8(row), doubtful
