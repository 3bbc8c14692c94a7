"""The table of a sweep: numbers against arrays, times with quartiles, errors, refusals as rows, tables, figures."""

import hashlib
import json
import subprocess
import sys
import time
from functools import partial
from unittest import mock

import numpy as np
import pytest
from composition.kinds import registered
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import FormatError, OptionError, pack, sweep, system, testing, write
from binsparse_levels.levels import LEVELS
from binsparse_levels.levels.base import Level
from binsparse_levels.looking import machine, timing
from binsparse_levels.looking.measuring import MEASURES
from binsparse_levels.looking.sweep import described

BLOCKS = "dense, sparse, dense(2) through 0/2, 1/4, 0%2, 1%4"
TENSOR = testing.uniform((40, 60), 300)


@pytest.fixture(autouse=True, scope="module")
def few_calls():
    """Time one call a round, which keeps the tests short."""
    with mock.patch("binsparse_levels.looking.timing._SECONDS", 0):
        yield


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())), testing.formats(max_rank=3), st.booleans())
def test_bits_are_those_of_the_arrays(tensor, format, narrow):
    """In any format, or the format says why not."""
    (row,) = sweep(tensor, [format], ["bits", "narrow", "padding", "limit"], narrow=narrow).rows
    whole = tensor.expand_structure().without_map() if tensor.map is not None else tensor.expand_structure()
    try:
        stored = whole.convert(format, narrow=narrow)
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
    measures = ["bits", "narrow", "padding", "limit", "convert"]
    for order in ([failing, *measures], [*measures, failing]):
        rows = sweep({"a": tensor}, ["CSF", "COO"], order, repeat=1).rows
        alone = sweep({"a": tensor}, ["CSF", "COO"], measures, repeat=1).rows
        for row, other in zip(rows, alone, strict=True):
            assert row.refused.startswith(f"{failing}: ")
            assert [*row.measures] == [*other.measures] == measures
            assert all(row.measures[name] == other.measures[name] for name in measures[:-1])


@pytest.mark.parametrize("when", [1, 2, 5])
def test_a_call_that_fails_in_any_way_in_any_round_leaves_the_others(when):
    calls = []

    def fails(tensor):
        calls.append(tensor)
        if len(calls) > when:  # the first is of the source, and the second compiles
            raise ZeroDivisionError("of a plug-in")
        return 0

    (row,) = sweep(TENSOR, "CSR", {"bits": "bits", "mine": fails, "pack": "pack"}, repeat=2).rows
    assert row.refused == "mine: ZeroDivisionError: of a plug-in"
    assert len(calls) == when + 1
    assert {*row.measures} >= {"bits", "pack"}


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
    table = sweep({"a": TENSOR}, ["CSR", "COO"], ["bits", "convert", "ij,j->i"], repeat=7)
    for row in table.rows:
        for name in ("convert", "ij,j->i"):
            lower, median, upper = row.facts[f"{name} lower"], row.measures[name], row.facts[f"{name} upper"]
            assert 0 < lower <= median <= upper
            assert row.facts[f"{name} clock"] > 0
            assert f"{median:.4g} ({lower:.3g}–{upper:.3g})" in str(table) or lower == upper
        assert [*row.measures] == ["bits", "convert", "ij,j->i"]
    assert str(table).split("\n")[0].split() == [
        "tensor", "format", "entries", "bits", "convert", "convert", "clock", "ij,j->i", "ij,j->i", "clock", "error",
        "refused",
    ]  # fmt: skip


def test_a_time_is_that_of_the_processor():
    def sleeps(tensor):
        time.sleep(0.02)

    (row,) = sweep({"a": TENSOR}, "CSR", sleeps, repeat=1).rows
    assert row.measures["sleeps"] < 20 <= row.facts["sleeps clock"]


@pytest.mark.parametrize("cold", [True, False])
def test_what_precedes_a_sample(cold):
    """Calls that are not timed, or data that fill the caches: what ran before makes no difference."""
    done = []
    with mock.patch("binsparse_levels.looking.timing.evict", side_effect=partial(done.append, "evict")):
        table = sweep(
            TENSOR, "CSR", {"mine": lambda _: done.append("call")}, cache="cold" if cold else "warm", repeat=2
        )
    assert table.record["cache"] == ("cold" if cold else "warm")
    assert done == ["call", *["evict", "call"] * 2] if cold else ["call", *["call", "call"] * 2]  # the first compiles
    with pytest.raises(OptionError, match="cache"):
        sweep(TENSOR, "CSR", cache="hot")


