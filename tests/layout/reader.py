"""A reader of HDF5 files in plain Python, written from docs/reference/file_layout.md alone. Numbers are its sections.

It knows nothing of the package. It is small, not fast, and refuses little.
"""

import itertools
import json
import math
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
    levels, transpose, digits = chain_of(descriptor)
    shape, stored = descriptor["shape"], descriptor["shape"]
    older = header.get(f"{OURS}map")  # 6.3
    shape, digits = (older["shape"], older["digits"]) if older else (shape, digits)
    groups = None if digits is None else groups_of(digits, shape)
    stored = stored if groups is None else [math.prod(r for _, _, r in group) for group in groups]
    transpose = transpose or range(len(stored))
    entries = {}
    for coords, q in walk(levels, [stored[k] for k in transpose], arrays):
        place = [0] * len(stored)
        for k, x in zip(transpose, coords, strict=True):
            place[k] = x
        assert tuple(place) not in entries
        entries[tuple(place)] = arrays["values"][q]
    if "structure" in descriptor:
        entries = expanded(descriptor["structure"], entries, types["values"])
    if groups is not None:
        entries = mapped(groups, shape, entries)
    fill = arrays["fill_value"][0] if descriptor.get("fill") else None
    return {"shape": tuple(shape), "entries": entries, "fill_value": fill, "labels": labels_of(header, arrays)}


def chain_of(descriptor):
    """The levels from the first on, without the element; the transpose; and the digits of a map. (4.1, 6)"""
    if descriptor["format"] != "custom":
        names, turned = PREDEFINED[descriptor["format"]]
        levels = [{"level_desc": name.rstrip("2"), "rank": 1 + name.endswith("2")} for name in names]
        return levels, [1, 0] if turned else None, None
    levels, above, digits = [], descriptor["custom"], None
    level = above["level"]
    if level["level_desc"] == f"{OURS}packed":
        level = level["level"]
    if level["level_desc"] == f"{OURS}map":
        above, digits, level = level, level["digits"], level["level"]
    while level["level_desc"] != "element":
        levels.append(level)
        level = level["level"]
    return levels, above.get("transpose"), digits


def walk(levels, sizes, arrays):
    """The coordinates in stored order, and the position of the value, of each entry. (4.1, 4.12)"""
    found, depth, above = [((), 0)], 0, []
    for level in levels:
        kind, rank = level["level_desc"].removeprefix(OURS), level["rank"]
        prefix = "below_" * len(above) if kind in above else ""
        given = kind, level, sizes[depth : depth + rank], depth, prefix, arrays
        found = [(coords + x, q) for coords, p in found for x, q in fiber(p, *given)]
        above = [] if rank else [*above, kind]
        depth += rank
    return found


def fiber(p, kind, level, sizes, depth, prefix, arrays):
    """The coordinates that fiber p stores, and their positions below. (4.2 to 4.11)"""
    own = lambda name: arrays.get(f"{prefix}{name}_{depth}")  # noqa: E731
    if kind in ("dense", "bitmap", "bits"):
        flags, cells = own(kind), math.prod(sizes)
        for q, x in enumerate(itertools.product(*map(range, sizes)), p * cells):
            if kind == "dense" or (flags[q] if kind == "bitmap" else flags[q // 8] >> q % 8 & 1):
                yield x, q
        return
    if kind == "n_of_m":
        slots, n, m = own("slots"), level["n"], level["m"]
        blocks = -(-sizes[0] // m)
        for b, k in itertools.product(range(blocks), range(n)):
            q = (p * blocks + b) * n + k
            if slots[q] < m:
                yield (b * m + slots[q],), q
        return
    if kind == "mask":
        width, q = -(-math.prod(sizes) // 8), own("pointers_to")[p]
        for c, x in enumerate(itertools.product(*map(range, sizes))):
            if own("mask")[p * width + c // 8] >> c % 8 & 1:
                yield x, q
                q += 1
        return
    pointers = own("pointers_to") or [0, len(own("indices" if kind == "sparse" else "run_starts"))]
    for q in range(pointers[p], pointers[p + 1]):
        if kind == "sparse":
            yield tuple(arrays[f"indices_{depth + k}"][q] for k in range(len(sizes))), q
        elif kind == "run":
            yield from (((x,), q) for x in range(own("run_starts")[q], own("run_ends")[q]))
        elif kind == "elias_fano":
            yield (
                (number_of(q, own("pointers_to"), sizes[0], own("elias_fano_low"), own("elias_fano_high")) % sizes[0],),
                q,
            )
        elif kind == "band":
            yield (own("band_starts")[p] + q - pointers[p],), q
        elif kind != "hashed":
            raise ValueError(f"unknown level kind {kind}")
        elif own("hash_keys")[q]:
            yield (own("hash_keys")[q] - 1,), own("hash_ranks")[q]


def number_of(q, pointers, size, lows, highs):
    """Number q of a sequence of Elias and Fano. (4.11)"""
    count, width = pointers[-1], 0
    while width < 57 and 2 ** (width + 1) * count <= (len(pointers) - 1) * size:
        width += 1
    lower, upper = (sum(int(word) << 64 * k for k, word in enumerate(words)) for words in (lows, highs))
    bits = [b for b in range(64 * len(highs)) if upper >> b & 1]
    return (bits[q] - q << width) + (lower >> q * width & (1 << width) - 1)


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


def expanded(structure, entries, data_type):
    """Both triangles. (5.4)"""
    kind, triangle = structure.rsplit("_", 1)

    def negative(v):
        integer = re.search(r"(u?)int(\d+)", data_type)
        if integer is None:
            return -v
        size = 2 ** int(integer[2])
        return -v % size - (0 if integer[1] or -v % size < size // 2 else size)

    mirror = {"symmetric": lambda v: v, "hermitian": lambda v: v.conjugate(), "skew_symmetric": negative}[kind]
    kept = {(i, j): v for (i, j), v in entries.items() if (i >= j if triangle == "lower" else i <= j)}
    return {(j, i): mirror(v) for (i, j), v in kept.items() if i != j} | kept


def groups_of(digits, shape):
    """The dimension, the stride and the radix of each digit of each stored dimension. (6.2)"""
    groups = []
    for group in digits.split(",") if digits.strip(" ") else []:
        found = re.findall(r"(\d+)(?:/(\d+))?(?:%(\d+))?", group)
        groups.append([(int(k), int(s or 1), int(r) if r else -(-shape[int(k)] // int(s or 1))) for k, s, r in found])
    return groups


def mapped(groups, shape, entries):
    """The entries of the tensor that the stored entries stand for. (6.2)"""
    found = {}
    for coords, value in entries.items():
        place = [0] * len(shape)
        for x, group in zip(coords, groups, strict=True):
            for k, stride, radix in reversed(group):
                x, digit = divmod(x, radix)
                place[k] += digit * stride
        if all(x < size for x, size in zip(place, shape, strict=True)):
            found[tuple(place)] = value
    return found


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
