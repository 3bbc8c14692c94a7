"""What callers give: integers of any kind, masked arrays, booleans of any byte, types that no tensor holds."""

import h5py
import numpy as np
import pytest
from helpers.strategies import INTEGERS
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    DescriptorError,
    Format,
    IndexMap,
    LimitError,
    Limits,
    NOfM,
    OptionError,
    Sparse,
    Tensor,
    advise,
    append,
    concatenate,
    convert,
    get_threads,
    pack,
    pack_dense,
    read,
    set_threads,
    testing,
    write,
)

CUBE = np.arange(24.0).reshape(2, 3, 4)
FORMATS = ["CSR", "COOC", "dense(2)", "bitmap(2)", "bits(2)", "hashed, hashed", "run, sparse", "sparse, bitmap"]


def cube(format="dense, sparse(2)"):
    return pack_dense(CUBE, format)


def threads(n):
    before = get_threads()
    try:
        set_threads(n)
        return get_threads()
    finally:
        set_threads(before)


def stored(**options):
    """The file that options give."""

    def call(n, tmp_path):
        made = {key: n if value is None else {"values": n} for key, value in options.items()}
        write(tmp_path / "a.zarr", cube(), overwrite=True, **made)
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))

    return call


def in_parts(n, tmp_path):
    write(tmp_path / "a.h5", cube(), overwrite=True)
    with pytest.raises(LimitError, match=" 2 bytes are too few"):
        convert(tmp_path / "a.h5", tmp_path / "b.h5", memory=n)


def bpcells(n, tmp_path):
    matrix = pack([[0, 1], [0, 1]], [1, 2], (2, 2), "CSC")
    write(tmp_path / "a.h5", matrix, kind="bpcells", overwrite=True, version=n, chunks=n, gzip=n)
    return read(tmp_path / "a.h5")


TAKES = {  # each a function of 2, as whatever integer; and perhaps of a folder
    "shape": lambda n: pack([[0], [1]], [1.0], (n, 3), "CSR").shape,
    "shape alone": lambda n: pack([[1]], [1.0], n, "CVEC").shape,
    "Tensor": lambda n: Tensor("DVEC", n, {}, [1.0, 2.0]).shape,
    "permute": lambda n: cube().permute((n, 0, -1 * -1)).to_dense(),
    "permute a mapped one": lambda n: cube().with_map(IndexMap.transpose(cube().shape)).permute([n, 1, 0]).to_dense(),
    "Format": lambda n: Format((Sparse(3),), (n, 0, 1)),
    "rank": lambda n: (str(Sparse(n)), type(Sparse(n).rank), Sparse(n).rank),
    "parameters": lambda n: (str(NOfM(1, n, 4)), NOfM(1, 1, n)),
    "slabs": lambda n: [(part, t.to_dense()) for part, t in cube().slabs(n, max_bytes=10**4)],
    "slabs of so many bytes": lambda n: [
        part for part, _ in pack([[1], [1]], [1.0], (n, n), "COO").slabs(0, max_bytes=99)
    ],
    "draw": lambda n: cube().draw([n]),
    "advise slices": lambda n: str(advise(cube(), slices_by=n)),
    "advise count": lambda n: str(advise(cube(), count=n)),
    "advise shape": lambda n: str(advise([[0, 1]], n)),
    "transpose": lambda n: IndexMap.transpose(CUBE.shape, (n, 0, 1)),
    "grouping": lambda n: IndexMap.grouping(CUBE.shape, [n, 0, 1], [n]),
    "blocks": lambda n: IndexMap.blocks((4, n), n),
    "blocks of each": lambda n: IndexMap.blocks((4, 4), (n, 4), (1, n)),
    "hicoo": lambda n: IndexMap.hicoo((8, 8), n),
    "morton": lambda n: IndexMap.morton((n, n)),
    "digits": lambda n: IndexMap((4,), ((((0, n, 2)),), ((0, 1, n),))),
    "threads": threads,
    "limits": lambda n: Limits(rank=n),
    "index": lambda n: cube()[1, n, 3],
    "chunks": stored(chunks=None),
    "chunks by name": stored(chunks=True),
    "shards": stored(chunks=None, shards=None),
    "memory": in_parts,
    "bpcells": bpcells,
    "eltype": lambda n, tmp_path: write(tmp_path / "a.ra", pack_dense([True], "DVEC"), eltype=n, overwrite=True),
}


