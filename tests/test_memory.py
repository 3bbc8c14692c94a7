"""Memory follows what is asked for: of counts, values, views and slabs; and what does not fit is a LimitError."""

import inspect
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import LimitError, Tensor, pack, testing
from binsparse_levels.errors import refuse_memory
from binsparse_levels.levels import Mask
from binsparse_levels.system import bounded_memory

HUGE = 2**40
FEW = [3, 5, 2**39, HUGE - 1]


def _one_run(*sizes):
    """A chain of runs of which each covers its whole dimension."""
    arrays = {}
    for k, size in enumerate(sizes):
        arrays |= {f"run_starts_{k}": [0], f"run_ends_{k}": [size]} | ({f"pointers_to_{k}": [0, 1]} if k else {})
    return Tensor(", ".join(["run"] * len(sizes)), sizes, arrays, [1.0])


LARGE = {
    "run": lambda: _one_run(HUGE),
    "run, run": lambda: _one_run(HUGE, HUGE),
    "run, dense": lambda: Tensor("run, dense", (HUGE, 2), {"run_starts_0": [0], "run_ends_0": [HUGE]}, [1.0, 2.0]),
    "run, bitmap": lambda: Tensor(
        "run, bitmap", (HUGE, 2), {"run_starts_0": [0], "run_ends_0": [HUGE], "bitmap_1": [False, True]}, [0.0, 2.0]
    ),
    "sparse, run": lambda: Tensor(
        "sparse, run",
        (4, 2**62),
        {
            "indices_0": [0, 1, 2, 3],
            "pointers_to_1": [0, 1, 2, 3, 4],
            "run_starts_1": [0] * 4,
            "run_ends_1": [2**62] * 4,
        },
        np.arange(4.0),
    ),
    "band": lambda: Tensor("band", (HUGE,), {"pointers_to_0": [0, HUGE], "band_starts_0": [0]}, 1.0),
    "dense": lambda: Tensor("dense", (HUGE,), {}, 1.0),
    "dense(2)": lambda: Tensor("dense(2)", (2**20, 2**20), {}, 1.0),
    "hashed, hashed": lambda: pack([FEW, FEW], np.arange(4.0), (HUGE, HUGE), "hashed, hashed"),
    "bitmap(0), sparse": lambda: pack([FEW], np.arange(4.0), (HUGE,), "bitmap(0), sparse"),
} | {
    kind.kind: lambda kind=kind: pack([FEW], np.arange(4.0), (HUGE,), kind.kind)
    for kind in testing.OURS
    if not (kind.gaps or kind.padded or kind.shares or kind is Mask)
}
# As long as their dimension, however few entries there are; a part of them is to take no more than it has.
LONG = {
    kind.kind: lambda kind=kind: pack([[3, 5, 2**22 - 1]], 1.0, (2**22,), kind.kind)
    for kind in testing.OURS
    if kind.gaps or kind is Mask
}


def test_every_kind_is_among_them():
    assert {kind.kind for kind in testing.OURS} <= {*LARGE, *LONG}


def _opened(tensor):
    store = {}
    binsparse_levels.write(store, tensor)
    return binsparse_levels.open(store)


