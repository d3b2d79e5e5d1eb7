"""Kafka's kafka-transactions, and kafka-dump-log with the decoder of __transaction_state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from compat.clients.client import wait_for
from compat.cluster import Deployment
from compat.java_tools import Shell, run

from tidelog_node.transactions.states import TransactionState

pytestmark = pytest.mark.compat
TIMEOUT_S = 30


@pytest.fixture
def begun(cluster: Deployment, name: str) -> Iterator[str]:
    """The name of a topic and of a transactional id with an open transaction in it."""
    cluster.create(name, 2, 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(name, b"open", partition=partition)
    producer.flush(TIMEOUT_S)
    yield name
    # Where the test has ended the transaction, the producer is told so.
    producer.purge()


def test_kafka_transactions_shows_an_open_transaction_and_aborts_it(cluster: Deployment, begun: str) -> None:
    shell = Shell(cluster.servers)
    assert re.search(rf"{begun}\s+\d+\s+\d+\s+Ongoing", shell("kafka-transactions", "list"))
    described = shell("kafka-transactions", "describe", "--transactional-id", begun)
    assert f"{begun}-0" in described
    assert "Ongoing" in described
    place = ("--topic", begun, "--partition", "0")
    header, producer = shell("kafka-transactions", "describe-producers", *place).splitlines()
    found = dict(zip(header.split(), producer.split(), strict=True))
    assert found["CurrentTransactionStartOffset"] == "0"
    assert begun not in shell("kafka-transactions", "find-hanging", "--topic", begun, "--partition", "0")
    shell("kafka-transactions", "abort", *place, "--start-offset", "0")
    lines = shell("kafka-transactions", "describe-producers", *place).splitlines()
    assert dict(zip(header.split(), lines[1].split(), strict=True))["CurrentTransactionStartOffset"] == "None"


def test_kafka_transactions_forces_the_end_of_a_transaction(cluster: Deployment, begun: str) -> None:
    shell = Shell(cluster.servers)
    shell("kafka-transactions", "forceTerminateTransaction", "--transactionalId", begun)
    listed = shell("kafka-transactions", "list")
    assert re.search(rf"{begun}\s+\d+\s+\d+\s+(Empty|CompleteAbort)", listed), listed


def test_kafka_dump_log_decodes_the_state_of_transactions(cluster: Deployment, begun: str) -> None:
    def logs() -> list[Path]:
        return [
            path for path in cluster.data.rglob("__transaction_state-*/*.log") if begun.encode() in path.read_bytes()
        ]

    wait_for(lambda: bool(logs()), f"__transaction_state to have {begun}")
    done = run("kafka-dump-log", "--transaction-log-decoder", "--files", str(logs()[0]))
    assert done.code == 0, done.said
    states = [json.loads(line.partition("payload: ")[2])["data"] for line in done.out.splitlines() if begun in line]
    empty, ongoing = states[0], states[-1]
    assert (empty["transactionStatus"], empty["transactionPartitions"]) == (TransactionState.EMPTY, None)
    assert ongoing["transactionStatus"] == TransactionState.ONGOING
    assert ongoing["transactionPartitions"] == [{"topic": begun, "partitionIds": [0, 1]}]
