"""Between the entries of a matrix by rows and dense blocks of it, block row by block row, without a sort."""

from .jit import kernel, u8


@kernel
def list_blocks(pointers, columns, height, width, seen, pointers_to_blocks, blocks):
    """List the block columns of each block row in ascending order. `blocks` has room for one of each entry.

    Precondition: `seen` has an item for each block column, which is no number of a block row.
    """
    count = u8(0)
    for r in range(u8(pointers_to_blocks.size - 1)):
        first = count
        for t in range(u8(pointers[r * height]), u8(pointers[(r + u8(1)) * height])):
            block = u8(columns[t]) // width
            if seen[block] != r:
                seen[block] = r
                blocks[count] = block
                count += u8(1)
        blocks[first:count].sort()
        pointers_to_blocks[r + u8(1)] = count


@kernel
def fill_blocks(pointers, columns, values, height, width, pointers_to_blocks, blocks, places, cells):
    """Write the entries into the cells of their blocks. `places` has an item for each block column."""
    for r in range(u8(pointers_to_blocks.size - 1)):
        for k in range(u8(pointers_to_blocks[r]), u8(pointers_to_blocks[r + u8(1)])):
            places[blocks[k]] = k
        for i in range(height):
            row = r * height + i
            for t in range(u8(pointers[row]), u8(pointers[row + u8(1)])):
                column = u8(columns[t])
                block = column // width
                cells[(u8(places[block]) * height + i) * width + column - block * width] = values[t]


@kernel
def list_cells(pointers_to_blocks, blocks, cells, height, width, pointers, columns, values):
    """List all cells of blocks by rows."""
    to = u8(0)
    for r in range(u8(pointers_to_blocks.size - 1)):
        for i in range(height):
            for k in range(u8(pointers_to_blocks[r]), u8(pointers_to_blocks[r + u8(1)])):
                first, cell = u8(blocks[k]) * width, (k * height + i) * width
                for j in range(width):
                    columns[to] = first + j
                    values[to] = cells[cell + j]
                    to += u8(1)
            pointers[r * height + i + u8(1)] = to
