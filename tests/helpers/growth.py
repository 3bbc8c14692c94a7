"""Tensors that grow, for tests."""

import binsparse_levels as bl

ROWS = bl.pack_dense([[0, 2, 0], [3, 0, 4]], "CSR", labels={0: ["u", "v"], 1: ["a", "b", "c"]}, dims=["user", "item"])


def row(label, values=(5, 0, 0)):
    labels = {"user": [label], "item": ["a", "b", "c"]}
    return bl.pack_dense([list(values)], "CSR", dims=["user", "item"], labels=labels)


def grown(place, count):
    """A matrix of `count` more parts than its first: row k has the value k in column k % 3."""
    bl.write(place, bl.pack_dense([[0.0, 0, 0]], "CSR"))
    for k in range(count):
        bl.append(place, numbered(k + 1), part=True)


def numbered(k):
    return bl.pack([[0], [k % 3]], [float(k)], (1, 3), "CSR")


def appended(place):
    """The rows of a matrix of `grown`, which `numbered` made."""
    opened = bl.open(place)
    dense = opened.to_dense()
    assert opened.nnz == len(dense) - 1
    return sorted(dense.sum(axis=1).tolist())
