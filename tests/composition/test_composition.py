"""The law of composition, its refusals in the documentation, and that nothing public is left out of it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binsparse_levels import testing
from binsparse_levels.levels import LEVELS
from composition import kinds, known, laws, refusals, ways

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"


@pytest.fixture(scope="module", autouse=True)
def _prepared():
    with laws.prepared():
        yield


@settings(max_examples=25)  # `python -m tests.composition` draws more
@given(st.data())
def test_any_features_in_any_two_ways(data):
    laws.compose(data.draw)


def test_every_public_name_is_a_way_or_takes_no_tensor():
    public = set(ways.public_names())
    covered = {name for way in ways.WAYS.values() for name in way.names}
    assert public - covered - ways.WITHOUT == set()
    assert (covered | ways.WITHOUT) - public == set()
    assert covered & ways.WITHOUT == set()


def test_no_failure_is_known():
    assert known.KNOWN == {}


def test_every_refusal_names_ways():
    named = {name for row in refusals.REFUSALS for name in row.ways.split()}
    assert named <= {"any", *ways.WAYS}


def test_the_page_of_refusals_is_the_table():
    assert refusals.page() in PAGE.read_text()


def test_kinds_of_the_notebooks_are_drawn():
    assert {"single", "delta"} <= {kind.kind for kind in kinds.PLUGINS}
    assert {kind.kind for kind in kinds.PLUGINS} <= LEVELS.keys()


@pytest.mark.parametrize("level", [level for kind in kinds.PLUGINS for level in kind.samples()], ids=str)
@given(st.data())
def test_plugin_kinds_keep_the_laws_of_levels(level, data):
    case = data.draw(testing.level_cases(level, max_size=data.draw(st.sampled_from([4, 4, 300, 70_000]))))
    testing.check_level(case)
    testing.check_selection(case, *data.draw(testing.selections(case)))
