"""A node without an authorizer in a cluster that has ACLs."""

from __future__ import annotations

import pytest
from acknowledged import wait_for
from authorized_cluster import allow, authorized_cluster


def test_node_without_authorizer_warns_once_of_acls_that_it_does_not_apply(caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[str]:
        return [each for each in caplog.messages if "has no authorizer.class.name" in each]

    with authorized_cluster() as cluster:
        allow(cluster, "alice", "TOPIC", "t", "READ")
        assert warnings() == []
        cluster.stop()
        cluster.reconfigure({"authorizer.class.name": None})
        cluster.start()
        wait_for(lambda: bool(warnings()), "the warning", 10)
    [warning] = warnings()
    assert "The cluster has 1 ACLs" in warning