def called(name, n, tmp_path):
    function = TAKES[name]
    return function(n, tmp_path) if function.__code__.co_argcount > 1 else function(n)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("kind", [*INTEGERS[1:], np.uint64])
def test_whatever_has_an_index_is_an_integer(tmp_path, name, kind):
    found, expected = called(name, kind(2), tmp_path), called(name, 2, tmp_path)
    if isinstance(expected, Tensor):
        assert found.equals(expected)
    else:
        np.testing.assert_equal(found, expected)
        assert str(found) == str(expected)


# Where None is the default, it is no wrong argument.
OPTIONAL = {"chunks", "chunks by name", "shards", "eltype", "advise slices", "advise shape", "memory", "bpcells"}
WRONG = [True, np.True_, np.array(True), 2.0, np.float64(2), "2", None]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name in TAKES for wrong in WRONG if wrong is not None or name not in OPTIONAL],
    ids=repr,
)
def test_a_boolean_is_none(tmp_path, name, wrong):
    with pytest.raises((BinsparseError, TypeError, IndexError)):
        called(name, wrong, tmp_path)


def test_a_header_has_integers_of_json_alone():
    header, arrays = cube().__binsparse_descriptor__(), cube().__binsparse__()
    for wrong in (np.int64(4), 4.0, "4", True):
        changed = {**header["binsparse"], "shape": [2, 3, wrong]}
        with pytest.raises(BinsparseError):
            read({**arrays, "binsparse": {"binsparse": changed}})


# Masked arrays


