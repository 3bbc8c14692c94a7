"""A reader of HDF5 files in plain Python, written from docs/reference/file_layout.md alone. Numbers are its sections.

It knows nothing of the package. It is small, not fast, and refuses little.
"""

import itertools
import json
import re

import h5py
import numpy as np

OURS = "binsparse_levels:"
PREDEFINED = {  # the levels, and whether they are of the transposed matrix (4.1)
    "DVEC": (["dense"], False), "CVEC": (["sparse"], False), "CSR": (["dense", "sparse"], False),
    "CSC": (["dense", "sparse"], True), "DCSR": (["sparse", "sparse"], False), "DCSC": (["sparse", "sparse"], True),
    "DMAT": (["dense", "dense"], False), "DMATR": (["dense", "dense"], False), "DMATC": (["dense", "dense"], True),
    "COO": (["sparse2"], False), "COOR": (["sparse2"], False), "COOC": (["sparse2"], True),
}  # fmt: skip


def read(group):
    """What `decode` gives, of a tensor in an open group of h5py. (9.1)"""
    text = group.attrs["binsparse"]
    header = json.loads(text.decode() if isinstance(text, bytes) else text)
    return decode(header, {name: group[name][:] for name in header["binsparse"]["data_types"]})


def decode(header, stored):
    """{"shape", "entries": {coordinates: value}, "fill_value", "labels": {dimension: list}}, of a header and arrays."""
    check_seal(header, stored)
    descriptor = header["binsparse"]
    types = descriptor["data_types"]
    arrays = {name: values_of(stored[name], types[name]) for name in types}
    if types["values"].startswith("iso["):  # 5.1
        arrays["values"] = list(arrays["values"]) * descriptor["number_of_stored_values"]
    assert len(arrays["values"]) == descriptor["number_of_stored_values"]
    levels, transpose = chain_of(descriptor)
    shape = descriptor["shape"]
    transpose = transpose or range(len(shape))
    entries = {}
    for coords, q in walk(levels, [shape[k] for k in transpose], arrays):
        place = [0] * len(shape)
        for k, x in zip(transpose, coords, strict=True):
            place[k] = x
        assert tuple(place) not in entries
        entries[tuple(place)] = arrays["values"][q]
    if "structure" in descriptor:
        entries = expanded(descriptor["structure"], entries)
    if f"{OURS}map" in header:
        shape, entries = mapped(header[f"{OURS}map"], entries)
    fill = arrays["fill_value"][0] if descriptor.get("fill") else None
    return {"shape": tuple(shape), "entries": entries, "fill_value": fill, "labels": labels_of(header, arrays)}


def chain_of(descriptor):
    """The levels from the first on, without the element, and the transpose. (4.1)"""
    if descriptor["format"] != "custom":
        names, turned = PREDEFINED[descriptor["format"]]
        levels = [{"level_desc": name.rstrip("2"), "rank": 1 + name.endswith("2")} for name in names]
        return levels, [1, 0] if turned else None
    levels, level = [], descriptor["custom"]["level"]
    while level["level_desc"] != "element":
        levels.append(level)
        level = level["level"]
    return levels, descriptor["custom"].get("transpose")


def walk(levels, sizes, arrays):
    """The coordinates in stored order, and the position of the value, of each entry. (4.1, 4.10)"""
    found, depth, n, above = [((), 0)], 0, 1, []
    for level in levels:
        kind, rank = level["level_desc"].removeprefix(OURS), level["rank"]
        names = NAMES[kind](depth, rank)
        prefix = "below_" * len(above) if set(names) & set(itertools.chain(*above)) else ""
        own = [arrays.get(prefix + name) for name in names]
        fiber, n = KINDS[kind](level, sizes[depth : depth + rank], n, *own)
        found = [(coords + tuple(x), q) for coords, p in found for x, q in fiber(p)]
        above = [] if rank else [*above, [prefix + name for name in names]]
        depth += rank
    assert n == len(arrays["values"])
    return found


