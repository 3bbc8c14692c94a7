"""Settings that all tests share."""

import os

import hypothesis
import pytest

from binsparse_levels import kernels

# Machines are shared: how long an example takes says nothing of the code.
patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", max_examples=60, print_blob=True, **patient)
hypothesis.settings.register_profile("few", max_examples=8, **patient)
hypothesis.settings.register_profile("many", max_examples=1000, **patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="no test marked slow, and 8 examples for each law")


def pytest_configure(config):
    if config.getoption("--quick"):
        hypothesis.settings.load_profile("few")
        config.option.markexpr = " and ".join(filter(None, [config.option.markexpr, "not slow"]))


def pytest_collection_modifyitems(items):
    """The tests that take minutes begin first, so that the others run beside them."""
    items.sort(key=lambda item: "another_mode" not in item.name)


@pytest.fixture(
    scope="module",
    params=["kernels"] if {"NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"} & set(os.environ) else ["kernels", "numpy"],
)
def both_ways(request):
    """A module's tests, once with compiled kernels however few the entries are, once with numpy however many."""
    before = kernels._FEW, kernels._WORTH_LOADING
    kernels._FEW, kernels._WORTH_LOADING = (2**62, 0) if request.param == "numpy" else (-1, -1)
    yield
    kernels._FEW, kernels._WORTH_LOADING = before
