"""Sizes from counts: equal to packing, to the byte, for every format; the ranking against all of them."""

import itertools
import math
import re
from unittest import mock

import numpy as np
import pytest
from helpers import kinds
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    Advice,
    Bitmap,
    Bits,
    Dense,
    Format,
    FormatError,
    IndexMap,
    LimitError,
    Limits,
    OptionError,
    Sparse,
    Tensor,
    advise,
    get_threads,
    pack,
    pack_dense,
    parse_map,
    set_threads,
    size_of,
    sweep,
    testing,
    write,
)
from binsparse_levels.levels import LEVELS

pytestmark = pytest.mark.usefixtures("numpy_and_kernels")
PLAIN = (Dense, Sparse)


def chains(rank, of=PLAIN):
    """Every chain of levels over so many dimensions."""
    if not rank:
        yield ()
    for kind, r in itertools.product(of, range(1, rank + 1)):
        for rest in chains(rank - r, of) if r <= kind.max_rank else ():
            yield (kind(r), *rest)


def every_format(rank, of=PLAIN):
    for order in itertools.permutations(range(rank)):
        for levels in chains(rank, of):
            yield Format(levels, order)


def skewed(shape, count, seed=0):
    random = np.random.default_rng(seed)
    columns = [(size * random.random(count) ** 3).astype(np.int64) for size in shape]
    return pack(columns, random.random(count), shape, coordinates_of(shape), duplicates="first")


def coordinates_of(shape):
    return Format((Sparse(len(shape)),))


@pytest.mark.slow
@given(testing.tensors(max_rank=3))
def test_every_size_is_that_of_the_packed_tensor(tensor):
    advice = advise(tensor)
    for format in every_format(tensor.ndim):
        try:
            packed = tensor.convert(format)
        except FormatError:  # a structure whose fill value does not fit
            with pytest.raises(FormatError):
                advice.candidate(format)
            continue
        assert advice.candidate(format).nbytes == packed.nbytes, format


def tells(level):
    """Whether counts tell the sizes of this level and of what lies below it."""
    dims = (4,) * level.rank
    return None not in (level.nbytes(dims, 3, 5, root=False, itemsize=4), level.children(dims, 3, 5))


KINDS = (*testing.OURS, kinds.Backwards)
TELLING = tuple(kind for kind in KINDS if tells(kind(1)))


@pytest.mark.slow
@given(testing.tensors(max_rank=3, structures=False), st.data())
def test_sizes_with_kinds_that_list_out_of_order_or_have_gaps(tensor, data):
    advice = advise(tensor)
    order = data.draw(st.permutations(range(tensor.ndim)))
    for levels in chains(tensor.ndim, TELLING):
        format = Format((*levels, *data.draw(st.sampled_from([(), (Bitmap(0),)]))), order)
        assert advice.candidate(format).nbytes == tensor.convert(format).nbytes, format
    for kind in set(KINDS) - set(TELLING) if tensor.ndim == 1 else ():
        with pytest.raises(FormatError, match="do not determine"):
            advice.candidate(Format((kind(1),)))


@pytest.mark.slow
@given(testing.tensors(max_rank=3, structures=False), st.data())
def test_sizes_of_tensors_that_do_not_exist(tensor, data):
    """From the numbers of all prefixes of the stored dimensions; those above dense levels alone are not needed."""
    coords, values = tensor.unpack()
    format = Format(
        data.draw(st.sampled_from(list(chains(tensor.ndim, TELLING)))), data.draw(st.permutations(range(tensor.ndim)))
    )
    packed = pack(coords, np.arange(len(values), dtype=np.float32), tensor.shape, format, duplicates="first")
    if packed.ndim and packed.nnz < 2**31 and not packed.iso:
        counts = advise(packed).counts
        levels, above, needed = format.levels, 0, {tuple(range(tensor.ndim)): packed.nnz}
        for level in levels:
            above += level.rank
            if level.kind not in ("dense", "bitmap", "bits"):
                prefix = tuple(sorted(format.order[:above]))
                needed[prefix] = counts[prefix]
        for given_counts in (counts, needed):
            assert size_of(format, packed.shape, given_counts, packed.dtype) == packed.nbytes, format