def cells(sizes, p):
    """The cells of a fiber, numbered row by row. (4.2)"""
    tuples = itertools.product(*map(range, sizes))
    return zip(tuples, itertools.count(p * int(np.prod(sizes, dtype=object))), strict=False)


def dense(level, sizes, n):
    return lambda p: cells(sizes, p), n * int(np.prod(sizes, dtype=object))


def sparse(level, sizes, n, pointers, *indices):
    ends = [0, len(indices[0])] if pointers is None else pointers
    return lambda p: [([x[q] for x in indices], q) for q in range(ends[p], ends[p + 1])], len(indices[0])


def bitmap(level, sizes, n, flags):
    return lambda p: [(x, q) for x, q in cells(sizes, p) if flags[q]], len(flags)


def bits(level, sizes, n, octets):
    found = lambda p: [(x, q) for x, q in cells(sizes, p) if octets[q // 8] >> q % 8 & 1]  # noqa: E731
    return found, n * int(np.prod(sizes, dtype=object))


def run(level, sizes, n, pointers, starts, ends):
    bounds = [0, len(starts)] if pointers is None else pointers
    return lambda p: [([x], q) for q in range(bounds[p], bounds[p + 1]) for x in range(starts[q], ends[q])], len(starts)


def band(level, sizes, n, pointers, starts):
    return lambda p: [([starts[p] + q - pointers[p]], q) for q in range(pointers[p], pointers[p + 1])], pointers[n]


def n_of_m(level, sizes, n, slots):
    few, many = level["n"], level["m"]
    each = -(-sizes[0] // many) * few  # slots of a fiber
    return lambda p: [
        ([(q - p * each) // few * many + slots[q]], q) for q in range(p * each, (p + 1) * each) if slots[q] < many
    ], n * each


def hashed(level, sizes, n, pointers, keys, ranks):
    return lambda p: [([keys[s] - 1], ranks[s]) for s in range(pointers[p], pointers[p + 1]) if keys[s]], sum(
        key != 0 for key in keys
    )


KINDS = {f.__name__: f for f in (dense, sparse, bitmap, bits, run, band, n_of_m, hashed)}
NAMES = {
    "dense": lambda d, r: [],
    "sparse": lambda d, r: [f"pointers_to_{d}", *(f"indices_{d + k}" for k in range(r))],
    "bitmap": lambda d, r: [f"bitmap_{d}"],
    "bits": lambda d, r: [f"bits_{d}"],
    "run": lambda d, r: [f"pointers_to_{d}", f"run_starts_{d}", f"run_ends_{d}"],
    "band": lambda d, r: [f"pointers_to_{d}", f"band_starts_{d}"],
    "n_of_m": lambda d, r: [f"slots_{d}"],
    "hashed": lambda d, r: [f"pointers_to_{d}", f"hash_keys_{d}", f"hash_ranks_{d}"],
}


def values_of(stored, type):
    """The values that a stored array stands for, as a list. (3)"""
    outer, inner = re.fullmatch(r"(?:iso\[)?(?:(complex|bitpacked\w*)\[)?(\w+?)\]*", type).groups()
    if outer == "complex":
        return [complex(re, im) for re, im in zip(stored[::2].tolist(), stored[1::2].tolist(), strict=True)]
    if outer:
        return unpacked([int(word) for word in stored], outer, np.dtype(inner))
    return [bool(x) for x in stored] if inner == "bint8" else stored.tolist()


def unpacked(words, type, dtype):
    """The integers in a bit-packed array. (3.1)"""
    count, planes = words[0] | words[1] << 32, words[2]
    chunks, at, heads, numbers = -(-count // 128), 3, [], [0] * count
    for _ in range(planes):
        rows, at = words[at : at + chunks + 1], at + chunks + 1
        starts = words[at : at + chunks] if type != "bitpacked" else [0] * chunks
        at += chunks if type != "bitpacked" else 0
        heads.append((rows, starts))
    for plane, (rows, starts) in enumerate(heads):
        for c in range(chunks):
            width, chunk = rows[c + 1] - rows[c], words[at + 4 * rows[c] : at + 4 * rows[c + 1]]
            lanes = [sum(word << 32 * k for k, word in enumerate(chunk[lane::4])) for lane in range(4)]
            number = starts[c]
            for i in range(min(128, count - 128 * c)):
                field = lanes[i % 4] >> i // 4 * width & (1 << width) - 1
                if type == "bitpacked" or width == 32:
                    number = field
                elif type == "bitpacked_delta":
                    number += field
                else:
                    number += -(field + 1) // 2 if field % 2 else field // 2
                number &= 2**32 - 1
                numbers[128 * c + i] |= number << 32 * plane
        at += 4 * rows[chunks]
    size = 64 if dtype.itemsize == 8 else 32
    return [x - 2**size if dtype.kind == "i" and x >> size - 1 else x for x in numbers]


def expanded(structure, entries):
    """Both triangles. (5.4)"""
    kind, triangle = structure.rsplit("_", 1)
    mirror = {"symmetric": lambda v: v, "hermitian": lambda v: v.conjugate(), "skew_symmetric": lambda v: -v}[kind]
    kept = {(i, j): v for (i, j), v in entries.items() if (i >= j if triangle == "lower" else i <= j)}
    return {(j, i): mirror(v) for (i, j), v in kept.items() if i != j} | kept


def mapped(map, entries):
    """The shape and the entries of the tensor that the stored tensor stands for. (6)"""
    shape, groups = map["shape"], []
    for group in map["digits"].split(",") if map["digits"].strip() else []:
        digits = re.findall(r"(\d+)(?:/(\d+))?(?:%(\d+))?", group)
        digits = [(int(k), int(s or 1), int(r) if r else -(-shape[int(k)] // int(s or 1))) for k, s, r in digits]
        groups.append(digits)
    found = {}
    for coords, value in entries.items():
        place = [0] * len(shape)
        for x, group in zip(coords, groups, strict=True):
            for k, stride, radix in reversed(group):
                x, digit = divmod(x, radix)
                place[k] += digit * stride
        if all(x < size for x, size in zip(place, shape, strict=True)):
            found[tuple(place)] = value
    return shape, found


def labels_of(header, arrays):
    """The labels by name of the dimension: strings, or the numbers that are stored. (7)"""
    given, found = header.get(f"{OURS}labels", {"dims": [], "labels": []}), {}
    for k, (name, type) in enumerate(zip(given["dims"], given["labels"], strict=True)):
        items = arrays.get(f"labels_{k}")
        if type == "text":
            ends = arrays[f"labels_{k}_offsets"]
            items = [bytes(items[a:b]).decode() for a, b in itertools.pairwise(ends)]
        found[name] = items
    return found


def check_seal(header, stored):
    """Raise ValueError where a file has changed. (8)"""
    seal, mark = header.get(f"{OURS}crc32c"), header.get(f"{OURS}sealed")
    if seal is None and mark is None:
        return
    rest = {key: value for key, value in header.items() if key not in (f"{OURS}sealed", f"{OURS}crc32c")}
    sums = {name: crc32c(array_bytes(stored[name])) for name in header["binsparse"]["data_types"]}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    if mark is not True or seal != {"header": crc32c(text), "arrays": sums}:
        raise ValueError("checksum mismatch")


def array_bytes(array):
    little = array.astype(array.dtype.newbyteorder("<"))
    order = "|" if array.dtype.itemsize == 1 else "<"
    return little.tobytes() + f"{order}{array.dtype.kind}{array.dtype.itemsize} {len(array)}".encode()


def crc32c(data):
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ 0x82F63B78 * (total & 1)
    return total ^ 0xFFFFFFFF


def tensors_in(path):
    """Each tensor in a file, by the name of its group."""
    with h5py.File(path) as file:
        groups = {"/": file}
        file.visititems(lambda name, item: groups.update({name: item} if isinstance(item, h5py.Group) else {}))
        return {name: read(group) for name, group in groups.items() if "binsparse" in group.attrs}
