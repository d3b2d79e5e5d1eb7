"""Transactions on real processes: whoever is killed, each is whole, and there once."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from acknowledged import create_topic

from tidelog import Consumer, KafkaException, Producer, TopicPartition
from tidelog.producer import PreparedTransaction
from tidelog.testing import LocalCluster
from tidelog.testing.local import INTERNAL_PARTITIONS
from tidelog.testing.process import ProcessHandle
from tidelog_foundation.errors import ErrorCode

PARTITIONS = 3
STATE_TOPIC = "__transaction_state"


@pytest.fixture
def transactions(cluster: LocalCluster, topic: str) -> Iterator[Transactions]:
    """Return a producer of transactions that runs until the end of the test."""
    create_topic(cluster, topic, PARTITIONS, 3)
    running = Transactions(cluster, topic)
    yield running
    running.close()


class Transactions:
    """A thread that writes one record to each partition in every transaction, and aborts each fourth."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
        self._producer.init_transactions(30)
        self.ended: dict[int, bool] = {}
        """Whether a transaction was committed, by its number."""
        self.failure: BaseException | None = None
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")
        self._thread.start()

    def wait_for_more(self, count: int, timeout_s: float = 60) -> None:
        """Wait until ``count`` more transactions have ended."""
        goal, deadline = len(self.ended) + count, time.monotonic() + timeout_s
        while len(self.ended) < goal:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"{len(self.ended)} of {goal} transactions have ended"
            time.sleep(0.02)

    def close(self) -> None:
        """Stop after the current transaction."""
        self._stops.set()
        self._thread.join(60)
        self._producer.close(30)

    def _run(self) -> None:
        try:
            number = 0
            while not self._stops.is_set():
                self._transact(number)
                number += 1
        except BaseException as error:
            self.failure = error
            raise

    def _transact(self, number: int) -> None:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(self._topic, str(number), partition=partition)
        committed = number % 4 != 3
        self._end(number, committed=committed)

    def _end(self, number: int, *, committed: bool) -> None:
        while True:
            try:
                (self._producer.commit_transaction if committed else self._producer.abort_transaction)(30)
            except KafkaException as error:
                if error.error.txn_requires_abort():
                    committed = False
                elif not error.error.retriable():
                    raise
            else:
                self.ended[number] = committed
                return


