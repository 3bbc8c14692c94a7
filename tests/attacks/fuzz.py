"""Files with bytes that are wrong, and headers with JSON that is: what is read is the same, or refused.

python -m tests.attacks.fuzz --cases 100000 is the long run. The number of a case is its seed.
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import binsparse_levels
from binsparse_levels import BinsparseError, Tensor, pack, read, testing, write

from .supervise import FOLDER, MEMORY, limit_memory, watch, work

# Where all that is stored has a checksum, nothing may be read as something else.
CHECKED: dict[str, tuple[str, dict[str, Any]]] = {
    "HDF5, sealed": ("a.h5", {"checksum": True}),
    "HDF5, gzip, sealed": ("b.h5", {"checksum": True, "compression": "gzip"}),
    "NetCDF, sealed": ("a.nc", {"checksum": True}),
    "Zarr, sealed": ("a.zarr", {"checksum": True}),
    "Zarr, shards, sealed": ("b.zarr", {"checksum": True, "chunks": 16, "shards": 32}),
    "Zarr, zip, sealed": ("a.zarr.zip", {"checksum": True}),
    "Zarr 2, sealed": ("c.zarr", {"checksum": True, "kind": "zarr2"}),
    "NPZ, sealed": ("a.npz", {"checksum": True}),
    "folder, sealed": ("a.bspnpy", {"checksum": True}),
    "folder of .ra, sealed": ("a.bspra", {"checksum": True}),
    "NPZ, gzip": ("b.npz", {"compression": "gzip"}),
    "bit-packed, sealed": ("c.bspnpy", {"checksum": True, "bitpacked": True}),
    "dictionary, sealed": ("d.bspnpy", {"checksum": True, "dictionary": True}),
}
# What other programs write: see `_written`.
OTHERS = {
    "bsr": "b.npz", "dia": "c.npz", "GCXS": "d.npz", "MATLAB": "a.mat", "MATLAB 5": "b.mat", "10x": "a.h5",
    "cooler": "a.cool", "PETSc": "a.petsc", "10x folder": "a.mex",
    "scipy": "a.npz", "svmlight": "a.svmlight",
}  # fmt: skip
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "HDF5": ("a.h5", {}),
    "HDF5, gzip": ("b.h5", {"compression": "gzip"}),
    "NetCDF": ("a.nc", {}),
    "Zarr": ("a.zarr", {}),
    "Zarr, plain": ("a.zarr", {"checksum": False, "compression": "none"}),
    "Zarr 2": ("a.zarr", {"kind": "zarr2"}),
    "folder": ("a.bspnpy", {}),
    "folder of .ra": ("a.bspra", {}),
    "Matrix Market": ("a.mtx", {}),
    "Matrix Market, gzip": ("a.mtx.gz", {}),
    "FROSTT": ("a.tns", {}),
    "bit-packed": ("b.bspnpy", {"bitpacked": True}),
    "dictionary": ("d.bspnpy", {"dictionary": True}),
    "dictionary, bit-packed": ("e.npz", {"dictionary": True, "bitpacked": True}),
    "RawArray": ("a.ra", {}),
    "sscdf": ("a.sscdf", {}),
    "sscdf, JSON": ("b.sscdf", {"kind": "sscdf_json"}),
    **{name: (file, {}) for name, file in OTHERS.items()},
    "BPCells": ("a", {"kind": "bpcells"}),
    "BPCells, HDF5": ("c.h5", {"kind": "bpcells"}),
}
BYTES = CHECKED | PLAIN
SECONDS = 1


def original(kind: str) -> Tensor:
    rows = np.arange(40)
    values = rows * 0.5 if kind != "FROSTT" else rows
    name, options = BYTES[kind]
    values = values % 5 if "dictionary" in options else values
    other = name.endswith((".mtx", ".gz", ".tns", ".ra", ".sscdf")) or options.get("kind") == "bpcells"
    attributes = {} if other else {"made": {"by": "hand", "in": [2026, 1.5]}}
    tensor = pack([rows % 7, rows], values, (7, 40), "CSR", attributes=attributes)
    return tensor.convert("DMATC") if name.endswith(".ra") else tensor


def _written(kind: str, path: Path, dense: Any) -> None:
    """Write cells as another program does."""
    import scipy.io
    import scipy.sparse as sp
    import sparse
    from helpers import layouts  # the workers alone have the folder of the tests in their path
    from sklearn import datasets

    writers: dict[str, Callable[[], Any]] = {
        "bsr": lambda: sp.save_npz(path, sp.bsr_array(dense, blocksize=(7, 8)), compressed=False),
        "dia": lambda: sp.save_npz(path, sp.dia_array(dense), compressed=False),
        "GCXS": lambda: sparse.save_npz(path, sparse.GCXS.from_numpy(dense.reshape(7, 5, 8)), compressed=False),
        "MATLAB": lambda: layouts.matlab(path, dense),
        "scipy": lambda: sp.save_npz(path, sp.csr_array(dense), compressed=False),
        "svmlight": lambda: datasets.dump_svmlight_file(dense, [0] * len(dense), str(path), zero_based=False),
        "10x folder": lambda: layouts.mex(path, dense),
        "MATLAB 5": lambda: scipy.io.savemat(path, {"A": sp.csc_array(dense)}),
        "10x": lambda: layouts.tenx(path, dense),
        "cooler": lambda: layouts.cooler(path, dense[:, :7]),
        "PETSc": lambda: layouts.petsc(path, dense),
    }
    writers[kind]()


class Bytes:
    """Files of one kind with bytes changed, a case each."""

    def __init__(self, kind: str, folder: Path) -> None:
        name, options = BYTES[kind]
        self.place = folder / name
        if kind in OTHERS:
            _written(kind, self.place, original(kind).to_dense())
        else:
            write(self.place, original(kind), **options)
        self.wanted = read(self.place)
        paths = [self.place] if self.place.is_file() else sorted(p for p in self.place.rglob("*") if p.is_file())
        self.whole = {path: path.read_bytes() for path in paths}

    def damage(self, seed: int) -> None:
        """Change one byte, or sometimes a few, cut the end or lose a block."""
        chance = random.Random(seed)
        path = chance.choices(list(self.whole), [len(x) + 20 for x in self.whole.values()])[0]
        content = bytearray(self.whole[path])
        what = chance.random()
        for _ in range(1 if what < 0.8 else chance.randint(2, 8)):
            if content:
                content[chance.randrange(len(content))] ^= chance.choice(
                    [1 << chance.randrange(8), chance.randrange(1, 256)]
                )
        if what > 0.97:
            at = chance.randrange(len(content) + 1)
            content[at:] = b"" if what > 0.985 else bytes(len(content) - at)
        path.write_bytes(content)
        self.damaged = path

    def mend(self) -> None:
        self.damaged.write_bytes(self.whole[self.damaged])

    def attempt(self, seed: int) -> str:
        self.damage(seed)
        begin = time.process_time()
        try:
            tensor = read(self.place)
        except BinsparseError:
            outcome = "refused"
        except BaseException as error:
            outcome = f"bare {type(error).__name__}"
        else:
            outcome = "same" if _is_same(tensor, self.wanted) else f"different ({self.damaged.name})"
            outcome = self._opened(tensor) or outcome
        if time.process_time() - begin > SECONDS:
            outcome += ", slow"
        self.mend()
        return outcome

    def _opened(self, tensor: Tensor) -> str:
        """What is wrong with the tensor as it is opened; no word where it is the same, or refused."""
        try:
            return "" if _is_same(binsparse_levels.open(self.place).load(), tensor) else "opened as another"
        except BinsparseError:
            return ""
        except BaseException as error:
            return f"bare {type(error).__name__} as it is opened"


def _is_same(tensor: Tensor, wanted: Tensor) -> bool:
    try:
        testing.check_same(tensor, wanted)
    except AssertionError:
        return False
    return True


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 4, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40, 0.0, 1.5,
    1.0, 1e308, "", "CSR", "COO", "custom", "\ud800", "\0", "0.1", "iso[float64]", "complex[float64]", "float64",
    "bint8", "symmetric_lower", [], {}, [[]], [0], [1, 0], {"level_desc": "element"}, {"binsparse": {}}, "x" * 1000,
]  # fmt: skip


class Headers:
    """Headers with JSON changed beside sound arrays, a case each."""

    def __init__(self, kind: str, folder: Path) -> None:
        square = [[0, 1, 2, 2], [0, 0, 1, 2]]
        self.tensors = [
            pack([[0, 1, 2, 2], [1, 0, 1, 3]], [1.5, 2.5, 3.5, 4.5], (3, 4), "CSR", attributes={"a": [1]}),
            pack(square, [1, 2, 3, 4], (3, 3), "COOC", fill_value=7, structure="symmetric_lower"),
            pack([[0, 1, 1], [2, 0, 1], [4, 1, 3]], 1 + 2j, (2, 3, 5), "dense, sparse(2) @ 2, 0, 1", fill_value=0),
            pack([[0, 1], [2, 0]], np.array([True, False]), (2, 3), "sparse, dense"),
            pack([[0, 1], [2, 0]], np.array([1, 2], "u1"), (2, 3), "DMATC"),
            pack([], [1.0], (), "element"),
            pack([[0], [2**40], [0]], [1], (2, 2**63 - 1, 5), "dense, sparse(2) @ 2, 0, 1"),
        ]
        self.places: list[dict[str, Any]] = []
        for tensor in self.tensors:
            place: dict[str, Any] = {}
            write(place, tensor)
            testing.check_same(read(place), tensor)  # what is compiled at first is no part of any case
            self.places.append(place)

    def attempt(self, seed: int) -> str:
        chance = random.Random(seed)
        which = chance.randrange(len(self.places))
        header = copy.deepcopy(self.places[which]["binsparse"])
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            mutate(header, chance)
        text = json.dumps(header)
        if chance.random() < 0.1:
            key = chance.choice(["binsparse", "shape", "format", "values", "level", "a"])
            at = chance.choice([k for k, c in enumerate(text) if c == "{"])
            text = f'{text[: at + 1]}"{key}": 0{", " * (text[at + 1] != "}")}{text[at + 1 :]}'
        outcomes = [self._read(self.places[which] | {"binsparse": text}, which, lenient) for lenient in (False, True)]
        return outcomes[0] if "bare" not in outcomes[1] else outcomes[1]

    def _read(self, place: dict[str, Any], which: int, lenient: bool) -> str:
        begin = time.process_time()
        try:
            tensor = read(place, lenient=lenient)
            if _is_same(tensor, self.tensors[which]):
                outcome = "same"
            else:  # another header that is sound: what it says is what is written again
                outcome = "another"
                again: dict[str, Any] = {}
                tensor.check()
                write(again, tensor)
                testing.check_same(read(again), tensor)
        except BinsparseError:
            outcome = "refused"
        except BaseException as error:
            outcome = f"bare {type(error).__name__}"
        return outcome + (", slow" if time.process_time() - begin > SECONDS else "")


def mutate(header: dict[str, Any], chance: random.Random) -> None:
    """Change one place of a JSON object: drop, replace, retype, rename, repeat, nest, exchange, shift a number."""
    places = list(_places(header))
    if not places:
        return
    holder, key = chance.choice(places)
    value = holder[key]
    other, other_key = chance.choice(places)
    match chance.randrange(9):
        case 0:
            del holder[key]
        case 1 | 2:
            holder[key] = copy.deepcopy(chance.choice(JUNK))
        case 3:
            holder[key] = chance.choice([str(value), [value], {"a": value}, not value])
        case 4 if isinstance(holder, dict):
            holder[chance.choice(["", key.upper(), key + "s", *_keys(header)])] = holder.pop(key)
        case 5 if isinstance(holder, list):
            holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(value))
        case 6:
            holder[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(value)
        case 7 if type(value) is int:
            holder[key] = chance.choice([value + 1, value - 1, -value, float(value), value * 2**32, value + 2**32])
        case _:
            for _ in range(chance.choice([1, 5, 90])):
                holder[key] = chance.choice([[holder[key]], {"level": holder[key]}])


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    todo = [tree]
    while todo:
        holder = todo.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                todo.append(holder[key])


def _keys(tree: Any) -> list[str]:
    return [key for holder, key in _places(tree) if isinstance(holder, dict)]


JSON = "JSON"
KINDS = [*BYTES, JSON]


def attempts(kinds: Sequence[str], folder: Path) -> Callable[[tuple[str, int]], str]:
    """What tries a case of any of the kinds; the files of a kind are made when its first case comes."""
    made: dict[str, Bytes | Headers] = {}

    def attempt(item: tuple[str, int]) -> str:
        kind, seed = item
        if kind not in made:
            (folder / str(len(made))).mkdir()
            made[kind] = (Headers if kind == JSON else Bytes)(kind, folder / str(len(made)))
        return made[kind].attempt(seed)

    return attempt


def run(kinds: Sequence[str], cases: int, seed: int = 0, patience: float = 10) -> dict[str, Counter[str]]:
    """How often each came of the cases of each kind; a crash or hang of libhdf5 alone is counted as its own.

    Of what must not be, the number of the first case is told.
    """
    items = [(kind, seed + k) for kind in kinds for k in range(cases)]
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    told = {}
    arguments = ["--work", *kinds, "--cases", str(cases), "--seed", str(seed)]
    for k, outcome in watch("fuzz", arguments, patience=patience):
        kind, number = items[k]
        if outcome.startswith(("crash", "hang")) and _plain_h5py_fails(kind, number, patience):
            outcome += " of h5py alone"
        elif outcome not in ("same", "refused", "another"):
            outcome = told.setdefault((kind, outcome), f"{outcome} (case {number})")
        counts[kind][outcome] += 1
    return counts


def _plain_h5py_fails(kind: str, seed: int, patience: float) -> bool:
    if not BYTES.get(kind, ("",))[0].endswith((".h5", ".nc", ".sscdf", ".cool", ".mat")):
        return False
    command = [sys.executable, "-m", f"{FOLDER.name}.fuzz", "--plain", kind, "--seed", str(seed)]
    try:
        run = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(FOLDER.parent)}, timeout=20 * patience, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return True
    return run.returncode < 0


def read_plainly(kind: str, seed: int) -> None:
    """Read all that is in a damaged HDF5 file by h5py, whatever it raises."""
    with tempfile.TemporaryDirectory() as folder:
        files = Bytes(kind, Path(folder))
        files.damage(seed)
        try:
            with h5py.File(files.place) as file:
                dict(file.attrs)
                for name in file:
                    file[name][...]
        except Exception as error:
            print(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--cases", type=int, default=1000, help="for each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        read_plainly(options.plain, options.seed)
    elif options.work:
        warnings.simplefilter("ignore")
        items = [(kind, options.seed + k) for kind in options.kinds for k in range(options.cases)]
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            attempt = attempts(options.kinds, Path(folder))
            limit_memory()
            work(items, attempt, options.first)
    else:
        counts = run(options.kinds or KINDS, options.cases, options.seed)
        print("| kind | cases | outcomes |\n|---|---|---|")
        for kind, found in counts.items():
            told = ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
            print(f"| {kind} | {found.total()} | {told} |")


if __name__ == "__main__":
    main()