def _peak(call):
    call()  # what is loaded and made once is not of this call
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [*LARGE, *LONG])
def test_what_is_asked_of_a_part_takes_memory_of_the_part(kind):
    make = (LARGE | LONG)[kind]
    tensor = make()
    few = (slice(2, 6),) * tensor.ndim
    asked = [
        lambda t: t[few].to_dense(),
        lambda t: t[few].unpack(),
        lambda t: t[few].number_of_stored_values,
        lambda t: t[np.array([2, 3]), ...].shape if t.ndim == 1 else t[(np.array([2, 3]), *few[1:])].unpack(),
        lambda t: t[(slice(1, None, t.shape[0] // 2), *few[1:])].unpack(),
        lambda t: t[(1,) * t.ndim],
        lambda t: t[(-1,) * t.ndim],
        lambda t: t.locate([[1]] * t.ndim),
    ]
    if kind in LARGE:
        asked += [
            repr,
            lambda t: t._repr_html_() if len(t.values) == t.number_of_stored_values < 100 else "",
            lambda t: t.number_of_stored_values,
        ]
        if tensor.ndim == 1:
            asked += [lambda t: t[1:].number_of_stored_values, lambda t: t[::3].nbytes]
    for k, call in enumerate(asked):
        assert _peak(lambda call=call: call(tensor)) < 2**18, k
    if kind in LARGE:
        for k, call in enumerate(asked):
            assert _peak(lambda call=call: call(_opened(tensor))) < 2**20, k


@pytest.mark.parametrize("kind", LONG)
def test_counting_takes_no_more_than_what_is_counted(kind):
    tensor = LONG[kind]()
    assert tensor.number_of_stored_values == 3
    assert _peak(lambda: tensor.number_of_stored_values) <= tensor.nbytes + 2**18


def test_more_entries_are_counted_than_numpy_can():
    assert _one_run(HUGE, HUGE).number_of_stored_values == 2**80
    assert LARGE["sparse, run"]().number_of_stored_values == 2**64
    assert LARGE["sparse, run"]()[1:].number_of_stored_values == 3 * 2**62


@given(testing.tensors(structures=False))
def test_entries_are_counted_as_they_are_listed(tensor):
    for given_tensor in (tensor, _opened(tensor)):
        assert given_tensor.number_of_stored_values == len(given_tensor.unpack()[1])


@given(testing.tensors(), st.data())
def test_no_slab_is_larger_than_asked_for(tensor, data):
    assume(tensor.ndim)
    if data.draw(st.booleans(), label="opened"):
        tensor = _opened(tensor)
    if data.draw(st.booleans(), label="view"):
        k = data.draw(st.integers(0, tensor.ndim - 1))
        at = data.draw(st.lists(st.integers(0, tensor.shape[k] - 1), max_size=8) if tensor.shape[k] else st.just([]))
        tensor = tensor.isel({k: np.array(at, np.int64)})
    dimension = data.draw(st.integers(0, tensor.ndim - 1))
    whole = tensor[...].nbytes
    max_bytes = data.draw(st.integers(0, whole + 10) | st.just(2 * whole + 1000))
    dense = tensor[...].to_dense()  # so that the view itself is not loaded yet
    reached, stopped = 0, []
    slabs = tensor.slabs(dimension, max_bytes=max_bytes)
    while reached < tensor.shape[dimension] and not stopped:
        try:
            part, slab = next(slabs)
        except LimitError as error:
            stopped = [str(error)]
        else:
            assert slab.nbytes <= max_bytes
            assert part.start == reached
            reached = part.stop
            np.testing.assert_array_equal(slab.to_dense(), np.take(dense, part, dimension))
    assert all(text.startswith("max_bytes") for text in stopped)
    assert not stopped or max_bytes < 4 * whole + 1000
    assert stopped or next(slabs, None) is None


@pytest.mark.parametrize(
    "key", [np.s_[::2], np.arange(1, 2000, 3), np.ix_(np.arange(0, 2000, 2), np.arange(0, 500, 2))]
)
def test_slabs_of_a_view_of_a_file_are_read_one_after_the_other(tmp_path, key):
    cells = np.sort(np.random.default_rng(0).choice(10**6, 400_000, replace=False))
    binsparse_levels.write(tmp_path / "a.h5", pack(np.divmod(cells, 500), cells.astype(float), (2000, 500), "CSR"))
    opened, whole, counts = binsparse_levels.open(tmp_path / "a.h5"), binsparse_levels.read(tmp_path / "a.h5")[key], []

    def count():
        counts[:] = [slab.nnz for _, slab in opened[key].slabs(0, max_bytes=2**15)]

    peak = _peak(count)
    assert peak < whole.nbytes / 3
    assert sum(counts) == whole.nnz
    assert whole.nbytes / 2**15 <= len(counts) < 3 * whole.nbytes / 2**15


@pytest.mark.parametrize("kind", LARGE)
def test_slabs_of_large_dimensions_are_few(kind):
    tensor = LARGE[kind]()
    for given_tensor in (tensor, _opened(tensor)):
        slabs = list(given_tensor.slabs(0, max_bytes=10_000))
        assert slabs[-1][0].stop == tensor.shape[0]
        assert len(slabs) < 100


# What does not fit


@pytest.mark.parametrize(
    "call",
    [
        lambda: np.empty(2**60, np.int8),
        lambda: np.empty(2**61),
        lambda: np.empty(2**63),
        lambda: np.empty((2**40, 2**40)),
        lambda: np.repeat(np.zeros(2), 2**62),
        lambda: np.arange(2**62),
        lambda: np.broadcast_to(np.zeros(()), (2**62, 2**3)),
        lambda: len(range(2**64)),
        lambda: [0] * 2**63,
        lambda: bytes(2**63),
    ],
)
def test_what_is_too_large_is_told_from_other_errors(call):
    with pytest.raises((MemoryError, ValueError, OverflowError)) as caught:
        call()
    with pytest.raises(LimitError, match=r"^here: there is not enough memory"):
        refuse_memory(caught.value, "here")


def test_other_errors_stay_what_they_are():
    for error in (ValueError("shapes do not match"), OverflowError("int too large to convert to float"), KeyError(1)):
        refuse_memory(error)
    tensor = pack([[0]], [1.0], (2,), "sparse")
    with pytest.raises(IndexError):
        tensor[5]


ALLOCATES_NOTHING = {
    "get_threads", "list_plugins", "load_plugins", "parse_format", "set_threads", "DialectWarning",
    "Explanation", "Format", "Limits", "Problem", "Reads", "Statistics",
}  # fmt: skip


def test_whatever_is_public_refuses_what_does_not_fit():
    bare = []
    for name in [*binsparse_levels.__all__, "open"]:
        public = getattr(binsparse_levels, name)
        if not callable(public) or name in ALLOCATES_NOTHING:
            continue
        if not isinstance(public, type):
            bare += [] if hasattr(public, "__wrapped__") else [name]
        elif not issubclass(public, binsparse_levels.BinsparseError | binsparse_levels.Level):
            for member, found in vars(public).items():
                found = getattr(found, "__func__", getattr(found, "fget", found))
                if inspect.isfunction(found) and (not member.startswith("_") or member.endswith("_")):
                    bare += [] if hasattr(found, "__wrapped__") else [f"{name}.{member}"]
    assert not bare


def test_warnings_name_the_line_of_the_caller(tmp_path):
    store = {}
    binsparse_levels.write(store, pack([[1, 2]], [1.0, 2.0], (5,), "sparse"))
    store["indices_0"] = store["indices_0"][::-1].copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        binsparse_levels.read(store, lenient=True)
    assert [found.filename for found in caught] == [__file__]


_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, pyarrow, scipy.sparse
import binsparse_levels as bl
from binsparse_levels import Tensor, interop
from attacks import supervise

n = 2**33
def run(size=n):
    return Tensor("run", (size,), {"run_starts_0": [0], "run_ends_0": [size]}, [1.0])
matrix = Tensor("run, dense", (n, 2), {"run_starts_0": [0], "run_ends_0": [n]}, [1.0, 2.0])
square = Tensor("dense(2)", (2**17, 2**17), {}, 1.0)
half = Tensor("dense(2)", (2**17, 2**17), {}, 1.0, structure="symmetric_lower")
store = {}
bl.write(store, run())
mapped = matrix.with_map(bl.IndexMap.transpose(matrix.shape[::-1], (1, 0)))
loose = bl.Limits(dense_bytes=2**62, array_bytes=2**62)
calls = {
    "unpack": lambda: run().unpack(),
    "opened": lambda: bl.open(store).unpack(),
    "to_dense": lambda: run().to_dense(limits=loose),
    "convert": lambda: run().convert("sparse", limits=loose),
    "equals": lambda: run().equals(run()),
    "drop_fill": lambda: run().drop_fill(),
    "expand_structure": lambda: half.expand_structure(),
    "with_structure": lambda: square.with_structure("symmetric_lower"),
    "reversed": lambda: run()[::-1].load(),
    "values": lambda: run()[np.broadcast_to(np.int64(3), n)],
    "locate": lambda: run().locate([np.broadcast_to(np.int64(3), n)]),
    "advise": lambda: bl.advise(run()),
    "pack": lambda: bl.pack([np.broadcast_to(np.int64(3), n)], 1.0, (n,), "sparse", duplicates="first"),
    "pack_dense": lambda: bl.pack_dense(np.broadcast_to(np.int8(3), n), "sparse", limits=loose),
    "pack bitmap": lambda: bl.pack([[3]], [1.0], (2**40,), "bitmap", limits=loose),
    "pack dense": lambda: bl.pack([[3]], [1.0], (2**40,), "dense", limits=loose),
    "to_scipy": lambda: bl.to_scipy(matrix),
    "to_sparse": lambda: bl.to_sparse(run()),
    "to_table": lambda: bl.to_table(run()),
    "as_tensor": lambda: bl.as_tensor(np.broadcast_to(np.int8(3), n)),
    "to_numpy": lambda: bl.to_numpy(run(), limits=loose),
    "from_numpy": lambda: bl.from_numpy(np.broadcast_to(np.int8(3), n), "sparse"),
    "write": lambda: bl.write("x.mtx", matrix),
    "mapped": lambda: mapped.unpack(),
    "mapped dense": lambda: mapped.to_dense(limits=loose),
    "slabs": lambda: list(square.convert("bitmap(2)", limits=loose).slabs(0, max_bytes=9)),
}
supervise.limit_memory(2**30)
for name, call in calls.items():
    try:
        call()
        print(name, "went through")
    except bl.LimitError as error:
        pass
    except BaseException as error:
        print(name, type(error).__name__, error)
"""


@pytest.mark.slow
def test_public_functions_refuse_what_memory_does_not_hold():
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", _SCRIPT, folder], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of a process")
@pytest.mark.parametrize("format", ["CSR", "dense(2)"])
def test_dense_levels_do_not_exceed_the_free_memory(format):
    shape = (3 * 10**8, 2)
    with bounded_memory(2**30), pytest.raises(LimitError, match=r"bytes of memory that are free; .*DCSR"):
        pack([[shape[0] - 1, 5], [0, 1]], [1.0, 2.0], shape, format)