def test_sizes_of_more_entries_than_memory_holds():
    n = 10**9
    assert size_of("CSR", (n, n), 10**12) == 8 * (n + 1) + 16 * 10**12
    assert size_of("COO", (n, n), 10, "float32") == 10 * (4 + 4 + 4)
    assert size_of("CSC", (3, n), 0) == 4 * (n + 1)
    assert size_of("dense, mask", (8, 16), 5) == 4 * 9 + 8 * 2 + 40
    assert size_of("sparse(2), dense(2) through 0/2, 1/2, 0%2, 1%2", (8, 8), {(0, 1): 3, (0, 1, 2, 3): 9}) == 3 * (
        8 + 32
    )
    with pytest.raises(FormatError, match="counts do not determine the size of sparse"):
        size_of("DCSR", (n, n), 10)
    with pytest.raises(FormatError, match="counts do not determine the size of run"):
        size_of("dense, run", (n, n), 10)
    with pytest.raises(FormatError, match="has 2 dimensions, not 3"):
        size_of("CSR", (2, 3, 4), 1)
    for counts in (1.5, {(0,): 3}, {(0, 1): None}, None):
        with pytest.raises(OptionError, match="counts: expected integers"):
            size_of("CSR", (2, 3), counts)


def test_counts_determine_the_sizes_of_some_kinds_alone():
    assert {Dense, Sparse, Bitmap} < set(TELLING) < set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (3, 4, 5, 2), (40, 2, 3000, 70_000)])
@pytest.mark.parametrize("value", [None, True], ids=["values", "iso"])
def test_sizes_of_larger_tensors(shape, value):
    tensor = skewed(shape, 3000)
    if value is not None:
        tensor = pack(tensor.unpack()[0], value, shape, coordinates_of(shape))
    advice = advise(tensor)
    for format in every_format(len(shape)):
        if any(level.kind == "dense" for level in format.levels) and math.prod(shape) > 2**20:
            continue
        assert advice.candidate(format).nbytes == tensor.convert(format).nbytes, format


@given(testing.tensors(max_rank=4, structures=False))
def test_counts_are_those_of_plain_python(tensor):
    coords, values = tensor.unpack()
    rows = list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * len(values)
    wanted = {}
    for r in range(tensor.ndim + 1):
        for part in itertools.combinations(range(tensor.ndim), r):
            wanted[part] = len({tuple(row[k] for k in part) for row in rows})
    assert dict(advise(tensor).counts) == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(2**40, 2**40, 2**40, 5), (2**63 - 1, 7, 2**62), (3,) * 8])
def test_counts_of_long_keys_and_many_dimensions(shape):
    tensor = skewed(shape, 500)
    found = advise(tensor, count=3).counts
    rows = np.stack(tensor.unpack()[0])
    assert len(found) == 2 ** len(shape)
    for part, count in found.items():
        assert count == np.unique(rows[list(part)], axis=1).shape[1]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_counts_of_many_entries_in_threads(order):
    shape = (300, 7, 2000)
    tensor = skewed(shape, 200_000).convert(Format((Sparse(3),), order))
    columns = tensor.unpack()[0]
    before = get_threads()
    set_threads(3)
    try:
        found = advise(tensor, count=1).counts
    finally:
        set_threads(before)
    for part, count in found.items():
        cell = np.ravel_multi_index([columns[k] for k in part], [shape[k] for k in part]) if part else [0]
        assert count == len(np.unique(cell))


def sizes_of(advice, of=PLAIN):
    """The sizes and reads of every format that tells them."""
    found = []
    for format in every_format(len(advice.shape), of):
        try:
            found.append(advice.candidate(format))
        except FormatError:
            continue
    return found


