"""The end of a member: in slow callbacks, in callbacks that close it, in other threads, and without a coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from group_members import Member, until
from scripted_groups import ScriptedGroups, error

import tidelog.consumer.group
from tidelog import Consumer, KafkaException, TopicPartition
from tidelog.consumer.core.commits import OffsetAndMetadata
from tidelog.testing import FakeCluster
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    builder = RecordBatchBuilder()
    for n in range(10):
        builder.append(None, b"%d" % n, (), 1_000)
    with FakeCluster() as running:
        running.create_topic("t", partitions=2)
        for partition in (0, 1):
            running.append("t", partition, builder.build())
        yield running


@pytest.fixture
def joined(cluster: FakeCluster, request: pytest.FixtureRequest) -> Iterator[Member]:
    made = Member(cluster.bootstrap_servers, request.node.name)
    yield made
    made.consumer.close()


def committed(cluster: FakeCluster, group: str) -> list[int]:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}) as consumer:
        return [p.offset for p in consumer.committed([TopicPartition("t", p) for p in (0, 1)], 10)]


def test_close_commits_and_leaves_after_a_callback_that_takes_longer_than_it_waits(
    cluster: FakeCluster, joined: Member, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog.consumer.group, "LEAVE_TIMEOUT_S", 0.4)
    joined.consumer.subscribe(["t"], on_revoke=lambda *_: time.sleep(0.6))
    until([joined], lambda: len(joined.messages) == 20)
    joined.consumer.close()
    assert committed(cluster, request.node.name) == [10, 10]
    following = Member(cluster.bootstrap_servers, request.node.name)
    with following.consumer:
        following.subscribe("t")
        until([following], lambda: len(following.owned) == 2, timeout_s=5)


@pytest.mark.parametrize("when", ["assign", "revoke"])
def test_a_callback_of_a_rebalance_may_close_the_consumer(cluster: FakeCluster, joined: Member, when: str) -> None:
    began: list[float] = []

    def close(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        began.append(time.monotonic())
        consumer.close()

    joined.consumer.subscribe(["t"], **{f"on_{when}": close})
    if when == "revoke":
        until([joined], lambda: len(joined.messages) == 20)
        joined.consumer.unsubscribe()
    deadline = time.monotonic() + 20
    while not began and time.monotonic() < deadline:
        assert joined.consumer.poll(0.1) is None
    assert time.monotonic() - began[0] < 5
    with pytest.raises(KafkaException, match="_DESTROY"):
        joined.consumer.poll(0)


def test_close_in_another_thread_ends_a_poll(joined: Member) -> None:
    joined.consumer.subscribe(["t"])
    until([joined], lambda: len(joined.messages) == 20)
    polled: list[Any] = []
    thread = threading.Thread(target=lambda: polled.append(joined.consumer.poll()))
    thread.start()
    joined.consumer.close()
    thread.join(10)
    assert not thread.is_alive()
    assert polled in ([None], [])


def test_a_commit_that_comes_after_the_end_is_told(joined: Member) -> None:
    group = joined.consumer._group
    assert group is not None
    joined.consumer.close()
    late = group.begin_commit({("t", 0): OffsetAndMetadata(1)})
    with pytest.raises(KafkaException, match="_DESTROY"):
        late.result(5)


def test_the_last_commit_of_close_is_told(cluster: FakeCluster, request: pytest.FixtureRequest) -> None:
    for number in range(5):
        told: list[int] = []
        name = f"{request.node.name}-{number}"
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": name,
                "on_commit": lambda failure, partitions, told=told: told.extend(p.offset for p in partitions),
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        assert consumer.consume(4, 10)
        consumer.close()
        assert told == [4]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_GROUP_ID])
def test_a_coordinator_that_does_not_come_is_told(protocol: str, code: ErrorCode) -> None:
    def find(request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        return pb.FindCoordinatorResponse(
            coordinators=[pb.Coordinator(group_id=group, error=error(code)) for group in request.group_ids]
        )

    with ScriptedGroups() as node:
        node.cluster.create_topic("t")
        node.answers["FindCoordinator"] = find
        waiting = Member(
            node.bootstrap_servers, "g", group_protocol=protocol, request_timeout_ms=200, retry_backoff_max_ms=50
        )
        with waiting.consumer:
            waiting.subscribe("t")
            until([waiting], lambda: bool(waiting.errors))
            before = node.calls["FindCoordinator"]
            until([waiting], lambda: node.calls["FindCoordinator"] > before + 2)
        assert [m.error().error_code() for m in waiting.errors] == [code]
