"""The table of a sweep: numbers against arrays, times with quartiles, refusals as rows, tables, the picture."""

import hashlib
import subprocess
import sys
import time
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pytest
from composition.kinds import registered
from hypothesis import given

import binsparse_levels as bl
from binsparse_levels import FormatError, OptionError, pack, sweep, testing, traffic, write
from binsparse_levels.levels import LEVELS
from binsparse_levels.looking import measuring
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
        assert [*row.measures] == list(MEASURES)
        assert row.entries == TENSOR.number_of_stored_values
        assert all(value > 0 for value in row.measures.values())
    assert "choose a larger n" in refused.refused
    assert not refused.measures


def test_kinds_of_others_are_rows():
    with registered():
        formats = ["CSR", "dense, loose_compressed", "loose_compressed, sell", "dense, sell(1, c=2, sigma=16)", "dia"]
        table = sweep({"a": testing.stencil(4)}, formats, ["bits", "padding", "ij,j->i", "slice:0"], repeat=1)
    for row in table.rows:
        assert (row.refused, row.measures["bits"] > 0, row.measures["padding"] >= 1) == ("", True, True)


def test_measures_of_another_rank_are_left_out():
    made = sweep([TENSOR, testing.power_law((5, 6, 7), 40)], ["COO"], ["ij,j->i", "ijk,jr,kr->ir", "slice:2"], repeat=1)
    assert [[*row.measures] for row in made.rows] == [["ij,j->i"], ["ijk,jr,kr->ir", "slice:2"]]


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
            assert [*row.measures] == [*other.measures] == measures
            assert all(row.measures[name] == other.measures[name] for name in measures[:-1])


@pytest.mark.parametrize("failing", ["point", "ij,j->i"])
def test_a_call_that_fails_in_any_way_in_any_round_leaves_the_others(failing):
    calls = []

    def fail(*given):
        calls.append(given)
        if len(calls) > 2:  # the first compiles
            raise ZeroDivisionError("of a plug-in")
        return 1

    name = "_look_up" if failing == "point" else "einsum"
    with mock.patch(f"binsparse_levels.looking.measuring.{name}", lambda *given, **_: fail(*given)):
        (row,) = sweep(TENSOR, "CSR", ["bits", failing, "pack"], repeat=4).rows
    assert row.refused == f"{failing}: ZeroDivisionError: of a plug-in"
    assert (len(calls), row.rounds[f"{failing} rounds"], row.rounds["pack rounds"]) == (3, 1, 4)
    assert row.measures["bits"] > 0


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
    assert (row.refused, sorted([*row.measures])) == ("", ["bits", spec])


