"""Transactional producers of Kafka's clients and of ours: each alone, beside the others, and read by every consumer."""

from __future__ import annotations

import contextlib
import itertools
import uuid

import pytest
from compat.clients.all import CLIENTS, client
from compat.clients.client import Member, wait_for
from compat.clients.record import CODECS, Record
from compat.clients.transactional import OURS, SDK, WRITERS
from compat.cluster import Deployment
from compat.transactions import address, begin, pairs, producer, read, reader, some

PARTITIONS = 3
ROUNDS = 5
PER_PARTITION = 2
TOGETHER = "all"
"""All writers beside each other: their transactions are open at once, in the same partitions."""
READERS = (*CLIENTS, SDK)
ISOLATIONS = ("read_committed", "read_uncommitted")

Written = dict[str, str]
Read = list[tuple[int, int, bytes | None]]
"""Partition, offset and value of each record."""


def writers_of(cluster: Deployment, writer: str) -> list[str]:
    """Return the writers by a parameter, of those that can be used here."""
    if writer != TOGETHER:
        return [writer]
    usable = [name for name in WRITERS if name not in OURS or cluster.sdk_servers is not None]
    return [name for name in usable if name in OURS or CLIENTS[name].missing() is None]


def is_committed(turn: int, place: int) -> bool:
    """Return whether the writer at a place commits its transaction of a turn; all commit the last."""
    return (turn + place) % 2 == 0 or turn == ROUNDS - 1


def write(cluster: Deployment, names: list[str], topic: str) -> None:
    """Have each writer write its records of a turn, in a codec of its own, and only then end the transactions."""
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(producer(cluster, name, f"{topic}-{name}", compression_type=codec))
            for name, codec in zip(names, itertools.cycle(CODECS[1:]), strict=False)
        ]
        for each in made:
            each.init()
        for turn in range(ROUNDS):
            for name, each in zip(names, made, strict=True):
                each.begin()
                for partition, index in itertools.product(range(PARTITIONS), range(PER_PARTITION)):
                    each.send(topic, f"{name}-{turn}-{index}".encode(), partition)
                each.flush()
            for place, each in enumerate(made):
                (each.commit if is_committed(turn, place) else each.abort)()


def expected(names: list[str], isolation: str) -> Read:
    """Return what a reader sees of :func:`write`: of each transaction, a marker takes an offset in each partition."""
    return [
        (
            partition,
            turn * len(names) * (PER_PARTITION + 1) + place * PER_PARTITION + index,
            f"{name}-{turn}-{index}".encode(),
        )
        for partition in range(PARTITIONS)
        for turn in range(ROUNDS)
        for place, name in enumerate(names)
        for index in range(PER_PARTITION)
        if isolation == "read_uncommitted" or is_committed(turn, place)
    ]


@pytest.fixture(scope="session")
def written(cluster: Deployment) -> Written:
    """The topics by the client that wrote them, as tests ask for them."""
    return {}


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """A topic of the test."""
    return cluster.create(name, PARTITIONS, replicas=3)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("writer", "reading"), pairs((*WRITERS, TOGETHER), READERS))
def test_transactions_of_one_client_are_read_by_another(
    cluster: Deployment, written: Written, writer: str, reading: str, isolation: str
) -> None:
    address(cluster, reading)
    names = writers_of(cluster, writer)
    if writer not in written:
        topic = cluster.create(f"transactions-of-{writer}-{uuid.uuid4()}", PARTITIONS, replicas=3)
        write(cluster, names, topic)
        written[writer] = topic
    wanted = expected(names, isolation)
    found = read(cluster, reading, written[writer], len(wanted), PARTITIONS, isolation)
    assert [(record.partition, record.offset, record.value) for record in found] == wanted


@pytest.mark.parametrize("reading", some(READERS, "confluent-kafka"))
def test_read_committed_waits_for_an_open_transaction(cluster: Deployment, topic: str, reading: str) -> None:
    found: list[bytes | None] = []
    servers = address(cluster, reading)
    plain = client("confluent-kafka")
    with (
        reader(reading).reader(servers, topic, isolation_level="read_committed") as consumer,
        producer(cluster, "confluent-kafka", topic) as writer,
    ):
        writer.init()

        def poll(count: int) -> bool:
            found.extend(record.value for record in consumer.poll(0.1))
            return len(found) >= count

        begin(writer, topic, b"first")
        writer.commit()
        begin(writer, topic, b"second")
        plain.produce(cluster.servers, topic, [Record(b"third", partition=0)])
        wait_for(lambda: poll(1), "the first transaction")
        for _ in range(3):
            poll(2)
        assert found == [b"first"]
        writer.commit()
        wait_for(lambda: poll(3), "the second transaction")
    assert found == [b"first", b"second", b"third"]


@pytest.mark.parametrize("reading", some(READERS, "aiokafka"))
def test_a_group_goes_on_behind_markers_and_aborted_records(
    cluster: Deployment, name: str, topic: str, reading: str
) -> None:
    servers = address(cluster, reading)
    with producer(cluster, "confluent-kafka", topic) as writer:
        writer.init()
        for value, ends in ((b"first", writer.commit), (b"aborted", writer.abort)):
            begin(writer, topic, value)
            ends()
        with Member(reader(reading), servers, topic, name, isolation_level="read_committed") as member:
            wait_for(lambda: member.read, "the first transaction")
        begin(writer, topic, b"second")
        writer.commit()
        with Member(reader(reading), servers, topic, name, isolation_level="read_committed") as successor:
            wait_for(lambda: successor.read, "the second transaction")
    assert [record.value for record in (*member.read, *successor.read)] == [b"first", b"second"]
