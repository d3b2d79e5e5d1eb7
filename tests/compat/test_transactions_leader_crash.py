"""Leaders are killed while a client writes transactions: each is committed whole or not at all, and in its order."""

from __future__ import annotations

import gc
import itertools
from collections import defaultdict
from collections.abc import Iterator

import pytest
from compat.clients.all import client
from compat.clients.client import wait_for
from compat.clients.transactional import WRITERS, TransactionalProducer
from compat.cluster import Deployment
from compat.transactions import producer, refused

from tidelog.testing.local import INTERNAL_PARTITIONS
from tidelog_node.coordination.internal_topics import partition_for

# aiokafka and kafka-python leave a socket open when they cannot connect.
pytestmark = [pytest.mark.compat, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
PARTITIONS = 3
TURNS = 60
KILLS = {15: "leader", 40: "coordinator"}


class Application:
    """A client that writes its turns as transactions. After an error it goes on as a new instance would."""

    def __init__(self, cluster: Deployment, name: str, topic: str) -> None:
        self.committed: set[int] = set()
        self.unknown: set[int] = set()
        """The turns whose commit failed: the transaction coordinator may have committed them nevertheless."""
        self._cluster, self._name, self._topic = cluster, name, topic
        self._producer = self._restarted()

    def run(self, turn: int, commits: bool = True) -> bool:
        """Write one transaction, and return whether it is committed for certain."""
        made = self._producer
        is_written = refused(made.begin, lambda: self._write(turn), made.flush) == "nothing"
        if is_written and commits:
            error = refused(made.commit)
            (self.unknown if error != "nothing" else self.committed).add(turn)
        else:
            error = refused(made.abort)
        if not is_written or error != "nothing":
            made.close()
            self._producer = self._restarted()
        return turn in self.committed

    def close(self) -> None:
        """Close the producer, and collect what the earlier ones have left."""
        self._producer.close()
        gc.collect()

    def _write(self, turn: int) -> None:
        for partition in range(PARTITIONS):
            self._producer.send(self._topic, b"%d" % turn, partition)

    def _restarted(self) -> TransactionalProducer:
        made: list[TransactionalProducer] = []

        def starts() -> bool:
            made.append(producer(self._cluster, self._name, self._topic))
            if refused(made[-1].init) == "nothing":
                return True
            made.pop().close()
            return False

        wait_for(starts, f"a producer of {self._name}")
        return made[-1]


@pytest.fixture
def killed(cluster: Deployment) -> Iterator[list[tuple[int, str, int]]]:
    """The nodes that the test has killed, with a partition of theirs; they are started again in the end."""
    found: list[tuple[int, str, int]] = []
    yield found
    for place in found:
        cluster.bring_back(*place)


def read_committed(cluster: Deployment, topic: str, last: int) -> dict[int, list[int]]:
    """Return the committed turns of each partition, up to the last one."""
    found: dict[int, list[int]] = defaultdict(list)
    consumer = client("confluent-kafka").reader(
        cluster.servers, topic, None, PARTITIONS, isolation_level="read_committed"
    )

    def is_read() -> bool:
        for record in consumer.poll(0.2):
            found[record.partition].append(int(record.value or b""))
        return all(last in found[partition] for partition in range(PARTITIONS))

    with consumer:
        wait_for(is_read, lambda: f"the last transaction: {dict(found)}")
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_transactions_are_whole_and_in_order_when_their_leaders_are_killed(
    cluster: Deployment, name: str, killed: list[tuple[int, str, int]], writer: str
) -> None:
    topic = cluster.create(name, PARTITIONS, replicas=3, min_insync_replicas=2)
    places = {"leader": (topic, 0), "coordinator": ("__transaction_state", partition_for(topic, INTERNAL_PARTITIONS))}
    application = Application(cluster, writer, topic)
    for turn in range(TURNS):
        if turn in KILLS:
            for place in killed:
                cluster.bring_back(*place)
            killed[:] = [(cluster.kill_leader(*places[KILLS[turn]]), *places[KILLS[turn]])]
        application.run(turn, commits=turn % 4 != 3)
    more = itertools.count(TURNS)
    wait_for(lambda: application.run(next(more)), "a last commit")
    application.close()
    found = read_committed(cluster, topic, max(application.committed))
    turns = found[0]
    assert found == dict.fromkeys(range(PARTITIONS), turns)
    assert turns == sorted(set(turns))
    assert application.committed <= set(turns) <= application.committed | application.unknown
