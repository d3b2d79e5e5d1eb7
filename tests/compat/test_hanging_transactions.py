"""kafka-transactions finds transactions that hang, and aborts them with what it has listed."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from compat.clients.client import wait_for
from compat.cluster import Deployment, running
from compat.java_tools import Shell
from compat.wire.side import Side
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hanging_transactions import ends, leave_hanging, stable_offset

from tidelog_foundation.errors import ErrorCode

pytestmark = pytest.mark.compat
TOPIC = "orders"
TIMEOUT_S = 30


@pytest.fixture
def unverified() -> Iterator[Deployment]:
    """A node that does not verify transactions, by a setting that changes while it runs."""
    with running(nodes=1) as deployment:
        entry = ConfigEntry(
            "transaction.partition.verification.enable", "false", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        deployment.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        yield deployment


def find_hanging(shell: Shell) -> list[dict[str, str]]:
    options = ("--broker-id", "1", "--max-transaction-timeout", "0")
    header, *lines = shell("kafka-transactions", "find-hanging", *options).splitlines()
    return [dict(zip(header.split(), line.split(), strict=True)) for line in lines]


def test_kafka_transactions_aborts_hanging_transactions_as_it_lists_them(unverified: Deployment) -> None:
    shell = Shell(unverified.servers)
    with Side("cluster", unverified.servers) as side:
        side.wait_until_ready()
        side.create([TOPIC], 2)
        producer_id = leave_hanging(side, TOPIC)
        producer = confluent_kafka.Producer({"bootstrap.servers": unverified.servers})
        for partition in range(2):
            producer.produce(TOPIC, b"after", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        assert [ends(side, TOPIC, partition) for partition in range(2)] == [(0, 2), (0, 2)]

        first, second, of_group = sorted(
            find_hanging(shell), key=lambda line: (line["Topic"] != TOPIC, line["Partition"])
        )
        assert [(line["Topic"], line["Partition"]) for line in (first, second)] == [(TOPIC, "0"), (TOPIC, "1")]
        assert (of_group["Topic"], of_group["ProducerId"]) == ("__consumer_offsets", str(producer_id))
        assert stable_offset(side, TOPIC) is ErrorCode.UNSTABLE_OFFSET_COMMIT

        for line in (first, of_group):
            shell("kafka-transactions", "abort", *place(line), "--start-offset", line["StartOffset"])
        identity = ("--producer-id", second["ProducerId"], "--producer-epoch", second["ProducerEpoch"])
        shell(
            "kafka-transactions", "abort", *place(second), *identity, "--coordinator-epoch", second["CoordinatorEpoch"]
        )
        wait_for(
            lambda: [ends(side, TOPIC, partition) for partition in range(2)] == [(3, 3), (3, 3)],
            "stable offsets to move",
        )
        assert stable_offset(side, TOPIC) == -1
        assert find_hanging(shell) == []


def both_ends(side: Side) -> list[tuple[int, int]]:
    return [ends(side, TOPIC, partition) for partition in range(2)]


def place(line: dict[str, str]) -> tuple[str, ...]:
    return ("--topic", line["Topic"], "--partition", line["Partition"])