@given(testing.tensors(max_rank=3), st.data())
def test_the_ranking_begins_with_the_best_of_all(tensor, data):
    advice = advise(tensor, kinds=["dense", "sparse"])
    everything = sizes_of(advice)
    listed = [c.nbytes for c in advice.candidates]
    assert listed == sorted(listed)
    assert listed[0] == min(c.nbytes for c in everything)
    # Formats of one size that differ inside a level alone are listed once; no other size is left out.
    distinct = sorted({c.nbytes for c in everything})
    if len(listed) < 10:
        assert sorted(set(listed)) == distinct
    if not tensor.ndim:
        return
    by = data.draw(st.integers(-tensor.ndim, tensor.ndim - 1))
    for of in (PLAIN, (Sparse, Bits), (Dense, Bitmap, kinds.Backwards)):
        sliced = advise(tensor, slices_by=by, kinds=[kind.kind for kind in of])
        reads = [(c.slice_nbytes, c.nbytes) for c in sliced.candidates]
        assert reads == sorted(reads)
        assert reads[0] == min((c.slice_nbytes, c.nbytes) for c in sizes_of(sliced, of))
        assert (
            min(c.nbytes for c in sizes_of(sliced, of))
            == advise(tensor, kinds=[k.kind for k in of]).candidates[0].nbytes
        )


def test_slices_prefer_their_dimension_outside():
    tensor = skewed((300, 400), 4000)
    assert advise(tensor, slices_by=0).best.order == (0, 1)
    assert advise(tensor, slices_by=1).best.order == (1, 0)
    csr, csc = (advise(tensor, slices_by=1).candidate(name) for name in ("CSR", "CSC"))
    assert csc.slice_nbytes < 400 < 1000 < csr.slice_nbytes <= csr.nbytes
    # A row of CSR: two pointers on average less than one and its share; the model is written out once.
    row = advise(tensor, slices_by=0).candidate("CSR")
    entries = len(tensor.values)
    assert row.slice_nbytes == (301 * 4 + 4 * entries + 8 * entries) / 300


def test_coordinates_are_enough():
    advice = advise([[3, 0, 3], [1, 1, 1]], (4, 5), "float32")
    assert advice.entries == 2
    assert advice.candidate("CSR").nbytes == 5 * 4 + 2 * 4 + 2 * 4
    assert advise([[1, 2]], 5).candidate("CVEC").nbytes == 2 * 12
    with pytest.raises(OptionError, match="need one"):
        advise([[1, 2]])
    with pytest.raises(OptionError, match="its own"):
        advise(pack([[1]], 1, 3, "CVEC"), (3,))


def test_integers_are_wide_where_a_dimension_is():
    tensor = skewed((2**31, 3), 50)
    advice = advise(tensor)
    for format in ("COO", "DCSR", "DCSC", "CSC"):
        assert advice.candidate(format).nbytes == tensor.convert(format).nbytes
    assert advice.candidate("COO").nbytes == len(tensor.values) * (16 + 8)


@pytest.mark.slow
def test_what_does_not_fit_is_left_out():
    tensor = skewed((2**40, 2**40), 100)
    advice = advise(tensor, count=100, kinds=["dense", "sparse"])
    formats = {str(c.format) for c in (*advice.candidates, *advice.compared)}
    assert formats == {"DCSR", "DCSC", "COOR"}
    for name in ("CSR", "CSC", "DMATR"):
        with pytest.raises(LimitError, match="dense_bytes"):
            advice.candidate(name)
    few = advise(skewed((300, 300), 10), count=100, limits=Limits(dense_bytes=100))
    assert all("dense" not in str(c.format.levels) for c in few.candidates)


@pytest.mark.parametrize("order", [tuple(range(9)), (8, *range(8))])
def test_many_dimensions_are_ranked_in_the_order_of_the_tensor(order):
    tensor = skewed((3,) * 9, 200).convert(Format((Sparse(9),), order))
    advice = advise(tensor, kinds=list(LEVELS))
    assert {c.format.order for c in advice.candidates} == {order}
    for candidate in advice.candidates:
        assert candidate.nbytes == tensor.convert(candidate.format).nbytes
    other = Format((Sparse(1),) * 9, (1, 0, *range(2, 9)))
    with pytest.raises(FormatError, match="in this order"):
        advice.candidate(other)
    assert advise(tensor, formats=other).compared[0].nbytes == tensor.convert(other).nbytes


