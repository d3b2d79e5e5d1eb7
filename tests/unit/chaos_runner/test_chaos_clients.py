"""The clients of a run: which keys they write to, what an error means, and a whole workload against one node."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tidelog.admin import AdminClient
from tidelog.testing import FakeCluster
from tidelog_chaos.checker import check
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import HistoryWriter, read_history
from tidelog_chaos.metrics import Meter, latency_summary
from tidelog_chaos.workload import QueueWorkload, SubscribeWorkload, WorkloadSettings, load_library
from tidelog_chaos.workload.confluent.values import translate_error
from tidelog_chaos.workload.keys import Keys, key_of, partition_of
from tidelog_chaos.workload.library import Committed, Delivered, Rebalanced, TidelogLibrary, send_outcome
from tidelog_chaos.workload.observer import logged_offset
from tidelog_chaos.workload.settings import group_config, member_config, producer_config, without_group
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_node.groups import records


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


def test_keys_stop_although_they_are_told_so_while_topics_are_created() -> None:
    creating, created = threading.Event(), threading.Event()

    def create(names: Sequence[str]) -> None:
        if "t-0" not in names:
            creating.set()
            assert created.wait(10)

    keys = Keys(create, "t", topics=1, partitions=1, writes_per_key=2)
    keys.start()
    keys.next_value("t-0-0")
    assert creating.wait(10)
    stopping = threading.Thread(target=keys.stop, daemon=True)
    stopping.start()
    _wait(keys._stopping.is_set)
    _wait(keys._is_wanted.is_set)
    created.set()
    stopping.join(10)
    assert not stopping.is_alive()


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


def test_error_of_the_last_attempt_is_unknown_but_where_every_attempt_would_have_it() -> None:
    """librdkafka reports these for records that it calls possibly persisted."""
    outcome = load_library("confluent-kafka").outcome
    codes = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "_FATAL")
    assert {outcome(ErrorCode[code]) for code in codes} == {"info"}
    assert {outcome(ErrorCode[code]) for code in ("MESSAGE_TOO_LARGE", "_QUEUE_FULL")} == {"fail"}


def test_errors_of_confluent_kafka_are_ours_by_their_number() -> None:
    def ours(number: int, reason: str, *, fatal: bool = False) -> KafkaError:
        found = translate_error(confluent_kafka.KafkaError(number, reason, fatal))
        assert found is not None
        return found

    assert translate_error(None) is None
    known = ours(ErrorCode.NOT_LEADER_OR_FOLLOWER.code, "not here")
    assert (known.error_code(), known.str(), known.fatal()) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here", False)
    unknown = ours(-200, "strange")
    assert (unknown.error_code(), unknown.str()) == (ErrorCode._FAIL, "ERR_-200?: strange")
    unknown = ours(500, "no")
    assert unknown.error_code() is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ours(ErrorCode.FENCED_INSTANCE_ID.code, "another", fatal=True).fatal()
    assert ours(ErrorCode._FATAL.code, "told without the mark").fatal()


def test_producers_are_idempotent_unless_settings_of_the_user_are_against_it() -> None:
    tidelog = load_library("tidelog")
    assert producer_config({}, tidelog)["enable.idempotence"] is True
    assert producer_config({"acks": "1"}, tidelog)["enable.idempotence"] is False
    assert producer_config({"message.timeout.ms": "1"}, tidelog)["message.timeout.ms"] == "1"


def test_records_of_a_producer_that_repeats_what_timed_out_wait_for_longer_than_a_fault_lasts() -> None:
    library = load_library("confluent-kafka")
    assert producer_config({}, library)["message.timeout.ms"] == 120_000
    assert producer_config({"message.timeout.ms": "1"}, library)["message.timeout.ms"] == "1"


def test_seed_draws_the_protocol_of_a_group_among_those_that_settings_of_the_user_leave() -> None:
    def drawn(own: dict[str, str]) -> set[tuple[str, str | None]]:
        configs = [group_config(own, "g", random.Random(seed)) for seed in range(40)]
        return {(config["group.protocol"], config.get("partition.assignment.strategy")) for config in configs}

    classic = {("classic", "range"), ("classic", "cooperative-sticky")}
    assert drawn({}) == {*classic, ("consumer", None)}
    assert drawn({"group.protocol": "classic"}) == classic
    assert drawn({"session.timeout.ms": "9000"}) == classic
    assert drawn({"group.protocol": "consumer"}) == {("consumer", None)}
    assert drawn({"group.remote.assignor": "range"}) == {("consumer", None)}
    assert drawn({"partition.assignment.strategy": "sticky"}) == {("classic", "sticky")}
    assert group_config({"group.id": "mine"}, "g", random.Random(1))["group.id"] == "mine"


def test_some_members_are_static_and_some_commit_by_themselves() -> None:
    configs = [member_config({}, {}, f"m-{seed}", random.Random(seed)) for seed in range(40)]
    assert {config["enable.auto.commit"] for config in configs} == {True, False}
    instances = [config["group.instance.id"] for config in configs if "group.instance.id" in config]
    assert 0 < len(instances) < 40
    assert len(set(instances)) == len(instances)
    assert member_config({}, {"enable.auto.commit": "true"}, "m", random.Random(1))["enable.auto.commit"] == "true"


def test_who_reads_everything_at_the_end_is_in_no_group() -> None:
    assert without_group({"group.id": "g", "group.protocol": "consumer", "check.crcs": "true"}) == {
        "check.crcs": "true"
    }


def test_commits_are_found_in_the_log_of_the_groups_as_a_node_writes_it() -> None:
    def logged(key: records.Key, value: records.Value | None) -> object:
        record = records.encode(key, value)
        return logged_offset(record.key, record.value, "mine")

    at = records.OffsetCommitValue(7, 3, "", 1_000)
    assert logged(records.OffsetCommitKey("mine", "t-ä", 2), at) == ("t-ä-2", 7)
    assert logged(records.OffsetCommitKey("mine", "t", 0), None) == ("t-0", None)
    assert logged(records.OffsetCommitKey("other", "t", 0), at) is None
    assert logged(records.GroupMetadataKey("mine"), None) is None
    assert logged_offset(None, b"", "mine") is None


def test_latency_summary_is_of_the_nearest_rank() -> None:
    assert latency_summary([]) is None
    assert latency_summary([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": 3.0, "max": 3.0}
    assert latency_summary([float(n) for n in range(1, 101)]) == {"p50": 50.0, "p99": 99.0, "max": 100.0}


def test_workload_writes_a_valid_history_of_all_that_its_clients_did(fake: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    settings = WorkloadSettings(rate_per_s=300, replication_factor=1, writes_per_key=60, crash_interval_s=0.6)
    meter = Meter()
    servers = fake.client_settings()
    with HistoryWriter(path) as history, AdminClient(servers) as admin:
        workload = QueueWorkload(
            settings, load_library("tidelog"), servers, servers, admin, "chaos", history, meter, 1, tmp_path
        )
        workload.start()
        time.sleep(4)
        workload.stop_writing(Deadline(60))
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


class FatalLibrary(TidelogLibrary):
    """Its producers are at their end with the first record, its consumers when they subscribe."""

    def __init__(self) -> None:
        super().__init__()
        self.made = self.consumers = 0

    def producer(self, config: Mapping[str, Any]) -> FatalProducer:  # type: ignore[override]
        self.made += 1
        return FatalProducer()

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> Any:
        self.consumers += 1
        return FatalConsumer() if "group.id" in config else super().consumer(config)


class FatalProducer:
    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        raise TidelogError(KafkaError(ErrorCode._FATAL, "fenced", fatal=True))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass


class FatalConsumer:
    def subscribe(self, topics: list[str], **callbacks: Rebalanced) -> None:
        raise TidelogError(KafkaError(ErrorCode._FATAL, "fenced", fatal=True))

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def test_member_goes_on_with_a_new_consumer_when_one_is_at_its_end(fake: FakeCluster, tmp_path: Path) -> None:
    library, servers, path = FatalLibrary(), fake.client_settings(), tmp_path / "h.jsonl"
    settings = WorkloadSettings(replication_factor=1, producers=1, consumers=1, crash_interval_s=0)
    with HistoryWriter(path) as history, AdminClient(servers) as admin:
        workload = SubscribeWorkload(settings, library, servers, servers, admin, "chaos", history, Meter(), 1, tmp_path)
        workload.start()
        _wait(lambda: library.consumers > 1)
        assert workload.stop_writing(Deadline(60)) == []
    assert workload.errors["_FATAL"] > 1
    with path.open() as lines:
        assert {op.type for op in read_history(lines) if op.f == "subscribe"} == {"invoke", "fail"}


def test_writer_goes_on_with_a_new_producer_when_one_is_at_its_end(fake: FakeCluster, tmp_path: Path) -> None:
    library, servers = FatalLibrary(), fake.client_settings()
    settings = WorkloadSettings(replication_factor=1, producers=1, consumers=1, crash_interval_s=0)
    with HistoryWriter(tmp_path / "h.jsonl") as history, AdminClient(servers) as admin:
        workload = QueueWorkload(settings, library, servers, servers, admin, "chaos", history, Meter(), 1, tmp_path)
        workload.start()
        _wait(lambda: library.made > 2)
        workload.stop_writing(Deadline(60))
    assert set(workload.errors) == {"_FATAL"}


@pytest.mark.parametrize("own", [{"partition.assignment.strategy": "range"}, {"group.protocol": "consumer"}])
def test_group_polls_and_commits_everything_and_its_history_says_so(
    fake: FakeCluster, tmp_path: Path, own: dict[str, str]
) -> None:
    path = tmp_path / "history.jsonl"
    settings = WorkloadSettings(
        rate_per_s=300, replication_factor=1, writes_per_key=60, crash_interval_s=0, consumers=3, consumer=own
    )
    servers = fake.client_settings()
    with HistoryWriter(path) as history, AdminClient(servers) as admin:
        workload = SubscribeWorkload(
            settings, load_library("tidelog"), servers, servers, admin, "chaos", history, Meter(), 4, tmp_path
        )
        workload.start()
        _wait(lambda: len(workload.keys.written) > 0 and "chaos-2-0" in workload.keys.written)
        assert workload.stop_writing(Deadline(60)) == []
        _, behind = workload.finish()
    assert behind == []
    with path.open() as lines:
        ops = list(read_history(lines))
    verdict = check(ops)
    assert verdict.valid, json.dumps(verdict.anomalies)[:2000]
    group = verdict.statistics["group"]
    assert group["drained"]
    assert group["members"] == 3
    assert {op.value["by"] for op in ops if op.f == "committed"} > {"observer"}
    assert any(op.extra.get("rebalance_log") for op in ops if op.f == "poll")
    subscribed = [op.value for op in ops if op.f == "subscribe" and op.type == "ok"]
    assert len(subscribed) >= 6, "members subscribe anew when there are new topics"
    assert subscribed[-1] == workload.keys.all


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)
