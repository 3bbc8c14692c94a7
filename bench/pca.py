"""The peak memory of the guide to a PCA, for a file of any size: `python -m bench.pca CELLS GENES`.

The file is written into the temporary folder. The code is that of docs/how-to/pca.md, run in a new process.
"""

import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "pca.md"
KINDS, STEP = 20, 500  # of cells; cells that are drawn together


def write_counts(path, cells, genes):
    """Write an AnnData with counts of several kinds of cells. A cell has about 3,000 of 20,000 genes."""
    random = np.random.default_rng(0)
    rates = random.lognormal(0, 1.8, genes) * np.exp(
        random.normal(0, 1.2, (KINDS, genes)) * (random.random((KINDS, genes)) < 0.05)
    )
    rates /= rates.sum(axis=1, keepdims=True)
    obs = pd.DataFrame(index=[f"cell {k}" for k in range(cells)])
    var = pd.DataFrame(index=[f"{'MT-' if k < 13 else 'gene '}{k}" for k in range(genes)])
    anndata.AnnData(obs=obs, var=var).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [cells, genes]})
        for name, dtype in ("data", "f4"), ("indices", "i4"):
            group.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(2**18,))
        pointers = [np.zeros(1, np.int64)]
        for start in range(0, cells, STEP):
            size = min(STEP, cells - start)
            kinds, depth = random.integers(0, KINDS, size), random.lognormal(np.log(6000), 0.5, (size, 1))
            counts = random.poisson(rates[kinds] * depth)
            rows, columns = np.nonzero(counts)
            before = len(group["data"])
            for name, items in ("data", counts[rows, columns]), ("indices", columns):
                group[name].resize(before + len(items), axis=0)
                group[name][before:] = items
            pointers.append(before + np.cumsum(np.bincount(rows, minlength=size)))
        group["indptr"] = np.concatenate(pointers)
        print(f"{cells} x {genes}, {pointers[-1][-1]} stored values, {Path(path).stat().st_size / 1e9:.1f} GB")


def main(cells, genes):
    with tempfile.TemporaryDirectory() as folder:
        write_counts(f"{folder}/cells.h5ad", cells, genes)
        code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"peak memory {used.ru_maxrss / 2**20:.2f} GiB, processor time {used.ru_utime + used.ru_stime:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
