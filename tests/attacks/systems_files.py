"""Case 93: files of other systems, by their layouts, with sizes, types, links and texts that lie."""

import gzip
import itertools
import struct

import h5py
import numpy as np
import scipy.io
import scipy.sparse as sp
from helpers import layouts

from binsparse_levels import Limits, read
from binsparse_levels import open as open_tensor

from .corpus import READ, A, Attempt, C, D, L, U, attack

DENSE = np.eye(4) + np.eye(4, k=1)
HDF5 = {
    "a.mat": (layouts.matlab, ("A/jc", "A/ir", "A/data"), "A"),
    "a.cool": (
        layouts.cooler,
        ("indexes/bin1_offset", "pixels/bin2_id", "pixels/count", "bins/chrom", "bins/start", "chroms/name"), "pixels",
    ),
    "v3.h5": (
        layouts.tenx,
        ("matrix/indptr", "matrix/indices", "matrix/data", "matrix/shape", "matrix/barcodes", "matrix/features/id"),
        "matrix",
    ),
    "v2.h5": (
        lambda path, dense: layouts.tenx(path, dense, "GRCh38"), ("GRCh38/indptr", "GRCh38/shape", "GRCh38/genes"),
        "GRCh38",
    ),
}  # fmt: skip
numbers = itertools.count()


def attempted(name, place):
    """A place to be read, and one of which a slice is read."""
    yield Attempt(name, place)
    yield Attempt(f"{name}, sliced", lambda: open_tensor(place)[..., ::2].load())


def changed(folder, change, groups=False):
    """Each file, with a change(file, name of an array or group)."""
    for name, (write, arrays, group) in HDF5.items():
        for each in [group] if groups else arrays:
            path = write(folder / f"{next(numbers)}{name}", DENSE)
            with h5py.File(path, "r+") as file:
                change(file, each)
            yield from attempted(name, f"{path}:GRCh38" if name == "v2.h5" else path)


def replaced(**options):
    def change(file, name):
        old = file[name][...]
        del file[name]
        given = {key: value(old) if callable(value) else value for key, value in options.items()}
        file.create_dataset(name, **given)

    return change


@attack(93, "arrays of sizes near 2**63, of no and of many items", READ, A, C, L, D)
def sizes(folder):
    for shape in ((2**60,), (2**40,), (0,), (1,), (3, 3), ()):
        yield from changed(folder, replaced(shape=shape, dtype=lambda old: old.dtype))


@attack(93, "numbers near the ends of their type, below 0, of other types", READ, A, C, L, D)
def odd_numbers(folder):
    for number in (-1, 2**31, 2**62, 2**63 - 1):
        yield from changed(folder, replaced(data=lambda old, number=number: np.full(old.shape, number)))
    for dtype in ("f2", "S3", "c16", h5py.string_dtype(), np.dtype([("real", "f8"), ("imag", "i4")])):
        yield from changed(folder, replaced(shape=lambda old: old.shape, dtype=dtype))


@attack(93, "links, groups and chunks of 2**40 items in place of arrays and groups", READ, A, C, L, U)
def links(folder):
    (folder / "outside").mkdir()
    other = layouts.matlab(folder / "outside" / "other.mat", DENSE)

    def instead(make):
        def change(file, name):
            del file[name]
            make(file, name)

        return change

    for groups in (False, True):
        for make in (
            lambda file, name: file.create_group(name),
            lambda file, name: file.update({name: h5py.SoftLink("/")}),
            lambda file, name: file.update({name: h5py.SoftLink(f"/{name}")}),
            lambda file, name: file.update({name: h5py.ExternalLink(str(other), "/A")}),
            lambda file, name: file.create_dataset(name, (2**40,), "i8", chunks=(2**28,)),
        ):
            yield from changed(folder, instead(make), groups)


@attack(93, "attributes of MATLAB and cooler that lie", READ, A, C, L)
def attributes(folder):
    for key, name in (("MATLAB_sparse", "a.mat"), ("MATLAB_class", "a.mat"), ("storage-mode", "a.cool")):
        for value in (-1, 2**63 - 1, 1.5, "x" * 60_000, b"\xff", [1, 2], h5py.Empty("f8")):
            path = HDF5[name][0](folder / f"{next(numbers)}{name}", DENSE)
            with h5py.File(path, "r+") as file:
                (file["A"] if name == "a.mat" else file).attrs[key] = value
            yield from attempted(name, path)


