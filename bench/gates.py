"""Gates of single processors, in place of those in the rows: what is reachable differs with memory and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .row import Row, Targets

# By the file of results, then by row.
GATES: Mapping[str, Mapping[str, Targets]] = {
    "intel-xeon-emerald-rapids": {
        "pack, rank 2, uniform → CSR": {"scipy": (2.7, 3.5)},
        "pack, rank 2, skewed → CSR": {"scipy": (2.5, None)},
        "convert, uniform, CSR → CSC": {"scipy": (3, None)},
        "expand structure, symmetric, CSR": {"GraphBLAS": (1.2, None)},
    }
}


def gated(row: Row, slug: str) -> Row:
    """The row with the gates of this processor."""
    return replace(row, targets=GATES.get(slug, {}).get(row.name, row.targets))
