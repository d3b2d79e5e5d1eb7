"""A client library over logs in memory, with transactions: what the workload of transactions does without a cluster.

Its calls time out now and then although they take effect. ``bug`` plants a fault into the cluster: ``partial`` commits
in one partition alone, ``offsets`` commits the offsets of aborted transactions, ``zombie`` fences nobody.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, Self

from tidelog.message import OFFSET_BEGINNING, OFFSET_INVALID, Message, TopicPartition
from tidelog_chaos.workload.keys import key_of
from tidelog_chaos.workload.library import Committed, Delivered, Library, Rebalanced, SendOutcome
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


@dataclass(eq=False)
class Transaction:
    """An open, committed or aborted transaction; ``decided`` has its outcome in each partition."""

    records: dict[str, list[int]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    decided: dict[str, bool] = field(default_factory=dict)


@dataclass
class MemoryCluster:
    """All logs: the value and the transaction of each record, None for a marker."""

    bug: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    logs: dict[str, list[tuple[str, Transaction] | None]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    producers: dict[str, MemoryProducer] = field(default_factory=dict)
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def end(self, transaction: Transaction, *, committed: bool) -> None:
        for number, (key, offsets) in enumerate(transaction.records.items()):
            transaction.decided[key] = committed and not (self.bug == "partial" and number)
            if offsets:
                self.logs[key].append(None)
        if committed or self.bug == "offsets":
            self.offsets |= transaction.offsets

    def stable_offset(self, key: str) -> int:
        log = self.logs.get(key, [])
        undecided = (o for o, entry in enumerate(log) if entry is not None and key not in entry[1].decided)
        return next(undecided, len(log))

    def times_out(self) -> None:
        if self.dice.random() < 0.1:
            raise TidelogError(KafkaError(ErrorCode._TIMED_OUT, "again", retriable=True))


class MemoryProducer:
    """A transactional producer. A call that timed out has taken effect; the next one succeeds."""

    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._open: Transaction | None = None
        self._ended: bool | None = None
        self._reports: list[tuple[Delivered, Message]] = []

    def init_transactions(self, timeout: float) -> None:
        with self._cluster.lock:
            former = self._cluster.producers.get(self._id)
            if former is not None and former is not self and former._open is not None and self._cluster.bug != "zombie":
                self._cluster.end(former._open, committed=False)
                former._open = None
            self._cluster.producers[self._id] = self
            self._cluster.times_out()

    def begin_transaction(self) -> None:
        self._check()
        self._open, self._ended = Transaction(), None

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        with self._cluster.lock:
            self._check()
            assert self._open is not None
            key = key_of(topic, partition)
            log = self._cluster.logs.setdefault(key, [])
            log.append((value, self._open))
            self._open.records.setdefault(key, []).append(len(log) - 1)
            self._reports.append((on_delivery, Message(topic, partition, len(log) - 1, None, value.encode())))

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group_metadata: Any, timeout: float) -> None:
        with self._cluster.lock:
            self._check()
            assert group_metadata == "member"
            assert self._open is not None
            self._open.offsets |= {key_of(at.topic, at.partition): at.offset for at in positions}

    def commit_transaction(self, timeout: float) -> None:
        self._end(committed=True)

    def abort_transaction(self, timeout: float) -> None:
        self._end(committed=False)

    def poll(self, timeout: float) -> int:
        reports, self._reports = self._reports, []
        for report, message in reports:
            report(None, message)
        return len(reports)

    def flush(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def close(self, timeout: float) -> None:
        """End; the transaction stays open for a moment, until it times out."""
        transaction, self._open = self._open, None
        if transaction is not None:
            threading.Timer(0.3, self._time_out, [transaction]).start()

    def _end(self, *, committed: bool) -> None:
        with self._cluster.lock:
            self.poll(0)
            if self._ended is not committed:
                self._check()
                assert self._open is not None
                self._cluster.end(self._open, committed=committed)
                self._open, self._ended = None, committed
                self._cluster.times_out()

    def _time_out(self, transaction: Transaction) -> None:
        with self._cluster.lock:
            if not transaction.decided:
                self._cluster.end(transaction, committed=False)

    def _check(self) -> None:
        is_fenced = self._cluster.producers.get(self._id) is not self
        if is_fenced and self._cluster.bug != "zombie":
            raise TidelogError(KafkaError(ErrorCode._FENCED, "fenced", fatal=True))


class MemoryConsumer:
    """A read_committed consumer; the only member of its group has all partitions."""

    generation = 1

    def __init__(self, cluster: MemoryCluster, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._reports_ends = bool(config.get("enable.partition.eof"))
        self._topics: list[str] = []
        self._on_assign: Rebalanced | None = None
        self._positions: dict[str, int] = {}
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced, on_lost: Rebalanced) -> None:
        self._topics, self._on_assign = topics, on_assign

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            self._positions[key_of(at.topic, at.partition)] = 0 if at.offset == OFFSET_BEGINNING else at.offset

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            del self._positions[key_of(at.topic, at.partition)]

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        with self._cluster.lock:
            self._join()
            found: list[Message] = []
            for key in self._positions:
                found += self._read(key, num_messages - len(found))
        if not found:
            time.sleep(0.01)
        return found

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        raise NotImplementedError

    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]:
        raise NotImplementedError

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        offsets = self._cluster.offsets
        return [
            TopicPartition(at.topic, at.partition, offsets.get(key_of(at.topic, at.partition), OFFSET_INVALID))
            for at in partitions
        ]

    def seek(self, partition: TopicPartition) -> None:
        key = key_of(partition.topic, partition.partition)
        if key not in self._positions:
            raise TidelogError(KafkaError(ErrorCode._STATE, "not assigned"))
        self._positions[key] = partition.offset

    def consumer_group_metadata(self) -> str:
        return "member"

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def _join(self) -> None:
        if self._on_assign is None:
            return
        new = [
            key for key in self._cluster.logs if key.rpartition("-")[0] in self._topics and key not in self._positions
        ]
        for key in new:
            self._positions[key] = self._cluster.offsets[key]
        if new:
            self._on_assign(self, [TopicPartition(key.rpartition("-")[0], int(key.rpartition("-")[2])) for key in new])

    def _read(self, key: str, at_most: int) -> list[Message]:
        log, end = self._cluster.logs.get(key, []), self._cluster.stable_offset(key)
        topic, _, number = key.rpartition("-")
        found: list[Message] = []
        while self._positions[key] < end and len(found) < at_most:
            offset = self._positions[key]
            entry = log[offset]
            if entry is not None and entry[1].decided[key]:
                found.append(Message(topic, int(number), offset, None, entry[0].encode()))
            self._positions[key] += 1
        if self._reports_ends and self._positions[key] >= end and key not in self._told:
            self._told.add(key)
            found.append(Message(topic, int(number), end, error=KafkaError(ErrorCode._PARTITION_EOF)))
        return found


class MemoryLibrary(Library):
    """Makes clients of one cluster in memory."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def session(self, config: Mapping[str, Any]) -> NoReturn:
        raise AssertionError("clusters in memory have no logins")

    def check_producer(self, config: Mapping[str, Any]) -> None:
        pass

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        pass

    def producer(self, config: Mapping[str, Any]) -> MemoryProducer:
        raise NotImplementedError

    def transactional_producer(self, config: Mapping[str, Any]) -> MemoryProducer:
        return MemoryProducer(self._cluster, str(config["transactional.id"]))

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> MemoryConsumer:
        return MemoryConsumer(self._cluster, config)

    def outcome(self, code: ErrorCode) -> SendOutcome:
        return "info"
