"""Common settings of all tests."""

import collections
import gc
import os
import sys

import hypothesis
import pytest
from helpers import kinds, servers  # noqa: F401 (kinds registers those that tests use)
from hypothesis import strategies as st

from binsparse_levels.levels import LEVELS
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

# Machines are shared, so examples have no deadline. Runs on CI and runs without --all repeat the same examples.
no_deadline = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("few", max_examples=5, derandomize=True, **no_deadline)
hypothesis.settings.register_profile("default", max_examples=20, derandomize="CI" in os.environ, **no_deadline)
hypothesis.settings.register_profile("many", max_examples=1000, print_blob=True, **no_deadline)


def pytest_addoption(parser):
    parser.addoption(
        "--all", action="store_true", help="also run slow tests, with 20 examples for each law instead of 5"
    )
    parser.addoption(
        "--defaults", action="store_true", help="numpy handles the first entries of a process, as it does for users"
    )


def pytest_configure(config):
    """Without --all, run slow tests only if they are named."""
    if not config.getoption("--defaults"):
        THRESHOLDS.first_entries = -1  # whatever ran before, a test with many entries uses kernels
    everything = config.getoption("--all")
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default" if everything else "few"))
    if not everything and not any("::" in str(word) for word in config.args):
        config.option.markexpr = " and ".join(filter(None, [config.option.markexpr, "not slow"]))


@hypothesis.given(st.none())
def nothing(_):
    """An example of Hypothesis."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """The collector of garbage visits nothing that is imported and collected, because it stays.

    It is not disabled: Dask asks at its import whether it is enabled, and would disable it in each selection of cells.
    """
    try:
        return (yield)
    finally:
        nothing()  # registers numpy's generator, whose referrers Hypothesis does not find afterwards
        gc.freeze()


@pytest.fixture(autouse=True)
def _kinds_as_before():
    """The level kinds that a test registers are forgotten, and so is the gallery, which registers them once."""
    before, modules = dict(LEVELS), set(sys.modules)
    yield
    if list(before.items()) != list(LEVELS.items()):
        LEVELS.clear()
        LEVELS.update(before)
        for name in sys.modules.keys() - modules:
            if name.startswith("binsparse_levels.gallery"):
                del sys.modules[name]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """A test that leaves the collector of garbage disabled is red: the process would grow by gigabytes."""
    yield
    if not gc.isenabled():
        gc.enable()
        pytest.fail(f"the collector of garbage is disabled after {item.nodeid}")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-randomly gives them a random order
def pytest_collection_modifyitems(items):
    """The marker `sampled(n)`: all but every n-th of the parameters of a test are slow."""
    numbers = collections.Counter()
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            if numbers[item.function] % mark.args[0]:
                item.add_marker("slow")
            numbers[item.function] += 1
    return (yield)


def _both_ways(quick):
    """A fixture that runs the tests of a module with kernels for any number of entries, and with numpy.

    quick: the way that is not slow.
    """
    of_kernels = {"NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"} & set(os.environ)
    ways = [pytest.param(way, marks=() if way == quick else pytest.mark.slow) for way in ("kernels", "numpy")]

    @pytest.fixture(scope="module", params=["kernels"] if of_kernels else ways)
    def both_ways(request):
        with using_thresholds(numpy_entries=2**62 if request.param == "numpy" else -1):
            yield

    return both_ways


kernels_and_numpy, numpy_and_kernels = _both_ways("kernels"), _both_ways("numpy")


@pytest.fixture(scope="session")
def s3_server():
    """The address of an S3 server on loopback."""
    pytest.importorskip("moto")
    with servers.s3_server() as endpoint:
        yield endpoint


def _environment(monkeypatch, endpoint):
    for name, value in servers.s3_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    if "s3fs" in sys.modules:
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()  # they cache the address


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The URL s3://bucket of an empty bucket. The environment has the address of its server, also for new processes."""
    _environment(monkeypatch, s3_server)
    return servers.new_bucket(s3_server)


@pytest.fixture
def counted_s3(s3_server, monkeypatch):
    """An empty bucket with a `servers.Proxy` in front: the proxy and the URL s3://bucket."""
    with servers.Proxy(s3_server) as proxy:
        _environment(monkeypatch, proxy.endpoint)
        yield proxy, servers.new_bucket(s3_server)
