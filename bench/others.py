"""Files of other programs: each is opened, a slice is read, and it becomes HDF5; prints a table.

    python -m bench.others --entries 1000000

The program itself writes a file where it is installed, else its layout is copied. kB are those that the process reads.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp

import binsparse_levels as bl

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers import layouts

_COLUMNS = 5_000
_ROWS, _COLS = (slice(1000, 1100),), (slice(None), slice(1000, 1100))


class File(NamedTuple):
    """A file, the program that wrote it, its content, and the slice to read."""

    name: str
    by: str
    place: Any
    content: Any
    key: tuple[slice, ...] = _ROWS


def files(folder: Path, entries: int) -> Iterator[File]:
    """Each is made when it is asked for."""
    rows = max(entries // 50, 2000)
    matrix = sp.random_array((rows, _COLUMNS), density=entries / rows / _COLUMNS, format="csr", rng=0)
    matrix.data = np.arange(matrix.nnz) % 97 + 0.5  # which text holds exactly
    yield from _of_scipy(folder, matrix, entries)
    yield from _of_pydata(folder, matrix)
    yield from _of_genes(folder, matrix.T.astype(bool).astype(np.int32).tocsc())
    yield from _of_contacts(folder, entries)
    yield from _of_samples(folder, matrix)
    yield File("PETSc binary", "layout", layouts.petsc(folder / "petsc", matrix), matrix)
    yield File("MATLAB 7.3", "layout", layouts.matlab(folder / "a.mat", matrix), matrix, _COLS)
    scipy.io.savemat(folder / "five.mat", {"A": matrix.tocsc()})
    yield File("MATLAB 5", "scipy", folder / "five.mat", matrix, _COLS)


def _of_scipy(folder: Path, matrix: Any, entries: int) -> Iterator[File]:
    diagonals = sp.diags_array(np.ones((5, entries // 5)), offsets=range(-2, 3), shape=(entries // 5, entries // 5))
    for name, made, packed in [
        ("csr", matrix, False), ("csr, deflated", matrix, True), ("csc", matrix.tocsc(), False),
        ("coo", matrix.tocoo(), False), ("bsr", matrix.tobsr((2, 2)), False), ("dia", diagonals, False),
    ]:  # fmt: skip
        if name == "bsr":
            made.sort_indices()  # slices of files need it, and scipy does not do it
        sp.save_npz(folder / f"{name}.npz", made, compressed=packed)
        key = _COLS if name == "csc" else _ROWS
        yield File(f"scipy `.npz`, {name}", "scipy", folder / f"{name}.npz", made.tocsr(), key)


def _of_pydata(folder: Path, matrix: Any) -> Iterator[File]:
    import sparse

    coo = sparse.COO.from_scipy_sparse(matrix).reshape((matrix.shape[0], _COLUMNS // 50, 50))
    for name, made in (("COO", coo), ("GCXS", sparse.GCXS.from_coo(coo, compressed_axes=[0]))):
        sparse.save_npz(folder / f"{name}.npz", made, compressed=False)
        yield File(f"pydata/sparse `.npz`, {name}, rank 3", "sparse", folder / f"{name}.npz", matrix)


def _of_genes(folder: Path, counts: Any) -> Iterator[File]:
    """Counts of genes in cells: columns are cells."""
    for version, group in (("2", "GRCh38"), ("3", "matrix")):
        path = layouts.tenx(folder / f"tenx{version}.h5", counts, group)
        yield File(f"10x HDF5, version {version}", "layout", f"{path}:{group}", counts, _COLS)
    yield File("10x folder (MEX)", "layout", layouts.mex(folder / "mex", counts), counts, _COLS)
    import anndata

    dense = counts.T[:2000].toarray()
    for name, made in (("sparse", counts.T.tocsr()), ("dense", dense)):
        anndata.AnnData(made).write_h5ad(folder / f"{name}.h5ad")
        yield File(f"AnnData, {name}", "anndata", folder / f"{name}.h5ad", made)


def _of_contacts(folder: Path, entries: int) -> Iterator[File]:
    contacts = sp.random_array((_COLUMNS, _COLUMNS), density=entries / _COLUMNS**2, format="csr", rng=0)
    contacts = contacts.astype(bool).astype(np.int32)
    path, by, whole = layouts.cooler(folder / "a.cool", contacts), "layout", sp.triu(contacts)
    contents = (whole + sp.triu(whole, 1).T).tocsr()
    if importlib.util.find_spec("cooler"):
        import cooler

        theirs, by = cooler.Cooler(str(path)), "cooler"
        cooler.create_cooler(f"{folder}/b.cool", theirs.bins()[:], theirs.pixels()[:])
        cooler.create_cooler(f"{folder}/b.mcool::resolutions/10", theirs.bins()[:], theirs.pixels()[:])
        path = folder / "b.cool"
    else:
        layouts.cooler(folder / "b.mcool", contacts, group="resolutions/10")
    yield File("cooler `.cool`", by, path, contents)
    yield File("cooler `.mcool`", by, f"{folder}/b.mcool:resolutions/10", contents)


def _of_samples(folder: Path, matrix: Any) -> Iterator[File]:
    by = "scikit-learn" if importlib.util.find_spec("sklearn") else "this package"
    path = folder / "a.svmlight"
    if by == "scikit-learn":
        from sklearn.datasets import dump_svmlight_file

        dump_svmlight_file(matrix, np.arange(matrix.shape[0]), str(path), zero_based=False)
    else:
        bl.write(path, matrix)
    yield File("svmlight text", by, path, matrix)


def read_bytes() -> int:
    """How many bytes this process has read from files."""
    return next(int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines() if "rchar" in line)


def looked_at(file: File, folder: Path) -> str:
    """A row of the table. Raises AssertionError where the numbers are not those of the file."""
    path = Path(str(file.place).rpartition(":")[0] or file.place)
    size = sum(x.stat().st_size for x in (path.iterdir() if path.is_dir() else [path]))
    bl.open(file.place)[file.key].load()  # imports what it needs
    begin = read_bytes()
    tensor = bl.open(file.place)
    opened = read_bytes()
    part = tensor[file.key].load()
    sliced = read_bytes()
    expected = sp.csr_array(file.content)
    assert abs(_rows(part) - expected[file.key]).nnz == 0
    bl.convert(file.place, folder / "made.h5", overwrite=True)
    assert abs(_rows(bl.read(folder / "made.h5")) - expected).nnz == 0
    told = str(tensor).partition("\n")[0].strip("<>").removeprefix("Tensor ")
    numbers = f"{size / 1e6:.1f} | {(opened - begin) / 1e3:,.0f} | {(sliced - opened) / 1e3:,.0f}"
    return f"| {file.name} | {file.by} | {told} | {numbers} | yes |"


def _rows(tensor: bl.Tensor) -> Any:
    """A tensor as a matrix of scipy, all dimensions behind the first as one."""
    (first, *rest), values = tensor.expand_structure().unpack()
    width = int(np.prod(tensor.shape[1:]))
    columns = np.ravel_multi_index(rest, tensor.shape[1:]) if len(rest) > 1 else rest[0]
    return sp.coo_array((values, (first, columns)), (tensor.shape[0], width)).tocsr()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000, help="of each matrix")
    options = parser.parse_args()
    print("| file | written by | tensor | MB | kB to open | kB of the slice | equal in HDF5 |")
    print(f"|{'---|' * 7}")
    with tempfile.TemporaryDirectory() as name:
        for file in files(Path(name), options.entries):
            print(looked_at(file, Path(name)), flush=True)


if __name__ == "__main__":
    main()
