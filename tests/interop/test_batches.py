"""Batches of rows: each row once, equal lengths, any number of workers, and exact resumption."""

import itertools
import json
import multiprocessing
from unittest import mock

import naive
import numpy as np
import pytest
from helpers.strategies import any_tensors
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.interop import batches as module

COLUMNS = 3
YOUNG = pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support is in beta",
    "ignore:Sparse invariant checks",
    "ignore:This DataLoader will create 3 worker processes",
)


def matrix(count):
    """Entries of a matrix whose rows all differ, by coordinate."""
    return {(k, k % COLUMNS): k + 1 for k in range(count)}


def tensor_of(count):
    entries = matrix(count)
    coords = np.array([*entries], np.int64).reshape(-1, 2).T
    return bl.pack(list(coords), np.array([*entries.values()], float), (count, COLUMNS), "CSR")


def rows_of(batches):
    """The row numbers of each batch of an epoch."""
    return [numbers.tolist() for _, numbers in batches]


@st.composite
def options(draw):
    return {
        "size": draw(st.integers(1, 9)),
        "shuffle": draw(st.booleans()),
        "block": draw(st.integers(1, 9)),
        "buffer": draw(st.integers(1, 4)),
        "seed": draw(st.integers(0, 3)),
        "drop_last": draw(st.booleans()),
    }


