"""Whole matrices from one triangle: fiber by fiber, as they would be sorted."""

import numpy as np
import pytest

from binsparse_levels import pack
from binsparse_levels.engine.mirroring import mirror_tree
from binsparse_levels.formats.structure import STRUCTURES
from binsparse_levels.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.usefixtures("both_ways")

SIZE = 7


def half(structure, format, filled):
    """A triangle with so many of its cells filled, the diagonal among them."""
    generator = np.random.default_rng(filled)
    pair = np.nonzero(np.tri(SIZE))
    pair = pair if STRUCTURES[structure].lower else pair[::-1]
    some = np.sort(generator.permutation(len(pair[0]))[:filled])
    i, j = (x[some] for x in pair)
    values = generator.integers(1, 9, filled) + 1j * (i != j)
    values = values if structure.startswith("hermitian") else values.real
    return pack((i, j), values, (SIZE, SIZE), format, structure=structure)


@pytest.mark.parametrize("filled", [0, 5, 28])
@pytest.mark.parametrize("format", ["CSR", "CSC", "DCSR"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_whole_matrix(structure, format, filled):
    tensor = half(structure, format, filled)
    (i, j), values = tensor.unpack()
    expected = np.zeros(tensor.shape, tensor.dtype)
    expected[j, i] = STRUCTURES[structure].mirrored(values)
    expected[i, j] = values
    whole = tensor.expand_structure()
    whole.check()
    assert whole.structure is None
    assert whole.number_of_stored_values == 2 * filled - np.count_nonzero(i == j)
    assert whole.to_dense().tolist() == expected.tolist()


@pytest.mark.parametrize(("format", "made"), [("CSR", True), ("CSC", True), ("DCSR", False)])
def test_only_rows_in_full_are_joined(monkeypatch, format, made):
    monkeypatch.setattr("binsparse_levels.kernels._FEW", -1)
    monkeypatch.setattr("binsparse_levels.kernels._WORTH_LOADING", -1)
    tensor = half("symmetric_lower", format, 9)
    found = mirror_tree(tensor._tree, lambda values: values, above=format == "CSC", limits=DEFAULT_LIMITS)
    assert (found is not None) is made