@given(testing.tensors(max_rank=3))
def test_one_order_is_ranked_as_all_are(tensor):
    order = tensor.format.order if tensor.map is None else tuple(range(tensor.ndim))
    with mock.patch("binsparse_levels.looking.sizes.MAX_RANK", -1):
        advice = advise(tensor, count=100, kinds=["dense", "sparse"])
    wanted = set()
    for levels in chains(tensor.ndim):
        try:
            wanted.add(advice.candidate(Format(levels, order)).nbytes)
        except FormatError:
            continue
    assert {c.nbytes for c in advice.candidates} == wanted


def test_kinds():
    tensor = skewed((30, 40), 600)
    assert all("sparse" in str(c.format.levels[0]) for c in advise(tensor, kinds=["sparse"]).candidates)
    with pytest.raises(FormatError, match="'bogus' is no level kind"):
        advise(tensor, kinds=["bogus"])


def test_a_block_of_ones_is_stored_as_runs():
    dense = np.zeros((400, 400))
    dense[100:300, 50:170] = 1
    tensor = pack_dense(dense, "CSR")
    advice = advise(tensor, kinds=["sparse", "run"])
    assert [str(advice.best), advice.candidates[0].nbytes] == ["run, run", 32]
    found = {str(c): c.nbytes for c in advice.candidates}
    assert found["sparse, run"] == tensor.convert("sparse, run").nbytes == 4804
    assert found["COOR"] == 384_000
    assert [*found.values()] == sorted(found.values())
    assert advice.omitted == {}


@given(testing.tensors(max_rank=3), st.sets(st.sampled_from(sorted(LEVELS)), min_size=1), st.booleans())
def test_every_kind_is_ranked_or_has_a_reason(tensor, names, sliced):
    advice = advise(tensor, kinds=sorted(names), slices_by=0 if sliced and tensor.ndim else None)
    ranked = {type(level) for c in advice.candidates for level in c.format.levels}
    assert {LEVELS[name] for name in names} - ranked == {LEVELS[name] for name in advice.omitted}
    assert all(f"{name}: {reason}" in str(advice) for name, reason in advice.omitted.items())
    if not sliced:
        for candidate in advice.candidates:
            assert candidate.nbytes == tensor.without_map().convert(candidate.format).nbytes
    assert [c.cost for c in advice.candidates] == sorted(c.cost for c in advice.candidates)


def test_a_kind_that_refuses_the_tensor_has_its_reason():
    advice = advise(skewed((30, 40), 600), kinds=["sparse", "n_of_m"])
    assert "choose a larger n" in advice.omitted["n_of_m"]
    assert advise(testing.n_of_m(30, 40), kinds=["dense", "n_of_m"]).omitted == {}


def test_slices_and_kinds_that_counts_do_not_determine(monkeypatch):
    class Silent(kinds.Backwards):
        kind = "silent"

        def nbytes(self, dims, n, children, *, root, itemsize):
            return None

    class Fussy(Sparse):
        kind = "fussy"

        def __post_init__(self):
            raise FormatError("needs more")

    monkeypatch.setitem(LEVELS, "silent", Silent)
    monkeypatch.setitem(LEVELS, "fussy", Fussy)
    advice = advise(skewed((4, 5), 10), count=1000, slices_by=0, kinds=list(LEVELS))
    assert not any("silent" in str(c.format) or "fussy" in str(c.format) for c in advice.candidates)
    assert "leave out slices_by" in advice.omitted["silent"]
    assert advice.omitted["fussy"] == "needs more"
    with pytest.raises(FormatError, match="do not determine the size of silent"):
        advice.candidate(Format((Silent(2),)))


