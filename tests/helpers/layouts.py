"""Files in the layouts of other programs: matrices, sparse or dense, and names."""

import gzip
import io

import h5py
import numpy as np
import scipy.io
import scipy.sparse as sp


def matlab(path, matrix, name="A"):
    """Write a matrix like MATLAB with -v7.3."""
    columns = sp.csc_array(matrix)
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group(name)
        group.attrs["MATLAB_sparse"] = np.uint64(matrix.shape[0])
        group.attrs["MATLAB_class"] = np.bytes_("logical" if matrix.dtype == bool else "double")
        group["jc"] = columns.indptr.astype(np.uint64)
        if columns.nnz:
            values = columns.data.view(np.uint8) if matrix.dtype == bool else columns.data
            if matrix.dtype.kind == "c":
                part = np.dtype(f"f{matrix.dtype.itemsize // 2}")
                values = values.view([("real", part), ("imag", part)])
            group["ir"], group["data"] = columns.indices.astype(np.uint64), values
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124) + b"\0\2IM")
    return path


def cooler(path, matrix, mode="symmetric-upper", group="/"):
    """Write contacts of bins of 10 bases on two chromosomes, in version 3; the upper triangle of symmetric matrices."""
    kept = sp.csr_array(sp.triu(sp.coo_array(matrix)) if mode != "square" else matrix)
    kept.sort_indices()
    size, first = len(kept.indptr) - 1, (len(kept.indptr) - 1) // 2
    starts = np.concatenate([np.arange(first), np.arange(size - first)]).astype("i4") * 10
    with h5py.File(path, "a") as file:
        place = file.require_group(group)
        place.attrs.update({"format": "HDF5::Cooler", "format-version": 3, "bin-type": "fixed", "bin-size": 10})
        place.attrs.update({"storage-mode": mode, "nbins": size, "nnz": kept.nnz, "nchroms": 2, "metadata": "{}"})
        place["chroms/name"] = np.array([b"chr1", b"chr2"])
        place["chroms/length"] = np.array([first, size - first], "i4") * 10
        kinds = h5py.enum_dtype({"chr1": 0, "chr2": 1}, "i4")
        place.create_dataset("bins/chrom", data=(np.arange(size) >= first).astype("i4"), dtype=kinds)
        place["bins/start"], place["bins/end"] = starts, starts + 10
        place["pixels/bin1_id"] = np.repeat(np.arange(size), np.diff(kept.indptr))
        place["pixels/bin2_id"], place["pixels/count"] = kept.indices.astype(np.int64), kept.data
        place["indexes/chrom_offset"] = np.array([0, first, size])
        place["indexes/bin1_offset"] = kept.indptr.astype(np.int64)
    return path


def petsc(path, matrix, index=">i4", more=b""):
    """Write a matrix like the binary viewer of PETSc."""
    rows = sp.csr_array(matrix)
    head = np.array([1211216, *matrix.shape, rows.nnz], index).tobytes()
    parts = np.diff(rows.indptr).astype(index), rows.indices.astype(index)
    values = rows.data.astype(rows.data.dtype.newbyteorder(">"))
    path.write_bytes(head + b"".join(x.tobytes() for x in (*parts, values)) + more)
    return path


def genes(count):
    return [f"ENSG{k}" for k in range(count)]


def barcodes(count):
    return [f"AAAC-{k}" for k in range(count)]


def mex(path, matrix, packed=True, features="features.tsv"):
    """Write a folder like Cell Ranger."""
    path.mkdir(exist_ok=True)
    opened, end = (gzip.open, ".gz") if packed else (open, "")
    scipy.io.mmwrite(mtx := io.BytesIO(), sp.coo_array(matrix))
    rows = "".join(f"{gene}\tgene\tGene Expression\n" for gene in genes(matrix.shape[0]))
    columns = "".join(f"{barcode}\n" for barcode in barcodes(matrix.shape[1]))
    texts = {"matrix.mtx": mtx.getvalue(), "barcodes.tsv": columns.encode(), features: rows.encode()}
    for name, text in texts.items():
        with opened(path / f"{name}{end}", "wb") as file:
            file.write(text)
    return path


def tenx(path, matrix, group="matrix", named=True):
    """Write HDF5 like Cell Ranger. Version 2 has a group for each genome. named=False: no names, as in HDF5Array."""
    columns = sp.csc_array(matrix)
    with h5py.File(path, "w") as file:
        place = file.create_group(group)
        place["data"], place["indices"] = columns.data, columns.indices.astype(np.int64)
        place["indptr"], place["shape"] = columns.indptr.astype(np.int64), np.array(matrix.shape, np.int32)
        if named:
            place["barcodes"] = np.array(barcodes(matrix.shape[1]), "S")
            place["features/id" if group == "matrix" else "genes"] = np.array(genes(matrix.shape[0]), "S")
    return path
