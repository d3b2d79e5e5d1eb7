"""A run's clients may be confluent-kafka's: the same workloads against a node's Kafka listener, the same check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from acknowledged import wait_for

from tidelog.admin import AdminClient, ConsumerGroupTopicPartitions, NewTopic
from tidelog.message import OFFSET_INVALID, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_chaos.checker import check
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import HistoryWriter, Op, read_history
from tidelog_chaos.metrics import Meter
from tidelog_chaos.verdict import Verdict
from tidelog_chaos.workload import QueueWorkload, SubscribeWorkload, WorkloadSettings, load_library
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

_GROUPS = {"group.consumer.min.heartbeat.interval.ms": 200, "group.consumer.heartbeat.interval.ms": 200}
_MEMBERS = {"heartbeat.interval.ms": 200}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1, config={"offsets.topic.num.partitions": 2, **_GROUPS}) as running:
        yield running


def run(
    kind: type[QueueWorkload | SubscribeWorkload],
    cluster: LocalCluster,
    settings: WorkloadSettings,
    prefix: str,
    path: Path,
    is_enough: Callable[[list[Op]], bool] = lambda _: True,
) -> tuple[list[Op], Verdict, Meter]:
    """Run a workload until it writes to its second topics and its history is enough; return the checked history."""
    meter = Meter()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    kafka = {"bootstrap.servers": cluster.kafka_bootstrap_servers}
    with HistoryWriter(path) as history, AdminClient(servers) as admin:
        library = load_library("confluent-kafka")
        workload = kind(settings, library, kafka, servers, admin, prefix, history, meter, 4, path.parent)
        workload.start()
        wait_for(lambda: f"{prefix}-2-0" in workload.keys.written, "the second topics to be written to", 15)
        wait_for(lambda: is_enough(_whole_lines(path)), "the history to have what the test needs", 30)
        assert workload.stop_writing(Deadline(60)) == []
        ends, behind = workload.finish()
    assert behind == []
    assert sum(ends.values()) > 300
    ops = _whole_lines(path)
    return ops, check(ops), meter


def _whole_lines(path: Path) -> list[Op]:
    """Return the history so far, without a line that is being written."""
    return list(read_history(path.read_text().rpartition("\n")[0].splitlines()))


def _readers(ops: Sequence[Op]) -> int:
    """Return the number of processes that have read records; one that crashes comes back as another."""
    return len({op.process for op in ops if op.f == "poll" and op.type == "ok" and op.value[0][1]})


def test_confluent_clients_write_and_read_a_valid_history_and_crash_meanwhile(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    settings = WorkloadSettings(rate_per_s=600, replication_factor=1, writes_per_key=60, crash_interval_s=0.3)
    path = tmp_path / "history.jsonl"
    ops, verdict, meter = run(QueueWorkload, cluster, settings, "queue", path, lambda ops: _readers(ops) > 2)
    assert verdict.valid, json.dumps(verdict.anomalies)[:2000]
    assert verdict.statistics["values"]["acknowledged"] == meter.take().sends["ok"] > 300
    assert {op.f for op in ops} == {"send", "poll", "assign", "crash"}
    assert _readers(ops) > 2, "those that crash come back and read again"


@pytest.mark.parametrize(
    "own",
    [
        {"partition.assignment.strategy": "cooperative-sticky", **_MEMBERS},
        {"group.protocol": "consumer"},
    ],
    ids=["cooperative-sticky", "consumer"],
)
def test_confluent_members_poll_and_commit_everything_and_their_history_says_so(
    cluster: LocalCluster, tmp_path: Path, own: dict[str, str], request: pytest.FixtureRequest
) -> None:
    settings = WorkloadSettings(
        rate_per_s=600,
        replication_factor=1,
        writes_per_key=60,
        crash_interval_s=0,
        consumers=2,
        consumer={**own, "auto.commit.interval.ms": 100, "topic.metadata.refresh.interval.ms": 200},
    )
    prefix = f"group-{request.node.callspec.id}"
    ops, verdict, _ = run(SubscribeWorkload, cluster, settings, prefix, tmp_path / "history.jsonl")
    assert verdict.valid, json.dumps(verdict.anomalies)[:2000]
    group = verdict.statistics["group"]
    assert group["drained"]
    assert group["members"] == 2
    assert group["generations"] > 0, "the generation is read from what confluent-kafka tells of a member"
    members = {op.value["by"] for op in ops if op.f == "committed"} - {"observer"}
    assert members, "what members commit, by themselves or when they are told to, is noted"


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


def test_confluent_consumer_that_is_abandoned_stays_in_its_group_and_commits_nothing(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    library, servers = load_library("confluent-kafka"), {"bootstrap.servers": cluster.kafka_bootstrap_servers}
    admin.create_topics([NewTopic("left", 1, 1)])["left"].result(timeout=10)
    reports: list[KafkaError | None] = []
    producer = library.producer(servers)
    producer.produce("left", "1", partition=0, on_delivery=lambda error, message: reports.append(error))
    assert producer.flush(10) == 0
    producer.close(0)
    assert reports == [None]
    assigned: list[TopicPartition] = []
    consumer = library.consumer({**servers, "group.id": "left", "auto.offset.reset": "earliest"})
    consumer.subscribe(["left"], lambda _, partitions: assigned.extend(partitions), _nothing, _nothing)
    wait_for(lambda: [m.value() for m in consumer.consume(1, timeout=0.2)] == [b"1"], "the record", 20)
    assert assigned == [TopicPartition("left", 0)]
    assert consumer.generation == 1
    consumer.abandon()
    group = admin.describe_consumer_groups(["left"])["left"].result(timeout=10)
    assert len(group.members) == 1
    asked = ConsumerGroupTopicPartitions("left", [TopicPartition("left", 0)])
    [offsets] = admin.list_consumer_group_offsets([asked]).values()
    assert [at.offset for at in offsets.result(timeout=10).topic_partitions] == [OFFSET_INVALID]


def test_confluent_commits_nothing_where_nothing_was_polled_by_its_error(cluster: LocalCluster) -> None:
    servers = {"bootstrap.servers": cluster.kafka_bootstrap_servers}
    with load_library("confluent-kafka").consumer({**servers, "group.id": "idle"}) as consumer:
        with pytest.raises(TidelogError) as refused:
            consumer.commit(asynchronous=False)
        assert refused.value.code is ErrorCode._NO_OFFSET


def _nothing(consumer: object, partitions: Sequence[TopicPartition]) -> None:
    pass
