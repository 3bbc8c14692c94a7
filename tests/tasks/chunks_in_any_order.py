"""Sum entries from overlapping, unordered chunks into one file."""

import numpy as np

import binsparse_levels as bl

rng = np.random.default_rng(0)
chunks = ([rng.integers(0, 10_000, (3, 100_000)), np.ones(100_000)] for _ in range(10))
bl.write_from(chunks, "a.zarr", (10_000,) * 3, "CSF", memory=2**31, duplicates="sum")
assert bl.read("a.zarr").values.sum() == 10**6
