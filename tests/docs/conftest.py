"""A cluster for the pages, and what their commands and programs find around them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_server import forked_commands

from tidelog import AdminClient, KafkaError, KafkaException
from tidelog.testing import LocalCluster


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=3, nodes=3) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Three controllers and three nodes; what a page leaves behind is deleted after it."""
    yield shared_cluster
    with AdminClient({"bootstrap.servers": shared_cluster.bootstrap_servers}) as admin:
        groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
        futures = {**(admin.delete_consumer_groups(groups) if groups else {})}
        topics = [name for name in admin.list_topics().topics if not name.startswith("__")]
        futures |= admin.delete_topics(topics) if topics else {}
        for future in futures.values():
            try:
                future.result()
            except KafkaException as error:
                # The page itself has deleted the topic, and the node that listed it had not heard of that.
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PARTITION:  # type: ignore[attr-defined]
                    raise


@pytest.fixture(scope="package")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a quick ``tidelog``: the pages run about a hundred commands, most of whose time are imports."""
    if sys.platform != "linux":
        yield Path(sys.executable).parent
        return
    with forked_commands(tmp_path_factory.mktemp("commands")) as folder:
        yield folder


@pytest.fixture
def environment(cluster: LocalCluster, commands: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a page's commands: ``tidelog`` is this one, and connects to the cluster by default."""
    return {
        **os.environ,
        "COLUMNS": "200",
        "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "TIDELOG_PROFILE": str(tmp_path / "profile.toml"),
    }
