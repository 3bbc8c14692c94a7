"""The reference reader of docs/proposal, written from its pages alone, with numpy and h5py. It knows no other package.

`tensors(path)` reads an HDF5 file or a plain Zarr folder: a dictionary by the name of the group. What breaks a rule
raises Refused, whose text begins with the name of the rule. It is small, not fast.
"""

import itertools
import json
import math
import re
from pathlib import Path

import h5py
import numpy as np

OURS = "binsparse_levels:"
PREDEFINED = {  # d: dense, s: sparse, 2: sparse of rank 2; whether the matrix is transposed
    "DVEC": ("d", False), "CVEC": ("s", False), "DMAT": ("dd", False), "DMATR": ("dd", False), "DMATC": ("dd", True),
    "CSR": ("ds", False), "CSC": ("ds", True), "DCSR": ("ss", False), "DCSC": ("ss", True),
    "COO": ("2", False), "COOR": ("2", False), "COOC": ("2", True),
}  # fmt: skip
REQUIRED = {"version", "format", "shape", "number_of_stored_values", "data_types"}
OPTIONAL = {"custom", "fill", "structure", "attributes"}
TYPE = r"((?:iso|dictionary)\[)?(?:(complex|bitpacked(?:_delta|_zigzag)?)\[)?"
TYPE += r"(u?int(?:8|16|32|64)|float(?:32|64)|bint8)(\]*)"


class Refused(ValueError):
    """A file breaks a rule."""


def need(rule, holds, where):
    if not holds:
        raise Refused(f"{rule}: {where}")


def tensors(path):
    """Each tensor at a path, by the name of its group."""
    if (path := Path(path)).is_dir():
        places = {x.parent: json.loads(x.read_text()).get("attributes", {}) for x in path.rglob("zarr.json")}
        found = {p: decode(x["binsparse"], zarr_arrays(p)) for p, x in places.items() if "binsparse" in x}
        return {str(p.relative_to(path)).replace(".", "/"): tensor for p, tensor in found.items()}
    with h5py.File(path) as file:
        groups = {"/": file}
        file.visititems(lambda name, item: groups.update({name: item} if isinstance(item, h5py.Group) else {}))
        held = {name: x for name, x in groups.items() if "binsparse" in x.attrs}
        arrays = {n: {k: a[:] for k, a in x.items() if isinstance(a, h5py.Dataset) and a.ndim} for n, x in held.items()}
        return {name: decode(json.loads(x.attrs["binsparse"]), arrays[name]) for name, x in held.items()}


def zarr_arrays(folder):
    """The arrays of a group of Zarr 3, each of a single chunk without compression."""
    found = {}
    for place in {x.parent for x in folder.glob("*/zarr.json")}:
        about = json.loads((place / "zarr.json").read_text())
        codecs, length = [codec["name"] for codec in about["codecs"]], about["shape"][0]
        need("container", codecs in (["bytes"], ["bytes", "crc32c"]), f"codecs of {place.name}")
        data = (place / "c/0").read_bytes() if length else b""
        if length and codecs[1:]:
            need("checksum", crc32c(data[:-4]).to_bytes(4, "little") == data[-4:], place.name)
        found[place.name] = np.frombuffer(data, np.dtype(about["data_type"]).newbyteorder("<"), length)
    return found