@given(st.data())
def test_what_is_masked_is_not_stored(data):
    format = data.draw(testing.formats(max_rank=3))
    shape = tuple(data.draw(st.lists(st.integers(0, 3), min_size=format.rank, max_size=format.rank)))
    dtype = data.draw(st.sampled_from(["f8", ">i4", "bool", "i4,f8"]))
    cells = np.zeros(shape, dtype)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=cells.size, max_size=cells.size)), bool).reshape(shape)
    cells.reshape(-1)[: cells.size // 2] = np.ones((), dtype)
    masked = np.ma.array(cells, mask=mask if dtype != "i4,f8" else np.array(mask, "?,?"))
    found = pack_dense(masked, format, fill_value=None)
    expected = pack_dense(cells, format, fill_value=None, pattern=(cells != np.zeros((), dtype)) & ~mask)
    assert found.equals(expected)
    coords, places = [x.reshape(-1) for x in np.indices(shape)], masked.reshape(-1)
    if not shape:
        return
    kept = ~mask.reshape(-1)
    expected = pack([x[kept] for x in coords], cells.reshape(-1)[kept], shape, format)
    assert pack(coords, places, shape, format).equals(expected)
    map = data.draw(testing.maps(shape))
    if np.prod(map.stored_shape, dtype=float) < 2**16:
        listed = Format((Sparse(len(map.groups)),))
        plain = pack([x[kept] for x in coords], cells.reshape(-1)[kept], shape, Format((Sparse(len(shape)),)))
        assert pack(coords, places, shape, listed, map=map).equals(plain)


MASKED = np.ma.array([0, 1], mask=[False, True])


@pytest.mark.parametrize(
    "call",
    [
        lambda: pack([MASKED], [1.0, 2.0], 3, "CVEC"),
        lambda: pack(np.ma.array([[0, 1]], mask=[[True, False]]), [1.0, 2.0], 3, "CVEC"),
        lambda: pack([[0, np.ma.masked]], [1.0, 2.0], 3, "CVEC"),
        lambda: pack([[0, 1]], [1.0, np.ma.masked], 3, "CVEC"),
        lambda: pack([[0, 1]], np.ma.masked, 3, "CVEC"),
        lambda: pack([[0]], [1.0], 3, "CVEC", fill_value=np.ma.masked),
        lambda: pack_dense([MASKED, MASKED], "CSR"),
        lambda: pack_dense([[[1.0, np.ma.masked]]], "sparse(3)"),
        lambda: pack_dense([1, 2], "CVEC", pattern=np.ma.array([True, True], mask=[True, False])),
        lambda: Tensor("CVEC", 3, {"indices_0": MASKED}, [1.0, 2.0]),
        lambda: Tensor("CVEC", 3, {"indices_0": [0, 1]}, MASKED),
        lambda: cube().locate([MASKED] * 3),
        lambda: cube().to_dense(fill=np.ma.masked),
        lambda: IndexMap.transpose((3,)).forward([MASKED]),
        lambda: IndexMap.transpose((3,)).backward([MASKED]),
        lambda: pack([MASKED], [1, 2], (3,), "CVEC", map="0"),
    ],
)
def test_masks_elsewhere_are_refused(call):
    with pytest.raises(ArrayError, match="masked"):
        call()


def test_masked_arrays_without_a_masked_item_are_arrays():
    whole = np.ma.array([0, 2])
    assert pack([whole], whole, 3, "CVEC").equals(pack([[0, 2]], [0, 2], 3, "CVEC"))
    assert Tensor("CVEC", 3, {"indices_0": whole}, whole).to_dense().tolist() == [0, 0, 2]
    assert pack_dense(np.ma.array(7.0, mask=True), "element").to_dense() == 0


# Booleans


def booleans(octets):
    return np.array(octets, np.uint8).view(bool)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", FORMATS)
@given(octets=st.lists(st.sampled_from([0, 1, 2, 3, 128, 255]), min_size=6, max_size=6))
def test_booleans_of_any_byte_are_kept(tmp_path_factory, format, octets):
    values, expected = booleans(octets), np.array(octets) != 0
    coords = np.indices((2, 3)).reshape(2, -1)
    listed = pack(coords, values, (2, 3), format)
    dense = pack_dense(values.reshape(2, 3), format, pattern=booleans(octets).reshape(2, 3))
    iso = pack(coords, values[0], (2, 3), format, fill_value=values[1])
    wrapped = Tensor("DMATR", (2, 3), {}, values)
    if values.view(np.uint8).max() > 1:  # of a level they say where entries are: nothing is mended there
        with pytest.raises(ArrayError, match="expected 0 or 1"):
            Tensor("bitmap(2)", (2, 3), {"bitmap_0": values}, values)
    folder = tmp_path_factory.mktemp("booleans")
    for k, tensor in enumerate((listed, dense, iso, wrapped)):
        assert tensor.values.view(np.uint8).max(initial=0) <= 1
        for place in (f"{folder}/{k}.h5", {}):
            write(place, tensor)
            assert read(place).equals(tensor)
    for tensor in (listed, dense, wrapped):
        np.testing.assert_array_equal(tensor.to_dense(), expected.reshape(2, 3))
    whole = np.full((2, 3), expected[0])
    np.testing.assert_array_equal(iso.to_dense(), whole)
    filled = pack([[], []], booleans([]), (2, 3), "CSR").to_dense(fill=values[2])
    np.testing.assert_array_equal(filled, np.full((2, 3), expected[2]))


def test_booleans_of_any_byte_go_on(tmp_path):
    rows = pack([[0, 1], [1, 2]], booleans([2, 255]), (2, 3), "CSR")
    write(tmp_path / "a.zarr", rows)
    append(tmp_path / "a.zarr", rows)
    concatenate([tmp_path / "a.zarr", tmp_path / "a.zarr"], tmp_path / "b.h5")
    convert(tmp_path / "b.h5", tmp_path / "c.npz", "COO")
    np.testing.assert_array_equal(read(tmp_path / "c.npz").to_dense(), np.tile(rows.to_dense(), (4, 1)))


def test_booleans_of_any_byte_in_files_of_other_systems(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", [2, 3]
        group["indptr"], group["indices"] = [0, 1, 3], [1, 0, 2]
        data = group.create_dataset("data", 3, bool)
        data.id.write(h5py.h5s.ALL, h5py.h5s.ALL, booleans([2, 0, 255]), mtype=data.id.get_type())
    for tensor in (read(tmp_path / "a.h5ad:X"), bl.open(tmp_path / "a.h5ad:X"), bl.open(tmp_path / "a.h5ad:X")[:]):
        write(tmp_path / "b.h5", tensor, overwrite=True)
        assert read(tmp_path / "b.h5").to_dense().tolist() == [[False, True, False], [False, False, True]]
        assert tensor.load().values.view(np.uint8).tolist() == [1, 0, 1]


# Types


@pytest.mark.parametrize(
    "values", [["a", "bc"], [b"a", b"b"], [{}, None], np.array(["a", "b"], object), np.empty(2, "V0")]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda values: pack([[0, 1]], values, 3, "CVEC"),
        lambda values: pack([[0, 1]], values[0], 3, "CVEC"),
        lambda values: pack([[0, 1]], values, (3,), "CVEC", map="0"),
        lambda values: pack_dense(values, "CVEC", fill_value=None),
        lambda values: Tensor("CVEC", 3, {"indices_0": [0, 1]}, values),
        lambda values: pack([[0]], [1.0], 3, "CVEC").astype(np.asarray(values).dtype),
    ],
)
def test_types_that_no_tensor_holds(call, values):
    with pytest.raises(ArrayError, match="values"):
        call(values)


# Cases that hostile use found


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"binsparse": {}}, DescriptorError),
        ({"a": float("nan")}, DescriptorError),
        ({"a": {1}}, OptionError),
        ({"a": np.int64(1)}, OptionError),
        ({"a": "x" * 2**21}, LimitError),
        ([1], OptionError),
        ({1: 2}, OptionError),
    ],
    ids=range(7),
)
def test_attributes_that_no_container_would_give_back(attributes, error):
    with pytest.raises(error):
        pack([[0]], [1.0], 3, "CVEC", attributes=attributes)