def committed_values(cluster: LocalCluster, topic: str) -> dict[int, list[int]]:
    """Return the numbers that each partition has for readers of committed records."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "enable.partition.eof": True}
    found: dict[int, list[int]] = defaultdict(list)
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ends: set[int] = set()
        while len(ends) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
            elif message.error() == ErrorCode._PARTITION_EOF.code:
                ends.add(message.partition())
    return found


def check_whole(cluster: LocalCluster, topic: str, ended: dict[int, bool]) -> None:
    """Assert that each partition has exactly the committed transactions, in order."""
    expected = [number for number, committed in ended.items() if committed]
    found = committed_values(cluster, topic)
    for partition in range(PARTITIONS):
        more = Counter(found[partition]) - Counter(expected)
        less = Counter(expected) - Counter(found[partition])
        assert found[partition] == expected, f"partition {partition} has {dict(more)} too much and lacks {dict(less)}"


def coordinator_of(cluster: LocalCluster, transactional_id: str) -> int:
    """Return the node that coordinates a transactional id."""
    from tidelog_node.coordination.internal_topics import partition_for

    leader = cluster.leader(STATE_TOPIC, partition_for(transactional_id, INTERNAL_PARTITIONS))
    assert leader is not None
    return leader


def test_transactions_survive_the_kill_of_their_coordinator(
    cluster: LocalCluster, topic: str, transactions: Transactions
) -> None:
    for _ in range(2):
        transactions.wait_for_more(20)
        node = cluster.nodes[coordinator_of(cluster, topic)]
        node.kill()
        transactions.wait_for_more(20)
        node.start()
        cluster.wait_ready()
    transactions.wait_for_more(20)
    transactions.close()
    assert transactions.failure is None
    check_whole(cluster, topic, transactions.ended)


def test_transactions_survive_the_kill_of_a_partitions_leader(
    cluster: LocalCluster, topic: str, transactions: Transactions
) -> None:
    transactions.wait_for_more(20)
    leader = cluster.leader(topic, 0)
    assert leader is not None
    cluster.nodes[leader].kill()
    transactions.wait_for_more(20)
    cluster.nodes[leader].start()
    cluster.wait_ready()
    transactions.wait_for_more(20)
    transactions.close()
    assert transactions.failure is None
    check_whole(cluster, topic, transactions.ended)


def test_successor_of_a_killed_producer_aborts_its_transaction(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster, topic, PARTITIONS, 3)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    zombie = Producer(settings)
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(topic, "0", partition=0)
    zombie.flush(30)
    node = cluster.nodes[coordinator_of(cluster, topic)]
    node.kill()
    with Producer(settings) as successor:
        successor.init_transactions(60)
        with successor.transaction():
            successor.produce(topic, "1", partition=0)
    node.start()
    cluster.wait_ready()
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(30)
    assert caught.value.error.fatal()
    zombie.close(0)
    assert committed_values(cluster, topic) == {0: [1]}


def test_prepared_transaction_survives_its_producer_and_its_coordinator() -> None:
    with LocalCluster(1, 3) as cluster:
        create_topic(cluster, "t", PARTITIONS, 3)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "two-phase",
            "transaction.two.phase.commit.enable": True,
        }
        decided: list[str] = []
        for number, is_decided in enumerate((True, False)):
            producer = Producer(settings)
            producer.init_transactions(30, keep_prepared=True)
            producer.begin_transaction()
            producer.produce("t", str(number), partition=0)
            prepared = str(producer.prepare_transaction(30))
            if is_decided:
                decided.append(prepared)
            node = cluster.nodes[coordinator_of(cluster, "two-phase")]
            node.kill()
            with Producer(settings) as successor:
                successor.init_transactions(60, keep_prepared=True)
                successor.complete_transaction(PreparedTransaction.parse(decided[-1]), 60)
            producer.close(0)
            node.start()
            cluster.wait_ready()
        assert committed_values(cluster, "t") == {0: [0]}


def test_consumed_records_are_transformed_once_though_coordinators_are_killed(
    cluster: LocalCluster, topic: str
) -> None:
    source, count = f"{topic}-source", 300
    for name in (source, topic):
        create_topic(cluster, name, PARTITIONS, 3)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(count):
            producer.produce(source, str(number), partition=number % PARTITIONS)
    seen: set[int] = set()
    attempt = 0
    while len(seen) < count:
        attempt += 1
        assert attempt < 20
        killed = cluster.nodes[coordinator_of(cluster, topic)] if attempt in (2, 4) else None
        seen |= transform(cluster, source, topic, 60, killed)
        if killed is not None:
            killed.start()
            cluster.wait_ready()
    found = committed_values(cluster, topic)
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(count))


def transform(cluster: LocalCluster, source: str, target: str, most: int, killed: ProcessHandle | None) -> set[int]:
    """Copy up to ``most`` records as a new member of the group, and return those of the committed transactions.

    The node ``killed`` dies in the middle of a transaction. The last transaction stays open, as after a crash.
    """
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    settings = {**servers, "group.id": target, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    # A member cannot leave a coordinator that was killed: its successor waits for the end of its session.
    settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    producer = Producer({**servers, "transactional.id": target})
    producer.init_transactions(60)
    done: set[int] = set()
    with Consumer(settings) as consumer:
        consumer.subscribe([source])
        while len(done) < most:
            batch = [int(m.value()) for m in consumer.consume(20, 5) if m.error() is None]
            producer.begin_transaction()
            for number in batch:
                producer.produce(target, str(number), partition=number % PARTITIONS)
            if killed is not None:
                killed.kill()
                killed = None
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
            if not batch:
                producer.abort_transaction(60)
                break
            producer.commit_transaction(60)
            done |= set(batch)
        producer.begin_transaction()
        producer.produce(target, "-1", partition=0)
        producer.flush(60)
    return done
