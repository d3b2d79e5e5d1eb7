"""A cluster of the previous release becomes one of the tree, and back, process by process and under load.

No acknowledged record is lost or moved, no producer and no member of a group sees more than retriable errors, and the
way back ends where the metadata needs the new level.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import confluent_kafka
import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, read_topic, wait_for, wait_for_whole_isrs
from earlier_release import Releases
from typer.testing import CliRunner, Result

from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle
from tidelog_cli.commands import app

_READY_S = 120
"""Six fresh interpreters on a busy machine."""
FIRST_LEVEL = 1
PARTITIONS = 3
SDK_TOPIC, KAFKA_TOPIC = "with-sdk", "with-confluent"


class KafkaLoad:
    """An idempotent producer of confluent-kafka and a member of a group that reads what it writes."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._complete = threading.Event()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.read: set[bytes] = set()
        self.errors: list[str] = []

    def __enter__(self) -> KafkaLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            wait_for(lambda: set(self.acknowledged.values()) <= self.read, "the member to have read everything")
        self._complete.set()
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                self.errors.append(f"produce: {error}")
            else:
                self.acknowledged[message.partition() or 0, message.offset() or 0] = message.value() or b""

        while not self._complete.is_set():
            producer.produce(KAFKA_TOPIC, str(self.sent), on_delivery=delivered)
            self.sent += 1
            producer.poll(0.003)
        producer.flush(60)

    def end_producing(self) -> None:
        """Send no more records, and wait until all are acknowledged."""
        self._complete.set()
        self._threads[0].join(90)
        assert not self._threads[0].is_alive(), "the producer did not finish"

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._servers, "group.id": "upgraded", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([KAFKA_TOPIC])
        while not self._stopping.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.read.add(message.value() or b"")
            elif error.fatal():
                self.errors.append(f"consume: {error}")
        consumer.close()


@pytest.fixture
def releases(tmp_path: Path, earlier: str) -> Releases:
    folder = tmp_path / "releases"
    folder.mkdir()
    return Releases(folder, earlier)


@pytest.fixture
def cluster(tmp_path: Path, releases: Releases, fresh_processes: None) -> Iterator[LocalCluster]:
    config = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
    running = LocalCluster(3, 3, tmp_path / "cluster", config, place=releases.place)
    try:
        running.start()
        running.wait_ready(_READY_S)
        yield running
    finally:
        running.close()


def tidelog(cluster: LocalCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-b", cluster.bootstrap_servers])


def succeed(cluster: LocalCluster, *arguments: str) -> str:
    done = tidelog(cluster, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def highest_level(cluster: LocalCluster) -> int:
    """Return the highest level of metadata.version that every process supports."""
    found = json.loads(succeed(cluster, "cluster", "features", "describe", "--json"))["features"]
    return next(int(f["max_level"]) for f in found if f["feature"] == "metadata.version")


def whole_quorum(cluster: LocalCluster) -> bool:
    addresses = ",".join(c.address for c in cluster.controllers.values())
    done = CliRunner().invoke(app, ["quorum", "describe", "--json", "--bootstrap-controllers", addresses])
    if done.exit_code:
        return False
    found = json.loads(done.stdout)
    ends = [voter["log_end_offset"] for voter in found["voters"]]
    heard = [
        voter["last_caught_up_timestamp"] for voter in found["voters"] if voter["replica_id"] != found["leader_id"]
    ]
    recent = all(time_ms is not None and time.time() * 1000 - time_ms < 3_000 for time_ms in heard)
    return recent and max(ends) - min(ends) < 100


def roll(cluster: LocalCluster, releases: Releases, *, earlier: bool) -> None:
    """Restart every process with a release: first the controllers, then the nodes."""

    def restart(process: ProcessHandle) -> None:
        releases.choose(process, earlier=earlier)
        assert process.stop(60) == 0, process.log_tail()
        process.start()

    for controller in cluster.controllers.values():
        restart(controller)
        cluster.wait_ready(_READY_S)
        wait_for(lambda: whole_quorum(cluster), "the quorum whole")
    for node in cluster.nodes.values():
        restart(node)
        cluster.wait_ready(_READY_S)
        for topic in (SDK_TOPIC, KAFKA_TOPIC):
            wait_for_whole_isrs(cluster, topic, PARTITIONS)


def check_earlier_node_is_refused(cluster: LocalCluster, releases: Releases, level: int) -> None:
    """Start a node with the earlier release, which does not support the level; it ends, and the tree's serves again."""
    node = cluster.nodes[1]
    for is_earlier in (True, False):
        releases.choose(node, earlier=is_earlier)
        node.stop(60)
        node.start()
        if is_earlier:
            wait_for(lambda: not node.is_running, "the node to end")
            assert f"the cluster has metadata.version at level {level}, broker 1 does levels" in node.log_tail()
    cluster.wait_ready(_READY_S)


@pytest.mark.timeout(900)
def test_rolling_upgrade_and_the_way_back_lose_nothing_until_the_level_is_raised(
    cluster: LocalCluster, releases: Releases
) -> None:
    newest_of_earlier = highest_level(cluster)
    # The cluster has the levels of the first release with features: one below what either release supports.
    succeed(cluster, "cluster", "features", "downgrade", f"metadata.version={FIRST_LEVEL}")
    for topic in (SDK_TOPIC, KAFKA_TOPIC):
        create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with (
        Load(cluster.bootstrap_servers, SDK_TOPIC, records_per_s=300) as sdk,
        KafkaLoad(cluster.kafka_bootstrap_servers) as kafka,
    ):
        sdk.wait_for_progress()
        for is_back in (False, True, False):
            roll(cluster, releases, earlier=is_back)
            sdk.wait_for_progress()
        refused = tidelog(cluster, "quota", "set", "--user", "alice", "producer_byte_rate=1000000")
        assert (refused.exit_code, "metadata.version" in refused.output) == (1, True), refused.output
        level = highest_level(cluster)
        assert level > FIRST_LEVEL
        succeed(cluster, "cluster", "features", "upgrade", f"metadata.version={level}")
        succeed(cluster, "quota", "set", "--user", "alice", "producer_byte_rate=1000000")
        refused = tidelog(cluster, "cluster", "features", "downgrade", f"metadata.version={FIRST_LEVEL}")
        assert (refused.exit_code, "delete them" in refused.output) == (1, True), refused.output
        sdk.wait_for_progress()
        sdk.stop()
        kafka.end_producing()
    if level > newest_of_earlier:
        check_earlier_node_is_refused(cluster, releases, level)
    assert not sdk.failed
    assert not kafka.errors
    assert len(kafka.acknowledged) == kafka.sent
    assert_nothing_lost(sdk, read_topic(cluster.bootstrap_servers, SDK_TOPIC, PARTITIONS))
    messages = read_topic(cluster.bootstrap_servers, KAFKA_TOPIC, PARTITIONS)
    assert {(m.partition(), m.offset()): m.value() for m in messages} == kafka.acknowledged
    assert cluster.failures == []
