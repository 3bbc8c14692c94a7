"""The table of a sweep: numbers against arrays, refusals as rows, tables of others, the picture."""

from xml.etree import ElementTree

import numpy as np
import pytest
from composition.kinds import registered
from hypothesis import given

import binsparse_levels as bl
from binsparse_levels import FormatError, OptionError, pack, sweep, testing, write
from binsparse_levels.levels import LEVELS
from binsparse_levels.looking.sweep import MEASURES

BLOCKS = "dense, sparse, dense(2) through 0/2, 1/4, 0%2, 1%4"
TENSOR = testing.uniform((40, 60), 300)


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())), testing.formats(max_rank=3))
def test_bits_are_those_of_the_arrays(tensor, format):
    """In any format, or the format says why not."""
    (row,) = sweep(tensor, [format], ["bits", "narrow", "padding", "limit"]).rows
    whole = tensor.expand_structure().without_map() if tensor.map is not None else tensor.expand_structure()
    try:
        stored = whole.convert(format)
    except bl.BinsparseError:
        assert row.refused
        assert not row.measures
        return
    store = {}
    write(store, stored, narrow=True)
    names = set(stored.arrays)
    entries = max(row.entries, 1)
    assert row.refused == ""
    assert row.measures["bits"] == 8 * sum(x.nbytes for x in stored.arrays.values()) / entries
    assert row.measures["narrow"] == 8 * sum(store[name].nbytes for name in names) / entries
    assert row.measures["padding"] == len(stored.values) / entries
    assert row.measures["limit"] >= 0


def test_every_measure_of_every_kind_of_format():
    made = sweep({"a": TENSOR}, ["CSR", "COO", BLOCKS, "dense, n_of_m(1, n=1, m=4)"], MEASURES, repeat=2)
    *sound, refused = made.rows
    for row in sound:
        assert set(row.measures) == set(MEASURES)
        assert row.entries == TENSOR.number_of_stored_values
        assert all(value > 0 for value in row.measures.values())
    assert "choose a larger n" in refused.refused
    assert not refused.measures
    assert {"processor", "numba", "threads", "seed", "rounds"} <= set(made.record)


def test_kinds_of_others_are_rows():
    with registered():
        formats = ["CSR", "dense, loose_compressed", "loose_compressed, sell", "dense, sell(1, c=2, sigma=16)", "dia"]
        table = sweep({"a": testing.stencil(4)}, formats, ["bits", "padding", "ij,j->i", "slice:0"], repeat=1)
    for row in table.rows:
        assert (row.refused, row.measures["bits"] > 0, row.measures["padding"] >= 1) == ("", True, True)


def test_measures_of_another_rank_are_left_out():
    made = sweep([TENSOR, testing.power_law((5, 6, 7), 40)], ["COO"], ["ij,j->i", "ijk,jr,kr->ir", "slice:2"], repeat=1)
    assert [set(row.measures) for row in made.rows] == [{"ij,j->i"}, {"ijk,jr,kr->ir", "slice:2"}]


FAILING = {
    "a result that is too large": ((60_000, 80_000, 100), "ijk,k->ij"),
    "an operand that is too large": ((2**40, 2**40), "ij,jk->ik"),
    "an operand of one letter": ((2**62, 3), "ij,i->j"),
    "no einsum": ((5, 6), "ij,j->ijj"),
}


@pytest.mark.parametrize(("shape", "failing"), FAILING.values(), ids=FAILING)
def test_a_measure_that_fails_leaves_the_others(shape, failing):
    tensor = pack([[0, 3], *[[1, 2]] * (len(shape) - 1)], 1.0, shape, "COO")
    measures = ["bits", "narrow", "padding", "limit", "point"]
    for order in ([failing, *measures], [*measures, failing]):
        rows = sweep({"a": tensor}, ["CSF", "COO"], order, repeat=1).rows
        alone = sweep({"a": tensor}, ["CSF", "COO"], measures, repeat=1).rows
        for row, other in zip(rows, alone, strict=True):
            assert row.refused.startswith(f"{failing}: ")
            assert list(row.measures) == measures
            assert {**row.measures, "point": 0} == {**other.measures, "point": 0}


@pytest.mark.parametrize("spec", ["ij,ir,jr->ij", "ij,ir,jr->ji", "ij,j->ij", "ij->ij"])
def test_a_product_with_the_pattern_of_the_tensor_is_not_dense(spec):
    random, n = np.random.default_rng(0), 2**20
    tensor = pack(random.integers(0, n, (2, 1000)), 1.0, (n, n), "DCSR", duplicates="sum")
    try:
        bl.einsum(
            spec, tensor, *(np.ones((n, 16) if len(x) > 1 else n) for x in spec.partition("->")[0].split(",")[1:])
        )
    except bl.BinsparseError:
        pytest.skip("einsum refuses it")
    (row,) = sweep(tensor, "DCSR", ["bits", spec], repeat=1).rows
    assert (row.refused, sorted(row.measures)) == ("", ["bits", spec])


