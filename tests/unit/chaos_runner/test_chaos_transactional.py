"""The workload of transactions, on logs in memory: its history is valid, and shows the faults of a cluster."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from acknowledged import wait_for
from transaction_library import MemoryCluster, MemoryConsumer, MemoryLibrary, MemoryProducer

from tidelog.admin import AdminClient, IsolationLevel, NewTopic
from tidelog.message import Message, TopicPartition
from tidelog.producer import Producer
from tidelog.testing import FakeCluster
from tidelog_chaos.checker import check
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import HistoryWriter, read_history
from tidelog_chaos.metrics import Meter
from tidelog_chaos.verdict import Verdict
from tidelog_chaos.workload import TransactionsWorkload, WorkloadSettings, load_library
from tidelog_chaos.workload import reader as reader_module
from tidelog_chaos.workload import settling as settling_module
from tidelog_chaos.workload import transactional as transactional_module
from tidelog_chaos.workload import transactions as transactions_module
from tidelog_chaos.workload import workload as workload_module
from tidelog_chaos.workload.keys import key_of
from tidelog_chaos.workload.library import Committed
from tidelog_chaos.workload.settings import check_clients, transactional_config, transactional_consumer
from tidelog_chaos.workload.transaction_states import describe_transactions
from tidelog_foundation.errors import ConfigError

_SETTINGS = WorkloadSettings(
    rate_per_s=1_000,
    partitions=2,
    replication_factor=1,
    consumers=1,
    crash_interval_s=0.4,
    producer={"transaction.timeout.ms": 100, "message.timeout.ms": 100},
)


released = threading.Event()


class MemoryWorkload(TransactionsWorkload):
    """The workload with the ends of partitions and the first offsets of the group in memory."""

    cluster: MemoryCluster

    def _ends(self) -> dict[str, int]:
        return {key: len(self.cluster.logs.get(key, ())) for key in self.keys.all}

    def _latest(self, isolation_level: IsolationLevel) -> dict[str, int]:
        if isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return self._ends()
        return {key: self.cluster.stable_offset(key) for key in self.keys.all}

    def _commit(self, offsets: list[TopicPartition]) -> None:
        self.cluster.offsets |= {key_of(at.topic, at.partition): at.offset for at in offsets}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminClient]:
    for module, name in ((transactional_module, "_PAUSE_S"), (transactions_module, "_OBSERVE_S")):
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(settling_module, "_MARGIN_S", 1.0)
    monkeypatch.setattr(settling_module, "_LOOK_S", 0.01)
    with FakeCluster() as cluster, AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        yield admin


def run(admin: AdminClient, path: Path, seconds: float, bug: str = "") -> tuple[Verdict, list[Any]]:
    cluster = MemoryCluster(bug)
    MemoryWorkload.cluster = cluster
    with HistoryWriter(path) as history:
        library = MemoryLibrary(cluster)
        workload = MemoryWorkload(_SETTINGS, library, {}, {}, admin, "chaos", history, Meter(), 3, path.parent)
        workload.start()
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s and workload.failed is None:
            time.sleep(0.05)
        # A member that begins at an offset that was not stable may skip records for good.
        may_skip = bug == "offsets"
        left = workload.stop_writing(Deadline(5 if may_skip else 60))
        assert may_skip or left == []
        _, behind = workload.finish()
        assert behind == []
    ops = list(read_history(path.read_text().splitlines()))
    return check(ops), ops


def test_workload_of_transactions_writes_a_valid_history_of_all_fates(admin: AdminClient, tmp_path: Path) -> None:
    verdict, ops = run(admin, tmp_path / "history.jsonl", 2.0)
    assert verdict.valid, verdict.anomalies
    found = verdict.statistics["transactions"]
    assert found["outcomes"]["ok"] > 30
    assert found["outcomes"]["fail"] > 3
    assert found["outputs"] > 20
    assert found["settled"]
    assert found["ended"]
    assert found["fetched"] > 3
    initialized = Counter(op.value["transactional_id"] for op in ops if op.f == "initialized")
    assert max(initialized.values()) > 1, "an id has several producers"
    several = [op for op in ops if op.f == "txn" and len({sent[1] for sent in op.value}) > 1]
    assert several, "a transaction has several partitions"
    [final] = [op for op in ops if op.f == "ended"]
    assert all(final.value["offsets"].values())


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [("partial", "torn-transaction"), ("offsets", "unstable-offset"), ("zombie", "zombie-commit")],
)
def test_workload_of_transactions_shows_a_fault_of_the_cluster(
    bug: str, anomaly: str, admin: AdminClient, tmp_path: Path
) -> None:
    verdict, _ = run(admin, tmp_path / "history.jsonl", 1.5, bug)
    assert anomaly in verdict.anomalies, verdict.counts


class EndlessProducer(MemoryProducer):
    """Its calls for offsets end when the test does."""

    def send_offsets_to_transaction(self, *args: object) -> None:
        released.wait(30)


class EndlessConsumer(MemoryConsumer):
    """It consumes until its test ends."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        released.wait(30)
        return []