def test_evicting_reads_more_than_the_caches_keep():
    caches = [size for name, size in system.reported_sizes().items() if "CACHE" in name]
    assert machine._buffer().nbytes >= 2 * max(caches, default=1)
    machine.evict()
    assert machine.bandwidth() > 1e6


def test_threads_are_a_dimension():
    table = sweep({"a": TENSOR}, ["CSR", "COO"], ["bits", "ij,j->i"], repeat=2, threads=(1, 2))
    assert [(row.format, row.threads) for row in table.rows] == [("CSR", 1), ("CSR", 2), ("COO", 1), ("COO", 2)]
    assert all([*row.measures] == ["bits", "ij,j->i"] for row in table.rows)
    assert table.record["threads"] == [1, 2]
    assert "CSR, 1 thread " in str(table)
    seen = []

    sweep(TENSOR, "CSR", {"mine": lambda _: seen.append(bl.get_threads())}, cache="cold", repeat=2, threads=[3, 1])
    assert seen[-6:] == [3, 1, 3, 1, 3, 1]  # compiled, then two rounds
    for wrong in (0, (), (1, 0), "a"):
        with pytest.raises(OptionError, match="threads"):
            sweep(TENSOR, "CSR", threads=wrong)


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
    assert {"processor", "target", "caches", "memory", "cores", "affinity", "system", "numpy", "h5py"} <= set(record)
    assert (record["seed"], record["rounds"], len(record["load"])) == (3, 2, 2)
    assert record["commands"] == [sys.orig_argv]
    json.dumps(record)
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
    checksum = described("a", whole)["sha256"]
    entries = pack(*whole.unpack(), whole.shape, bl.Format((bl.Sparse(whole.ndim),)) if whole.ndim else "bitmap(0)")
    assert described("a", entries)["sha256"] == checksum
    if len(whole.values):
        assert described("a", entries.astype("c16"))["sha256"] != checksum or whole.dtype == "c16"


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
    frame = made.to_pandas()
    table = frame.pivot(index="tensor", columns="format", values="bits")[[*NAMED]]
    csr, bcsr = ([row.measures["bits"] for row in made.rows if row.format == name] for name in ("CSR", "BCSR 2×4"))
    assert table["CSR"].tolist() == csr
    assert table["BCSR 2×4"].tolist() == bcsr
    assert table["1:4"].isna().all()
    assert frame["convert clock"][0] == made.rows[0].facts["convert clock"]
    lines = table.to_latex(float_format="%.3g", na_rep="–", escape=True).splitlines()
    assert any(line.startswith(rf"a\_b & {csr[0]:.3g} & {bcsr[0]:.3g} & – ") for line in lines)


def test_a_speedup_is_a_ratio_of_rows():
    pytest.importorskip("pandas")
    frame = sweep({"a": TENSOR}, "CSR", "convert", repeat=1, threads=(1, 2)).to_pandas()
    assert frame["format"].tolist() == ["CSR, 1 thread", "CSR, 2 threads"]


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
        "tensor", "format", "threads", "entries", "bits", "limit", "pack", "pack lower", "pack upper", "pack clock",
        "error", "refused", "marks",
    ]  # fmt: skip
    assert frame["bits"][0] == made.rows[0].measures["bits"]
    assert np.isnan(frame["bits"][1])
    assert frame.attrs["seed"] == 0
    assert "CSR" in str(made)
    assert ">CSR</td>" in made._repr_html_()


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


class Halves:
    """A tensor as two, whose products are added."""

    def __init__(self, tensor):
        (i, j), values = tensor.unpack()
        self.parts = [pack([i[m], j[m]], values[m], tensor.shape, "CSR") for m in (i % 2 == 0, i % 2 == 1)]
        self.nbytes = sum(part.nbytes for part in self.parts)

    def einsum(self, spec, *operands):
        return sum(bl.einsum(spec, part, *operands) for part in self.parts)


