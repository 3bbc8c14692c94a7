"""The figures of *Speed and size* and *Choose a format*, on named tensors: `python -m bench.claims`.

Sizes are exact. Ratios are of processor time, medians of nine rounds on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from binsparse_levels import Tensor, advise, sweep, testing

_BCSR = "dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4"
_SMALL = ["CSR", "dense, elias_fano", "elias_fano, elias_fano", "dense, sparse, mask(2) through 0/8, 1/8, 0%8, 1%8"]


def _hicoo(n: int) -> str:
    """HiCOO of rank n with blocks of 128."""
    digits = [f"{k}{digit}128" for digit in "/%" for k in range(n)]
    return f"sparse({n}), sparse({n}) through {', '.join(digits)}"


def _compare(tensors: Mapping[str, Tensor], formats: Mapping[str, str], measure: str) -> None:
    frame = sweep(tensors, formats, measure, threads=1, repeat=9).to_pandas()
    times = frame.pivot(index="tensor", columns="format", values=measure)
    ratios = times.div(times[next(iter(formats))], axis=0)
    ratios.loc["geometric mean"] = np.exp(np.log(ratios).mean())
    print(measure, ratios, sep="\n", end="\n\n")


def main() -> None:
    random = {f"10^{k}": testing.uniform((round(10 ** ((k + 3) / 2)),) * 2, 10**k) for k in (5, 6, 7)}
    print(sweep(random, _SMALL, ["bits", "bitpacked", "limit", "ij,j->i"], threads=1, repeat=7), end="\n\n")
    dense = testing.uniform((1000, 1000), 10**5)
    print(sweep(dense, ["CSR", "dense, mask"], {"bits": "bits", "one value": lambda t: t[2, 3]}, threads=1), end="\n\n")

    matrices = {
        "rmat(16, 10^6)": testing.rmat(16, 10**6),
        "stencil(32)": testing.stencil(32),
        "uniform((10^4,) * 2, 10^6)": testing.uniform((10**4,) * 2, 10**6),
    }
    blocks = {name: x.convert(_BCSR) for name, x in matrices.items()}
    mapped = sweep(blocks, _BCSR, "ij,j->i", threads=1, repeat=9)
    stored = sweep({k: x.stored for k, x in blocks.items()}, "dense, sparse, dense(2)", "abcd,bd->ac",
                   threads=1, repeat=9)  # fmt: skip
    for a, b in zip(mapped.rows, stored.rows, strict=True):
        ratio = a.measures["ij,j->i"] / b.measures["abcd,bd->ac"]
        print(f"BCSR 4 × 4 through its map / its stored tree, {a.tensor}: {ratio:.2f}")
    print()

    _compare(matrices, {"COO": "COO", "HiCOO": _hicoo(2)}, "ij,j->i")
    tensors = {
        "power_law((1000,) * 3, 10^6)": testing.power_law((1000,) * 3, 10**6),
        "uniform((1000,) * 3, 10^6)": testing.uniform((1000,) * 3, 10**6),
    }
    for measure in ("ijk,jr,kr->ir", "ijk,k->ij"):
        _compare(tensors, {"COO": "COO", "HiCOO": _hicoo(3)}, measure)

    for entries in (1_700_000, 10_000_000):
        tensor = testing.power_law((800, 3000, 2000, 64), entries)
        begin = time.process_time()
        advise(tensor)
        print(f"advise(power_law((800, 3000, 2000, 64), {entries:,})): {time.process_time() - begin:.2f} s")


if __name__ == "__main__":
    main()
