"""Fixtures for pytest, which finds them by an entry point: a cluster for the session, and a topic for each test.

::

    def test_orders_are_counted(tidelog_cluster, tidelog_topic):
        with Producer({"bootstrap.servers": tidelog_cluster.bootstrap_servers}) as producer:
            producer.produce(tidelog_topic, b"1")

``--tidelog-cluster=local``, or ``tidelog_cluster = local`` in the ini file, starts real processes (one controller, one
node) in place of the in-memory fake. Nothing of a cluster is imported before a test asks for one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing import FakeCluster, LocalCluster

_NAME = "tidelog_cluster"
_KINDS = ("fake", "local")
_UNFIT = re.compile(r"[^a-zA-Z0-9._-]+", re.ASCII)
_LONGEST_TEST_NAME = 100
_TIMEOUT_S = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--tidelog-cluster`` and the key ``tidelog_cluster`` of the ini file."""
    kinds = "fake (one node in memory) or local (real processes)"
    parser.getgroup("tidelog").addoption(
        "--tidelog-cluster", choices=_KINDS, default=None, help=f"What tidelog_cluster is: {kinds}."
    )
    parser.addini(_NAME, f"What the fixture tidelog_cluster is: {kinds}.", default="fake")


@pytest.fixture(scope="session")
def tidelog_cluster(pytestconfig: pytest.Config) -> Iterator[FakeCluster | LocalCluster]:
    """A running cluster for the whole session; ``bootstrap_servers`` is for clients.

    Raises:
        pytest.UsageError: the ini file names a kind that is neither ``fake`` nor ``local``.
    """
    kind = pytestconfig.getoption("--tidelog-cluster") or pytestconfig.getini(_NAME)
    if kind not in _KINDS:
        raise pytest.UsageError(f"{_NAME} must be one of {', '.join(_KINDS)}, not {kind!r}")
    from tidelog.testing import FakeCluster, LocalCluster

    with FakeCluster() if kind == "fake" else LocalCluster(controllers=1, nodes=1) as cluster:
        yield cluster


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog_cluster: FakeCluster | LocalCluster) -> Iterator[str]:
    """The name of a new topic of one partition, which is deleted after the test."""
    from tidelog.admin import AdminClient, NewTopic
    from tidelog_foundation.errors import ErrorCode, TidelogError

    test = _UNFIT.sub("-", request.node.name)[:_LONGEST_TEST_NAME]
    name = f"{test}-{uuid.uuid4().hex[:8]}"
    with AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(_TIMEOUT_S)
        yield name
        try:
            admin.delete_topics([name])[name].result(_TIMEOUT_S)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # The test has deleted it.
                raise
