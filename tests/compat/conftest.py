from __future__ import annotations

import itertools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from closed_clients import close_clients  # noqa: F401  # a fixture of all tests here
from compat.cluster import Deployment, running, running_kafka
from compat.jars import Unavailable

_serial = itertools.count()
_ENABLED = "TIDELOG_COMPAT"
_OUTCOMES = ("passed", "failed", "error", "skipped")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Deployment]:
    """Three nodes and their Kafka listeners, for all tests of a worker, each of which has a topic of its own."""
    with running() as deployment:
        yield deployment


@pytest.fixture(scope="module")
def kafka() -> Iterator[Deployment]:
    """A cluster of Apache Kafka with one broker, for all tests of a module."""
    try:
        with running_kafka(1) as deployment:
            yield deployment
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or a group that no other test has."""
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', request.node.name).strip('-')}-{next(_serial)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests of each file passed, failed and were skipped."""
    if not os.environ.get(_ENABLED):
        return
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in _OUTCOMES:
        for report in terminalreporter.getreports(outcome):
            counts[Path(report.nodeid.partition("::")[0]).stem][outcome] += 1
    terminalreporter.section("compatibility")
    for file, count in sorted(counts.items()):
        terminalreporter.line(f"{file:32}" + "".join(f"{count[outcome]:5} {outcome}" for outcome in _OUTCOMES))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("compat") is not None and not {_ENABLED, "KAFKA_HOME"} & set(os.environ):
        pytest.skip("long, and fetches what it needs: make compat runs it")
