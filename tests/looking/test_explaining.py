"""The loops that `explain` shows are those that run: their text, LLVM and assembly."""

import numpy as np
import pytest

from binsparse_levels import (
    ArrayError,
    FormatError,
    OptionError,
    einsum,
    explain,
    open,
    pack,
    pack_dense,
    testing,
    write,
)
from binsparse_levels.levels import OURS
from binsparse_levels.tensors.tensor import inside

GRAPH = testing.rmat(6, 300, seed=1)


@pytest.mark.slow
def test_the_loops_of_a_matrix_and_a_vector():
    by_letters, by_sign = explain(GRAPH, "ij,j->i"), explain(GRAPH, "@")
    assert str(by_letters) == by_letters.text == by_sign.text
    for piece in ("for x0 in range(begin, end):", "in range(u8(ptr_1[q0]), ", "u8(idx0_1[q1])", "f0[c1]", "out[c0] = "):
        assert piece in by_letters.text
    assert "load double" in by_letters.llvm
    assert by_letters.assembly.count("ret") > 0
    singles = explain(GRAPH, "ij,j->i", np.ones(GRAPH.shape[1], np.float32))
    assert "fpext float" in singles.llvm
    assert "fpext float" not in by_letters.llvm


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["max", "mean:0", "sum:1", "ij->"])
def test_the_loops_of_a_reduction(spec):
    made = explain(GRAPH.convert("dense, mask"), spec)
    assert made.text.startswith("def nest(")
    assert "trailing_zeros_1(" in made.text
    assert made.llvm and made.assembly  # noqa: PT018


@pytest.mark.slow
def test_two_loops_of_a_variance_and_one_of_a_file(tmp_path):
    assert explain(GRAPH, "var").text.count("def nest(") == 2
    write(tmp_path / "a.h5", GRAPH)
    with open(tmp_path / "a.h5") as stored:
        assert explain(stored, "@").text == explain(GRAPH, "@").text


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", [kind for kind in OURS if kind.min_rank == 1 and not kind.refuses])
def test_the_text_of_every_kind_has_its_loop(kind):
    tensor = GRAPH.convert(f"dense, {kind.kind}")
    arrays = [f"{role}_1" for role in inside(tensor).tree.places[1].arrays]
    text = explain(tensor, "ij->i").text
    assert all(name in text for name in arrays)


def test_nothing_is_noted_when_nobody_asks():
    before = einsum("ij->i", GRAPH)
    explain(GRAPH, "ij->i")
    np.testing.assert_array_equal(einsum("ij->i", GRAPH), before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: explain(pack([[], []], [], (3, 4), "CSR"), "@"), OptionError, "no loop runs over its entries"),
        (lambda: explain(GRAPH, "largest"), OptionError, "unknown reduction 'largest'"),
        (lambda: explain(GRAPH, "ij,j"), OptionError, "unknown reduction"),
        (lambda: explain(GRAPH, "ij,j->k"), FormatError, "which no operand has"),
        (lambda: explain(GRAPH, "ij,j->i", np.ones(3)), ArrayError, "dimension 1 of operands"),
        (lambda: explain(GRAPH, 3), OptionError, "unknown reduction '3'"),
        (lambda: explain(pack_dense(np.eye(2), "CSR", fill_value=1), "@"), FormatError, "not 0"),
    ],
)
def test_what_it_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()
