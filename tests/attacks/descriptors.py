"""Cases 1 to 40: headers."""

import json

import numpy as np

from binsparse_levels import Tensor

from .corpus import CONTAINERS, CSR, READ, A, C, D, L, chain, planted, raw, source

TEXT = source().text
INNER = json.loads(TEXT)["binsparse"]
TYPES = INNER["data_types"]
COUNT = "number_of_stored_values"
NO_ZARR = [name for name in CONTAINERS if name != "Zarr"]
ODD = [True, 1.5, "1", [1], {"a": 1}, None]


def custom(*levels, shape=(3, 4), **more):
    """A custom tree in place of CSR; levels as for `chain`."""
    return source(format="custom", custom=chain(*levels, **more), shape=list(shape))


def beside(text):
    """JSON of the user beside the descriptor."""
    return raw(TEXT.replace("{", f"{{{text}, ", 1))


def deep(depth):
    """A header of that many dense levels of size 1, written without recursion."""
    levels = '{"level_desc": "dense", "rank": 1, "level": ' * depth + '{"level_desc": "element"}' + "}" * depth
    head = f'"version": "0.1", "shape": {[1] * depth}, "number_of_stored_values": 1, "data_types": {{"values": "int8"}}'
    return raw(f'{{"binsparse": {{{head}, "format": "custom", "custom": {{"level": {levels}}}}}}}')


# fmt: off
# Where the header lies in zarr.json, zarr's own parser may be the first to refuse it.
planted(1, "not UTF-8", (D, C), raw(TEXT.encode("utf-16")), raw(TEXT.replace("CSR", "C\xffR").encode("latin1")))
planted(1, "not UTF-8, in JSON of the user", (D, C), raw(beside('"a": "\xff"').text.encode("latin1")))
planted(2, "not JSON, truncated", (D, C), *map(raw, ["", "{", "nonsense", TEXT[:-1], TEXT + "}", TEXT[1:]]))
planted(3, "top level not an object", (D, C), *map(raw, ["[1]", "5", '"x"', "null", "true"]))
planted(4, "namespace missing", D, raw(json.dumps(INNER)), lenient=(READ,), containers=NO_ZARR)
planted(4, "namespace missing, as some write it in Zarr", READ, raw(json.dumps(INNER)), containers=["Zarr"])
planted(5, "namespace not an object", D, *(raw(json.dumps({"binsparse": x})) for x in [*ODD[:4], None, []]))
planted(6, "duplicate keys at any depth", (D, C), beside('"binsparse": 0'), beside('"mine": [{"a": 1, "a": 2}]'), *(
    raw(TEXT.replace(f'"{key}":', f'"{spelled}": [9, 9], "{key}":'))
    for key, spelled in [("shape", "shape"), ("values", "values"), ("shape", "sh\\u0061pe")]))
planted(7, "NaN, ±Infinity", (D, C), beside('"a": NaN'), *(
    raw(TEXT.replace("[3,", f"[{x},")) for x in ["NaN", "Infinity", "-Infinity"]))
planted(8, "1e999", (D, C), raw(TEXT.replace("[3,", "[1e999,")), beside('"a": -1e999'))
planted(9, "integer of 5,000 digits", (D, C), raw(TEXT.replace("[3,", "[" + "9" * 5000 + ",")))
planted(10, "200,000 nested brackets", (L, C), *map(raw, ["[" * 200_000, '{"a":' * 200_000, "[" * 10**5 + "]" * 10**5]))
planted(11, "3,000 nested levels", (L, C), deep(3000))
planted(11, "900 nested levels", L, deep(900))
planted(12, "descriptor larger than 1 MiB", L, source(user={"a": "x" * 2**20}), source(user={"a": list(range(2**18))}))
odd = {"\x1b[31m": "\ud800", "nul\x00": "\u202e\x7f", "line\n": "\r"}
planted(13, "lone surrogates, control characters", READ, source(user=odd),
        verify=lambda tensor: dict(tensor.attributes) == odd and repr(tensor).encode())
planted(13, "lone surrogates, control characters in a fault", D, source(format="\x1b[31m\ud800"),
        source(**{"\x1b]0;\x07\ud800": 1}), source(types={"values": "\x1b\u202e"}),
        beside('"\\u001b": 1, "\\u001b": 2'), custom({"level_desc": "dense", "rank": 1, "\x1b[2J": 1}),
        containers=NO_ZARR)
planted(14, "unknown format", D, *(source(format=name) for name in ["XYZ", "", "csrr", "CSR ", "dense, sparse"]))
planted(15, "format is no string", D, *(source(format=x) for x in [*ODD[:2], 5, ["CSR"], {"CSR": 1}, None]))
planted(16, "version missing, wild, absurdly long", D, source(drop=["version"]), *(
    source(version=x) for x in ["9", "", "0.2", "v0.1", "0.1." + "9" * 5000, "0.1-" + "a" * 60, 0.1, *ODD]))
planted(17, "unknown keys", D, source(formt="CSR"), source(**{"": 1}), lenient=(READ,))
planted(18, "shape not a list of integers", D, *(source(shape=x) for x in ["34", {"0": 3}, *ODD]), *(
    source(shape=[x, 4]) for x in ["3", 3.5, True, None, [3], {}]))
