"""Tidelog's own clients, given the addresses of Kafka listeners."""

from __future__ import annotations

import asyncio

from typer.testing import CliRunner

from tidelog import Consumer, Producer, aio
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app


def test_every_client_works_with_the_addresses_of_kafka_listeners(cluster: LocalCluster, topic: str) -> None:
    servers = {"bootstrap.servers": cluster.kafka_bootstrap_servers}
    with AdminClient(servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)
    with Producer(servers) as producer:
        for number in range(10):
            producer.produce(topic, str(number).encode())
        assert producer.flush(30) == 0
    with Consumer({**servers, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        read = {message.value() for message in consumer.consume(10, timeout=30)}
    assert read == {str(number).encode() for number in range(10)}
    assert asyncio.run(topics_of(servers)) >= {topic}
    shown = CliRunner().invoke(app, ["topic", "list", "-b", cluster.kafka_bootstrap_servers])
    assert (shown.exit_code, topic in shown.output) == (0, True)
    assert "is closed:" not in "".join(node.log_path.read_text() for node in cluster.nodes.values())


async def topics_of(servers: dict[str, str]) -> set[str]:
    async with aio.AdminClient(servers) as admin:
        return set((await admin.list_topics()).topics)
