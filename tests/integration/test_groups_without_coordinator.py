"""A cluster that is too small for the topic of the groups."""

from __future__ import annotations

import time

import pytest

from tidelog import Consumer, Producer
from tidelog.testing import LocalCluster
from tidelog_foundation.errors import ErrorCode

_FACTOR = "offsets.topic.replication.factor"


def test_member_of_a_group_that_cannot_be_served_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster(controllers=1, nodes=1, config={_FACTOR: 3}) as cluster:
        servers = {"bootstrap.servers": cluster.kafka_bootstrap_servers}
        with Producer(servers) as producer:
            producer.produce("t", b"v")
            assert producer.flush(30) == 0
        with Consumer({**servers, "group.id": "g", "request.timeout.ms": 7_000}) as consumer:
            consumer.subscribe(["t"])
            deadline = time.monotonic() + 30
            message = None
            while message is None:
                assert time.monotonic() < deadline
                message = consumer.poll(0.2)
    error = message.error()
    assert error is not None
    assert error.code() == ErrorCode.COORDINATOR_NOT_AVAILABLE.code
    reason = "no groups can be served without __consumer_offsets, which cannot be created: "
    assert error.str().startswith(reason)
    assert "replicat" in error.str()
    waits = [r.getMessage() for r in caplog.records if r.name == "tidelog.waiting"]
    assert any('for the coordinator of group "g": COORDINATOR_NOT_AVAILABLE: ' + reason in line for line in waits)