planted(19, "negative dimension", D, source(shape=[-3, 4]), source(shape=[3, -(2**63)]))
planted(20, "zero dimension with stored values", D, source(shape=[0, 4]), source(shape=[3, 0]))
planted(21, "dimension > 2**63 - 1", D, *(source(shape=x) for x in [[3, 2**63], [2**64 + 3, 4], [10**30, 4]]))
large = [4194305, 4194305, 211106198978564]
planted(22, "overflow of the product of dense dimensions", (D, A), source(shape=[2**63 - 1, 2**62]),
        custom(("dense", 3), shape=large), custom(("dense", 2), ("sparse", 1), shape=large), *(
    source(format=name, shape=[2**62, 2**62], **{COUNT: n}) for name in ["DMATR", "DMATC"] for n in [0, 4]))
planted(23, "rank of shape ≠ ranks of levels", D, *(source(shape=x) for x in [[], [12], [3, 4, 1]]),
        custom(("sparse", 3)), custom(("dense", 1)))
scalar = Tensor("element", (), {}, [1.0])
planted(24, "scalar with other than one value", D, *(source(scalar, **{COUNT: n}) for n in [0, 2]))
planted(25, "rank > 64", L, custom(("sparse", 65), shape=[1] * 65), source(shape=[1] * 5000))
planted(25, "rank 10**12", (L, D), *(custom(x) for x in [("dense", 10**12), ("sparse", 10**12), ("sparse", 10**30)]))
planted(26, "rank of a level not an integer", D, *(custom(("dense", 1), ("sparse", x)) for x in ODD))
planted(27, "rank of a level 0 or negative", D, *(custom(("sparse", x), ("sparse", 2 - x)) for x in [0, -1, -(2**63)]))
element, dense = {"level_desc": "element"}, {"level_desc": "dense", "rank": 2}
planted(28, "level missing, extra, below element", D, source(format="custom"), *(
    source(format="custom", custom=tree) for tree in [
        *ODD, {}, {"level": dense}, {"level": None}, {"level": [element]}, {"level": "element"},
        {"level": {**dense, "level": {**element, "level": element}}}, {"level": {"rank": 2, "level": element}},
        {"level": {"level_desc": "dense", "level": element}}, {"level": {**dense, "level": element}, "levels": []}]))
planted(29, "unknown level_desc; nothing is imported", D, *(custom((name, 2)) for name in [
    "antigravity", "os.system", "__import__('os')", "../dense", "Dense", "x" * 10_000, *ODD]))
planted(30, "transpose no permutation", D, *(custom(("dense", 1), ("sparse", 1), transpose=x) for x in [
    [1], [0, 0], [0, 2], [1, 2], [-1, 0], [0, 1, 2], [True, False], [1.0, 0.0], ["1", "0"], "10", 1, {}, [[1], [0]]]))
turned = chain(("dense", 1), ("sparse", 1), transpose=[1, 0])
planted(31, "transpose on an alias that already transposes", D, source(format="CSC", transpose=[1, 0]),
        source(format="CSC", custom=turned | {"transpose": [0, 1]}), source(format="CSR", custom=turned))
planted(32, "number of stored values no count", D, source(drop=[COUNT]), *(
    source(**{COUNT: x}) for x in [-1, 4.5, -(2**70), *ODD]))
planted(33, "more stored values than cells", D, *(source(**{COUNT: x}) for x in [13, 2**63 - 1]))
planted(34, "number of stored values ≠ lengths", A, *(source(**{COUNT: x}) for x in [0, 3, 5, 12]))
planted(35, "data types missing, no object, no strings", D, source(drop=["data_types"]),
        *(source(data_types=x) for x in [{}, *ODD]), *(source(types={name: x}) for name in TYPES for x in ODD),
        *(source(data_types={k: v for k, v in TYPES.items() if k != name}) for name in TYPES))
planted(36, "unknown or nested data type", D, *(source(types={"values": name}) for name in [
    "float", "float16", "int128", "", "iso[" * 2000 + "int8" + "]" * 2000, "iso[iso[int8]]", "iso[int8",
    "complex[int8]", "complex[complex[float64]]", "complex[iso[float64]]", "float64]", "FLOAT64", "<f8", "S5", "O"]))
filled = Tensor("CSR", CSR.shape, CSR.arrays, CSR.values, fill_value=7.0)
planted(37, "fill not boolean", D, *(source(filled, fill=x) for x in [1, 0, "true", None, [], 7.0]))
planted(37, "fill value missing, not one, of another type", A,
        *(source(filled, arrays={"fill_value": x}) for x in [None, np.ones(0), np.ones(2)]),
        source(filled, types={"fill_value": "int8"}, arrays={"fill_value": np.ones(1, "i1")}))
planted(37, "type of the fill value missing, or iso", D, source(fill=True),
        source(filled, types={"fill_value": "iso[int8]"}))
planted(38, "alias and custom differ", D, *(source(custom=chain(*x)) for x in [
    [("sparse", 2)], [("sparse", 1), ("dense", 1)]]))
planted(38, "alias and custom agree", READ, source(custom=chain(("dense", 1), ("sparse", 1))), verify=CSR.equals)
planted(39, "iso on pointers or indices", D, *(
    source(types={name: "iso[int64]"}) for name in ["pointers_to_1", "indices_1"]))
planted(39, "two spellings of one name", (D, C), raw(TEXT.replace('"values":', '"v\\u0061lues": "int8", "values":')))
planted(40, "user types: size 0, above 1 MiB, overlapping", D, *(source(types={"values": x}) for x in [
    {"size": 0}, {"size": 2**40}, "user[2000000]", "opaque[0]", {"fields": [[0, 8], [4, 8]]}]))