class EndlessLibrary(MemoryLibrary):
    """Some of its calls do not end before :data:`released` is set; ``reads`` are its consumers without a group."""

    reads = True

    def transactional_producer(self, config: Mapping[str, Any]) -> MemoryProducer:
        return EndlessProducer(self._cluster, str(config["transactional.id"]))

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> MemoryConsumer:
        is_endless = "group.id" not in config and not self.reads
        return (EndlessConsumer if is_endless else MemoryConsumer)(self._cluster, config)


def test_workload_ends_and_says_what_its_clients_are_in_when_they_do_not_end(
    admin: AdminClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_module, "_CLIENTS_END_S", 0.5)
    monkeypatch.setattr(transactions_module, "_DRAIN_S", 0.5)
    monkeypatch.setattr(reader_module, "_STALLED_S", 0.1)
    monkeypatch.setattr(reader_module, "_MARGIN_S", 0.1)
    released.clear()
    cluster = MemoryWorkload.cluster = MemoryCluster()
    library = EndlessLibrary(cluster)
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        workload = MemoryWorkload(_SETTINGS, library, {}, {}, admin, "chaos", history, Meter(), 3, tmp_path)
        workload.start()
        wait_for(lambda: any(key.startswith("chaos-0") and log for key, log in cluster.logs.items()), "inputs", 10)
        try:
            problems = workload.stop_writing(Deadline(3))
            library.reads = False
            ends, behind = workload.finish()
        finally:
            released.set()
            workload.give_up()
            for client in workload._clients:
                client.stop(30)
    assert problems[0].startswith("the group had not transformed all of chaos-0-")
    assert "; the group is unknown: " in problems[0]
    assert problems[1].startswith("after 0 s, transformer 0 does not end: it is in ")
    assert "EndlessProducer.send_offsets_to_transaction (test_chaos_transactional.py:" in problems[1]
    assert behind == sorted(ends)


def test_states_of_transactions_are_those_that_the_coordinators_know() -> None:
    with FakeCluster() as cluster, AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
        with Producer({**cluster.client_settings(), "transactional.id": "run-1"}) as producer:
            producer.init_transactions(10)
            producer.begin_transaction()
            producer.produce("t", "value", partition=0)
            assert producer.flush(10) == 0
            said = describe_transactions(admin, ("run-",), "no-group")
            producer.abort_transaction(10)
    assert said.startswith("run-1 is Ongoing in t-0; the group is ")
    assert describe_transactions(admin, ("run-",), "no-group").startswith("the transactions are unknown: ")


def test_producers_of_the_workload_have_transactional_ids_and_its_consumers_read_committed_records() -> None:
    assert transactional_config({"linger.ms": 5}, "t")["transactional.id"] == "t"
    assert transactional_config({"linger.ms": 5}, "t")["linger.ms"] == 5
    own = {"group.protocol": "consumer", "fetch.min.bytes": 1}
    assert transactional_consumer(own) == {"fetch.min.bytes": 1, "isolation.level": "read_committed"}


@pytest.mark.parametrize("library", ["tidelog", "confluent-kafka"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (WorkloadSettings(producer={"transactional.id": "t"}), "gives each producer its own"),
        (WorkloadSettings(consumer={"isolation.level": "read_uncommitted"}), "not read_uncommitted"),
        (WorkloadSettings(producer={"no.such.key": "1"}), "no.such.key"),
        (WorkloadSettings(consumer={"no.such.key": "1"}), "no.such.key"),
    ],
)
def test_settings_that_transactions_exclude_are_refused(settings: WorkloadSettings, message: str, library: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_clients(settings, load_library(library), "transactions")


@pytest.mark.parametrize("library", ["tidelog", "confluent-kafka"])
def test_settings_of_the_workload_are_those_of_both_libraries(library: str) -> None:
    check_clients(WorkloadSettings(), load_library(library), "transactions")