def test_wrong_calls():
    tensor = skewed((4, 5), 10)
    with pytest.raises(IndexError):
        advise(tensor, slices_by=2)
    with pytest.raises(FormatError, match="3 dimensions, not 2"):
        advise(tensor).candidate("sparse(3)")


def test_the_table():
    tensor = pack_dense(np.eye(30), "CSC")
    advice = advise(tensor, slices_by=1, count=2, formats=["DMATR", "CSC"])
    text = str(advice)
    assert "30 × 30 float64, 30 entries" in text
    assert [c.format.alias for c in advice.compared] == ["DMATR", "CSC"]
    assert re.search(r"DMATR +7,200 +\d", text)
    assert advice.candidates[0].slice_nbytes == min(c.slice_nbytes for c in advice.candidates)
    assert repr(advice) == text
    assert "DMATR" in advice._repr_html_()
    assert isinstance(advice, Advice)


def test_views_and_structures():
    tensor = skewed((20, 20), 60)
    view = tensor[2:9, ::3]
    assert advise(view).candidate("DCSC").nbytes == view.load("DCSC").nbytes
    i, j = np.tril_indices(6)
    half = pack([i, j], 1.0 + i + j, (6, 6), "CSC", structure="symmetric_lower")
    advice = advise(half)
    for format in every_format(2):
        assert advice.candidate(format).nbytes == half.convert(format).nbytes


def test_nothing_and_scalars():
    for shape in ((), (0,), (3, 0), (4, 5)):
        tensor = pack([[] for _ in shape], [] if shape else [1.0], shape, coordinates_of(shape) if shape else "element")
        advice = advise(tensor, slices_by=0 if shape else None)
        for format in every_format(len(shape)):
            assert advice.candidate(format).nbytes == tensor.convert(format).nbytes
        assert str(advice)


def test_iso_without_an_entry_keeps_its_value():
    tensor = Tensor("bitmap", 2, {"bitmap_0": [False, False]}, np.int8(1))
    assert advise(tensor).candidate("dense").nbytes == tensor.convert("dense").nbytes == 2
    for fill, nbytes in ((None, 1), (3, 2)):  # through a map it does not
        matrix = Tensor("bitmap(2)", (1, 2), {"bitmap_0": [False, False]}, np.int8(1), fill_value=fill)
        text = "dense through alto"
        assert advise(matrix).candidate(text).nbytes == matrix.convert(text).stored.nbytes == nbytes


def test_readers_and_ties_are_shown():
    tensor = pack([[0, 2], [1, 3]], [1.0, 2.0], (50, 40), "CSR")
    advice = advise(tensor, kinds=["dense", "sparse", "bits"], formats=["sparse, dense", "CSR"])
    shown = {str(c.format): (rank, c.readers) for rank, c, _ in advice.rows()}
    assert shown["COOR"] == ("1", "every reader")
    assert (shown["DCSR"], shown["DCSC"]) == (("2", "every reader"), ("=", "every reader"))
    assert shown["sparse, dense"][1] == "readers of custom formats"
    assert shown["bits, sparse"][1] == "only this package"
    assert re.search(r"^=  +DCSC +44 +1.375 +every reader +≈\d+$", str(advice), re.M)
    assert '<td style="text-align:left">every reader</td>' in advice._repr_html_()


def by_everyone(candidate):
    return all(level.specified for level in candidate.format.levels)


