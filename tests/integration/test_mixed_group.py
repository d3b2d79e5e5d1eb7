"""One group of members that come through Kafka's protocol and through gRPC: both doors lead to the same coordinator."""

import time

import confluent_kafka
import pytest

from tidelog import Consumer, TopicPartition
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
