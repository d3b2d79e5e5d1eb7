"""Faults of replicas, coordinators and groups, in the deployment ``replicas``."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Final

import confluent_kafka
from acknowledged import wait_for
from compat.alert_faults.deployment import FEW_FILES, FEW_FILES_NODE, WAIT_S, Deployment, repeated

from tidelog import Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

_PAUSE_S: Final = 1.5
_GROUPS: Final = 20


@contextlib.contextmanager
def slow_follower_of_kafka_clients(deployment: Deployment) -> Iterator[None]:
    """Pause a follower for 1.5 seconds at a time while a producer of Kafka's protocol waits for all replicas."""
    deployment.create_topic("slow-kafka", 1, 3)
    with confluent_kafka.Producer({**deployment.cluster.kafka_client_settings(), "acks": "all"}) as producer:

        def produce() -> None:
            producer.produce("slow-kafka", b"x")
            producer.poll(0)

        with repeated(produce, 0.1), _pauses(deployment, "slow-kafka"):
            yield


@contextlib.contextmanager
def slow_follower(deployment: Deployment) -> Iterator[None]:
    """Pause a follower for 1.5 seconds at a time while a producer waits for all replicas."""
    deployment.create_topic("slow", 1, 3)
    with Producer({**deployment.cluster.client_settings(), "acks": "all", "linger.ms": 0}) as producer:

        def produce() -> None:
            producer.produce("slow", b"x")
            producer.poll(0)

        with repeated(produce, 0.1), _pauses(deployment, "slow"):
            yield


@contextlib.contextmanager
def follower_out_of_sync(deployment: Deployment) -> Iterator[None]:
    """Pause a follower until it is out of sync, and let it catch up, again and again."""
    deployment.create_topic("unstable", 6, 3)
    node = deployment.cluster.nodes[2]
    shrunk = "sum(tidelog_under_replicated_partitions) > 0"

    def leave_and_return() -> None:
        node.pause()
        wait_for(lambda: deployment.series(shrunk) > 0, "the ISR shrinks", WAIT_S)
        node.resume()
        wait_for(lambda: deployment.series(shrunk) == 0, "the ISR grows", WAIT_S)

    with Producer({**deployment.cluster.client_settings(), "acks": 1}) as producer:

        def produce() -> None:
            for partition in range(6):
                producer.produce("unstable", b"x", partition=partition)
            producer.poll(0)

        with repeated(produce, 0.2), repeated(leave_and_return, 0.1):
            yield


@contextlib.contextmanager
def paused_metadata(deployment: Deployment) -> Iterator[None]:
    """Pause a node while the metadata log gets more than a thousand entries."""
    deployment.create_topic("changed", 1, 1)
    deployment.cluster.nodes[2].pause()
    with deployment.admin() as admin:
        for number in range(1_100):
            topic = ConfigResource(ResourceType.TOPIC, "changed")
            entry = ConfigEntry("retention.ms", str(10_000_000 + number), incremental_operation=AlterConfigOpType.SET)
            topic.add_incremental_config(entry)
            admin.incremental_alter_configs([topic])[topic].result(WAIT_S)
    yield


@contextlib.contextmanager
def hindered_load(deployment: Deployment) -> Iterator[None]:
    """Move shards to a node that lacks the acknowledgement of a paused replica for their last records."""
    nodes = deployment.cluster.nodes
    deployment.create_topic("read", 1, 1)
    with contextlib.ExitStack() as stack:
        settings = {**deployment.cluster.client_settings(), "enable.auto.commit": False}
        consumers = [
            stack.enter_context(Consumer({**settings, "group.id": f"loaded-{number}"})) for number in range(_GROUPS)
        ]
        for consumer in consumers:
            consumer.assign([TopicPartition("read", 0)])
            consumer.commit(offsets=[TopicPartition("read", 0, 0)], asynchronous=False)
        nodes[3].pause()
        for consumer in consumers:
            consumer.commit(offsets=[TopicPartition("read", 0, 0)], asynchronous=True)
        waiting = 'sum(tidelog_purgatory_requests{operation="produce"}) + sum(tidelog_follower_lag_max_records) > 0'
        wait_for(lambda: deployment.series(waiting) > 0, "commits that are not on all replicas", WAIT_S)
        nodes[1].terminate()
        yield
        nodes[3].resume()
        nodes[1].wait_or_kill(WAIT_S)
        nodes[1].start()


@contextlib.contextmanager
def slow_group(deployment: Deployment) -> Iterator[None]:
    """Produce thousands of records a second for a group that consumes ten."""
    deployment.create_topic("lagging", 1, 3)
    settings = {"group.id": "late", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
    with (
        Producer(deployment.cluster.client_settings()) as producer,
        Consumer({**deployment.cluster.client_settings(), **settings}) as consumer,
    ):
        consumer.subscribe(["lagging"])

        def produce() -> None:
            for _ in range(1_000):
                producer.produce("lagging", b"x")
            producer.poll(0)

        with repeated(produce, 0.3), repeated(lambda: consumer.consume(2, 0.1), 0.1):
            yield


@contextlib.contextmanager
def idle_connections(deployment: Deployment) -> Iterator[None]:
    """Open connections to a node with few file descriptors until it refuses them."""
    node = deployment.cluster.nodes[FEW_FILES_NODE]
    with contextlib.ExitStack() as stack:
        for _ in range(FEW_FILES):
            stack.enter_context(socket.create_connection((node.host, node.kafka_port), WAIT_S))
        yield


@contextlib.contextmanager
def _pauses(deployment: Deployment, topic: str) -> Iterator[None]:
    leader = deployment.cluster.leader(topic, 0)
    follower = next(node for node in deployment.cluster.nodes.values() if node.id != leader)

    def pause() -> None:
        follower.pause()
        time.sleep(_PAUSE_S)
        follower.resume()

    with contextlib.suppress(KafkaException), repeated(pause, 0.3):
        yield
