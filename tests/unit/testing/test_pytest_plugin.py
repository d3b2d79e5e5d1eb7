"""The fixtures for pytest, in runs of their own."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.costly
PRODUCES = """
from tidelog import AdminClient, Producer

seen = []

def test_sends(tidelog_cluster, tidelog_topic):
    with Producer({"bootstrap.servers": tidelog_cluster.bootstrap_servers}) as producer:
        producer.produce(tidelog_topic, b"1", partition=0)
        assert producer.flush(30) == 0
    seen.append((tidelog_cluster, tidelog_topic))

def test_has_the_same_cluster_and_another_topic(tidelog_cluster, tidelog_topic):
    before, topic = seen[0]
    assert before is tidelog_cluster
    with AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap_servers}) as admin:
        assert list(admin.list_topics(timeout=10).topics) == [tidelog_topic]
        assert tidelog_topic != topic
        admin.delete_topics([tidelog_topic])[tidelog_topic].result(10)

def test_kind_of_cluster(tidelog_cluster):
    assert type(tidelog_cluster).__name__ == "KIND"
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> Run:
    # By its entry point where it is installed, else by name; not twice.
    given = () if pytestconfig.pluginmanager.hasplugin("tidelog") else ("-p", "tidelog.testing.plugin")
    return lambda *args: pytester.runpytest_subprocess(*given, "-p", "no:cacheprovider", *args)


def test_fixtures_give_a_cluster_for_the_session_and_a_topic_for_each_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(PRODUCES.replace("KIND", "FakeCluster"))
    run().assert_outcomes(passed=3)


@pytest.mark.slow
def test_ini_and_before_it_the_option_choose_the_cluster(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(PRODUCES.replace("KIND", "LocalCluster"))
    pytester.makeini("[pytest]\ntidelog_cluster = kafka")
    refused = run("-k", "kind")
    refused.assert_outcomes(errors=1, deselected=2)
    refused.stdout.fnmatch_lines(["*tidelog_cluster must be one of fake, local, not 'kafka'*"])
    run("--tidelog-cluster=local").assert_outcomes(passed=3)


def test_nothing_is_imported_where_no_test_asks_for_a_cluster(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_no_client_is_there():
            heavy = ("grpc", "google.protobuf", "tidelog.admin", "tidelog_testing", "tidelog_foundation.transport")
            assert "tidelog.testing.plugin" in sys.modules
            assert [name for name in heavy if name in sys.modules] == []
        """
    )
    run().assert_outcomes(passed=1)


def test_the_installed_package_brings_the_fixtures() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugin = importlib.import_module(project["entry-points"]["pytest11"]["tidelog"])
    assert plugin.tidelog_cluster
    assert plugin.tidelog_topic