def decode(header, stored):
    """{"shape", "entries": {coordinates: value}, "fill_value", "labels"} of a header and its arrays."""
    inner = header["binsparse"]
    need("header", REQUIRED <= inner.keys() <= REQUIRED | OPTIONAL, "keys")
    need("header", re.fullmatch(r"0\.1(\.\d+([-+].*)?)?", str(inner["version"])), "version")
    shape, count, types = inner["shape"], inner["number_of_stored_values"], inner["data_types"]
    need("header", all(type(size) is int and 0 <= size < 2**63 for size in [*shape, count]), "shape")
    check_seal(header, stored)
    chain, transpose, digits, packed = chain_of(inner)
    need("length", types.keys() <= stored.keys(), "an array is missing")
    arrays = {name: values_of(name, stored[name], types[name], count, packed) for name in types}
    if types["values"].startswith("dictionary["):
        arrays["values"] = looked_up(arrays, types, stored["values"], count)
    groups = None if digits is None else groups_of(digits, shape)
    sizes = shape if groups is None else [math.prod(r for _, _, r, _ in group) for group in groups]
    order = list(range(len(sizes))) if transpose is None else transpose
    need("level", sum(level["rank"] for level in chain) == len(sizes), "the ranks do not add up")
    need("level", sorted(order) == list(range(len(sizes))), "transpose")
    entries = {}
    for coords, q in walk(chain, [sizes[k] for k in order], arrays, inner["format"]):
        entries[tuple(x for _, x in sorted(zip(order, coords, strict=True)))] = arrays["values"][q]
    if "structure" in inner:
        need("structure", groups is None, "below a map")
        entries = expanded(inner["structure"], entries, shape, chain[-1]["level_desc"], types["values"])
    if groups is not None:
        inside = (
            x for x in mapped(groups, shape, entries) if all(0 <= i < n for i, n in zip(x[0], shape, strict=True))
        )
        entries = dict(inside)
    fill = arrays.get("fill_value", []) if inner.get("fill") else [None]
    need("length", len(fill) == 1, "fill_value")
    return {
        "shape": tuple(shape),
        "entries": entries,
        "fill_value": fill[0],
        "labels": labels_of(header, shape, arrays),
    }


def chain_of(inner):
    """The levels above the element, the transpose, the digits of a map, and whether arrays may be bit-packed."""
    if inner["format"] != "custom":
        need("header", inner["format"] in PREDEFINED, f"format {inner['format']}")
        letters, turned = PREDEFINED[inner["format"]]
        chain = [{"level_desc": "dense" if x == "d" else "sparse", "rank": 1 + (x == "2")} for x in letters]
        return chain, [1, 0] if turned else None, None, False
    chain, digits, packed = [], None, False
    transpose, level = inner["custom"].get("transpose"), inner["custom"]["level"]
    while level.get("level_desc") != "element":
        kind = level["level_desc"].removeprefix(OURS)
        known = {"level_desc", "rank", "level", *{"map": ("digits", "transpose"), "n_of_m": ("n", "m")}.get(kind, ())}
        need("level", (level["level_desc"] == kind) == (kind in ("dense", "sparse")), f"unknown {level['level_desc']}")
        need("level", {"rank", "level"} <= level.keys() <= known and type(level["rank"]) is int, f"keys of {kind}")
        if kind == "packed" and not (packed or chain or digits is not None):
            packed = True
        elif kind == "map" and not chain and digits is None and transpose is None:
            digits, transpose = level["digits"], level.get("transpose")
        else:
            ranks = {"dense": range(1, 65), "sparse": range(1, 65), "mask": range(1, 65)}
            ranks |= {"bitmap": range(65), "bits": range(65)}
            need("level", kind in KINDS and level["rank"] in ranks.get(kind, [1]), kind)
            chain.append(level | {"level_desc": kind})
        level = level["level"]
    return chain, transpose, digits, packed


def values_of(name, stored, text, count, packed):
    """The values that an array stands for, as Python's numbers."""
    made = re.fullmatch(TYPE, text)
    need("type", made and len(made[4]) == sum(x is not None for x in made.groups()[:2]), f"{name}: {text}")
    around, outer, base, _ = made.groups()
    iso, table = around == "iso[", around == "dictionary["
    bits, role = str(outer).startswith("bit"), re.match(r"(?:below_)*([a-z_]+?)_?\d*(?:_offsets)?$", name)[1]
    need(
        "type",
        (not around or (role == "values" and not bits)) and (outer != "complex" or base[0] == "f"),
        f"{name}: {text}",
    )
    need(
        "type",
        ("int" in base and (base != "bint8" or role == "bitmap")) or role in ("values", "fill_value", "labels"),
        name,
    )
    need("packed", not (bits or table) or (packed and (table or "int" in base)), f"{name}: {text}")
    wanted = "uint32" if bits else {"bint8": "uint8"}.get(base, base)
    need("type", stored.dtype == wanted, f"{name}: {stored.dtype}, declared {text}")
    items = unpacked(stored.tolist(), outer, np.dtype(base), name) if bits else stored.tolist()
    need("type", base != "bint8" or set(items) <= {0, 1}, f"{name}: a boolean")
    need("length", outer != "complex" or len(items) % 2 == 0, name)
    if outer == "complex":
        items = [complex(*pair) for pair in zip(items[::2], items[1::2], strict=True)]
    need("length", not iso or len(items) == 1 or len(items) == count == 0, name)
    items = [x == 1 for x in items] if base == "bint8" else items
    items = items * count if iso else items
    need("length", name != "values" or table or len(items) == count, name)
    return items


