"""Kafka Streams counts words exactly once, while an instance and the leaders of its internal topics are killed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from compat.clients.client import wait_for
from compat.cluster import Deployment
from compat.jars import Unavailable, streams_class_path
from compat.streams import WordCount, WordWriter

from tidelog.testing.local import INTERNAL_PARTITIONS
from tidelog_node.coordination.internal_topics import partition_for

pytestmark = pytest.mark.compat
PARTITIONS = 4
DEADLINE_S = 60.0


class Counts:
    """The committed counts of each word, in the order in which they are read."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
        self.of: dict[str, list[int]] = defaultdict(list)
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def total(self) -> int:
        """Return how many words are counted in what can be read by now."""
        for message in self._consumer.consume(1_000, 0.2):
            assert message.error() is None, message.error()
            self.of[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        return sum(counts[-1] for counts in self.of.values())

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def counts(cluster: Deployment, name: str) -> Iterator[Counts]:
    found = Counts(cluster.servers, cluster.create(f"{name}-out", PARTITIONS, 3))
    yield found
    found.close()


@pytest.fixture
def words(cluster: Deployment, name: str) -> Iterator[WordWriter]:
    writer = WordWriter(cluster.servers, cluster.create(f"{name}-in", PARTITIONS, 3), PARTITIONS)
    writer.start()
    yield writer
    writer.stop()


@pytest.fixture
def instances(
    cluster: Deployment, name: str, tmp_path: Path, words: WordWriter, counts: Counts
) -> Iterator[list[WordCount]]:
    """Two instances, of which the second has joined the first."""
    try:
        streams_class_path()
    except Unavailable as error:
        pytest.skip(str(error))
    made: list[WordCount] = []
    try:
        for number in range(2):
            made.append(WordCount(cluster.servers, name, f"{name}-in", f"{name}-out", tmp_path / str(number)))
            wait_for(made[-1].is_running, made[-1].said)
        yield made
    finally:
        for instance in made:
            instance.kill()


def transactional_ids(cluster: Deployment, application: str) -> set[str]:
    """Return the ids by which instances produce, as the log of transactions has them."""
    wanted = re.compile(application.encode() + rb"-[0-9a-f]{8}-[0-9a-f-]{27}-\d+")
    logs = cluster.data.rglob("__transaction_state-*/*.log")
    return {found.decode() for path in logs for found in wanted.findall(path.read_bytes())}


def internal_partitions(cluster: Deployment, application: str) -> list[tuple[str, int]]:
    """Return a partition of each internal topic that the application uses."""
    used = sorted(transactional_ids(cluster, application))
    assert used, "no instance has a transactional id"
    return [
        (f"{application}-words-repartition", 0),
        ("__transaction_state", partition_for(used[-1], INTERNAL_PARTITIONS)),
        (f"{application}-counts-changelog", 0),
        ("__consumer_offsets", partition_for(application, INTERNAL_PARTITIONS)),
    ]


def test_counts_stay_exact_when_an_instance_and_leaders_of_internal_topics_are_killed(
    cluster: Deployment, name: str, words: WordWriter, instances: list[WordCount], counts: Counts
) -> None:
    killed, kept = instances
    progress(words, counts)
    killed.kill()
    for topic, partition in internal_partitions(cluster, name):
        node = cluster.kill_leader(topic, partition)
        progress(words, counts)
        cluster.bring_back(node, topic, partition)
    words.stop()
    wait_for(
        lambda: counts.total() >= words.committed.total(),
        lambda: f"{counts.total()} of {words.committed.total()} words: {kept.said()[-3000:]}",
        DEADLINE_S,
    )
    assert kept.stop() == 0, kept.said()
    counts.total()
    assert Counter({word: found[-1] for word, found in counts.of.items()}) == words.committed
    for word, found in counts.of.items():
        assert found == list(range(1, len(found) + 1)), word


def progress(words: WordWriter, counts: Counts) -> None:
    """Wait until words are counted that are not written yet."""
    wanted = words.committed.total() + 1
    wait_for(lambda: counts.total() >= wanted, lambda: f"{wanted} words to be counted", DEADLINE_S)
