"""Hanging transactions: ``tidelog transaction find-hanging`` lists them, and ``abort`` ends them as it lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from compat.wire.side import Side
from hanging_transactions import ends, leave_hanging, stable_offset
from typer.testing import CliRunner

from tidelog import Consumer, Producer, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app
from tidelog_foundation.errors import ErrorCode

TOPIC, OPEN = "orders", "known"


@pytest.fixture
def unverified() -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, config={"transaction.partition.verification.enable": False}) as cluster:
        yield cluster


def run_json(cluster: LocalCluster, *args: str) -> dict[str, Any]:
    servers = ("--bootstrap-servers", cluster.bootstrap_servers)
    result = CliRunner().invoke(app, ["transaction", *args, *servers, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_hanging_transactions_are_listed_and_aborted_as_listed(unverified: LocalCluster) -> None:
    servers = {"bootstrap.servers": unverified.bootstrap_servers}
    with Side("tidelog", unverified.kafka_bootstrap_servers) as side:
        side.create([TOPIC], 3)
        producer_id = leave_hanging(side, TOPIC)
        with Producer(servers) as plain, Producer(servers | {"transactional.id": OPEN}) as known:
            known.init_transactions(30)
            known.begin_transaction()
            known.produce(TOPIC, "known", partition=2)
            assert known.flush(30) == 0
            for partition in range(2):
                plain.produce(TOPIC, "after", partition=partition)
            assert plain.flush(30) == 0
            assert [ends(side, TOPIC, partition) for partition in range(3)] == [(0, 2), (0, 2), (0, 1)]

            found = run_json(unverified, "find-hanging", "--max-transaction-timeout", "1ms")["hanging"]
            places = {(line["topic"], line["partition"]): line for line in found}
            assert {(TOPIC, 0), (TOPIC, 1)} == {place for place in places if place[0] == TOPIC}
            [of_group] = [line for line in found if line["topic"] != TOPIC]
            assert (of_group["topic"], of_group["producer_id"]) == ("__consumer_offsets", producer_id)
            assert stable_offset(side, TOPIC) is ErrorCode.UNSTABLE_OFFSET_COMMIT

            for line in found:
                place = ("--topic", line["topic"], "--partition", str(line["partition"]))
                run_json(unverified, "abort", *place, "--start-offset", str(line["start_offset"]), "--yes")
            assert run_json(unverified, "find-hanging", "--max-transaction-timeout", "1ms")["hanging"] == []
            assert [ends(side, TOPIC, partition) for partition in range(3)] == [(3, 3), (3, 3), (0, 1)]
            assert stable_offset(side, TOPIC) == -1
            known.commit_transaction(30)
    assert read(servers, 3) == {(0, b"after"), (1, b"after"), (2, b"known")}


def read(servers: dict[str, str], count: int) -> set[tuple[int, bytes]]:
    """Return the partitions and values of the first ``count`` records that a reader of committed records gets."""
    with Consumer(servers | {"group.id": "reader", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
        records = consumer.consume(count, 30)
    assert len(records) == count
    return {(record.partition(), record.value()) for record in records}