@given(count=st.integers(0, 60), how=options(), world=st.integers(1, 4), epoch=st.integers(0, 2))
def test_each_row_is_in_one_batch(count, how, world, epoch):
    tensor, dense = tensor_of(count), naive.dense((count, COLUMNS), matrix(count), 0, np.dtype(float))
    seen, lengths = [], set()
    for rank in range(world):
        batches = bl.batches(tensor, format="numpy", rows=True, rank=rank, world=world, **how)
        batches.set_epoch(epoch)
        made = list(batches)
        lengths.add(len(batches))
        assert len(made) == len(batches)
        for k, (cells, rows) in enumerate(made):
            assert len(rows) == how["size"] or (k == len(made) - 1 and not how["drop_last"] and len(rows))
            np.testing.assert_array_equal(cells, dense[rows])
        seen += [rows.tolist() for _, rows in made]
    assert len(lengths) == 1
    rows = list(itertools.chain(*seen))
    if how["drop_last"]:
        assert len({*rows}) == len(rows) > count - world * how["size"]
    else:
        assert {*rows} == {*range(count)}
        assert len(rows) == -(-count // world) * world
    if not how["shuffle"] and world == 1:
        assert rows == [*range(len(rows))]


@given(tensor=any_tensors(), data=st.data())
def test_rows_of_any_format(tensor, data):
    assume(tensor.ndim > 1)
    dense, size = tensor.to_dense(), data.draw(st.integers(1, 3))
    batches = bl.batches(tensor, size, format="numpy", rows=True)
    assert sorted(itertools.chain(*(rows.tolist() for _, rows in batches))) == [*range(tensor.shape[0])]
    for cells, rows in batches:
        np.testing.assert_array_equal(cells, dense[rows])
        assert cells.dtype == tensor.dtype
    some = st.lists(st.integers(-len(tensor), len(tensor) - 1) if len(tensor) else st.nothing(), max_size=4)
    rows = data.draw(some) if len(tensor) else []
    cells, numbers = batches.__getitems__(rows)
    np.testing.assert_array_equal(cells, dense[np.array(rows, int)])
    assert [k % (len(tensor) or 1) for k in rows] == numbers.tolist()


@given(count=st.integers(0, 60), how=options(), done=st.integers(0, 20), epoch=st.integers(0, 2))
def test_a_loop_resumes_after_any_batch(count, how, done, epoch):
    def new():
        return bl.batches(tensor_of(count), format="numpy", rows=True, **how)

    first = new()
    first.set_epoch(epoch)
    whole = rows_of(first)
    first.set_epoch(epoch)
    taken = rows_of(itertools.islice(first, done))
    assume(len(taken) == done)
    assert taken == whole[:done]
    second = new()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.set_epoch(epoch)  # as at the begin of each epoch
    assert rows_of(second) == whole[done:]
    assert second.state_dict() == first.state_dict() | {"done": len(whole)}
    first.set_epoch(epoch)
    assert rows_of(first) == whole  # a new loop begins at the first batch


def in_turn(loops):
    """What a DataLoader returns: a batch of each worker in turn, as long as it has one."""
    for together in itertools.zip_longest(*loops):
        yield from (batch for batch in together if batch is not None)


@given(count=st.integers(0, 60), how=options(), workers=st.integers(1, 3), done=st.integers(0, 20))
def test_workers_share_the_batches(count, how, workers, done):
    batches = bl.batches(tensor_of(count), format="numpy", rows=True, **how)
    alone = rows_of(batches)

    def shared(done):
        loops, states = [], []
        for k in range(workers):
            mine = bl.batches(tensor_of(count), format="numpy", rows=True, **how)
            mine.load_state_dict(batches.state_dict() | {"epoch": 0, "done": done})
            with mock.patch.object(module, "_worker", lambda k=k: (k, workers)):
                each = [(numbers.tolist(), mine.state_dict()["done"]) for _, numbers in mine]
            loops.append([rows for rows, _ in each])
            states.append([state for _, state in each])
        made = list(in_turn(loops))
        assert list(in_turn(states)) == [*range(done + 1, done + len(made) + 1)]
        return made

    whole = shared(0)
    assert sorted(whole) == sorted(alone)
    assert shared(min(done, len(whole))) == whole[done:]


def test_each_epoch_has_another_order():
    batches = bl.batches(tensor_of(100), 5, format="numpy", rows=True)
    first, second = rows_of(batches), rows_of(batches)
    assert sorted(itertools.chain(*first)) == [*range(100)] != list(itertools.chain(*first))
    assert first != second
    batches.set_epoch(0)
    assert rows_of(batches) == first
    assert rows_of(bl.batches(tensor_of(100), 5, seed=1, format="numpy", rows=True)) != first
    whole = rows_of(bl.batches(tensor_of(100), 5, block=10, buffer=1, format="numpy", rows=True))
    assert all(len({(x - whole[k][0]) % 100 for x in whole[k]} & {*range(-9, 10)}) for k in range(20))


@pytest.mark.parametrize("place", ["a.h5", "a.zarr", "a.npz", "parts.zarr", "files", "columns.h5"])
def test_places(tmp_path, place):
    count = 40
    tensor, path = tensor_of(count), tmp_path / place
    if place == "parts.zarr":
        bl.write(path, tensor[:25].load())
        bl.append(path, tensor[25:].load(), part=True)
        source = bl.open(path)
        assert len(source.parts) == 2
    elif place == "files":
        halves = [tmp_path / "one.h5", tmp_path / "two.zarr"]
        bl.write(halves[0], tensor[:13].load())
        bl.write(halves[1], tensor[13:].load())
        source = bl.open(halves, axis=0)
    else:
        bl.write(path, tensor.convert("CSC") if place == "columns.h5" else tensor)
        source = path
    dense = tensor.to_dense()
    batches = bl.batches(source, 7, format="scipy", block=4, buffer=2, rows=True)
    made = list(batches)
    assert sorted(itertools.chain(*(rows.tolist() for _, rows in made))) == [*range(count)]
    for cells, rows in made:
        assert cells.format == "csr"
        assert cells.has_canonical_format
        np.testing.assert_array_equal(cells.toarray(), dense[rows])
    cells, rows = batches.__getitems__([3, 3, -1])
    np.testing.assert_array_equal(cells.toarray(), dense[[3, 3, count - 1]])


def test_batches_can_be_changed():
    tensor = bl.pack([[0, 1, 2], [0, 1, 2]], 2.0, (3, 3), "CSR")  # one value stands for all
    for batch in bl.batches(tensor, 1, format="scipy"):
        batch.data[:] = 7
    assert tensor.values.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size: expected an integer >= 1, got 0"),
        ({"size": 2, "block": 0}, "block: expected"),
        ({"size": 2, "buffer": True}, "buffer: expected"),
        ({"size": 2, "seed": -1}, "seed: expected"),
        ({"size": 2, "rank": 1}, "world: expected an integer >= 1, got None"),
        ({"size": 2, "rank": 2, "world": 2}, "rank: expected an integer < 2, got 2"),
        ({"size": 2, "format": "csr"}, "format: expected 'torch_csr'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(bl.OptionError, match=message):
        bl.batches(tensor_of(4), **{"format": "numpy", **options})


def test_what_cannot_be_represented():
    with pytest.raises(bl.FormatError, match="two dimensions"):
        bl.batches(bl.pack([[0]], [1.0], (2,), "sparse"), 2, format="numpy")
    filled = bl.pack([[0], [0]], [1.0], (2, 2), "CSR", fill_value=5)
    with pytest.raises(bl.FormatError, match="fill value 5"):
        bl.batches(filled, 2, format="scipy")
    with pytest.raises(bl.FormatError, match="3 dimensions"):
        bl.batches(bl.pack([[0]] * 3, [1.0], (2, 2, 2), "COO"), 2, format="scipy")
    with pytest.raises(bl.LimitError, match="dense_bytes"):
        bl.batches(bl.pack([[0], [0]], [1.0], (2, 2**50), "CSR"), 2, format="numpy")
    batches = bl.batches(tensor_of(4), 2, format="numpy")
    with pytest.raises(bl.OptionError, match="size: is 2, and 3 in the state"):
        batches.load_state_dict(bl.batches(tensor_of(4), 3, format="numpy").state_dict())
    with pytest.raises(bl.OptionError, match="done: expected"):
        batches.load_state_dict(batches.state_dict() | {"done": None})
    with pytest.raises(IndexError):
        batches.__getitems__([4])


def test_a_damaged_file_is_our_error(tmp_path):
    bl.write(tmp_path / "a.zarr", tensor_of(40), chunks=8, shards=8)
    (tmp_path / "a.zarr" / "values" / "c" / "2").write_bytes(b"damage")
    with pytest.raises(bl.ContainerError, match="values"):
        list(bl.batches(tmp_path / "a.zarr", 5, format="numpy"))


@YOUNG
def test_types_of_torch():
    torch = pytest.importorskip("torch")
    tensor = tensor_of(10)
    dense = tensor.to_dense()
    for format, layout in (("torch_csr", torch.sparse_csr), ("torch", torch.strided)):
        for batch, rows in bl.batches(tensor, 4, format=format, rows=True):
            assert batch.layout == layout
            np.testing.assert_array_equal(batch.to_dense().numpy(), dense[rows])
    cube = bl.pack([[0, 1], [1, 2], [2, 0]], [1, 2], (2, 3, 4), "COO", fill_value=9)
    (batch,) = bl.batches(cube, 2, format="torch", shuffle=False)
    np.testing.assert_array_equal(batch.numpy(), cube.to_dense())
    with pytest.raises(bl.FormatError, match="torch does not support this type"):
        bl.batches(tensor.astype(np.longdouble), 2)


@pytest.mark.slow
@YOUNG
@pytest.mark.parametrize(
    ("start", "place", "numbers"),
    [("fork", "a.h5", range(4)), ("fork", "a.zarr", [2]), ("fork", "memory", [2]), ("spawn", "a.h5", [1, 3])],
)
def test_workers_of_a_data_loader(tmp_path, start, place, numbers):
    data = pytest.importorskip("torch.utils.data")
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip("the system has no such start of processes")
    tensor = tensor_of(97)
    if place != "memory":
        bl.write(tmp_path / place, tensor)
        tensor = bl.open(tmp_path / place)
        tensor[:3].load()  # the file is open before the workers begin
    batches = bl.batches(tensor, 5, block=2, buffer=3, rows=True)
    alone, second = rows_of(batches), rows_of(batches)
    batches.set_epoch(0)
    dense = tensor.to_dense()
    for workers in numbers:
        context = start if workers else None
        loader = data.DataLoader(batches, batch_size=None, num_workers=workers, multiprocessing_context=context)
        assert len(loader) == len(batches)
        made = list(loader)
        assert sorted(rows_of(made)) == sorted(alone)
        for batch, rows in made:
            np.testing.assert_array_equal(batch.to_dense().numpy(), dense[rows.numpy()])
        batches.load_state_dict(batches.state_dict() | {"epoch": 0, "done": 7})
        assert rows_of(loader) == rows_of(made)[7:]
        batches.set_epoch(1)  # the workers have changed their copies only
        assert sorted(rows_of(loader)) == sorted(second)
        batches.load_state_dict(batches.state_dict() | {"epoch": 0, "done": 0})
    sampled = data.DataLoader(range(97), 10, num_workers=2, collate_fn=batches.__getitems__)
    assert list(itertools.chain(*rows_of(sampled))) == [*range(97)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torchdata
@pytest.mark.parametrize("workers", range(4))
def test_a_stateful_data_loader_resumes(workers):
    loaders = pytest.importorskip("torchdata.stateful_dataloader")

    def new():
        batches = bl.batches(tensor_of(97), 5, block=2, buffer=3, format="numpy", rows=True)
        return loaders.StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    whole = rows_of(new())
    for done in (0, 7, 18, len(whole)):
        first, second = new(), new()
        taken = rows_of(itertools.islice(first, done))
        second.load_state_dict(first.state_dict())
        assert taken + rows_of(second) == whole
