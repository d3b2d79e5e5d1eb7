from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator

import pytest
from durations import Durations
from example_counts import DEFAULT_EXAMPLES, share_of
from forked_processes import ForkedProcesses
from hypothesis import HealthCheck, settings
from long_first import Needs, long_first, turned

from benchmarks.process import tree_cpu_seconds
from tidelog.testing.process import ProcessHandle, start_process

# gRPC prints a line whenever a server goes away, which is what many of these tests do. Read when gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Workers have it set to 80, and tables would be folded to that, as for somebody who asks for it.
os.environ.pop("COLUMNS", None)
# Some hundred processes import the same modules: each would compile all of them where an image asks for no byte code.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A script's background ignores SIGINT, and so would all that the tests start, some of them to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of an example depends on the load. All examples: --hypothesis-profile=thorough, as in make sim.
settings.register_profile(
    "thorough", deadline=None, max_examples=DEFAULT_EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("tidelog", parent=settings.get_profile("thorough"), max_examples=share_of(DEFAULT_EXAMPLES))
# A few examples each, for the inner loop: --hypothesis-profile=quick.
settings.register_profile("quick", parent=settings.get_profile("tidelog"), max_examples=5, stateful_step_count=20)
settings.load_profile("tidelog")

# Most of a start is the import of the same modules: a server per worker has imported them, and forks.
_forks = ForkedProcesses() if sys.platform == "linux" else None
if _forks is not None:
    ProcessHandle.launch = _forks.launch


def pytest_unconfigure() -> None:
    if _forks is not None:
        _forks.close()


@pytest.fixture
def fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of a test's clusters as users do: fresh interpreters, without the fork server."""
    monkeypatch.setattr(ProcessHandle, "launch", staticmethod(start_process))


@pytest.fixture(autouse=True)
def log_level() -> Generator[None, None, None]:
    """Undo what the command line and the servers do to logs: which test comes next depends on the workers."""
    logger, root = logging.getLogger("tidelog"), logging.getLogger()
    level, handlers, root_level = logger.level, [*logger.handlers], root.level
    yield
    for each, before in ((logger, level), (root, root_level)):
        # A change, even to the same level, empties the cache of all loggers.
        if each.level != before:
            each.setLevel(before)
    logger.handlers[:] = handlers
    for handler in [*root.handlers]:
        # Not pytest's, which have classes of their own; this one writes to a stream that the end of the test closes.
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests from the collector of cycles, which would walk over all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_IS_CAMPAIGN = "TIDELOG_CHAOS_ROUNDS" in os.environ
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files: what one has rewritten and compiled the others find."""
    report = yield
    if _WORKERS > 1 and isinstance(collector, pytest.Directory):
        report.result = turned(report.result, _WORKER, _WORKERS)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Give the tests that take long to several workers first; one worker alone keeps the order of the files."""
    if _WORKERS > 1:
        items.sort(key=lambda item: item.path)
    for item in items:
        if not _IS_CAMPAIGN and item.get_closest_marker("chaos") is not None and _needs(item).spark:
            item.add_marker(pytest.mark.skip("make chaos runs it: it needs Spark, which is dear"))
    yield
    if _WORKERS > 1:
        items[:] = long_first(items, _needs, _WORKERS)


def _needs(item: pytest.Item) -> Needs:
    is_long = any(item.get_closest_marker(name) is not None for name in ("slow", "chaos"))
    is_spark = "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None
    return Needs(str(item.path), is_long, is_spark)


_durations = Durations()
_processor_s = 0.0
_file_ends = False


def _processor_seconds() -> float:
    """Return the CPU seconds of this worker and its processes since the last call, which takes 5 ms: all of /proc."""
    global _processor_s
    has_proc = sys.platform == "linux"
    before, _processor_s = _processor_s, tree_cpu_seconds(os.getpid()) if has_proc else sum(os.times()[:4])
    return max(_processor_s - before, 0.0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-by-file", action="store_true", help="show each file's time and processor time")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Charge no file with the CPU time of the collection."""
    if session.config.getoption("durations_by_file"):
        _processor_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Remember whether this worker leaves the test's file: CPU time is measured once per file, not per test."""
    global _file_ends
    _file_ends = nextitem is None or nextitem.path != item.path


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the durations where all reports arrive: not in a worker."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        used_s = getattr(report, "processor_s", 0.0)
        _durations.add(report.nodeid, report.when, report.duration, report.keywords, used_s)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the long tests that no mark announces and, with --durations-by-file, the files that take most time."""
    lines = [*_durations.lines(files=bool(terminalreporter.config.getoption("durations_by_file")))]
    if lines:
        terminalreporter.section("durations")
    for line in lines:
        terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes of a failed test's cluster printed last: the cluster's folder is gone afterwards."""
    from tidelog.testing import LocalCluster

    report = yield
    if call.when == "teardown" and _file_ends and item.config.getoption("durations_by_file"):
        report.processor_s = _processor_seconds()
    if report.failed and call.when == "call":
        for cluster in [v for v in getattr(item, "funcargs", {}).values() if isinstance(v, LocalCluster)]:
            for process in (*cluster.controllers.values(), *cluster.nodes.values()):
                title = f"{process.name}, {'running' if process.is_running else 'ended'}"
                report.sections.append((title, process.failure or process.log_tail()))
    return report