def looked_up(arrays, types, table, count):
    """The values of a dictionary."""
    need("type", re.fullmatch(r"(bitpacked\w*\[)?uint(8|16)\]?", types.get("codes", "")), "codes")
    need("length", len(arrays["codes"]) == count, "codes")
    entries, size = table.tobytes(), table.nbytes // max(len(arrays["values"]), 1)
    each = {entries[k : k + size] for k in range(0, len(entries), max(size, 1))}
    need("dictionary", len(arrays["values"]) <= 2**16, "too many entries")
    need("dictionary", len(each) == len(arrays["values"]), "an entry occurs twice")
    need("dictionary", all(code < len(each) for code in arrays["codes"]), "a code without an entry")
    return [arrays["values"][code] for code in arrays["codes"]]


def unpacked(words, kind, dtype, name):
    """The integers of a bit-packed array."""
    need("packed", len(words) >= 3 and words[2] in (1, 2), f"{name}: the head")
    count, at, planes, differs = words[0] | words[1] << 32, 3, [], kind != "bitpacked"
    chunks = -(-count // 128)
    for _ in range(words[2]):
        rows, at = words[at : at + chunks + 1], at + (chunks + 1) + chunks * differs
        planes.append((rows, words[at - chunks : at] if differs else [0] * chunks))
        good = len(rows) == chunks + 1 and rows[0] == 0 and all(b - a in range(33) for a, b in itertools.pairwise(rows))
        need("packed", good, f"{name}: rows")
    need("packed", len(words) == at + 4 * sum(rows[-1] for rows, _ in planes), f"{name}: the number of words")
    numbers = [0] * count
    for plane, (rows, starts) in enumerate(planes):
        for c, (begin, end) in enumerate(itertools.pairwise(rows)):
            width, number, chunk = end - begin, starts[c], words[at : at + 4 * (end - begin)]
            lanes, at = [sum(w << 32 * k for k, w in enumerate(chunk[lane::4])) for lane in range(4)], at + len(chunk)
            for i in range(min(128, count - 128 * c)):
                field = lanes[i % 4] >> i // 4 * width & 2**width - 1
                step = field if kind == "bitpacked_delta" else -(field + 1) // 2 if field % 2 else field // 2
                number = (number + step) % 2**32 if differs and width < 32 else field
                numbers[128 * c + i] |= number << 32 * plane
    size = 2 ** (64 if dtype.itemsize == 8 else 32)
    return [x - size if dtype.kind == "i" and x >= size // 2 else x for x in numbers]


# The levels. For n fibers, each gives triples of a fiber p, coordinates and a position q, and how many q there are.
# `get` is an array by the part of its name before the depth, of that length where it is known.


def owned(pointers):
    """The pairs of a fiber and a position that pointers give."""
    return [(p, q) for p, (a, b) in enumerate(itertools.pairwise(pointers)) for q in range(a, b)]


def pointers_of(get, n, count=None, root=False):
    pointers = [0, count] if root else get("pointers_to", n + 1)
    need("pointers", pointers[0] == 0 and pointers == sorted(pointers), "they descend, or do not begin with 0")
    need("pointers", count in (None, pointers[-1]), "they do not end with the number of positions")
    return pointers


def dense(n, sizes, get, level, root):
    cells = list(itertools.product(*map(range, sizes)))
    return [(p, x, p * len(cells) + c) for p in range(n) for c, x in enumerate(cells)], n * len(cells)


def sparse(n, sizes, get, level, root):
    columns = [get("indices", None, k) for k in range(len(sizes))]
    need("length", len(set(map(len, columns))) == 1, "indices of unequal length")
    pointers = pointers_of(get, n, len(columns[0]), root)
    return [(p, tuple(column[q] for column in columns), q) for p, q in owned(pointers)], pointers[-1]


def bitmap(n, sizes, get, level, root):
    flags = get("bitmap", n * math.prod(sizes))
    return [triple for triple in dense(n, sizes, get, level, root)[0] if flags[triple[2]]], len(flags)


def bits(n, sizes, get, level, root):
    cells = n * math.prod(sizes)
    flags = np.unpackbits(np.array(get("bits", -(-cells // 8)), np.uint8), bitorder="little")
    need("bits", not flags[cells:].any(), "behind the last cell")
    return [triple for triple in dense(n, sizes, get, level, root)[0] if flags[triple[2]]], cells


def mask(n, sizes, get, level, root):
    pointers, cells = pointers_of(get, n), math.prod(sizes)
    octets = np.array(get("mask", n * -(-cells // 8)), np.uint8).reshape(n, -(-cells // 8))
    flags = np.unpackbits(octets, axis=1, bitorder="little")
    need("bits", not flags[:, cells:].any(), "behind the last cell")
    need("pointers", np.diff(pointers).tolist() == flags.sum(axis=1).tolist(), "they do not count the bits")
    kept = [(p, x) for p, x, q in dense(n, sizes, get, level, root)[0] if flags[p, q - p * cells]]
    return [(p, x, q) for q, (p, x) in enumerate(kept)], len(kept)


def run(n, sizes, get, level, root):
    starts = get("run_starts", None)
    ends = get("run_ends", len(starts))
    need("order", all(map(int.__lt__, starts, ends)), "an empty run")
    return [
        (p, (x,), q) for p, q in owned(pointers_of(get, n, len(starts), root)) for x in range(starts[q], ends[q])
    ], len(starts)


def band(n, sizes, get, level, root):
    pointers, starts = pointers_of(get, n), get("band_starts", n)
    return [(p, (starts[p] + q - pointers[p],), q) for p, q in owned(pointers)], pointers[-1]


def n_of_m(n, sizes, get, level, root):
    slots, m = level.get("n"), level.get("m")
    need("level", type(slots) is int and type(m) is int and 1 <= slots <= m <= 255, "n and m")
    blocks = -(-sizes[0] // m)
    items = get("slots", n * blocks * slots)
    need("range", all(x <= m for x in items), "a slot")
    rows = np.array(items).reshape(-1, slots)
    need("order", not np.any((rows[:, :-1] == m) & (rows[:, 1:] < m)), "an empty slot before another")
    full = [(q // slots, q, x) for q, x in enumerate(items) if x < m]
    return [(block // blocks, (block % blocks * m + x,), q) for block, q, x in full], len(items)


def hashed(n, sizes, get, level, root):
    pointers = pointers_of(get, n)
    keys, ranks = (get(role, pointers[-1]) for role in ("hash_keys", "hash_ranks"))
    need("hash", ranks == [0, *itertools.accumulate(key != 0 for key in keys)][:-1], "ranks")
    for a, b in itertools.pairwise(pointers):
        size, slots = b - a, keys[a:b]
        need("hash", not size or (size & size - 1 == 0 and 2 * slots.count(0) >= size), "the number of slots")
        for key in filter(None, slots):
            at = ((key - 1) * 0x9E3779B97F4A7C15 % 2**64) * size >> 64
            while slots[at] not in (key, 0):
                at = (at + 1) % size
            need("hash", slots[at], f"no search reaches {key - 1}")
    return sorted((p, (keys[s] - 1,), ranks[s]) for p, s in owned(pointers) if keys[s]), len(keys) - keys.count(0)


def elias_fano(n, sizes, get, level, root):
    pointers, cells = pointers_of(get, n), n * sizes[0]
    m, low = pointers[-1], 0
    while m and low < 57 and 2 ** (low + 1) * m <= cells:
        low += 1
    lows = get("elias_fano_low", m * low // 64 + 2)
    highs = get("elias_fano_high", -(-(m + (cells - 1) // 2**low + 1) // 64) if m else 1)
    lower, upper = (sum(word << 64 * k for k, word in enumerate(words)) for words in (lows, highs))
    places = [b for b in range(64 * len(highs)) if upper >> b & 1]
    need("bits", len(places) == m and lower >> m * low == 0, "of the numbers")
    numbers = [(b - q << low) + (lower >> q * low & 2**low - 1) for q, b in enumerate(places)]
    need("order", all(map(int.__lt__, numbers, numbers[1:])), "numbers")
    return [(p, (numbers[q] - p * sizes[0],), q) for p, q in owned(pointers)], m


KINDS = {
    kind.__name__: kind for kind in (dense, sparse, bitmap, bits, mask, run, band, n_of_m, hashed, elias_fano)
}  # fmt: skip


def walk(chain, sizes, arrays, name):
    """The coordinates in stored order, and the position of the value, of each entry."""
    n, depth, zeros, found = 1, 0, [], {0: [()]}
    for level in chain:
        kind, rank = level["level_desc"], level["rank"]

        prefix = "below_" * len(zeros) if kind in zeros else ""

        def get(role, length, more=0, prefix=prefix, depth=depth):
            array = f"{prefix}{role}_{depth + more}"
            need("length", array in arrays and length in (None, len(arrays[array])), array)
            return arrays[array]

        dims, above = sizes[depth : depth + rank], n
        triples, n = KINDS[kind](n, dims, get, level, depth == 0)
        need("range", all(0 <= x < size for _, place, _ in triples for x, size in zip(place, dims, strict=True)), kind)
        need("order", all(a[:2] < b[:2] for a, b in itertools.pairwise(triples)), kind)
        may_be_empty = not depth or name not in ("DCSR", "DCSC")
        need("pointers", may_be_empty or {p for p, *_ in triples} == {*range(above)}, "an empty fiber")
        below = {}
        for p, x, q in triples:
            below.setdefault(q, []).extend(before + x for before in found.get(p, ()))
        zeros, depth, found = ([] if rank else [*zeros, kind]), depth + rank, below
    need("length", len(arrays["values"]) == n, "values")
    return [(coords, q) for q, places in found.items() for coords in places]


# Around the levels


def expanded(structure, entries, shape, last, text):
    """Both triangles of a matrix."""
    made = re.fullmatch(r"(symmetric|hermitian|skew_symmetric)_(lower|upper)", str(structure))
    need("structure", made and len(shape) == 2 and shape[0] == shape[1], structure)
    need("structure", made[1] != "hermitian" or "complex" in text, "hermitian of real numbers")
    kept = {(i, j): v for (i, j), v in entries.items() if (i >= j if made[2] == "lower" else i <= j)}
    need("structure", len(kept) == len(entries) or last in ("dense", "band"), "an entry of the other triangle")
    integer = re.search(r"u?int\d+", text)
    negative = (lambda v: np.negative(np.array(v, integer[0])).item()) if integer else (lambda v: -v)
    mirror = {"symmetric": lambda v: v, "hermitian": lambda v: v.conjugate(), "skew_symmetric": negative}[made[1]]
    return {(j, i): mirror(v) for (i, j), v in kept.items() if i != j} | kept


def groups_of(digits, shape):
    """(dimension, stride, radix, other) of each digit of each stored dimension. other: what is subtracted, or -1."""
    digit = r"\d+(?:-\d+)?(?:/\d+)?(?:%\d+)?"
    group = rf" *(?:{digit}|\( *{digit}(?: +{digit})* *\)) *"
    need("map", type(digits) is str and re.fullmatch(rf"(?:{group}(?:,{group})*)? *", digits), digits)
    groups, strides, others = [], [1] * len(shape), {}
    for text in digits.split(",") if digits.strip(" ") else []:
        parts = re.findall(r"(\d+)(?:-(\d+))?(?:/(\d+))?(?:%(\d+))?", text)
        found = [(int(k), int(s or 1), r, int(other or -1)) for k, other, s, r in parts]
        known = all(max(k, other) < len(shape) and s for k, s, _, other in found)
        need("map", known, f"{digits}: no such dimension, or a stride of 0")
        groups.append([(k, s, int(r) if r else -(-size_of(k, other, shape) // s), other) for k, s, r, other in found])
    for k, stride, radix, other in sorted(itertools.chain(*groups)):
        size = size_of(k, other, shape)
        need("map", others.setdefault(k, other) == other, f"{digits}: dimension {k} less several")
        need("map", stride == strides[k] or size == 0, f"{digits}: a gap in dimension {k}")
        strides[k] *= radix
    need("map", others.keys() == {*range(len(shape))}, f"{digits}: a dimension is not there")
    need("map", all(x < 0 or others[x] < 0 for x in others.values()), f"{digits}: less a difference")
    whole = all(strides[k] >= size_of(k, other, shape) for k, other in others.items())
    need("map", whole, f"{digits}: a dimension is not whole")
    return groups


def size_of(k, other, shape):
    """How many coordinates dimension k has, or differences to another."""
    return shape[k] if other < 0 else max(shape[k] + shape[other] - 1, 0)


def mapped(groups, shape, entries):
    """The entries of the tensor that those of the stored tensor stand for. Padding lies outside of the shape."""
    others = {k: other for group in groups for k, *_, other in group if other >= 0}
    for coords, value in entries.items():
        place = [0] * len(shape)
        for x, group in zip(coords, groups, strict=True):
            for k, stride, radix, _ in reversed(group):
                x, digit = divmod(x, radix)
                place[k] += stride * digit
        for k, other in others.items():
            place[k] += place[other] - (shape[other] - 1)
        yield tuple(place), value


def labels_of(header, shape, arrays):
    """The labels by name of the dimension: texts, or the numbers that are stored."""
    about, found = header.get(f"{OURS}labels", {"dims": [], "labels": []}), {}
    names, types = about["dims"], about["labels"]
    need(
        "labels",
        len({*names}) == len(names) == len(types) and (not about.get("values") or len(names) == len(shape)),
        "dims",
    )
    for k, (name, kind) in enumerate(zip(names, types, strict=True)):
        items = None if kind is None else arrays[f"labels_{k}"]
        if kind == "text":
            ends = arrays[f"labels_{k}_offsets"]
            need("labels", ends[:1] == [0] and ends == sorted(ends) and ends[-1] == len(items), f"labels_{k}_offsets")
            try:
                items = [bytes(items[a:b]).decode() for a, b in itertools.pairwise(ends)]
            except UnicodeDecodeError:
                raise Refused(f"labels: labels_{k} is not UTF-8") from None
        need("labels", items is None or len(items) <= shape[k], f"more labels than coordinates of {name}")
        found[name] = [x == 1 for x in items] if kind == "bool" else items
    return found


def check_seal(header, stored):
    seal, mark = header.get(f"{OURS}crc32c"), header.get(f"{OURS}sealed")
    if seal is not None or mark is not None:
        rest = {key: value for key, value in header.items() if key not in (f"{OURS}sealed", f"{OURS}crc32c")}
        sums = {name: crc32c(summed(stored[name])) for name in header["binsparse"]["data_types"]}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
        need("checksum", mark is True and seal == {"header": crc32c(text), "arrays": sums}, "something has changed")


def summed(array):
    little, sign = array.astype(array.dtype.newbyteorder("<")), "|<"[array.itemsize > 1]
    return little.tobytes() + f"{sign}{array.dtype.kind}{array.itemsize} {len(array)}".encode()


def crc32c(data):
    total = 2**32 - 1
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ 0x82F63B78 * (total & 1)
    return total ^ 2**32 - 1
