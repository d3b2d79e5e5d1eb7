"""A topic with numbered records and its copy on a cluster whose nodes are killed, and the check of the copy."""

from __future__ import annotations

import time
import zlib

from acknowledged import create_topic, wait_for
from sink_runner import open_ids

from tidelog import AdminClient, Consumer, KafkaError, Producer, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_spark.sink.execution import task_pattern
from tidelog_spark.sink.journal_topic import JOURNAL_TOPIC

LEADERS = ("input", "output", "journal", "coordinator")
"""The nodes that a test can kill: leaders of a partition, and the coordinator of the sink's transactions."""
PARTITIONS = 2
_ROWS = 10
"""The records of each partition that an append adds."""
_DEADLINE_S = 300.0


class CopiedTopics:
    """The topic ``source``, its copy ``target``, and the values that were written to each partition."""

    def __init__(self, cluster: LocalCluster, source: str) -> None:
        self.source, self.target = source, f"{source}-copy"
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._cluster = cluster
        for topic in (self.source, self.target):
            create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")

    def append(self) -> None:
        """Append records to each partition of the source."""
        with Producer(self._cluster.client_settings()) as producer:
            for partition, written in enumerate(self.written):
                for number in range(len(written), len(written) + _ROWS):
                    written.append(f"{partition}-{number}".encode())
                    producer.produce(self.source, written[-1], partition=partition)
            assert producer.flush(_DEADLINE_S) == 0

    def leader(self, name: str, sink: str) -> int:
        """Return the node that is the leader of `LEADERS` for a sink, when there is one."""
        found: list[int] = []

        def is_found() -> bool:
            node = self._leader(name, sink)
            found[:] = [] if node is None else [node]
            return bool(found)

        wait_for(is_found, f"the leader of the {name}", _DEADLINE_S)
        return found[0]

    def check(self) -> None:
        """Check that the target has each record once, in order, and that no transaction stays open."""
        assert self._read() == self.written
        wait_for(lambda: open_ids(self._cluster) == [], "the end of all transactions", _DEADLINE_S)

    def _leader(self, name: str, sink: str) -> int | None:
        match name:
            case "input":
                return self._cluster.leader(self.source, 0)
            case "output":
                return self._cluster.leader(self.target, 0)
            case "journal":
                return self._cluster.leader(JOURNAL_TOPIC, zlib.crc32(sink.encode()) % 16)
            case "coordinator":
                with AdminClient(self._cluster.client_settings()) as admin:
                    listed = admin.list_transactions(transactional_id_pattern=task_pattern(sink)).result().valid
                return next((each.coordinator_id for each in listed), None)
            case _:
                raise ValueError(name)

    def _read(self) -> list[list[bytes]]:
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        settings = {**self._cluster.client_settings(), "group.id": "check", "enable.partition.eof": True}
        with Consumer(settings) as consumer:
            consumer.assign([TopicPartition(self.target, partition, 0) for partition in range(PARTITIONS)])
            ended: set[int | None] = set()
            deadline = time.monotonic() + _DEADLINE_S
            while len(ended) < PARTITIONS:
                assert time.monotonic() < deadline, f"of the copy's partitions, only {ended} end"
                for record in consumer.consume(100, 1):
                    error = record.error()
                    if error is None:
                        found[record.partition() or 0].append(record.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(record.partition())
        return found