@attack(93, "PETSc: sizes near 2**63, lengths that overflow", READ, A, C, L)
def petsc(folder):
    for index, numbers_of in ((">i4", 2**31 - 1), (">i8", 2**63 - 1)):
        whole = layouts.petsc(folder / "whole", DENSE, index).read_bytes()
        item = np.dtype(index).itemsize
        for at in range(1, 9):
            for number in (-1, 0, 2, numbers_of, numbers_of // 2):
                path = folder / f"{next(numbers)}"
                path.write_bytes(whole[: at * item] + np.array(number, index).tobytes() + whole[(at + 1) * item :])
                yield from attempted("PETSc", path)


@attack(93, "MATLAB 5: each word of the file near the ends of its type, and cut at each", READ, A, C, L)
def matlab5(folder):
    scipy.io.savemat(folder / "whole.mat", {"A": sp.csc_array(DENSE)})
    whole = (folder / "whole.mat").read_bytes()
    for at in range(128, len(whole), 36):  # each is read by a process of its own
        for word in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", None):
            path = folder / f"{next(numbers)}.mat"
            path.write_bytes(whole[:at] if word is None else whole[:at] + word + whole[at + 4 :])
            yield Attempt("MATLAB 5", path)


@attack(93, "scipy and pydata/sparse: members of other shapes, sizes and types", READ, A, C, L, U, D, "FormatError")
def members(folder):
    sound = {
        "csr": {"indptr": [0, 1, 2], "indices": [0, 1], "data": [1.0, 2.0], "shape": [2, 2]},
        "bsr": {"indptr": [0, 1], "indices": [0], "data": np.ones((1, 2, 2)), "shape": [2, 2]},
        "dia": {"offsets": [0, 1], "data": np.ones((2, 2)), "shape": [2, 2]},
        "coo": {"coords": [[0, 1], [0, 1]], "data": [1.0, 2.0], "shape": [2, 2], "fill_value": 0.0},
        "gcxs": {
            "indptr": [0, 1, 2], "indices": [0, 1], "data": [1.0, 2.0], "shape": [2, 2, 2], "compressed_axes": [0],
            "fill_value": 0.0,
        },
    }  # fmt: skip
    odd = [
        np.array(2**62), np.full(2, 2**62), np.full(2, -1), np.full((2, 2), 2**31), np.zeros(0), np.array(["a"]),
        np.array([np.nan]), np.zeros((0, 2**40), "i1"), np.array([0, 2**63], np.uint64), np.arange(9) - 4,
    ]  # fmt: skip
    for format, arrays in sound.items():
        for name, array in itertools.product(arrays, odd):
            path = folder / f"{next(numbers)}.npz"
            np.savez(path, **{**arrays, name: array, "format": format})
            yield from attempted(f"NPZ, {format}", path)


@attack(93, "svmlight, METIS and folders of 10x: lines and numbers without an end, other bytes", READ, A, C, L)
def texts(folder):
    odd = [
        b"1 1:2 " * 10**5, b"1 " + b"1" * 10**6 + b":1\n", b"1 999999999999999:1\n", b"\0" * 100, b"\xff" * 100,
        b":" * 10**5, b"1 1:nan 2:inf\n", b"1" * 10**5 + b" 1:1\n", b"\n" * 10**6, b"#" * 10**6, b"1 1:1e999\n",
        b"-\n" * 1000,
    ]  # fmt: skip
    for text in odd:
        for packed in (text, gzip.compress(text)):
            path = folder / f"{next(numbers)}.svmlight"
            path.write_bytes(packed)
            yield Attempt("svmlight", path)
    graphs = [b"9" * 18 + b" 1\n2\n1\n", b"2 1 111 " + b"9" * 18 + b"\n2\n1\n", b"2 1\n" + b"2 " * 10**5 + b"\n1\n"]
    for text in (*odd, *graphs, *(b"3 1\n" + text for text in odd)):
        path = folder / f"{next(numbers)}.graph"
        path.write_bytes(text)
        yield Attempt("METIS", path)
    for name in ("matrix.mtx.gz", "barcodes.tsv.gz", "features.tsv.gz"):
        for text in (b"", b"\xff\n" * 4, b"x" * 10**6, b"\n" * 10**6, struct.pack("<4Q", *[2**63 - 1] * 4)):
            path = layouts.mex(folder / f"{next(numbers)}", DENSE)
            (path / name).write_bytes(gzip.compress(text))
            yield Attempt("10x folder", path)


@attack(93, "svmlight and folders of 10x: 1.2 GB of text in 1 MB of gzip", A, L)
def bombs(folder):
    bomb, limits = gzip.compress(b"1 1:1\n" * 10**6) * 200, Limits(array_bytes=2**22)
    (folder / "a.svmlight.gz").write_bytes(bomb)
    yield Attempt("svmlight", lambda: read(folder / "a.svmlight.gz", limits=limits))
    for name in ("matrix.mtx.gz", "barcodes.tsv.gz", "features.tsv.gz"):
        path = layouts.mex(folder / name, DENSE)
        (path / name).write_bytes((path / name).read_bytes() + bomb)
        yield Attempt("10x folder", lambda path=path: read(path, limits=limits))
