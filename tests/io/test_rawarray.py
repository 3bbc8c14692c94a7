"""RawArray: single files by real programs and by us, what they may hold, and folders of them."""

import itertools
import json
import os
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.golden import arrays_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numcodecs import lz4

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    LimitError,
    Limits,
    OptionError,
    Tensor,
    UnsafeError,
    pack,
    pack_dense,
    read,
    repair,
    write,
)
from binsparse_levels.cli import main
from binsparse_levels.containers import ra_codecs, ra_file
from binsparse_levels.io import describe, list_tensors
from binsparse_levels.io.files.rawarray import open_array

DATA = Path(__file__).parents[1] / "data" / "rawarray"
MANIFEST = json.loads((DATA / "manifest.json").read_text())
FILES, BAD = MANIFEST["files"], MANIFEST["bad"]
EXPECTED = arrays_of(DATA / "expected.npz")

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "b1", "V16", "V4", "V7"]
ELTYPES = {"V16": (0, 1, 2, 3), "V4": (0, 4), "V7": (0,), "b1": (0, 2, 5)}  # that may be asked for


def dense(array, order=None):
    """A tensor that stores every cell of an array, its dimensions in that order."""
    order = tuple(range(array.ndim)) if order is None else order
    format = ", ".join(["dense"] * array.ndim) + " @ " + ", ".join(map(str, order)) if array.ndim else "element"
    return Tensor(format, array.shape, {}, np.ascontiguousarray(array.transpose(order)).reshape(-1))


def cells(tensor):
    """The tensor as an array; to_dense compares with a fill value, which raw bytes have none of."""
    stored = tensor.values.reshape([tensor.shape[k] for k in tensor.format.order])
    return stored.transpose(np.argsort(tensor.format.order)) if tensor.ndim else stored


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def arrays(dtypes=DTYPES, max_dims=4):
    kinds = st.sampled_from(dtypes).map(np.dtype)
    shapes = hnp.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=5)

    def of(dtype, shape):
        size = int(np.prod(shape)) * dtype.itemsize
        if dtype.kind == "b":
            return st.binary(min_size=size, max_size=size).map(
                lambda raw: (np.frombuffer(raw, "u1") & 1).view(bool).reshape(shape)
            )
        return st.binary(min_size=size, max_size=size).map(lambda raw: np.frombuffer(raw, dtype).reshape(shape))

    return st.tuples(kinds, shapes).flatmap(lambda given: of(*given))


@pytest.fixture(params=["pread", "seek"])
def by(request, monkeypatch):
    """Once as on systems that read at a place, once as on those that do not."""
    if request.param == "seek":
        monkeypatch.delattr(os, "preadv", raising=False)


# Files by other programs