SAMPLED = """
import numpy as np, binsparse_levels as bl
n = 65536
tensor = bl.pack(np.random.default_rng(0).integers(0, n, (2, 10_000)), 1.0, (n, n), "CSR", duplicates="sum")
blocks = "dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4"
table = bl.sweep({"a": tensor}, {"CSR": "CSR", "BCSR": blocks, "COO": "COO"}, ["ij,ir,jr->ij", "ij,j->i"], repeat=1)
assert not any(row.refused for row in table.rows), table
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the most memory of a process")
def test_a_sampled_product_of_a_large_matrix_takes_little_memory():
    """Dense, the matrix has 34 GB, and its pattern 4 GB."""
    done = subprocess.run([sys.executable, "-c", SAMPLED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400_000  # KiB; 230,000 were measured


def test_a_time_is_a_median_with_quartiles():
    table = sweep({"a": TENSOR}, ["CSR", "COO"], ["bits", "point", "convert", "ij,j->i"], repeat=7)
    for row in table.rows:
        for name in ("point", "convert", "ij,j->i"):
            lower, median, upper = row.rounds[f"{name} lower"], row.measures[name], row.rounds[f"{name} upper"]
            assert 0 < lower <= median <= upper
            assert row.rounds[f"{name} rounds"] == 7
            assert row.rounds[f"{name} processor"] >= 0
            assert f"{median:.4g} ({lower:.3g}–{upper:.3g})" in str(table) or lower == upper
        assert "bits rounds" not in row.rounds
        assert [*row.measures] == ["bits", "point", "convert", "ij,j->i"]


@pytest.mark.parametrize(("waits", "warned"), [(True, True), (False, False)])
def test_a_warning_where_the_processor_waits(waits, warned):
    def run(*_, **__):
        end = time.process_time() + 0.005
        while not waits and time.process_time() < end:
            pass
        time.sleep(0.02 if waits else 0)

    with mock.patch("binsparse_levels.looking.measuring.pack", run):
        table = sweep({"a": TENSOR}, "CSR", ["pack"], repeat=3, threads=4)
    (row,) = table.rows
    if not waits and row.rounds["pack processor"] < 0.8 * row.measures["pack"]:
        pytest.skip("other programs keep the processor busy")
    assert table.rows[0].warning.startswith("pack: ") == warned
    assert ("*" in str(table), "differ" in table._repr_html_()) == (warned, warned)


def test_threads_are_a_dimension():
    table = sweep({"a": TENSOR}, ["CSR", "COO"], ["bits", "ij,j->i"], repeat=2, threads=(1, 2))
    assert [(row.format, row.threads) for row in table.rows] == [("CSR", 1), ("CSR", 2), ("COO", 1), ("COO", 2)]
    assert all([*row.measures] == ["bits", "ij,j->i"] for row in table.rows)
    assert table.record["threads"] == [1, 2]
    assert "CSR, 1 thread " in str(table)
    assert ">COO, 2 threads<" in table.pareto("bits", "ij,j->i")
    seen = []

    def run(*_, **__):
        seen.append(bl.get_threads())

    with mock.patch("binsparse_levels.looking.measuring.einsum", run):
        sweep(TENSOR, "CSR", "ij,j->i", repeat=2, threads=[3, 1])
    assert seen == [3, 1, 3, 1, 3, 1]  # compiled, then two rounds
    for wrong in (0, (), (1, 0), "a"):
        with pytest.raises(OptionError, match="threads"):
            sweep(TENSOR, "CSR", threads=wrong)


def test_a_point_has_a_budget():
    looked_up = []

    class Slow:
        def __getitem__(self, place):
            time.sleep(0.03)
            looked_up.append(place)

    assert measuring._look_up(Slow(), [(0, 0)] * 200) == len(looked_up) <= 4
    assert measuring._look_up(TENSOR, [(0, 0)] * 20) == 20


def test_limits_are_those_of_the_sweep():
    small = bl.Limits(dense_bytes=1000)
    dense, csr = sweep(TENSOR, ["dense(2)", "CSR"], ["bits", "ij,jk->ik"], repeat=1, limits=small).rows
    assert "dense_bytes=1000" in dense.refused
    assert [*csr.measures] == ["bits"]
    assert "dense_bytes=1000" in csr.refused
    assert not any(row.refused for row in sweep(TENSOR, ["dense(2)", "CSR"], ["ij,jk->ik"], repeat=1).rows)


def test_the_record():
    table = sweep(
        {"a": TENSOR, "b": TENSOR.convert("COO"), "c": TENSOR.permute((1, 0))}, "CSR", "bits", seed=3, repeat=2
    )
    record = table.record
    assert {"processor", "target", "flags", "system", "python", "numpy", "numba", "h5py", "binsparse_levels"} <= set(
        record
    )
    assert (record["seed"], record["rounds"], len(record["load"])) == (3, 2, 2)
    first, again, other = record["tensors"]
    assert first == {**again, "name": "a"}
    assert (first["shape"], first["entries"]) == ([40, 60], TENSOR.number_of_stored_values)
    assert first["sha256"] != other["sha256"]
    small = pack([[0, 1], [1, 0]], np.array([1, 2], "i2"), (2, 2), "CSC")
    stored = b"(2, 2) int16" + np.array([0, 1, 1, 0], "<i8").tobytes() + np.array([1, 2], "<i2").tobytes()
    assert sweep(small, "CSR").record["tensors"][0]["sha256"] == hashlib.sha256(stored).hexdigest()


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())))
def test_a_checksum_is_that_of_the_entries(tensor):
    whole = tensor.expand_structure().without_map()
    checksum = measuring.described("a", whole)["sha256"]
    entries = pack(*whole.unpack(), whole.shape, bl.Format((bl.Sparse(whole.ndim),)) if whole.ndim else "bitmap(0)")
    assert measuring.described("a", entries)["sha256"] == checksum
    if len(whole.values):
        assert measuring.described("a", entries.astype("c16"))["sha256"] != checksum or whole.dtype == "c16"


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


NAMED = {"CSR": "CSR", "BCSR 2×4": BLOCKS, "1:4": "dense, n_of_m(1, n=1, m=4)"}


def test_named_formats_in_tables():
    pytest.importorskip("pandas")
    tensors = {"a_b": TENSOR, "c": testing.uniform((30, 20), 100)}
    made = sweep(tensors, NAMED, ["bits", "convert"], repeat=3)
    assert [row.format for row in made.rows] == list(NAMED) * 2
    assert all(name in str(made) for name in NAMED)
    assert ">BCSR 2×4<" in made.pareto("bits", "convert")
    table = made.compare("bits", "CSR")
    assert list(table.columns) == [*NAMED, "BCSR 2×4 / CSR", "1:4 / CSR"]
    assert list(table.index) == ["a_b", "c", "geometric mean"]
    csr, bcsr = ([row.measures["bits"] for row in made.rows if row.format == name] for name in ("CSR", "BCSR 2×4"))
    ratios = np.divide(bcsr, csr)
    assert table["BCSR 2×4 / CSR"].tolist() == pytest.approx([*ratios, np.sqrt(ratios.prod())])
    assert table["1:4 / CSR"].isna().all()
    assert table.attrs["seed"] == 0
    lines = table.to_latex(float_format="%.3g", na_rep="–", escape=True).splitlines()
    assert lines[1:3] == [r"\toprule", " & CSR & BCSR 2×4 & 1:4 & BCSR 2×4 / CSR & 1:4 / CSR " + r"\\"]
    assert lines[4].startswith(rf"a\_b & {csr[0]:.3g} & {bcsr[0]:.3g} & – & ")
    assert r"\bottomrule" in lines
    assert list(made.compare("bits").columns) == list(NAMED)
    assert made.compare("convert processor")["CSR"].tolist() == [
        made.rows[k].rounds["convert processor"] for k in (0, 3)
    ]
    for wrong in (("narrow",), ("bits", "COO")):
        with pytest.raises(OptionError, match="choose from"):
            made.compare(*wrong)
    with pytest.raises(OptionError, match="one name"):
        sweep(TENSOR, ["CSR", "CSR"], "bits").compare("bits")


def test_a_speedup_is_a_ratio():
    pytest.importorskip("pandas")
    table = sweep({"a": TENSOR}, "CSR", "convert", repeat=1, threads=(1, 2)).compare("convert", "CSR, 1 thread")
    one, two, ratio = table.loc["a"]
    assert ratio == two / one


def test_level_may_be_the_name_of_a_format():
    assert sweep(TENSOR, {"level": "CSR"}, "bits").rows[0].format == "level"
    described = {"level": {"level_desc": "sparse", "rank": 2, "level": {"level_desc": "element"}}}
    assert bl.parse_format(described) == bl.parse_format("sparse(2)")
    assert sweep(TENSOR, described, "bits").rows[0].format == "COOR"


def test_tables_of_pandas():
    pytest.importorskip("pandas")
    made = sweep({"a_b": TENSOR}, ["CSR", "dense, n_of_m(1, n=1, m=4)"], ["bits", "limit", "pack"])
    frame = made.to_pandas()
    assert list(frame.columns) == [
        "tensor", "format", "threads", "entries", "bits", "limit", "pack", "pack lower", "pack upper", "pack processor",
        "pack rounds", "refused", "warning",
    ]  # fmt: skip
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


def test_traffic_is_a_measure():
    tensor = pack([[0, 1, 3], [1, 0, 2]], 1.0, (4, 4), "CSR")
    (row,) = sweep(tensor, "CSR", "traffic:ij,j->i").rows
    operand = np.random.default_rng(0).random(4)
    counted = traffic(tensor, "ij,j->i", operand)
    assert row.measures == {"traffic:ij,j->i": sum(x.bytes for x in counted.values()) / 3}
