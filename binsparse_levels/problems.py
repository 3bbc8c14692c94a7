"""Problems with their locations, and parts of their texts: the file, a suggestion, what to install."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_MAX_CHARACTERS = 900  # of the text of a problem


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault and its location.

    Parameters
    ----------
    path : str
        The location, such as `custom.level.rank` or `indices_1[1234]`; may be empty.
    message : str
        The fault, and the remedy if there is one.

    See Also
    --------
    BinsparseError : Base class of all errors of this package.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> print(bl.Problem("indices_1[3]", "7 is outside dimension 1 of size 5"))
    indices_1[3]: 7 is outside dimension 1 of size 5
    """

    path: str
    message: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        if len(text) > _MAX_CHARACTERS:  # the location is at the beginning, the remedy at the end
            text = f"{text[: _MAX_CHARACTERS * 2 // 3]} … {text[-_MAX_CHARACTERS // 3 :]}"
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)  # a terminal executes control characters


def in_file(problem: Problem, file: str | None) -> str:
    """A problem as text, which begins with the path of the file that it concerns."""
    text, file = str(problem), file or ""
    if text.startswith(file) or file.startswith(text.partition(": ")[0] + ":"):  # a group of the file
        return text
    return str(Problem(f"{file}: {problem.path}" if problem.path else file, problem.message))


def did_you_mean(given: Any, known: Iterable[Any]) -> str:
    """The known name that is spelled most similarly, as the beginning of a remedy; else an empty text.

    >>> did_you_mean("CRS", ["COO", "CSR"])
    'did you mean CSR? '
    """
    import difflib  # the package is imported without it

    names: dict[str, str] = {}
    for name in map(str, known):
        names.setdefault(name.lower(), name)
    close = difflib.get_close_matches(str(given).lower(), names, 1)
    return f"did you mean {names[close[0]]}? " if close else ""


# What to install for each extra that a message names. The package may have come from a folder, and name no index.
EXTRAS = {
    "anndata": "anndata", "cli": "shtab", "dask": "dask distributed sparse", "plot": "matplotlib", "scipy": "scipy",
    "graphblas": "'python-graphblas[suitesparse]'", "pandas": "jinja2 pandas", "remote": "fsspec obstore",
    "sparse": "sparse", "svmlight": "scikit-learn", "tables": "pyarrow duckdb", "test": "hypothesis", "torch": "torch",
    "xarray": "xarray sparse dask",
}  # fmt: skip

# Messages of Python and numpy for sizes that overflow their integers. Smaller sizes raise a MemoryError.
OVERFLOW_MESSAGES = (
    "array is too big", "Maximum allowed", "iterator is too large", "negative dimensions are not allowed", "C ssize_t",
    "index-sized integer",
)  # fmt: skip

# Names that other functions give to arguments, and what to do for arguments that a function lacks.
OTHER_ARGUMENTS = {"batch_size": "size", "sparse": "format"}
REMEDIES = {"cells": "reduce(…, cells='stored') has it; ", "group": "write it after the path, as PATH:GROUP; "}
