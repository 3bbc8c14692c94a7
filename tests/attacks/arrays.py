"""Cases 41 to 68: arrays."""

import numpy as np

from binsparse_levels import ArrayError, BinsparseError, Tensor, pack, read, testing

from .corpus import CONTAINERS, CSR, READ, A, Attempt, D, L, attack, planted, source

POINTERS, INDICES = CSR.arrays["pointers_to_1"], CSR.arrays["indices_1"]
STORED = {"pointers_to_1": POINTERS, "indices_1": INDICES, "values": CSR.values}
COO = Tensor("COOR", (3, 4), {"indices_0": [0, 1, 2, 2], "indices_1": [1, 0, 1, 3]}, CSR.values)
BOOLS = CSR.astype(bool)
EMPTY = pack([[], []], 1.0, (3, 4), "CSR")
BITS = np.array([0x7FF8_0000_DEAD_BEEF, 0xFFF0_0000_0000_0001, 1 << 63, 1], np.uint64).view(np.float64)
FAR = 2**63 - 2


def each(change, tensor=CSR):
    """The arrays one after the other, each changed."""
    return [source(tensor, arrays={name: change(array)}) for name, array in STORED.items()]


def pointers(*numbers, dtype="int64"):
    return source(arrays={"pointers_to_1": np.array(numbers, dtype)}, types={"pointers_to_1": dtype})


def indices(*numbers, dtype="int64"):
    return source(arrays={"indices_1": np.array(numbers, dtype)}, types={"indices_1": dtype})


def values(array, declared=None, **changes):
    return source(arrays={"values": array}, types={"values": declared or array.dtype.name}, **changes)


def tuples(k, *numbers):
    return source(COO, arrays={f"indices_{k}": np.array(numbers)})


def stays_lazy(tensor):
    """What has a cell for each of 10**15 positions is either lazy or refused."""
    repr(tensor)
    for call in (
        tensor.to_dense,
        tensor.unpack,
        tensor.check,
        lambda: tensor.convert("CVEC"),
        lambda: tensor.equals(CSR),
    ):
        try:
            call()
        except BinsparseError:
            continue


def turns(tensor):
    """Arithmetic with dimensions near 2**63 would wrap around."""
    for other in ["sparse(3) @ 1, 2, 0", "sparse(2), sparse"]:
        again = tensor.convert(other)
        assert again.equals(tensor)
        assert sorted(zip(*(x.tolist() for x in again.unpack()[0]), strict=True))[-1] == (FAR, FAR, FAR)