@given(testing.tensors(max_rank=3), st.booleans())
def test_formats_that_others_read_come_first(tensor, sliced):
    by = 0 if sliced and tensor.ndim else None
    advice = advise(tensor, slices_by=by)
    for names in (["dense", "sparse"], ["sparse", "dense"]):
        assert advice.candidates == advise(tensor, slices_by=by, kinds=names).candidates
    assert all(map(by_everyone, advice.candidates))
    assert not any(c.map is None and by_everyone(c) for c in advice.own)
    ranks = [rank for rank, *_ in advice.rows()]
    assert [rank == "*" for rank in ranks[len(advice.candidates) :]][: len(advice.own)] == [True] * len(advice.own)
    assert ranks.count("*") == len(advice.own)
    assert next(advice.rows())[2] == 1.0
    everything = advise(tensor, slices_by=by, kinds=list(LEVELS)).candidates
    best = advice.candidates[0].cost
    mapped = [c for c in advice.own if c.map is not None]
    assert not (sliced and mapped)
    everything = [c for c in everything if all(map(tells, c.format.levels))]
    plain = [c for c in everything[: 3 - len(mapped)] if c.cost < best]
    assert [c for c in advice.own if c.map is None] == plain
    costs = [c.cost for c in advice.own]
    assert costs == sorted(costs)
    assert len(costs) in (3, len(mapped) + len(plain))


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())), st.data())
def test_sizes_through_maps_are_exact(tensor, data):
    """For the recommended formats, and for any format that divides no block."""
    advice, whole = advise(tensor), tensor.without_map()
    for candidate in advice.own:
        assert candidate.map is None or candidate.nbytes == whole.convert(str(candidate)).stored.nbytes
    tried = [*map(str, (IndexMap.blocks(tensor.shape, [max(min(b, n), 1) for n in tensor.shape]) for b in (2, 4, 8)))]
    tried = [*tried, "alto", "1-0, 0"] if tensor.ndim == 2 else [*tried, "alto"] if tensor.ndim > 2 else []
    for text in dict.fromkeys(tried):
        rank = len(parse_map(text, tensor.shape).groups)
        for levels in chains(rank, data.draw(st.sampled_from([PLAIN, (Sparse, Bitmap), (Bits, Dense)]))):
            format = f"{Format(levels)} through {text}"
            try:
                candidate = advice.candidate(format)
            except FormatError:
                ends = list(itertools.accumulate(level.rank for level in levels))
                assert rank == 2 * tensor.ndim
                assert any(end > tensor.ndim for end in ends[:-1])
                continue
            assert candidate.nbytes == whole.convert(format).stored.nbytes, format
            assert str(whole.convert(str(candidate)).map) == str(parse_map(text, tensor.shape))


def test_blocks_and_diagonals_are_found():
    """Full blocks, and full diagonals, take fewer bytes through their map; the notation converts the tensor."""
    random = np.random.default_rng(0)
    cells = np.kron(random.random((100, 100)) < 0.03, np.ones((4, 4))) * random.random((400, 400))
    band = sum(np.diag(random.random(400 - abs(k)), k) for k in (-7, 0, 3))
    for dense, map in ((cells, "0/4, 1/4, 0%4, 1%4"), (band, "1-0, 0")):
        tensor = pack_dense(dense, "CSR")
        advice = advise(tensor)
        first = advice.own[0]
        assert first.map == map
        assert first.readers == "only this package"
        assert first.nbytes == tensor.convert(str(first)).stored.nbytes < advice.candidates[0].nbytes
        assert f"{first.format} through {map}" in str(advice)
        table = sweep(tensor, [str(c) for c in (*advice.candidates, *advice.own)], ["bits"])
        assert not any(row.refused for row in table.rows)


def test_maps_that_were_compared_are_listed_once():
    tensor = skewed((30, 40), 600)
    advice = advise(tensor, formats=["sparse through alto", "sparse, dense", "sparse, dense through 1-0, 0"])
    assert [str(c) for c in advice.compared] == ["CVEC through alto", "sparse, dense", "sparse, dense through 1-0, 0"]
    shown = [str(c) for _, c, _ in advice.rows()]
    assert len(shown) == len(set(shown))
    with pytest.raises(FormatError, match="no counts are known through the map 1, 0"):
        advice.candidate("CSR through 1, 0")


def test_maps_that_do_not_exist_are_left_out():
    wide = advise(skewed((2**62, 2**62), 30))
    assert wide.candidates
    assert not [c for c in wide.own if c.map == "alto"]
    with pytest.raises(FormatError, match=re.escape("beyond 2**63 - 1")):
        wide.candidate("sparse through alto")
    assert not [c for c in advise(skewed((3,) * 9, 200)).own if c.map]
    with pytest.raises(FormatError, match="no counts are known"):
        advise(skewed((30, 40), 90), limits=Limits(rank=3)).candidate("sparse(4) through 0/2, 1/2, 0%2, 1%2")


