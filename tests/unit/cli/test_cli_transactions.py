"""``tidelog transaction`` and ``tidelog topic describe-producers``: what is listed, described, found and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import Result

from tests.support.transactional_appends import append_verified
from tidelog import AdminClient, KafkaException, Producer
from tidelog.testing import FakeCluster
from tidelog.v1 import log_service_pb2 as log_pb
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport import run_sync

ID = "payments"


@pytest.fixture
def open_transaction(cluster: FakeCluster) -> Iterator[Producer]:
    """Return a producer whose transaction has a record in t-0."""
    cluster.create_topic("t", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": ID})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    assert producer.flush(10) == 0
    yield producer
    producer.close()
    cluster.delete_topic("t")


def test_open_transaction_is_listed_and_described(open_transaction: Producer, run_json: Callable[..., Any]) -> None:
    (listed,) = run_json("transaction", "list")["transactions"]
    assert (listed["transactional_id"], listed["state"]) == (ID, "Ongoing")
    (described,) = run_json("transaction", "describe", ID)["transactions"]
    assert (described["state"], described["partitions"]) == ("Ongoing", ["t-0"])
    assert described["producer_id"] == listed["producer_id"]
    open_transaction.commit_transaction(10)
    deadline = time.monotonic() + 10
    while described["state"] != "CompleteCommit":
        assert time.monotonic() < deadline
        (described,) = run_json("transaction", "describe", ID)["transactions"]
    assert described["partitions"] == []


@pytest.mark.parametrize(
    ("options", "is_listed"),
    [
        (("--state", "ongoing"), True),
        (("--state", "Empty,CompleteCommit"), False),
        (("--producer-id", "123456"), False),
        (("--open-longer-than", "1h"), False),
        (("--pattern", "pay.*"), True),
        (("--pattern", "pay"), False),
    ],
)
def test_list_filters(
    open_transaction: Producer, run_json: Callable[..., Any], options: tuple[str, ...], is_listed: bool
) -> None:
    assert bool(run_json("transaction", "list", *options)["transactions"]) is is_listed


def test_producers_of_a_partition_are_described(open_transaction: Producer, run_json: Callable[..., Any]) -> None:
    (producer,) = run_json("topic", "describe-producers", "t:0,1")["producers"]
    assert (producer["topic"], producer["partition"], producer["start_offset"]) == ("t", 0, 0)
    open_transaction.abort_transaction(10)
    deadline = time.monotonic() + 10
    while run_json("topic", "describe-producers", "t:0")["producers"][0]["start_offset"] is not None:
        assert time.monotonic() < deadline


def test_transaction_that_its_coordinator_knows_is_not_hanging(
    open_transaction: Producer, run_json: Callable[..., Any]
) -> None:
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        assert run_json("transaction", "find-hanging", "--max-transaction-timeout", "1ms")["hanging"] == []


def test_hanging_transaction_is_found_and_aborted(cluster: FakeCluster, run_json: Callable[..., Any]) -> None:
    cluster.create_topic("hanging", 2)
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 1_700_000_000_000)
    batch = builder.build(producer_id=77, producer_epoch=3, base_sequence=0, is_transactional=True)

    async def append() -> None:
        append_verified(cluster._partition("hanging", 1), batch)

    run_sync(append(), 10)
    wanted = ("transaction", "find-hanging", "--topic", "hanging", "--max-transaction-timeout", "1ms")
    found = run_json(*wanted)["hanging"]
    deadline = time.monotonic() + 10
    while not found:
        assert time.monotonic() < deadline
        found = run_json(*wanted)["hanging"]
    (line,) = found
    assert (line["topic"], line["partition"], line["producer_id"], line["producer_epoch"]) == ("hanging", 1, 77, 3)
    assert run_json("transaction", "find-hanging", "--topic", "hanging")["hanging"] == [], "it may still end"

    place = ("--topic", line["topic"], "--partition", str(line["partition"]))
    assert run_json("transaction", "abort", *place, "--start-offset", str(line["start_offset"]), "--yes")["aborted"]
    assert run_json(*wanted)["hanging"] == []


def test_abort_refuses_a_transaction_that_its_coordinator_knows(
    open_transaction: Producer, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    result = run("transaction", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0", "--yes")
    assert result.exit_code == 1
    assert f"does not hang: transactional id {ID} has it open (Ongoing)" in result.output
    (producer,) = run_json("topic", "describe-producers", "t:0")["producers"]
    assert producer["start_offset"] == 0


def test_forced_abort_ends_the_transaction_in_one_partition(
    open_transaction: Producer, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    place = ("--topic", "t", "--partition", "0")
    assert (
        "no transaction of t-0 begins at offset 7" in run("transaction", "abort", *place, "--start-offset", "7").output
    )
    assert run_json("transaction", "abort", *place, "--start-offset", "0", "--force", "--yes")["aborted"]
    (producer,) = run_json("topic", "describe-producers", "t:0")["producers"]
    assert producer["start_offset"] is None


def test_force_terminate_aborts_and_fences(
    open_transaction: Producer, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    assert "without confirmation" in run("transaction", "force-terminate", ID).output
    assert run_json("transaction", "force-terminate", ID, "--yes")["transactions"][0]["terminated"]
    with pytest.raises(KafkaException) as caught:
        open_transaction.commit_transaction(10)
    assert caught.value.error.fatal()
    (described,) = run_json("transaction", "describe", ID)["transactions"]
    assert described["state"] == "Empty"


def test_force_terminate_creates_no_transactional_id(
    open_transaction: Producer, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    result = run("transaction", "force-terminate", "payment", ID, "--yes")
    assert result.exit_code == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in result.output
    assert f"terminated {ID}" in result.output
    assert [line["transactional_id"] for line in run_json("transaction", "list")["transactions"]] == [ID]


def test_fencing_is_possible_whatever_the_longest_timeout_of_a_transaction() -> None:
    timeouts: list[int] = []

    def note(request: log_pb.InitProducerIdRequest) -> log_pb.InitProducerIdResponse:
        timeouts.append(request.transaction_timeout_ms)
        return log_pb.InitProducerIdResponse(producer_id=1)

    with FakeCluster() as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer({**servers, "transactional.id": ID}) as producer, AdminClient(servers) as admin:
            producer.init_transactions(10)
            cluster.answer_with("InitProducerId", note)
            admin.fence_producers([ID])[ID].result(10)
            admin.force_terminate_transaction(ID).result(10)
    assert timeouts == [1, 1], "the smallest transaction.max.timeout.ms"


def test_unknown_transactional_id_and_state_are_errors(run: Callable[..., Result]) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in run("transaction", "describe", "nobody").output
    assert '"Open" is not one of Empty, Ongoing' in run("transaction", "list", "--state", "Open").output