def test_functions_are_formats_and_measures():
    pytest.importorskip("scipy")
    measures = {"SpMV": "ij,j->i", "square": lambda x: x @ x.T, "bits": "bits", "bytes": "bytes", "convert": "convert"}
    formats = {"CSR": "CSR", "halves": Halves, "scipy": bl.to_scipy, "mine": lambda t: t.convert("DCSR")}
    table = sweep({"a": TENSOR}, formats, measures, repeat=1, baselines={"base": lambda t: bl.to_scipy(t).__matmul__})
    csr, halves, scipy, mine, base = table.rows
    assert [*csr.measures] == [*mine.measures] == list(measures)
    assert csr.measures["bytes"] * csr.entries == TENSOR.convert("CSR").nbytes
    assert [*halves.measures] == ["SpMV", "bytes", "convert"]
    assert halves.refused.startswith("square: AttributeError: ")
    assert [*scipy.measures] == ["square", "convert"]
    assert "has no einsum(spec, *operands)" in scipy.refused
    assert [*base.measures] == ["SpMV"]
    assert not base.refused
    assert all(row.error <= 1e-12 for row in table.rows)
    assert set(table.record["formats"]["halves"]) == {"name", "module", "sha256"}
    assert [row.format for row in sweep(TENSOR, [Halves, "CSR"], ["bytes"]).rows] == ["Halves", "CSR"]
    assert sweep(TENSOR, bl.to_scipy, "bytes").rows[0].format == "to_scipy"


@pytest.mark.parametrize("threads", [1, (1, 2)])
def test_a_wrong_result_is_a_refused_row(threads):
    """One product of many is wrong, or one entry of a result is missing."""

    class Wrong(Halves):
        def einsum(self, spec, *operands):
            made = super().einsum(spec, *operands)
            made[7] *= 1 + 1e-6
            return made

    tensor = testing.uniform((40, 60), 1000)
    measures = ["bytes", "ij,j->i", "convert"]
    for row in sweep(tensor, Wrong, measures, repeat=1, threads=threads).rows:
        assert not row.measures
        assert row.refused.startswith("ij,j->i: the result differs from that of the source by 1e-06")
        assert row.error == pytest.approx(1e-6, rel=0.01)
    coords, values = tensor.unpack()
    less = pack([x[1:] for x in coords], values[1:], tensor.shape, "CSR", fill_value=tensor.fill_value)
    (row,) = sweep(tensor, lambda _: less, "convert", repeat=1).rows
    assert (row.measures, row.error) == ({}, pytest.approx(values[0] / values.max()))


class Skipping(LEVELS["sparse"]):
    """Sparse, with a loop that skips the first entry of a fiber."""

    kind = "skipping"

    def loop(self, root):
        return super().loop(root).replace("ptr[p],", "ptr[p] + 1,")


def test_wrong_loops_are_found():
    with mock.patch.dict(LEVELS, {"skipping": Skipping}):
        (row,) = sweep(TENSOR, "dense, skipping", ["bits", "ij,j->i"], repeat=1).rows
    assert "ij,j->i: the result differs from that of the source by 1" in row.refused
    assert row.error == 1
    assert not row.measures


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())), testing.formats(max_rank=3))
def test_a_conversion_has_no_error(tensor, format):
    """Whatever the type, the fill value and the padding."""
    (row,) = sweep(tensor, [format], ["convert", "pack"], repeat=1).rows
    assert row.error == 0 or "convert" not in row.measures
    assert "differs" not in row.refused


def test_errors_of_any_results():
    a, b = np.array([1.0, np.nan, np.inf]), np.array([1.0, np.nan, -np.inf])
    assert timing.error_of(a, a) == 0
    assert timing.error_of(a, b) == np.inf
    assert timing.error_of(np.array([1.0, 4.0]), np.array([1.0, 5.0])) == 0.2
    assert timing.error_of(np.array([1.0, 4.0]), np.array([1.0, 5.0]), np.array([1.0, 100.0])) == 0.01
    assert timing.error_of(np.array([1 + 1j]), np.array([1 - 1j])) == pytest.approx(np.sqrt(2))
    assert timing.error_of(np.array([1.0]), np.array([0.0])) == np.inf
    assert timing.error_of(3, 3) == timing.error_of(np.array(["a"]), np.array(["a"])) == 0
    dense = TENSOR.to_dense()
    assert timing.error_of(TENSOR.convert("dense(2)"), TENSOR) == timing.error_of(dense, TENSOR) == 0
    for wrong in (object(), dense.T, "text"):
        with pytest.raises(bl.ArrayError, match="return an array or a tensor"):
            timing.error_of(wrong, dense)


