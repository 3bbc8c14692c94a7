"""A program that writes the sparse matrices of a MATLAB file of version 4 or 5 to standard output, as NPZ.

It runs in a separate process, because scipy ends its process on some damaged files. It imports nothing of this package.
"""

import io
import sys
from collections.abc import Iterator
from typing import Any


def sparse_in(members: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """The sparse matrices by name; STRUCT/FIELD for those in structs."""
    for name, member in members.items():
        if isinstance(member, dict):
            yield from sparse_in(member, f"{within}{name}/")
        elif hasattr(member, "tocsc"):
            yield f"{within}{name}", member.tocsc()


def main(path: str) -> None:
    import numpy as np
    import scipy.io

    logical = {name for name, _, kind in scipy.io.whosmat(path) if kind == "logical"}
    found = dict(sparse_in(scipy.io.loadmat(path, simplify_cells=True)))
    arrays: dict[str, Any] = {"names": np.array(list(found), str)}
    for k, (name, matrix) in enumerate(found.items()):
        values = matrix.data.astype(bool) if name in logical else matrix.data
        parts = {"shape": np.array(matrix.shape), "indptr": matrix.indptr, "indices": matrix.indices, "data": values}
        arrays |= {f"{part}{k}": array for part, array in parts.items()}
    np.savez(written := io.BytesIO(), **arrays)
    sys.stdout.buffer.write(written.getvalue())


if __name__ == "__main__":
    main(sys.argv[1])