ONE_AND_MORE = {
    "text": "CSR", "notation with spaces": "dense, sparse", "notation with a map": BLOCKS,
    "a format": bl.parse_format("CSR"), "custom": bl.parse_format("sparse, dense").custom(),
}  # fmt: skip


@pytest.mark.parametrize("format", ONE_AND_MORE.values(), ids=ONE_AND_MORE)
def test_one_format_is_a_list_of_one(format):
    one, listed = (sweep(TENSOR, x, "bits", repeat=1).rows for x in (format, [format]))
    assert one == listed
    assert [bool(row.refused) for row in one] == [False]
    one, listed = (bl.advise(TENSOR, formats=x).compared for x in (format, [format]))
    assert one == listed
    assert len(one) == 1
    named = sweep(TENSOR, {"mine": format}, "bits", repeat=1).rows
    assert [(row.format, row.measures) for row in named] == [
        ("mine", row.measures) for row in sweep(TENSOR, format, "bits").rows
    ]
    assert bl.advise(TENSOR, formats={"mine": format}).compared == listed


@pytest.mark.parametrize("measure", ["bit", 3, "slice:x", ""])
def test_unknown_measures_are_refused(measure):
    with pytest.raises(OptionError, match="is no measure"):
        sweep(TENSOR, ["CSR"], [measure])


def test_files_are_tensors_too(tmp_path):
    for name in ("a.h5", "a.mtx", "a.tns.gz"):
        write(tmp_path / name, TENSOR)
    made = sweep([tmp_path / "a.h5", str(tmp_path / "a.mtx"), tmp_path / "a.tns.gz"], ["CSR"])
    assert [row.tensor for row in made.rows] == ["a.h5", "a.mtx", "a.tns.gz"]
    assert len({row.measures["bits"] for row in made.rows}) == 1
    assert len(sweep([tmp_path / "a.h5"] * 2, "CSR", "bits", repeat=1).rows) == 2  # of one name


def test_tables_of_pandas():
    pytest.importorskip("pandas")
    made = sweep({"a_b": TENSOR}, ["CSR", "dense, n_of_m(1, n=1, m=4)"], ["bits", "limit"])
    frame = made.to_pandas()
    assert frame["bits"][0] == made.rows[0].measures["bits"]
    assert np.isnan(frame["bits"][1])
    assert frame.attrs["seed"] == 0
    assert "CSR" in str(made)
    assert ">CSR</td>" in made._repr_html_()


def test_the_picture_joins_the_best():
    made = sweep(TENSOR, ["CSR", "COO", "DCSR", BLOCKS], ["bits", "narrow", "padding"])
    picture = ElementTree.fromstring(made.pareto("bits", "padding"))
    texts = [x.text for x in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"CSR", "COO", "DCSR", BLOCKS[:57]} <= {text[:57] for text in texts}
    assert "bits (logarithmic)" in texts
    circles = list(picture.iter("{http://www.w3.org/2000/svg}circle"))
    best = [row.measures for row in made.rows]
    beaten = [any(o["bits"] <= m["bits"] and o["padding"] <= m["padding"] and o != m for o in best) for m in best]
    assert [x.get("class") for x in circles] == ["rest" if x else "ink" for x in beaten]
    for wrong in (("bits", "x"), ("bits", "narrow", "b")):
        with pytest.raises(OptionError):
            made.pareto(*wrong)


def test_generators_are_made_again_by_their_seed():
    for make in (
        lambda seed: testing.rmat(6, 200, seed), lambda seed: testing.stencil(4, 2, seed),
        lambda seed: testing.n_of_m(6, 16, seed=seed), lambda seed: testing.power_law((9, 8, 7), 60, seed),
        lambda seed: testing.uniform((9, 8), 30, seed),
    ):  # fmt: skip
        assert make(3).equals(make(3))
        assert not make(3).equals(make(4))
    weights = testing.n_of_m(6, 16)
    assert (np.add.reduceat(weights.to_dense() != 0, range(0, 16, 4), axis=1) == 2).all()
    weights.convert("dense, n_of_m(1, n=2, m=4)")
    with pytest.raises(FormatError):
        weights.convert("dense, n_of_m(1, n=1, m=4)")
    grid = testing.stencil(4, 2).to_dense() != 0
    assert (grid == grid.T).all()
    assert grid.sum(axis=1).max() == 9