def test_a_type_and_sizes_of_operands():
    seen = []

    class Spy(Halves):
        def einsum(self, spec, *operands):
            seen.append(operands[0])
            return super().einsum(spec, *operands).astype(operands[0].dtype)

    table = sweep(TENSOR, [Spy, "CSR"], "ij,jk->ik", sizes={"k": 3}, dtype="float32", repeat=1)
    assert (seen[0].shape, seen[0].dtype, table.record["sizes"], table.record["dtype"]) == (
        (60, 3),
        "f4",
        {"k": 3},
        "float32",
    )
    assert all(row.measures and row.error < 1e-6 for row in table.rows)
    assert table.rows[1].facts["ij,jk->ik operations"] == 2 * 3 * table.rows[1].entries
    assert sweep(TENSOR.astype("i4"), "CSR", "ij,j->i", dtype="int64", repeat=1).rows[0].error == 0
    with pytest.raises(OptionError, match="sizes"):
        sweep(TENSOR, "CSR", "ij,jk->ik", sizes={"k": 0})


def test_a_stored_operand_gives_a_stored_result():
    results = []

    class Spy(Halves):
        def einsum(self, spec, *operands):
            results.append(bl.einsum(spec, self.parts[0].convert("CSR"), *operands))
            return super().einsum(spec, *(x.to_dense() for x in operands))

    rows = sweep(TENSOR, [Spy, "CSR"], "ij,jk->ik", operands={"jk": "CSR"}, repeat=1).rows
    assert isinstance(results[0], bl.Tensor)
    assert all(row.measures and row.error < 1e-12 for row in rows)


class Whole(LEVELS["sparse"]):
    """Sparse, without what is optional."""

    kind = "whole"
    part, loop = Level.part, Level.loop

    def fused(self):
        return None


def test_what_says_little_is_marked():
    table = sweep({"a": TENSOR.convert("CSR")}, ["CSR", "DCSR"], ["convert", "pack", "slice:0", "ij,j->i"], repeat=1)
    csr, dcsr = table.rows
    assert csr.marks == {"convert": "shares pointers_to_1, indices_1, values"}
    assert dcsr.marks == {"convert": "shares indices_1, values"}
    assert "*" in str(table)
    with mock.patch.dict(LEVELS, {"whole": Whole}):
        (row,) = sweep(TENSOR, "dense, whole", ["slice:0", "ij,j->i"], repeat=1).rows
    assert row.marks["slice:0"] == "whole has no part, so it is read whole"
    assert row.marks["ij,j->i"] == "whole has no loop, so its entries are unpacked"
    assert "*" not in str(sweep(TENSOR, "CSR", "bits"))


def test_a_killed_run_continues(tmp_path):
    path, tensors, done = tmp_path / "run.jsonl", {"a": TENSOR, "b": testing.stencil(3)}, []

    def build(tensor):
        done.append(tensor.shape)
        if len(done) == 2:
            raise KeyboardInterrupt
        return tensor.convert("CSR")

    options = {"measure": ["bits", "ij,j->i"], "repeat": 1, "store": path}
    with pytest.raises(KeyboardInterrupt):
        sweep(tensors, {"CSR": build}, **options)
    with open(path, "a") as file:
        file.write('{"tensor": {"na')  # the process was killed while it wrote
    table = sweep(tensors, {"CSR": build}, **options)
    assert done == [(40, 60), (27, 27), (27, 27)]
    assert [row.tensor for row in table.rows] == ["a", "b"]
    assert (len(table.record["commands"]), len(table.record["load"])) == (2, 3)
    again = sweep(tensors, {"CSR": build}, **options)
    assert again.rows == table.rows
    assert len(done) == 3
    with pytest.raises(OptionError, match="other rounds, seed"):
        sweep(tensors, {"CSR": build}, **{**options, "repeat": 2}, seed=1)
    with pytest.raises(OptionError, match="another tensor than a"):
        sweep({"a": TENSOR.permute((1, 0))}, {"CSR": build}, **options)
    (tmp_path / "other").write_text("{}\n")
    with pytest.raises(OptionError, match="is no file of a sweep"):
        sweep(tensors, "CSR", "bits", store=tmp_path / "other")


