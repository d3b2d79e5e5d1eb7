"""kafka-dump-log and ``tidelog log dump`` agree on the files that transactions and groups leave on a node."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import confluent_kafka
import pytest
from compat.java_tools import run
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from tidelog import Producer
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app

pytestmark = pytest.mark.compat
TIMEOUT_S = 30
LATER = re.compile(r',"(creationTimeMs|assignmentTimestamp|lastProducerEpoch)":-?\d+')
"""Tagged fields of later releases of Kafka, and of ours; Kafka 4.1 skips them."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a node that has been stopped, after transactions with offsets of groups of both protocols."""
    folder = tmp_path_factory.mktemp("node")
    settings = {"transaction.two.phase.commit.enable": True, "offsets.topic.num.partitions": 2}
    with LocalCluster(controllers=1, nodes=1, data_dir=folder, config=settings) as cluster:
        servers = cluster.kafka_bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("moved", 2, 1)])["moved"].result(TIMEOUT_S)
        consumers: list[confluent_kafka.Consumer] = []
        for member in MEMBERS:
            join(servers, consumers, *member)
        move(servers, consumers)
        for consumer in consumers:
            consumer.close()
        admin.delete_consumer_groups(["pattern"])["pattern"].result(TIMEOUT_S)
        prepare(cluster.bootstrap_servers)
    return folder / "node-1" / "data"


MEMBERS = [
    ("classic", "classic", "moved"),
    ("consumer", "consumer", "moved"),
    ("consumer", "classic", "moved"),
    ("pattern", "consumer", "^mov.*"),
]
"""Groups, with the protocol and the subscription of a member. One group has members of both protocols."""


def join(servers: str, consumers: list[confluent_kafka.Consumer], group: str, protocol: str, topic: str) -> None:
    """Add a consumer, and let the others give it partitions."""
    settings = {"group.protocol": protocol, "group.id": group, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([topic])
    consumers.append(consumer)
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, f"the {protocol} member of {group} has no partitions"
        for member in consumers:
            member.poll(0.05)


def move(servers: str, consumers: list[confluent_kafka.Consumer]) -> None:
    """Commit and abort transactions with records and offsets."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "mover"})
    producer.init_transactions(TIMEOUT_S)
    for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("moved", str(number), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        positions = [confluent_kafka.TopicPartition("moved", 0, number)]
        group = consumers[number % 2].consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, group, TIMEOUT_S)
        end(TIMEOUT_S)


def prepare(servers: str) -> None:
    """Leave a prepared transaction that its producer has taken over."""
    settings = {"transactional.id": "prepared", "transaction.two.phase.commit.enable": True}
    with Producer({"bootstrap.servers": servers, **settings}) as producer:
        producer.init_transactions(keep_prepared=True)
        producer.begin_transaction()
        producer.produce("moved", "prepared", partition=0)
        producer.prepare_transaction()
    with Producer({"bootstrap.servers": servers, **settings}) as producer:
        producer.init_transactions(keep_prepared=True)


def files(data: Path, topic: str) -> list[str]:
    """Return the files with content that Kafka's tool reads, of all partitions of a topic."""
    paths = [path for path in data.glob(f"{topic}-*/*") if path.stem.isdigit() and path.stat().st_size]
    assert {".log", ".snapshot"} <= {path.suffix for path in paths}
    return sorted(map(str, paths))


def dumped(paths: list[str], *options: str) -> list[str]:
    """Return the lines of Kafka's tool, after a comparison with ours."""
    done = run("kafka-dump-log", *options, "--files", ",".join(paths))
    assert (done.code, done.err) == (0, "")
    ours = CliRunner().invoke(app, ["log", "dump", "--format", "lines", *options, *paths])
    assert ours.exit_code == 0, ours.output
    assert [LATER.sub("", line) for line in ours.stdout.splitlines()] == done.out.splitlines()
    return done.out.splitlines()


def payloads(lines: list[str]) -> list[dict[str, object]]:
    found = [json.loads(line.partition(" payload: ")[2]) for line in lines if " payload: {" in line]
    return [payload["data"] for payload in found]


def test_dump_tools_agree_on_the_state_of_transactions(data: Path) -> None:
    lines = dumped(files(data, "__transaction_state"), "--transaction-log-decoder")
    found = payloads(lines)
    assert {payload["transactionStatus"] for payload in found} == {0, 1, 2, 3, 4, 5}
    assert any("nextProducerEpoch" in payload for payload in found), "no transaction was taken over"


def test_dump_tools_agree_on_the_records_of_groups_and_offsets_of_transactions(data: Path) -> None:
    lines = dumped(files(data, "__consumer_offsets"), "--offsets-decoder")
    types = set(re.findall(r'key: {"type":"(\d+)"', "\n".join(lines)))
    assert types == {"1", "2", "3", "5", "6", "7", "8", "16"}
    assert any("payload: <DELETE>" in line for line in lines)
    assert any("classicMemberMetadata" in payload for payload in payloads(lines))
    members = [member for payload in payloads(lines) for member in payload.get("members", ())]
    assert members[0]["assignment"]["assignedPartitions"] == [{"topic": "moved", "partitions": [0, 1]}]
    assert [sum(f"endTxnMarker: {end} " in line for line in lines) for end in ("COMMIT", "ABORT")] == [2, 2]


def test_dump_tools_agree_on_markers_aborted_transactions_and_open_producers(data: Path) -> None:
    lines = dumped(files(data, "moved"), "--deep-iteration")
    assert sum("endTxnMarker" in line for line in lines) == 8
    assert sum(line.startswith("version: 0 producerId") for line in lines) == 4
    assert any("currentTxnFirstOffset: OptionalLong[" in line for line in lines)