# fmt: off
planted(41, "missing", A, *each(lambda x: None))
planted(42, "extra arrays and types", READ, source(types={"x": "float64"}), verify=CSR.equals)
planted(42, "extra arrays", READ, source(arrays={"indices_2": INDICES, "pointers_to_01": POINTERS}), verify=CSR.equals)
planted(43, "two-dimensional", A, *each(lambda x: x.reshape(2, -1)[:, :len(x) // 2]), *each(lambda x: x[np.newaxis]))
planted(43, "scalar", A, *each(lambda x: x[0]), containers=["HDF5", "NPZ", "folder"])
planted(44, "too short, too long, empty", A, *each(lambda x: x[:-1]), *each(lambda x: np.append(x, x[-1:])),
        *each(lambda x: x[:0]))
planted(44, "indices of a level differ", A, tuples(0, 0, 1, 2), tuples(1, 1, 0, 1))
planted(45, "type ≠ declared", A, *(values(CSR.values.astype(t), "float64") for t in ["float32", "complex128"]), *(
    made for t in ["int8", "uint64", "bool"] for made in each(lambda x, t=t: x.astype(t))))
planted(45, "values that the declared type would change", A, values(np.array([1.75, 300, -1e9, np.nan]), "int8"))
planted(46, "indices declared as no integers", D, *(
    indices(1, 0, 1, 3, dtype=t) for t in ["float64", "bool", "complex64"]))
planted(46, "fractional indices", A, source(arrays={"indices_1": np.array([0.5, 0, 1, 3.9])}))
big = {name: x.astype(x.dtype.newbyteorder(">")) for name, x in STORED.items()}
planted(47, "big-endian", READ, source(arrays=big), verify=lambda tensor: testing.check_same(tensor, CSR))
planted(48, "first pointer not 0", A, pointers(1, 1, 2, 4), pointers(-1, 1, 2, 4))
planted(49, "pointers decrease", A, pointers(0, 3, 1, 4), pointers(0, 4, 2, 4, dtype="uint8"))
planted(50, "last pointer ≠ number of children", A, *(pointers(0, 1, 2, n) for n in [2, 3, 5, 10**12, -4]))
planted(51, "huge middle pointer", A, pointers(0, 1, 10**12, 4), pointers(0, 2**31 - 1, 2, 4, dtype="int32"))
planted(52, "uint64 pointer ≥ 2**63", A, *(pointers(0, 1, n, 4, dtype="uint64") for n in [2**63 + 2, 2**64 - 1]))
planted(53, "int32 pointers wrapped to negative", A, pointers(0, 1, -(2**31) + 2, 4, dtype="int32"))
planted(54, "index ≥ dimension", A, *(indices(1, 0, 1, n) for n in [4, 10**6, 10**12, 2**63 - 1]),
        indices(1, 0, 1, 255, dtype="uint8"), indices(2**64 - 1, 0, 1, 3, dtype="uint64"))
planted(55, "negative index", A, *(indices(1, n, 1, 3) for n in [-1, -(10**6), -(2**63)]),
        indices(1, -1, 1, 3, dtype="int8"))
planted(56, "unsorted within a fiber", A, indices(1, 0, 3, 1), tuples(0, 2, 1, 0, 2), lenient=(READ,))
planted(57, "duplicate within a fiber", A, indices(1, 0, 3, 3), tuples(1, 1, 0, 3, 3), lenient=(A,))
planted(58, "tuples in the order of the first column only", A, tuples(1, 1, 0, 3, 1), lenient=(READ,))
planted(59, "bint8 not 0 or 1", A, *(source(BOOLS, arrays={"values": np.array([0, 1, n, 1], "u1")}) for n in [2, 255]),
        lenient=(READ,))
planted(60, "odd length of a complex array", A, *(values(np.ones(n), "complex[float64]") for n in [7, 9, 1, 0]))
planted(61, "NaN with a payload, -0.0, subnormals", READ, values(BITS),
        verify=lambda tensor: tensor.values.tobytes() == BITS.tobytes())
planted(62, "iso with nothing stored, no value or one", READ, *(
    source(EMPTY, arrays={"values": np.ones(n)}, types={"values": "iso[float64]"}) for n in (0, 1)),
        verify=EMPTY.equals)
planted(62, "iso of length 2 or 0", A, *(values(np.ones(n), "iso[float64]") for n in (0, 2)))
for nothing in [pack([[], []], np.empty(0), shape, format) for shape in [(3, 4), (0, 4), (3, 0), (0, 0)]
                for format in ["CSR", "DCSC", "COOR", "sparse, dense", "dense, sparse @ 0, 1"]]:
    planted(63, "nothing stored", READ, source(nothing), verify=nothing.equals)
sparse_rows = pack([[1, 1], [0, 3]], [1.0, 2.0], (5, 4), "CSR")
planted(63, "empty fibers, the last ones too", READ, source(sparse_rows), verify=sparse_rows.equals)
many = {"format": "DVEC", "shape": [10**15], "number_of_stored_values": 10**15, "data_types": {"values": "iso[int8]"}}
planted(64, "10**15 iso values, dense", (READ, L), source(arrays={"values": np.ones(1, "i1")}, **many),
        verify=stays_lazy)
planted(64, "10**15 iso values, sparse", A,
        values(np.ones(1), "iso[float64]", shape=[10**8, 10**8], number_of_stored_values=10**15))
corner = [[0, FAR, FAR], [FAR, 0, FAR], [1, FAR, FAR]]
planted(65, "dimensions near 2**63", READ, *(
    source(pack(corner, [1.0, 2.0, 3.0], (FAR + 1,) * 3, format))
    for format in ["sparse(3)", "sparse, sparse(2)", "sparse, sparse, sparse @ 2, 0, 1"]), verify=turns)
planted(65, "dimensions near 2**63, dense", A, source(shape=[2**63 - 1, 4]))
shared = np.array([0, 1, 2, 3])
one = Tensor("COOR", (4, 4), {"indices_0": shared, "indices_1": shared}, shared)
planted(66, "arrays sharing one buffer", READ,
        source(one, arrays=dict.fromkeys(["indices_0", "indices_1", "values"], shared)), verify=one.equals)
# fmt: on


@attack(67, "read-only, strided, 0-stride arrays", READ)
def strided(folder):
    fixed = np.repeat(POINTERS, 2)[::2]
    fixed.flags.writeable = False
    odd = {
        "pointers_to_1": fixed,
        "indices_1": INDICES[::-1].copy()[::-1],
        "values": np.broadcast_to(np.float64(1), (4,)),
    }
    place = CONTAINERS["memory"](folder, source(arrays=odd))
    yield Attempt("memory", place, Tensor("CSR", CSR.shape, CSR.arrays, np.ones(4)).equals)


@attack(68, "memory maps that change after they were checked", READ)
def changing(folder):
    for name, numbers in [
        ("indices_1", [10**12, -1, 10**12, -(10**12)]),
        ("pointers_to_1", [10**12, -5, 2**40, 10**12]),
    ]:
        np.save(folder / f"{name}.npy", CSR.arrays[name])
        mapped = np.load(folder / f"{name}.npy", mmap_mode="r+")
        place = CONTAINERS["memory"](folder, source(arrays={name: mapped[:]}))

        def use(place=place, mapped=mapped, numbers=numbers):
            tensor = read(place)
            mapped[:] = numbers
            for call in (tensor.to_dense, tensor.unpack, lambda: tensor.convert("CSC"), lambda: tensor.convert("COOR")):
                try:
                    call()
                except (ArrayError, IndexError):
                    continue

        yield Attempt("memory", use)
