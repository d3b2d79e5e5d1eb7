"""The workload of transactions, on logs in memory: its history is valid, and shows the faults of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transaction_library import MemoryCluster, MemoryLibrary

from tidelog.admin import AdminClient, IsolationLevel
from tidelog.message import TopicPartition
from tidelog.testing import FakeCluster
from tidelog_chaos.checker import check
from tidelog_chaos.history import HistoryWriter, read_history
from tidelog_chaos.metrics import Meter
from tidelog_chaos.verdict import Verdict
from tidelog_chaos.workload import TransactionsWorkload, WorkloadSettings, load_library
from tidelog_chaos.workload import transactional as transactional_module
from tidelog_chaos.workload import transactions as transactions_module
from tidelog_chaos.workload.keys import key_of
from tidelog_chaos.workload.settings import check_clients, transactional_config, transactional_consumer
from tidelog_foundation.errors import ConfigError

_SETTINGS = WorkloadSettings(
    rate_per_s=1_000,
    partitions=2,
    replication_factor=1,
    consumers=1,
    crash_interval_s=0.4,
    producer={"transaction.timeout.ms": 100, "message.timeout.ms": 100},
)


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
    monkeypatch.setattr(transactions_module, "_MARGIN_S", 1.0)
    with FakeCluster() as cluster, AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        yield admin


def run(admin: AdminClient, path: Path, seconds: float, bug: str = "") -> tuple[Verdict, list[Any]]:
    cluster = MemoryCluster(bug)
    MemoryWorkload.cluster = cluster
    with HistoryWriter(path) as history:
        library = MemoryLibrary(cluster)
        workload = MemoryWorkload(_SETTINGS, library, {}, {}, admin, "chaos", history, Meter(), seed=3)
        workload.start()
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s and workload.failed is None:
            time.sleep(0.05)
        assert workload.stop_writing() == []
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
