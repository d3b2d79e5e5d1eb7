"""One group of members that differ: in the listener that they use, and in the protocol of groups."""

import time

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from tidelog import Consumer, Producer, TopicPartition
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

PARTITIONS = 4
DEADLINE_S = 60
ALL = set(range(PARTITIONS))
# Members learn of each other by heartbeats: the default is one in 5 s, and in 3 s by a classic member's own choice.
BROKER_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}
CLASSIC_SETTINGS = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(1, 1, config=BROKER_SETTINGS) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
            future.result()
        yield started


def owned(consumer):
    return {partition.partition for partition in consumer.assignment()}


def poll_until(consumers, holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [owned(consumer) for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.1)


def committed(consumer, partition_class):
    wanted = [partition_class("t", index) for index in range(PARTITIONS)]
    return [found.offset for found in consumer.committed(wanted, timeout=10)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_doors_share_a_group_and_its_offsets(cluster, protocol):
    settings = {"group.id": protocol, "group.protocol": protocol}
    if protocol == "classic":
        settings |= CLASSIC_SETTINGS
    sdk = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    kafka = confluent_kafka.Consumer({"bootstrap.servers": cluster.kafka_bootstrap_servers, **settings})
    both = (sdk, kafka)
    for consumer in both:
        consumer.subscribe(["t"])
    poll_until(both, lambda: all(map(owned, both)) and owned(sdk) ^ owned(kafka) == ALL)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    group = admin.describe_consumer_groups([protocol])[protocol].result()
    assert len(group.members) == 2

    sdk.commit(offsets=[TopicPartition("t", index, 10 + index) for index in sorted(owned(sdk))], asynchronous=False)
    theirs = [confluent_kafka.TopicPartition("t", index, 10 + index) for index in sorted(owned(kafka))]
    kafka.commit(offsets=theirs, asynchronous=False)
    expected = [10 + index for index in range(PARTITIONS)]
    assert committed(sdk, TopicPartition) == committed(kafka, confluent_kafka.TopicPartition) == expected
    kafka.close()
    poll_until([sdk], lambda: owned(sdk) == ALL)
    sdk.close()


def has_committed(consumer):
    """Commit what was read, and return whether nothing is left to commit."""
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        if code not in {KafkaError._NO_OFFSET, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}:
            raise
        return code == KafkaError._NO_OFFSET
    return True


class Rolling:
    """A group of librdkafka's consumers that are replaced one by one; ``read`` has each record as often as it came."""

    def __init__(self, cluster, group, assignor):
        self.cluster = cluster
        self.settings = {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
        self.classic = {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": 200}
        self.members = []
        self.read = []
        self.written = []

    def start(self, protocol):
        settings = self.settings | {"group.protocol": protocol} | (self.classic if protocol == "classic" else {})
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["rolled"])
        self.members.append(consumer)

    def stop_oldest(self):
        """Close the oldest member after it has committed.

        librdkafka's close does not wait for its JoinGroup. Where that has already begun a new epoch, the commit of the
        close has the epoch before, and is refused as Kafka below 4.3 refuses it (KIP-1251): the next owner would read
        records again.
        """
        self.poll_until(lambda: has_committed(self.members[0]))
        self.members.pop(0).close()

    def poll_until(self, holds):
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, [sorted(owned(member)) for member in self.members]
            for member in self.members:
                message = member.poll(0.02)
                if message is None:
                    continue
                if message.error() is None:
                    self.read.append(message.value())
                else:
                    # Kafka answers so, too, to a member that waits in JoinGroup while its group changes the protocol.
                    # librdkafka joins again, and reports it.
                    assert message.error().code() == KafkaError.REBALANCE_IN_PROGRESS, message.error()
            shares = [owned(member) for member in self.members]
            assert sum(map(len, shares)) == len(set().union(*shares)), shares

    def write_and_read(self, count):
        """Write records once all partitions are owned, and read every record that there is."""
        self.poll_until(lambda: set().union(*map(owned, self.members)) == ALL and all(map(owned, self.members)))
        begin = len(self.written)
        self.written += [b"%d" % number for number in range(begin, begin + count)]
        with Producer({"bootstrap.servers": self.cluster.bootstrap_servers}) as producer:
            for number, value in enumerate(self.written[begin:]):
                producer.produce("rolled", value, partition=number % PARTITIONS)
        self.poll_until(lambda: len(self.read) >= len(self.written))
        assert sorted(self.read) == sorted(self.written)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_group_changes_its_protocol_while_its_members_are_replaced_one_by_one(cluster, assignor):
    """Each step reads every record once, and no partition has two owners (KIP-848, online migration)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("rolled", PARTITIONS, 1)])["rolled"].result()
    group = Rolling(cluster, f"rolled-{assignor}", assignor)
    for _ in range(3):
        group.start("classic")
    group.write_and_read(40)
    for protocol in ("consumer", "classic"):
        for _ in range(3):
            group.stop_oldest()
            group.start(protocol)
            group.write_and_read(40)
        (listing,) = [g for g in admin.list_consumer_groups().result().valid if g.group_id == f"rolled-{assignor}"]
        assert listing.type.name == protocol.upper()
    for member in group.members:
        member.close()
    admin.delete_topics(["rolled"])["rolled"].result()
