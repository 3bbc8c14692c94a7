"""The corpus of attacks and the fuzzer, each in a process of its own under a limit of memory and of time."""

import pytest
from attacks import __main__ as corpus
from attacks import fuzz

pytestmark = pytest.mark.slow


def test_every_number_has_its_case():
    assert {case.number for case in corpus.load(corpus.SUBJECTS)} == set(range(1, 94))


@pytest.mark.parametrize("subject", corpus.SUBJECTS)
def test_what_a_file_must_not_do(subject):
    results = corpus.attempts([subject])
    wrong = [
        f"{each['number']}, {each['what']}, {each['container']}: {fault}" for each in results for fault in each["wrong"]
    ]
    assert results
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("kinds", "cases"), [(fuzz.CHECKED, 100), (fuzz.PLAIN, 60), ([fuzz.JSON], 1000)])
def test_damage_is_refused_or_does_not_show(kinds, cases):
    allowed = {"same", "refused", "another"}
    for kind, counts in fuzz.run(list(kinds), cases).items():
        odd = {outcome for outcome in counts if outcome not in allowed and not outcome.endswith("of h5py alone")}
        if kind in fuzz.PLAIN:  # without a checksum, values may be others
            odd = {outcome for outcome in odd if not outcome.startswith("different")}
        assert counts.total() == cases
        assert not odd, (kind, odd)