@pytest.mark.parametrize("name", FILES)
def test_reads_to_what_it_holds(name, tmp_path, by):
    entry, expected = FILES[name], EXPECTED[name]
    tensor = read(DATA / name)
    assert list(tensor.shape) == entry["dims"]
    if entry["kind"] == "raw_bytes" or entry["eltype"] == 0:
        assert tensor.dtype == f"V{entry['elbyte']}"
        assert tensor.values.tobytes() == np.asarray(expected).tobytes(order="F")
    elif tensor.dtype.name != "bfloat16" and name != "rs_bf16.ra":
        assert same(cells(tensor), expected.astype(expected.dtype.newbyteorder("=")))
    other = read(DATA / name, order="C")
    assert other.shape == tensor.shape[::-1]
    assert same(other.values, tensor.values)
    assert same(cells(other).T, cells(tensor))
    with open_array(str(DATA / name)) as array:
        assert (len(array), array.dtype) == (tensor.size, tensor.dtype)
        for begin, end in [(0, 1), (1, 4), (len(array) // 2, len(array)), (5, 2)]:
            assert same(array[begin:end], tensor.values[begin:end])
    found = describe(DATA / name)
    assert found.descriptor.shape == tensor.shape
    assert found.descriptor.format == tensor.format
    assert found.arrays["values"].nbytes == entry["size"]
    assert list_tensors(DATA / name) == ["/"]


@pytest.mark.parametrize("name", [name for name in FILES if not FILES[name]["flags"]])
def test_writes_the_same_bytes(name, tmp_path):
    entry, tensor = FILES[name], read(DATA / name)
    eltype = entry["eltype"] if tensor.dtype.type is np.void else None
    write(tmp_path / "a.ra", tensor, eltype=eltype)
    write(tmp_path / "b.ra", read(DATA / name, order="C"), order="C", eltype=eltype)
    whole = (DATA / name).read_bytes()
    whole = whole[: len(whole) - entry["trailing_bytes"]]
    assert (tmp_path / "a.ra").read_bytes() == whole
    assert (tmp_path / "b.ra").read_bytes() == whole


@pytest.mark.parametrize("name", BAD)
def test_what_is_malformed_is_refused(name):
    path = DATA / "bad" / name
    if BAD[name].startswith("valid") and name != "ndims_65.ra":
        tensor = read(path)
        assert tensor.size == len(tensor.values)
        return
    with pytest.raises(BinsparseError):
        read(path)
    assert main(["check", str(path)]) == 1


def test_what_is_more_than_numpy_has():
    path = DATA / "bad" / "ndims_65.ra"
    tensor = read(path, limits=Limits(rank=65))
    assert (tensor.ndim, tensor.values.tolist()) == (65, [0.0])
    assert read(DATA / "bad" / "elbyte3_float.ra", dtype="V3").values.tobytes() == bytes(
        (DATA / "bad" / "elbyte3_float.ra").read_bytes()[56:]
    )


# The laws


@given(array=arrays(), data=st.data())
def test_what_is_written_is_read(tmp_path_factory, array, data):
    path = tmp_path_factory.mktemp("law") / "a.ra"
    order = data.draw(st.sampled_from("FC"))
    stored = data.draw(st.permutations(range(array.ndim)))
    tensor = dense(array, tuple(stored))
    write(path, tensor, order=order)
    with open(path, "ab") as file:
        file.write(data.draw(st.sampled_from([b"", b"more"])))
    again = read(path, order=order)
    assert same(cells(again), array)
    assert again.equals(tensor)
    assert read(path, order="C" if order == "F" else "F").shape == array.shape[::-1]
    with open_array(str(path)) as file:
        items = array.tobytes(order=order)
        for begin, end in [(0, array.size), (array.size // 3, array.size), (0, array.size // 2)]:
            width = array.itemsize
            assert file[begin:end].tobytes() == items[begin * width : end * width]


@given(array=arrays(), data=st.data())
def test_the_other_byte_order_and_every_encoding_are_read(tmp_path_factory, array, data):
    path = tmp_path_factory.mktemp("law") / "a.ra"
    write(path, dense(array))
    plain, (eltype, width) = read(path), ra_file.codes_of(array.dtype, None, "a")
    raw, unit = array.tobytes(order="F"), width // 2 if eltype == 4 else 1 if eltype == 0 else width
    swapped = np.frombuffer(raw, "u1").reshape(-1, unit)[:, ::-1].tobytes()
    kinds = {"big": (1, swapped, len(raw)), "lz4": (2, lz4.compress(raw)[4:] if raw else b"", None)}
    if array.dtype.kind in "iub":
        kinds["leb128"] = (2, leb128(raw, width, eltype == 1), len(raw))
    flags, stored, size = kinds[data.draw(st.sampled_from(sorted(kinds)))]
    path.write_bytes(ra_bytes(eltype, width, array.shape, stored, flags if raw else 0, size))
    assert read(path).equals(plain)
    with open_array(str(path)) as file:
        assert file[1:3].tobytes() == plain.values[1:3].tobytes()


def leb128(raw, width, signed):
    payload, bits = bytearray(), 8 * width
    for at in range(0, len(raw), width):
        number = int.from_bytes(raw[at : at + width], "little")
        if signed:
            value = number - (1 << bits if number >> (bits - 1) else 0)
            number = 2 * value if value >= 0 else -2 * value - 1
        while number > 127:
            payload.append(number & 127 | 128)
            number >>= 7
        payload.append(number)
    return bytes(payload)


@given(
    st.sampled_from([1, 2, 4, 8, 16]).flatmap(
        lambda width: st.tuples(
            st.just(width), st.booleans(), st.lists(st.integers(0, 2 ** (8 * width) - 1), max_size=20)
        )
    )
)
def test_leb128_is_that_of_obvious_python(case):
    width, signed, patterns = case
    raw = b"".join(pattern.to_bytes(width, "little") for pattern in patterns)
    padded = np.frombuffer(leb128(raw, width, signed) + b"\x05", np.uint8)
    assert ra_codecs.expand_leb128(padded, len(patterns), width, signed).tobytes() == raw


def test_leb128_of_more_than_the_width():
    payload = np.array([0xFF, 0x7F], np.uint8)  # 2**14 - 1: what is above the width is dropped
    assert ra_codecs.expand_leb128(payload, 1, 1, False).tolist() == [255]
    assert ra_codecs.expand_leb128(payload, 1, 1, True).view("i1").tolist() == [0]  # -2**13
    for bad, message in [([0x80, 0x80, 1], "takes 3 bytes"), ([0x80], "ends after 0")]:
        with pytest.raises(ValueError, match=message):
            ra_codecs.expand_leb128(np.array(bad, np.uint8), 1, 1, False)


# Which encoding it is


def ra_bytes(eltype, elbyte, dims, data, flags=0, size=None):
    size = len(data) if size is None else size
    return ra_file.MAGIC + struct.pack(f"<{5 + len(dims)}Q", flags, eltype, elbyte, size, len(dims), *dims) + data


def lz4_of_its_own_size():
    """A block that expands to as many bytes as it has itself, and these."""
    head, tail = bytes(range(1, 8)), bytes([1, *range(50, 63)])
    block = bytes([0x70]) + head + bytes([7, 0]) + bytes([0xE0]) + tail
    whole = head + head[:4] + tail
    assert len(block) == len(whole)
    return block, whole


@pytest.mark.parametrize(("eltype", "dtype"), [(1, "i1"), (2, "u1"), (3, "f4"), (0, "V1")])
def test_lz4_comes_before_what_the_size_allows(tmp_path, eltype, dtype):
    block, whole = lz4_of_its_own_size()
    width = np.dtype(dtype).itemsize
    if len(whole) % width:
        block, whole = block[:-1], whole[:-1]
        block = block[:10] + bytes([0xD0]) + block[11:]
    path = tmp_path / "a.ra"
    path.write_bytes(ra_bytes(eltype, width, [len(whole) // width], block, flags=2) + b"trailer")
    assert read(path).values.tobytes() == whole
    path.write_bytes(ra_bytes(eltype, width, [len(whole) // width], block, flags=0))
    assert read(path).values.tobytes() == block


def test_encoded_and_big_endian(tmp_path):
    path = tmp_path / "a.ra"
    for flags, eltype, elbyte, data, expected in [
        (7, 5, 8, (5).to_bytes(8, "big"), [True, False, True]),  # bits, in words
        (5, 5, 8, (5).to_bytes(8, "big"), [True, False, True]),
        (3, 2, 2, bytes([1, 2, 0x80, 2]), [1, 2, 256]),  # LEB128 has an order of its own
    ]:
        size = 8 if flags & 4 else 6
        path.write_bytes(ra_bytes(eltype, elbyte, [3], data, flags, size))
        assert read(path).values.tolist() == expected
    path.write_bytes(ra_bytes(1, 4, [0], b"\0", 2))  # what LZ4 makes of nothing
    assert read(path).values.tolist() == []
    path.write_bytes(ra_bytes(1, 3, [2], b"\1\2", 2, 6))
    with pytest.raises(ContainerError, match="integers of 3 bytes"):
        read(path, dtype="V3")


def test_lz4_that_lies_about_its_size(tmp_path):
    block = lz4.compress(bytes(1000))[4:]
    for claimed in (999, 1001, 255 * len(block) + 65, 2**31):
        (tmp_path / "a.ra").write_bytes(ra_bytes(2, 1, [claimed], block, 2))
        with pytest.raises(ContainerError, match="LZ4"):
            read(tmp_path / "a.ra")


def test_encoded_data_that_are_damaged(tmp_path):
    path = tmp_path / "a.ra"
    for data, flags, size in [(b"\x80\x80\x80", 2, 2), (b"\0\0\0", 2, 3)]:
        path.write_bytes(ra_bytes(2, 1, [2], data, flags, size))
        with open_array(str(path)) as array:
            for load in (lambda array=array: array[:], lambda array=array: array[:1]):
                with pytest.raises(ContainerError):
                    load()


# Types


@pytest.mark.parametrize(("dtype", "eltype"), [(d, e) for d in ELTYPES for e in ELTYPES[d]])
def test_types_that_are_asked_for(tmp_path, dtype, eltype):
    array = np.frombuffer(np.random.default_rng(0).bytes(6 * np.dtype(dtype).itemsize), dtype)
    array = (array.view("u1") & 1).view(bool) if dtype == "b1" else array
    write(tmp_path / "a.ra", dense(array), eltype=eltype)
    assert (tmp_path / "a.ra").read_bytes()[16] == eltype
    again = read(tmp_path / "a.ra", dtype=bool if dtype == "b1" else None)
    assert again.values.tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", ["M8[ns]", "i4,f8", "g", "G"])
def test_types_that_the_file_does_not_tell(tmp_path, kind):
    array = np.zeros(3, kind)
    with pytest.raises(FormatError, match="eltype=0"):
        write(tmp_path / "a.ra", dense(array))
    assert not os.listdir(tmp_path)
    write(tmp_path / "a.ra", dense(array), eltype=0)
    assert read(tmp_path / "a.ra").dtype == f"V{array.itemsize}"
    assert same(read(tmp_path / "a.ra", dtype=kind).values, array)


def test_a_type_of_the_callers_has_the_order_of_the_file(tmp_path):
    pair = np.dtype([("a", "<i4"), ("b", "<f8")])
    array = np.array([(1, 2.5), (-3, 4.5)], pair)
    big = array.astype(pair.newbyteorder(">"))
    (tmp_path / "a.ra").write_bytes(ra_bytes(0, 12, [2], big.tobytes(), flags=1))
    assert same(read(tmp_path / "a.ra", dtype=pair).values, array)
    assert read(tmp_path / "a.ra").values.tobytes() == big.tobytes()
    for width in (1, 3, 5, 6):  # of complex numbers, which have two parts
        data = bytes(range(2 * width))
        (tmp_path / "b.ra").write_bytes(ra_bytes(4, width, [2], data, flags=1))
        assert sorted(read(tmp_path / "b.ra", dtype=f"V{width}").values.tobytes()) == sorted(data)
    for wrong in ("i4", "O", ("i4", (3,))):
        with pytest.raises(OptionError):
            read(tmp_path / "a.ra", dtype=wrong)


def test_headers_that_say_much(tmp_path):
    path = tmp_path / "a.ra"
    for fields, shape in [
        ((0, 2**31 - 1, [0]), (0,)), ((0, 2**31, [0]), None), ((1, 4, [2**62, 0, 2**62]), (2**62, 0, 2**62)),
        ((1, 4, [0, 2**63]), None), ((1, 4, [2**32, 2**32]), None), ((1, 4, [2**64 - 1]), None),
    ]:  # fmt: skip
        for flags in (0, 2):
            path.write_bytes(ra_bytes(*fields, b"", flags))
            for call in (lambda: read(path).shape, lambda: describe(path).descriptor.shape):
                if shape is None:
                    with pytest.raises(ContainerError):
                        call()
                else:
                    assert call() == shape


def test_128_bits_in_both_orders(tmp_path):
    numbers = [1, -2, 2**100, -(2**127)]
    raw = {order: b"".join(n.to_bytes(16, order, signed=True) for n in numbers) for order in ("little", "big")}
    array = np.frombuffer(raw[sys.byteorder], "V16")
    write(tmp_path / "a.ra", dense(array), eltype=1)
    assert (tmp_path / "a.ra").read_bytes()[56:] == raw["little"]
    assert same(read(tmp_path / "a.ra").values, array)
    encoded = leb128(raw["little"], 16, True)
    for flags, data in [(1, raw["big"]), (2, encoded), (3, encoded)]:
        (tmp_path / "b.ra").write_bytes(ra_bytes(1, 16, [4], data, flags, 64))
        assert read(tmp_path / "b.ra").values.tobytes() == raw["little"]


def test_booleans_are_0_or_1(tmp_path):
    path = tmp_path / "a.ra"
    path.write_bytes(ra_bytes(5, 1, [4], bytes([0, 1, 2, 1])))
    with pytest.raises(ArrayError, match=r"\[2\]: a boolean is 0 or 1, got 2"):
        read(path)
    with open_array(str(path)) as array:
        assert array[:2].tolist() == [False, True]
        for load in (lambda: array[:], lambda: array[1:3]):
            with pytest.raises(ArrayError, match=r"\[2\]"):
                load()
    assert read(path, dtype="u1").values.tolist() == [0, 1, 2, 1]


def test_bfloat16_as_bytes(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    tensor = read(DATA / "rs_bf16.ra")
    assert tensor.dtype == "V2"
    assert tensor.values.tobytes() == EXPECTED["rs_bf16.ra"].tobytes()
    write(tmp_path / "a.ra", tensor, eltype=5)
    assert (tmp_path / "a.ra").read_bytes() == (DATA / "rs_bf16.ra").read_bytes()


def test_bfloat16_as_numbers(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = read(DATA / "rs_bf16.ra")
    assert tensor.dtype == ml_dtypes.bfloat16
    assert tensor.values[:3].astype("f4").tolist() == [0.36328125, -0.89453125, -1.15625]
    write(tmp_path / "a.ra", tensor)
    assert (tmp_path / "a.ra").read_bytes() == (DATA / "rs_bf16.ra").read_bytes()
    with pytest.raises(FormatError, match="no type"):
        write(tmp_path / "c.ra", tensor.astype(ml_dtypes.float8_e5m2))


# What is written


@pytest.mark.parametrize(
    "tensor",
    [
        pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"),
        pack([[0, 1], [0, 1]], [1.0, 2.0], (2, 2), "COO"),
        pack_dense(np.eye(3), "dense(2)", fill_value=5.0),
        pack_dense(np.eye(3), "DMATR").with_structure("symmetric_lower"),
    ],
)
def test_what_a_file_cannot_say(tmp_path, tensor):
    with pytest.raises(FormatError):
        write(tmp_path / "a.ra", tensor)
    assert not os.listdir(tmp_path)


def test_sparse_tensors_by_way_of_dense_ones(tmp_path):
    tensor = pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR", fill_value=0)
    write(tmp_path / "a.ra", tensor.convert("DMATC"))
    assert np.array_equal(read(tmp_path / "a.ra").to_dense(), tensor.to_dense())
    iso = pack(np.indices((2, 3)).reshape(2, -1), 1.5, (2, 3), "CSR").convert("dense(2)")
    assert iso.iso
    write(tmp_path / "b.ra", iso)
    assert read(tmp_path / "b.ra").equals(iso)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "K"}, {"order": 0}, {"eltype": 3}, {"eltype": "1"}, {"eltype": []},
        {"compression": "gzip"}, {"checksum": True}, {"narrow": True}, {"dtype": "i4"}, {"nothing": 1},
    ],
)  # fmt: skip
def test_options_that_do_not_apply(tmp_path, options):
    with pytest.raises((OptionError, FormatError)):
        write(tmp_path / "a.ra", dense(np.arange(3, dtype="i4")), **options)
    assert not os.listdir(tmp_path)


def test_options_of_reading(tmp_path):
    write(tmp_path / "a.ra", dense(np.arange(3)))
    write(tmp_path / "a.h5", dense(np.arange(3)))
    write(tmp_path / "a.tns", pack([[0, 1]], [1.0, 2.0], (3,), "CVEC"))
    for name, options in [
        ("a.ra", {"order": "K"}), ("a.ra", {"shape": 3}), ("a.ra", {"duplicates": "sum"}), ("a.ra", {"lenient": True}),
        ("a.h5", {"order": "C"}), ("a.tns", {"order": "C"}), ("a.tns", {"dtype": "i4"}),
    ]:  # fmt: skip
        with pytest.raises(OptionError):
            read(tmp_path / name, **options)
    with pytest.raises(OptionError):
        write(tmp_path / "b.h5", dense(np.arange(3)), order="C")
    with pytest.raises(OptionError):
        describe(tmp_path / "a.ra", lenient=True)
    with pytest.raises(FileNotFoundError), open_array(str(tmp_path / "none.ra")):
        pass
    with pytest.raises(ContainerError), open_array(str(tmp_path)):
        pass
    with open_array(str(tmp_path / "a.ra")) as array:
        assert [array[::2].tolist(), array[::-1].tolist(), array[-1]] == [[0, 2], [2, 1, 0], 2]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.ra"
    write(path, dense(np.arange(3)))
    with pytest.raises(FileExistsError):
        write(path, dense(np.arange(4)))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ContainerError, match="No space"):
        write(path, dense(np.arange(5)), overwrite=True)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["a.ra"]
    assert len(read(path).values) == 3


def test_limits():
    for name, limits in [("c_lz4_i4.ra", 1000), ("jl_leb128_i8.ra", 100), ("py_i2_3d.ra", 40), ("jl_bitarray.ra", 100)]:
        with pytest.raises(LimitError, match="array_bytes"):
            read(DATA / name, limits=Limits(array_bytes=limits))
        describe(DATA / name, limits=Limits(array_bytes=limits))
    with pytest.raises(LimitError, match="rank"):
        describe(DATA / "py_i2_3d.ra", limits=Limits(rank=2))
    with open_array(str(DATA / "trail_another_ra.ra"), limits=Limits(array_bytes=100)) as array:
        assert len(array[:10]) == 10
        for load in (lambda: array[:20], lambda: array[:]):
            with pytest.raises(LimitError):
                load()


# Damage


@pytest.mark.slow
@pytest.mark.parametrize("name", ["py_i2_3d.ra", "jl_bitarray.ra", "jl_leb128_u2.ra", "c_lz4_incompressible_u1.ra"])
def test_files_that_are_cut_or_changed(tmp_path, name, by):
    whole = (DATA / name).read_bytes()
    path = tmp_path / "a.ra"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(BinsparseError):
            read(path)
    for at, value in itertools.product(range(len(whole)), (0, 1, 2, 127, 255)):
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        try:
            tensor = read(path)
            describe(path)
        except BinsparseError:
            continue
        assert tensor.size == len(tensor.values)


def test_a_file_that_becomes_shorter(tmp_path, by):
    path = tmp_path / "a.ra"
    write(path, dense(np.arange(10**5)))
    with open_array(str(path)) as array:
        os.truncate(path, 300)
        assert array[:10].tolist() == list(range(10))
        with pytest.raises(ContainerError, match="ends before"):
            array[:]


# The command line, and other places


def test_commands(tmp_path, capsys):
    for name in FILES:
        for command in (["info"], ["info", "--json"], ["check"], ["check", "--json"]):
            assert main([*command, str(DATA / name)]) == 0
    out = capsys.readouterr().out
    assert "float16" in out
    assert "DMATC" in out
    assert main(["convert", str(DATA / "py_i2_3d.ra"), str(tmp_path / "a.h5")]) == 0
    assert main(["convert", str(tmp_path / "a.h5"), str(tmp_path / "b.ra")]) == 0
    assert (tmp_path / "b.ra").read_bytes() == (DATA / "py_i2_3d.ra").read_bytes()
    assert main(["convert", str(DATA / "c_c16_2d.ra"), str(tmp_path / "c.bspra"), "--format", "CSR"]) == 0
    assert main(["convert", str(tmp_path / "c.bspra"), str(tmp_path / "c.ra")]) == 2
    assert "convert it to 'dense, dense'" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "c.bspra"), str(tmp_path / "c.ra"), "--format", "DMATR"]) == 0
    np.testing.assert_array_equal(read(tmp_path / "c.ra").to_dense(), EXPECTED["c_c16_2d.ra"])  # zeros lose their sign
    assert main(["convert", str(DATA / "py_f2_2d.ra"), str(tmp_path / "d.h5")]) == 0
    assert read(tmp_path / "d.h5").dtype == np.float16
    assert main(["repair", str(DATA / "py_i2_3d.ra"), str(tmp_path / "e.ra")]) == 0
    assert repair(DATA / "py_i2_3d.ra", tmp_path / "f.h5") == []
    shutil.copy(DATA / "jl_bighost.ra", tmp_path / "without suffix")
    assert read(tmp_path / "without suffix").shape == (3, 4)


# Folders


TENSOR = pack([[0, 2, 0], [1, 0, 3]], [1.5, 2.5, 3.5], (3, 4), "CSR", fill_value=0)


def test_a_folder_of_files_that_others_read(tmp_path):
    write(tmp_path / "a.bspra", TENSOR)
    assert sorted(os.listdir(tmp_path / "a.bspra")) == [
        "binsparse.json", "fill_value.ra", "indices_1.ra", "pointers_to_1.ra", "values.ra",
    ]  # fmt: skip
    for name, array in {**TENSOR.arrays, "values": TENSOR.values}.items():
        assert same(read(tmp_path / "a.bspra" / f"{name}.ra").values, array)
        assert (tmp_path / "a.bspra" / f"{name}.ra").read_bytes()[8] == 0
    assert read(tmp_path / "a.bspra").equals(TENSOR)


@pytest.mark.parametrize(
    "encode",
    [
        lambda kind, width, x: ra_bytes(kind, width, x.shape, x.astype(x.dtype.newbyteorder(">")).tobytes(), flags=1),
        lambda kind, width, x: ra_bytes(kind, width, x.shape, lz4.compress(x.tobytes())[4:], flags=2),
        lambda kind, width, x: ra_bytes(kind, width, x.shape, x.tobytes()) + b"more",
    ],
)
def test_a_folder_of_files_by_others(tmp_path, encode):
    write(tmp_path / "a.bspra", TENSOR)
    for name, array in {**TENSOR.arrays, "values": TENSOR.values}.items():
        content = encode(*ra_file.codes_of(array.dtype, None, name), array)
        (tmp_path / "a.bspra" / f"{name}.ra").write_bytes(content)
    assert read(tmp_path / "a.bspra").equals(TENSOR)


def test_a_folder_that_is_damaged(tmp_path):
    def damaged(name, data):
        shutil.rmtree(tmp_path / "a.bspra", ignore_errors=True)
        write(tmp_path / "a.bspra", TENSOR)
        if data is None:
            (tmp_path / "a.bspra" / name).unlink()
        else:
            (tmp_path / "a.bspra" / name).write_bytes(data)
        return tmp_path / "a.bspra"

    for name, data in [
        ("binsparse.json", None), ("values.ra", None), ("indices_1.ra", None), ("values.ra", b""),
        ("values.ra", ra_bytes(3, 8, [3], bytes(23), size=24)), ("values.ra", ra_bytes(3, 4, [3], bytes(12))),
        ("values.ra", ra_bytes(3, 8, [3, 1], bytes(24))), ("indices_1.ra", ra_bytes(1, 16, [3], bytes(48))),
        ("indices_1.ra", ra_bytes(1, 4, [3], np.array([9, 9, 9], "<i4").tobytes())),
    ]:  # fmt: skip
        with pytest.raises(BinsparseError):
            read(damaged(name, data))
    place = damaged("values.ra", None)
    (tmp_path / "values.ra").write_bytes(ra_bytes(3, 8, [3], bytes(24)))
    os.symlink(tmp_path / "values.ra", place / "values.ra")
    with pytest.raises(UnsafeError):
        read(place)
    os.unlink(place / "values.ra")
    os.mkfifo(place / "values.ra")
    with pytest.raises(ContainerError):
        read(place)
    for path in (f"{place}:group", f"{tmp_path / 'b.bspra'}:group"):
        with pytest.raises(ContainerError, match=r"\.ra files has no groups"):
            write(path, TENSOR, overwrite=True)
