"""The clients of a run: which keys they write to, what an error means, and a whole workload against one node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.chaos.checker import check
from tidelog.chaos.history import HistoryWriter, read_history
from tidelog.chaos.metrics import Meter, latency_summary
from tidelog.chaos.workload import QueueWorkload, WorkloadSettings
from tidelog.chaos.workload.keys import Keys, key_of, partition_of
from tidelog.chaos.workload.outcomes import send_outcome
from tidelog.chaos.workload.queue import producer_config
from tidelog.errors import ErrorCode, error_for
from tidelog.testing import FakeCluster


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


def test_keys_move_on_to_new_topics_when_the_old_ones_had_their_writes() -> None:
    created: list[str] = []
    keys = Keys(created.extend, "t", topics=2, partitions=2, writes_per_key=10)
    keys.start()
    first = keys.written
    assert sorted(first) == ["t-0-0", "t-0-1", "t-1-0", "t-1-1"]
    assert keys.read == first
    for _ in range(45):
        keys.next_value(keys.written[0])
        _wait(lambda: not keys._is_wanted.is_set())
    assert keys.written == ["t-2-0", "t-3-0", "t-2-1", "t-3-1"]
    assert keys.read == [*first, *keys.written]
    assert keys.topics == ["t-0", "t-1", "t-2", "t-3"]
    keys.stop()


def test_keys_stay_while_the_next_topics_cannot_be_created_and_never_give_a_value_twice() -> None:
    def create(names: Sequence[str]) -> None:
        if "t-0" not in names:
            raise error_for(ErrorCode.NOT_CONTROLLER, "no leader")

    keys = Keys(create, "t", topics=1, partitions=1, writes_per_key=5)
    keys.start()
    assert [keys.next_value("t-0-0") for _ in range(20)] == list(range(1, 21))
    assert keys.written == ["t-0-0"]
    keys.stop()


def test_key_names_a_partition_of_a_topic_with_dashes() -> None:
    assert partition_of(key_of("a-b", 12)) == ("a-b", 12)


@pytest.mark.parametrize(
    ("outcome", "codes"),
    [
        ("info", ["_MSG_TIMED_OUT", "_TRANSPORT", "NETWORK_EXCEPTION", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"]),
        ("info", ["UNKNOWN_SERVER_ERROR", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_PURGE_INFLIGHT", "_PURGE_QUEUE"]),
        ("fail", ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "OUT_OF_ORDER_SEQUENCE_NUMBER", "NOT_CONTROLLER"]),
        ("fail", ["TOPIC_AUTHORIZATION_FAILED", "MESSAGE_TOO_LARGE", "_QUEUE_FULL"]),
    ],
)
def test_error_of_a_send_is_unknown_unless_it_certainly_was_not_stored(outcome: str, codes: list[str]) -> None:
    assert {send_outcome(ErrorCode[code]) for code in codes} == {outcome}


def test_producers_are_idempotent_unless_settings_of_the_user_are_against_it() -> None:
    assert producer_config({})["enable.idempotence"] is True
    assert producer_config({"acks": "1"})["enable.idempotence"] is False
    assert producer_config({"message.timeout.ms": "1"})["message.timeout.ms"] == "1"


def test_latency_summary_is_of_the_nearest_rank() -> None:
    assert latency_summary([]) is None
    assert latency_summary([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": 3.0, "max": 3.0}
    assert latency_summary([float(n) for n in range(1, 101)]) == {"p50": 50.0, "p99": 99.0, "max": 100.0}


def test_workload_writes_a_valid_history_of_all_that_its_clients_did(fake: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    settings = WorkloadSettings(rate_per_s=300, replication_factor=1, writes_per_key=60, crash_interval_s=0.6)
    meter = Meter()
    servers = fake.bootstrap_servers
    with HistoryWriter(path) as history, AdminClient({"bootstrap.servers": servers}) as admin:
        workload = QueueWorkload(settings, servers, admin, "chaos", history, meter, seed=1)
        workload.start()
        time.sleep(4)
        workload.stop_writing()
        ends, behind = workload.finish()
    assert behind == []
    counts = meter.take()
    assert counts.sends["ok"] > 300
    assert sum(ends.values()) >= counts.sends["ok"]
    assert len(workload.keys.topics) > 2
    with path.open() as lines:
        ops = list(read_history(lines))
    assert {op.f for op in ops} == {"send", "poll", "assign", "crash"}
    assert sum(op.f == "crash" and op.type == "info" for op in ops) > 18
    verdict = check(ops)
    assert verdict.valid, json.dumps(verdict.anomalies)[:2000]
    retired = [op.process for op in ops if op.type == "info"]
    assert len(retired) == len(set(retired)), "a process goes on after an unknown outcome"


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)
