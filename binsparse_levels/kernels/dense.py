"""Between dense arrays and the last level of a chain: count and list the marked cells of rows, scatter entries."""

from .jit import kernel, u8


@kernel
def count_in_rows(mask, begin, end, counts):
    """counts[r] = the number of marked cells in row r."""
    for r in range(begin, end):
        row = mask[r]
        total = u8(0)
        for j in range(row.size):
            total += u8(row[j])
        counts[r] = total


@kernel
def place_in_rows(mask, begin, end, pointers, columns, cells):
    """Write the column of each marked cell of rows begin … end, and its number among all cells.

    Every cell is stored; the next cell overwrites an unmarked one. In nearly empty rows, eight empty cells are skipped
    together. In other rows that branch would be mispredicted: 51 ms → 24 ms without it (4000 x 10000, 10 %).
    Precondition: `mask` is contiguous, and `pointers` contain its counts.
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
def scatter(starts, pointers, columns, stride, values, out):
    """out[starts[k] + stride * column] = value, for the entries of each fiber k."""
    one, step = u8(1), u8(stride)
    for k in range(u8(starts.size)):
        start, end, i = u8(starts[k]), u8(pointers[k + one]), u8(pointers[k])
        while i < end:
            out[start + u8(columns[i]) * step] = values[i]
            i += one