def test_our_own_formats_are_marked_with_what_they_save():
    advice = advise(skewed((50, 60, 70), 5000))
    (first, ours), n = (advice.candidates[0], advice.own[0]), len(advice.candidates)
    rank, candidate, ratio = list(advice.rows())[n]
    assert (rank, candidate, ratio) == ("*", ours, ours.nbytes / first.nbytes)
    assert ratio < 1
    assert ours.nbytes == skewed((50, 60, 70), 5000).convert(str(ours)).stored.nbytes
    line = str(advice).splitlines()[2 + n]
    assert re.fullmatch(r"\* +.* [\d,]+ +0\.\d{3} +only this package +≈[\d,]+", line)
    assert advice.best == first.format


BLOCKS = "dense, sparse, dense(2) through 0/2, 1/4, 0%2, 1%4"


def test_whole_notations_are_compared_and_refusals_are_rows():
    tensor = testing.uniform((40, 60), 300)
    wanted = [BLOCKS, "CSR @ 1, 0", "dense, hashed", "dense, n_of_m(1, n=1, m=4)", "dense, n_of_m(1, n=4, m=4)"]
    advice = advise(tensor, formats=wanted)
    assert [str(c) for c in advice.compared] == [BLOCKS, "CSC", *wanted[2:]]
    for format, candidate in zip(wanted, advice.compared, strict=True):
        if candidate.refused:
            with pytest.raises(FormatError):
                tensor.convert(format)
        else:
            assert candidate.nbytes == tensor.convert(format).stored.nbytes
    assert [bool(c.refused) for c in advice.compared] == [False, False, False, True, False]
    assert "refused: " in str(advice)
    assert "choose a larger n" in advice._repr_html_()
    with pytest.raises(FormatError, match="is no level kind"):
        advise(tensor, formats=["bogus"])


def test_kinds_with_parameters_are_formats():
    weights = testing.n_of_m(30, 40)
    pruned = advise(weights, formats="dense, n_of_m(1, n=2, m=4)").compared[0]
    assert pruned.nbytes == weights.convert("dense, n_of_m(1, n=2, m=4)").nbytes
    with pytest.raises(FormatError, match="is no level kind"):
        advise(weights, kinds="n_of_m(1, n=2, m=4)")


def test_the_table_shows_the_information_limit():
    assert "3 entries, at least 2.59 bits of coordinates each" in str(advise([[0, 0, 2], [0, 3, 1]], (3, 4)))


@given(st.data(), testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())))
def test_small_tensors_are_exact(data, tensor):
    """For every kind, also if counts do not determine its size."""
    format = data.draw(testing.formats(min_rank=tensor.ndim, max_rank=tensor.ndim))
    try:
        stored = tensor.without_map().convert(format)
    except (FormatError, LimitError):
        assert advise(tensor, formats=[format]).compared[0].refused
        return
    (candidate,) = advise(tensor, formats=[format]).compared
    assert (candidate.nbytes, candidate.refused) == (stored.nbytes, "")


def test_paths_are_read(tmp_path):
    for name in ("a.h5", "a.mtx.gz"):
        write(tmp_path / name, testing.uniform((300, 200), 2000))
        assert (
            str(advise(tmp_path / name))
            == str(advise(str(tmp_path / name)))
            == str(advise(testing.uniform((300, 200), 2000)))
        )


def test_wide_indices_are_counted_where_a_conversion_keeps_them():
    wide = Tensor("COO", (2, 1), {"indices_0": np.array([0]), "indices_1": np.array([0])}, [2.0])
    for candidate in advise(wide, kinds=list(LEVELS), count=30).candidates:
        nbytes = wide.convert(candidate.format).nbytes
        assert candidate.nbytes == nbytes or (candidate.format.order != (0, 1) and candidate.nbytes > nbytes)
