"""AdminClient.delete_records when leaders move, answers are lost and replicas are late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog import OFFSET_END, AdminClient, KafkaException, Producer, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

WHERE = TopicPartition("t", 0, OFFSET_END)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        produce(running, b"a", b"b")
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10}) as client:
        yield client


def produce(cluster: FakeCluster, *values: bytes) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for value in values:
            producer.produce("t", value)
        assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, {}),
        (ErrorCode.KAFKA_STORAGE_ERROR, {}),
        (ErrorCode.REQUEST_TIMED_OUT, {"applied": True}),
        (ErrorCode._TRANSPORT, {"whole_call": True}),
        (ErrorCode._TRANSPORT, {"whole_call": True, "applied": True}),
    ],
)
def test_delete_records_asks_again_after_an_error_that_may_pass(
    cluster: FakeCluster, admin: AdminClient, code: ErrorCode, how: dict[str, bool]
) -> None:
    cluster.fail_next("DeleteRecords", code, 2, **how)
    assert admin.delete_records([WHERE])[WHERE].result(20).low_watermark == 2
    assert cluster.calls("DeleteRecords") == 3


def test_delete_records_to_the_end_keeps_what_is_written_before_it_asks_again(
    cluster: FakeCluster, admin: AdminClient
) -> None:
    cluster.pause()
    future = admin.delete_records([WHERE])[WHERE]
    cluster.fail_next("DeleteRecords", ErrorCode.NOT_LEADER_OR_FOLLOWER, 20)
    cluster.resume()
    while cluster.calls("DeleteRecords") < 2:
        assert not future.done()
    produce(cluster, b"c")
    cluster.clear_faults()
    assert future.result(20).low_watermark == 2
    assert [record.value for record in cluster.records("t")] == [b"c"]


def test_delete_records_names_the_late_replicas_after_its_operation_timeout(
    cluster: FakeCluster, admin: AdminClient
) -> None:
    cluster.fail_next("DeleteRecords", ErrorCode.REQUEST_TIMED_OUT, 1_000, applied=True)
    with pytest.raises(KafkaException, match="REQUEST_TIMED_OUT"):
        admin.delete_records([WHERE], operation_timeout=0.2)[WHERE].result(5)
    assert cluster.records("t") == []


def test_delete_records_gives_up_at_its_request_timeout(cluster: FakeCluster, admin: AdminClient) -> None:
    admin.list_topics("t", timeout=10)
    cluster.fail_next("DeleteRecords", ErrorCode.NOT_LEADER_OR_FOLLOWER, 10_000)
    with pytest.raises(KafkaException, match="NOT_LEADER_OR_FOLLOWER"):
        admin.delete_records([WHERE], request_timeout=1)[WHERE].result(20)
