"""Settings that all tests share."""

import collections
import os
import random
import signal
import sys

import hypothesis
import pytest
from helpers import servers

from binsparse_levels import kernels

# Machines are shared: how long an example takes says nothing of the code. CI draws the same examples in every run.
patient = {
    "deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "derandomize": "CI" in os.environ,
}  # fmt: skip
hypothesis.settings.register_profile("default", max_examples=30, print_blob=True, **patient)
hypothesis.settings.register_profile("few", max_examples=8, **patient)
hypothesis.settings.register_profile("many", max_examples=1000, **patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


SECONDS = 240  # of the processor, for a test in its own process; how long it waits says nothing of the code
SHOWN = 10
_TIMES = pytest.StashKey[float]()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also what is marked slow, and 30 examples for each law, not 8")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="modules, and the tests of each, in a random order")


def pytest_configure(config):
    if not config.getoption("--all") and "HYPOTHESIS_PROFILE" not in os.environ:
        hypothesis.settings.load_profile("few")
    if not config.getoption("--all") and not any("::" in str(word) for word in config.args):
        config.option.markexpr = " and ".join(filter(None, [config.option.markexpr, "not slow"]))
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, _too_long)


def _too_long(*_):
    pytest.fail(f"took more than {SECONDS} seconds of a processor")


def pytest_collection_modifyitems(config, items):
    """A random order where one is asked for. Tests that take minutes begin first, so that others run beside them."""
    if not config.getoption("--all"):  # numpy packs the few entries of other tests, and of the law of composition
        left = [item for item in items if "both_ways" in item.fixturenames and "numpy" in item.callspec.id.split("-")]
        if not any("::" in str(word) for word in config.args):
            left += _beside_the_sample(items)
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    if (seed := config.getoption("--shuffle")) is not None:
        chance = random.Random(seed)
        modules = sorted({item.module.__name__ for item in items})
        at = dict(zip(chance.sample(modules, len(modules)), range(len(modules)), strict=True))
        chance.shuffle(items)
        items.sort(key=lambda item: at[item.module.__name__])
    items.sort(key=lambda item: "another_mode" not in item.name)


def _beside_the_sample(items):
    """What the marker `sampled` leaves out."""
    numbers = collections.Counter()
    left = []
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            if numbers[item.function] % mark.args[0]:
                left.append(item)
            numbers[item.function] += 1
    return left


def _processor():
    """Seconds of the processor that this process and those that it has waited for have used."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.stash[_TIMES] = _processor()
    if hasattr(signal, "ITIMER_PROF"):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return (yield)
    finally:
        if hasattr(signal, "ITIMER_PROF"):
            signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("processor", _processor() - item.stash[_TIMES]))
    return report


def pytest_terminal_summary(terminalreporter):
    """The tests that took most of the processor, and the sum of all."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "when")]
    times = {r.nodeid: dict(r.user_properties)["processor"] for r in reports if r.when == "teardown"}
    terminalreporter.section("seconds of the processor")
    for name, seconds in sorted(times.items(), key=lambda item: -item[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:7.1f}  {name}")
    terminalreporter.write_line(f"{sum(times.values()):7.1f}  in all {len(times)} tests")


@pytest.fixture(
    scope="module",
    params=["kernels"] if {"NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"} & set(os.environ) else ["kernels", "numpy"],
)
def both_ways(request):
    """A module's tests, once with compiled kernels however few the entries are, once with numpy however many."""
    before, kernels.FEW = kernels.FEW, 2**62 if request.param == "numpy" else -1
    yield
    kernels.FEW = before


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
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()  # they keep the address


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The URL s3://bucket of an empty bucket; the environment says where its server is, also to new processes."""
    _environment(monkeypatch, s3_server)
    return servers.new_bucket(s3_server)


@pytest.fixture
def counted_s3(s3_server, monkeypatch):
    """An empty bucket behind a `servers.Proxy`: the proxy, and the URL s3://bucket."""
    with servers.Proxy(s3_server) as proxy:
        _environment(monkeypatch, proxy.endpoint)
        yield proxy, servers.new_bucket(s3_server)
