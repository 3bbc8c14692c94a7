"""Matrices in Harwell-Boeing and Rutherford-Boeing text, read whole by scipy, read only.

scipy reads real and integer matrices with a value for each entry, in files without right-hand sides. The second letter
of the type, on the third line, is the symmetry. Of a symmetric matrix, the file has the lower triangle.
"""

from __future__ import annotations

import contextlib
import io

from ...errors import ContainerError, Problem, needing
from ...limits import Limits
from ..file_tensors import FileTensor, compressed
from ..interface import Foreign
from . import text_tables

_STRUCTURES = {"S": "symmetric_lower", "Z": "skew_symmetric_lower"}


def look(path: str, closing: contextlib.ExitStack, *, limits: Limits) -> FileTensor:
    """The matrix, in memory. Raises ContainerError with the reason of scipy, ArrayError, LimitError."""
    with needing("scipy"):
        from scipy.io import hb_read
    with text_tables.reading(path) as stream:
        data = b"".join(block for block, _ in text_tables.blocks(stream, path, limits, whole=True))
    title, counts, kind, rest = f"{data.decode('latin1')}\n".replace("\r\n", "\n").split("\n", 3)
    letters, structure = kind[:2].upper(), None
    if letters[0] in "RI" and letters[1] in "RSZ":  # read as unsymmetric, which is all that scipy reads
        kind, structure = f"{kind[0]}U{kind[2:]}", _STRUCTURES.get(letters[1])
    try:
        matrix = hb_read(io.StringIO("\n".join([title, counts, kind, rest])), spmatrix=False)
    except Exception as error:  # of any class, for damaged files
        what = f"scipy cannot read it: {error!s:.200}; convert it to Matrix Market by another program"
        raise ContainerError(Problem(path, what)) from None
    arrays = {"pointers": matrix.indptr, "rows": matrix.indices, "values": matrix.data}
    return compressed("CSC", matrix.shape, arrays, structure=structure)


FUNCTIONS = Foreign(look=look)