def test_a_changed_function_is_another_sweep(tmp_path):
    options = {"measure": "bits", "store": tmp_path / "run.jsonl"}
    sweep(TENSOR, {"a": lambda t: t.convert("CSR")}, **options)
    with pytest.raises(OptionError, match="other formats"):
        sweep(TENSOR, {"a": lambda t: t.convert("COO")}, **options)


def test_a_kind_has_a_checksum():
    with registered():
        kinds = sweep(TENSOR, "CSR", "bits").record["kinds"]
    assert {"dia", "sell"} <= set(kinds)
    assert len(kinds["dia"]["sha256"]) == 64


def test_figures():
    pytest.importorskip("matplotlib")
    tensors = {"a": TENSOR, "b": testing.uniform((30, 20), 100)}
    formats = ["CSR", "COO", "DCSR", BLOCKS, "dense, n_of_m(1, n=1, m=4)"]
    table = sweep(tensors, formats, ["bits", "padding", "ij,j->i"], repeat=1, threads=(1, 2))
    figure = table.pareto("bits", "padding")
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "geometric mean"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"index bits per entry (log scale)"}
    assert table.pareto("bits", "ij,j->i").axes[0].get_ylabel() == "ij,j->i, ms (log scale)"
    assert "formats that no other beats in both" in [text.get_text() for text in figure.legends[0].get_texts()]
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        assert all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in axis.get_majorticklocs())
    *points, line = figure.axes[0].lines
    drawn = {x.get_label(): tuple(x.get_xydata()[0]) for x in points}
    wanted = {
        table._label(x): (x.measures["bits"], x.measures["padding"])
        for x in table.rows
        if x.tensor == "a" and x.measures
    }
    assert drawn == wanted
    best = {p for p in wanted.values() if not any(o[0] <= p[0] and o[1] <= p[1] and o != p for o in wanted.values())}
    assert set(map(tuple, line.get_xydata())) == best
    means = {x.get_label(): x.get_xydata()[0][0] for x in figure.axes[2].lines}
    two = [row.measures["bits"] for row in table.rows if table._label(row) == "COO, 1 thread"]
    assert means["COO, 1 thread"] == pytest.approx(np.sqrt(np.prod(two)))
    roof = table.roofline("ij,j->i")
    *points, line = roof.axes[0].lines
    row, (x, y) = table.rows[0], points[0].get_xydata()[0]
    assert points[0].get_label() == "a, CSR, 1 thread"
    moved = TENSOR.convert("CSR").nbytes + 8 * (40 + 60)
    assert x == pytest.approx(2 * row.entries / moved)
    assert y == pytest.approx(2 * row.entries / row.measures["ij,j->i"] / 1e6)
    assert np.divide(*line.get_xydata().T[::-1]) == pytest.approx(table.record["bandwidth"] / 1e9)
    for wrong in (("bits", "x"), ("x", "bits")):
        with pytest.raises(OptionError, match="no format has positive"):
            table.pareto(*wrong)
    with pytest.raises(OptionError, match="no format has positive"):
        table.roofline("bits")
    assert len(sweep({"a": TENSOR}, "CSR", ["bits", "limit"]).pareto("bits", "limit").axes) == 1
    eight = sweep({f"{k}": TENSOR for k in range(8)}, "CSR", ["bits", "limit"]).pareto("bits", "limit")
    assert [axes.get_subplotspec().rowspan.start for axes in eight.axes] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_figure_is_stored(tmp_path):
    pytest.importorskip("matplotlib")
    sweep({"a": TENSOR}, ["CSR", "COO"], ["bits", "narrow"]).pareto("bits", "narrow").savefig(tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
