"""Law 8: a tree of which one item, or one length, is another is refused, or all ways to read it agree."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing

pytestmark = pytest.mark.usefixtures("numpy_and_kernels")

KINDS = [kind.kind for kind in testing.OURS]
CHAINS = [*((kind,) for kind in KINDS), *itertools.product(KINDS, repeat=2)]
MORE = [str(kind(2)) for kind in testing.OURS if kind.max_rank > 1]
CHAINS += [("sparse(2)", kind) for kind in KINDS] + [(kind, wide) for kind in KINDS for wide in MORE]


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS, ids=", ".join)
def test_damage_is_found_or_does_not_matter(chain):
    rank = sum(int(kind[-2]) if kind.endswith(")") else 1 for kind in chain)
    places = [place for place in np.ndindex(*(3, 4, 2)[:rank]) if place[0] != 1 and (rank < 2 or place[1] % 2)]
    tensor = bl.pack(np.array(places).T, np.arange(1.0, len(places) + 1), (3, 4, 2)[:rank], ", ".join(chain))
    stored = {}
    bl.write(stored, tensor)
    accepted = [testing.check_stored(changed) for changed in testing.damaged(stored)]
    assert not all(accepted) or not tensor.arrays


WAYS = {
    "load": lambda stored, target: bl.write(target, bl.open(stored).load()),
    "write": lambda stored, target: bl.write(target, bl.open(stored)),
    "convert": lambda stored, target: bl.convert(stored, target, f"sparse({bl.open(stored).ndim})"),
    "concatenate": lambda stored, target: bl.concatenate([stored, stored], target),
    "append": lambda stored, target: (bl.append(stored, bl.open(stored)), target.update(stored)),
    "slabs": lambda stored, target: bl.write(target, next(bl.open(stored).slabs(0, max_bytes=2**20))[1]),
}


@pytest.mark.parametrize("way", WAYS)
@given(testing.tensors(max_size=3).filter(lambda tensor: tensor.ndim), st.randoms())
def test_what_open_accepts_never_becomes_a_file_that_read_refuses(way, tensor, random):
    stored = {}
    bl.write(stored, tensor)
    for changed in random.sample(every := list(testing.damaged(stored)), min(len(every), 4)):
        target = {}
        try:
            WAYS[way](changed, target)
        except (bl.BinsparseError, StopIteration):
            continue
        bl.read(target)


@given(testing.tensors(max_size=3), st.randoms())
def test_damage_of_any_tensor(tensor, random):
    stored = {}
    bl.write(stored, tensor)
    for changed in random.sample(every := list(testing.damaged(stored)), min(len(every), 4)):
        testing.check_stored(changed)


@pytest.mark.parametrize("outer", ["dense", "sparse", "hashed"])
@pytest.mark.parametrize("inner", KINDS)
def test_a_slice_finds_pointers_that_leave_out_the_first_or_the_last_child(outer, inner):
    good = np.array([[1.0, 0, 2], [0, 3, 0], [4, 5, 0]])
    stored = {}
    bl.write(stored, bl.pack_dense(good, f"{outer}, {inner}", fill_value=0))
    everything = slice(None)
    keys = [*itertools.product(range(3), range(3)), *range(3), *((everything, k) for k in range(3))]
    keys += [slice(0, 1), slice(1, 3), slice(0, 2), [0, 2], [1], (slice(0, 2), [0, 2]), (slice(2, None), slice(1, 3))]
    for name in [name for name in stored if name.startswith("pointers_")]:
        for at, change in ((0, 1), (-1, -1), (-1, 1)):
            changed = {key: np.array(array) if key == name else array for key, array in stored.items()}
            changed[name][at] += change
            for key in keys:
                try:
                    found = bl.open(changed)[key]
                    found = found.to_dense() if isinstance(found, bl.Tensor) else found
                except bl.BinsparseError:
                    continue
                np.testing.assert_array_equal(found, good[key])