def test_records_have_a_fill_value_of_their_type():
    records = np.array([[(1, 2), (0, 0)]], [("a", "f4"), ("b", "i8")])
    with pytest.raises(ArrayError, match=r"fill_value: 0 is not of type \[\('a'.*; pass a value"):
        pack_dense(records, "CSR")
    assert pack_dense(records, "CSR", fill_value=np.zeros((), records.dtype)).to_dense().tolist() == records.tolist()


def test_arrays_that_are_none():
    ragged = [[1, 2], [3]]
    for call in (
        lambda: pack([ragged, ragged], [1], (3, 3), "CSR"),
        lambda: pack([[0], [1]], ragged, (3, 3), "CSR"),
        lambda: Tensor("CVEC", 3, {"indices_0": ragged}, [1]),
        lambda: pack([[0]], [1.0], 3, "CVEC").astype(object),
    ):
        with pytest.raises(ArrayError):
            call()


def test_names_of_ours_are_no_attributes():
    with pytest.raises(DescriptorError, match="are reserved"):
        pack([[0]], [1.0], (1,), "CVEC", attributes={"binsparse_levels:sealed": 5})


def test_a_boolean_array_of_any_bits_is_a_pattern():
    mask = np.array([0, 2, 0, 255], np.uint8).view(bool)
    assert pack_dense(np.arange(4.0), "CVEC", pattern=mask).arrays["indices_0"].tolist() == [1, 3]


class Foreign:
    """An array of another library, which has DLPack alone."""

    def __init__(self, items):
        self._items = np.asarray(items)

    def __dlpack__(self, **options):
        return self._items.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._items.__dlpack_device__()


class Far(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("on a device")


def calls_of(wrap):
    """What takes an array, with its arguments wrapped."""
    tensor = cube("sparse(3)")
    arrays = {name: wrap(array.copy()) for name, array in tensor.arrays.items()}
    coords, values = tensor.unpack()
    return {
        "pack": lambda: pack([wrap(x) for x in coords], wrap(values), tensor.shape, "sparse(3)"),
        "pack of a table": lambda: pack(wrap(np.array(coords)), wrap(values), tensor.shape, "sparse(3)"),
        "pack_dense": lambda: pack_dense(wrap(CUBE), "sparse(3)", pattern=wrap(CUBE != 0)),
        "from_numpy": lambda: bl.from_numpy(wrap(CUBE), "sparse(3)"),
        "as_tensor": lambda: bl.as_tensor(wrap(CUBE), "sparse(3)"),
        "Tensor": lambda: Tensor("sparse(3)", tensor.shape, arrays, wrap(values)),
        "with_values": lambda: tensor.with_values(wrap(values)),
        "locate": lambda: pack(coords, values[tensor.locate([wrap(x) for x in coords])], tensor.shape, "sparse(3)"),
        "einsum": lambda: bl.einsum("ijk,k->ijk", tensor, wrap(np.ones(4))),
        "@": lambda: pack_dense((tensor @ wrap(np.eye(4))), "sparse(3)"),
    }


@pytest.mark.parametrize("name", calls_of(np.asarray))
def test_arrays_that_have_dlpack_alone(name):
    assert calls_of(Foreign)[name]().equals(cube("sparse(3)"))
    with pytest.raises(ArrayError, match="from_dlpack"):
        calls_of(Far)[name]()


@pytest.mark.parametrize("call", [
    lambda x: cube().permute(x), lambda x: cube().locate(x),
    lambda x: advise(cube(), formats=x), lambda x: concatenate(x, "b.h5"),
])  # fmt: skip
def test_an_array_without_dimensions_is_no_sequence(call):
    with pytest.raises(bl.OptionError, match=r"expected .*, got array"):
        call(np.array(5))
