"""Between dense arrays and the last level of a chain: count and list the marked cells of rows, scatter entries."""

from .jit import kernel, u8


@kernel
def count_in_rows(mask, begin, end, counts):
    """counts[r] = how many cells of row r are marked."""
    for r in range(begin, end):
        row = mask[r]
        total = u8(0)
        for j in range(row.size):
            total += u8(row[j])
        counts[r] = total


@kernel
def place_in_rows(mask, begin, end, pointers, columns, cells):
    """Write the column of each marked cell of rows begin … end, and its number among all cells.

    Every cell is stored; the next cell overwrites an unmarked one. Nearly empty rows skip eight cells at once. In other
    rows that branch mispredicts (4000 x 10000, 10 %: 51 ms against 24).
    Precondition: `mask` is contiguous, and `pointers` hold its counts.
    """
    one, eight = u8(1), u8(8)
    width = u8(mask.shape[1])
    for r in range(begin, end):
        row = mask[r]
        q, stop = u8(pointers[r]), u8(pointers[r + 1])
        first = u8(r) * width
        leap = (stop - q) * u8(32) < width
        j = u8(0)
        while q < stop:
            last = min(j + eight, width)
            if leap and j + eight <= width:
                some = row[j]
                for k in range(1, 8):
                    some |= row[j + u8(k)]
                if some == 0:
                    j = last
            while j < last and q < stop:
                columns[q] = j
                cells[q] = first + j
                q += u8(row[j])
                j += one


@kernel
def scatter(starts, pointers, columns, stride, values, begin, end, blank, first, stop, out):
    """out[starts[k] + stride * column] = value, for the entries of each fiber k in begin … end.

    The cells first … stop become `blank` before, as many as some entries need, so that they stay in the cache until
    their entries come (4000 x 10000, half of it filled: 25 ms; with a test for each entry 37).
    Precondition: the cells of fibers ascend, unless first = stop.
    """
    one, room, step = u8(1), u8(1024), u8(stride)
    k, fibers, filled, last_cell = u8(begin), u8(end), u8(first), u8(stop)
    i, ahead = u8(pointers[k]), filled < last_cell
    while k < fibers:
        start, last = u8(starts[k]), u8(pointers[k + one])
        while i < last:
            until = min(i + room, last)
            if ahead:
                wanted = u8(0)
                for j in range(i, until):
                    wanted = max(wanted, u8(columns[j]))
                wanted = start + wanted * step + one
                while filled < wanted:
                    out[filled] = blank
                    filled += one
            while i < until:
                out[start + u8(columns[i]) * step] = values[i]
                i += one
        k += one
    while filled < last_cell:
        out[filled] = blank
        filled += one
