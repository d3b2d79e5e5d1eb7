"""Topics that are created because a client asks for them (``auto.create.topics.enable``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract_security import SECURITY

from tidelog import AdminClient, Consumer, KafkaException, Producer, TopicPartition
from tidelog.testing import FakeCluster, LocalCluster


@pytest.fixture(scope="module", params=["fake", "local"])
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    start: Callable[[], Any] = (
        (lambda: FakeCluster(auto_create_topics=True, default_partitions=3))
        if request.param == "fake"
        else (lambda: LocalCluster(controllers=1, nodes=1, config={"num.partitions": 3}, security=SECURITY))
    )
    with start() as running:
        yield running.client_settings()


def partitions(servers: dict[str, str], topic: str) -> int:
    with AdminClient(servers) as admin:
        return len(admin.describe_topics([topic])[topic].result(30).partitions)


def test_a_producer_creates_the_topic_that_it_writes_to(servers: dict[str, str]) -> None:
    reports: list[Any] = []
    with Producer(servers) as producer:
        producer.produce("written", b"v", partition=2, on_delivery=lambda error, message: reports.append(error))
        assert producer.flush(30) == 0
    assert reports == [None]
    assert partitions(servers, "written") == 3


def test_a_producer_that_may_not_creates_none(servers: dict[str, str]) -> None:
    reports: list[Any] = []
    config = {
        **servers,
        "allow.auto.create.topics": False,
        "topic.metadata.propagation.max.ms": 300,
    }
    with Producer(config) as producer:
        producer.produce("unwritten", b"v", on_delivery=lambda error, message: reports.append(error))
        assert producer.flush(30) == 0
    assert reports[0].name() == "_UNKNOWN_TOPIC"
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        partitions(servers, "unwritten")


def test_a_consumer_creates_the_topic_that_it_reads_only_if_it_may(servers: dict[str, str]) -> None:
    with Consumer(servers) as consumer:
        consumer.assign([TopicPartition("read", 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error().name() == "UNKNOWN_TOPIC_OR_PARTITION"
    config = {**servers, "allow.auto.create.topics": True, "enable.partition.eof": True}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("read", 0, 0)])
        names = []
        while not names or names[-1] != "_PARTITION_EOF":
            message = consumer.poll(30)
            assert message is not None
            names.append(message.error().name())
    assert partitions(servers, "read") == 3


def test_asking_for_all_topics_or_by_an_administrator_creates_none(servers: dict[str, str]) -> None:
    with AdminClient(servers) as admin:
        assert admin.list_topics("asked", timeout=10).topics["asked"].error is not None
        assert "asked" not in admin.list_topics(timeout=10).topics
