"""A leader is killed meanwhile: producers lose, double and reorder nothing, and consumers read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from compat.clients.all import client
from compat.clients.client import wait_for
from compat.clients.record import Record
from compat.cluster import Deployment

# aiokafka leaves a socket open when it cannot connect.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

RECORDS, KEYS, KILL_AFTER = 600, 4, 200
ALL = [
    "confluent-kafka",
    *(pytest.param(name, marks=pytest.mark.compat) for name in ("kafka-python", "aiokafka", "kcat", "java")),
]
IDEMPOTENT: dict[str, dict[str, Any]] = {
    "confluent-kafka": {"enable_idempotence": True},
    "kafka-python": {"enable_idempotence": True},
    "aiokafka": {"enable_idempotence": True},
    "kcat": {"enable_idempotence": "true"},
    "java": {"enable_idempotence": True},
}


class LeaderKill:
    """Kills the leader of a topic's partition once, between two records."""

    def __init__(self, cluster: Deployment, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.killed: int | None = None

    def records(self, count: int) -> Iterator[Record]:
        """Numbered records; the leader dies after some of them are acknowledged, with others on their way."""
        for number in range(count):
            if number == KILL_AFTER:
                wait_for(lambda: self._cluster.end_offset(self._topic) > 0, "the first records in the log")
                self()
            yield Record(b"%06d" % number + b"." * 500, key=b"key-%d" % (number % KEYS), partition=0)

    def __call__(self) -> None:
        if self.killed is None:
            self.killed = self._cluster.kill_leader(self._topic)

    def heal(self) -> None:
        if self.killed is not None:
            self._cluster.bring_back(self.killed, self._topic)


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    return cluster.create(name, replicas=3, min_insync_replicas=2)


@pytest.fixture
def kill(cluster: Deployment, topic: str) -> Iterator[LeaderKill]:
    leader_kill = LeaderKill(cluster, topic)
    yield leader_kill
    leader_kill.heal()


@pytest.mark.parametrize("writer", ALL)
def test_an_idempotent_producer_survives_its_leader(
    cluster: Deployment, topic: str, kill: LeaderKill, writer: str
) -> None:
    client(writer).produce(cluster.servers, topic, kill.records(RECORDS), **IDEMPOTENT[writer])
    read = client("confluent-kafka").consume(cluster.servers, topic, RECORDS)
    assert kill.killed is not None
    numbers = [int((record.value or b"")[:6]) for record in read]
    assert sorted(numbers) == list(range(RECORDS))
    for key in range(KEYS):
        assert [n for n in numbers if n % KEYS == key] == list(range(key, RECORDS, KEYS))
    assert cluster.end_offset(topic) == RECORDS


@pytest.mark.parametrize("reader", ALL)
def test_a_consumer_survives_its_leader(cluster: Deployment, topic: str, kill: LeaderKill, reader: str) -> None:
    writer = client("confluent-kafka")
    records = [Record(b"%d" % number, partition=0) for number in range(RECORDS)]
    first, rest = records[:KILL_AFTER], records[KILL_AFTER:]
    writer.produce(cluster.servers, topic, first)

    def meanwhile(read: int) -> None:
        if read >= len(first) and kill.killed is None:
            kill()
            writer.produce(cluster.servers, topic, rest)

    read = client(reader).consume(cluster.servers, topic, RECORDS, meanwhile=meanwhile)
    assert [record.value for record in read] == [record.value for record in records]
    assert [record.offset for record in read] == list(range(RECORDS))
