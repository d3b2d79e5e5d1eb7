"""Simulated transactional producers and read_committed consumers, and the history of what they do.

A client's work is a generator. It yields questions and pauses, and gets the answers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.clients import ClientProcess
from sim.cluster.coordination import ShardCall
from sim.cluster.serving import Key, Produce
from sim.cluster.world import rack_of
from sim.transactions.memberships import LOST

from tidelog.consumer.columns import readable_batches
from tidelog.consumer.core.events import Deliver
from tidelog.v1 import log_service_pb2 as pb
from tidelog_chaos.history import Op
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchBuilder, iter_headers, parse_header, read_records
from tidelog_node.coordination.internal_topics import partition_for
from tidelog_node.coordination.transaction_topic import TRANSACTION_TOPIC
from tidelog_node.fetching import FetchRequest
from tidelog_node.groups.messages import TxnOffsetCommitRequest
from tidelog_node.replication.fetch_session import FetchSpec
from tidelog_node.server.fetch_messages import request_to_proto
from tidelog_node.transactions.requests import AddPartitionsRequest, EndTxnRequest, InitProducerIdRequest
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, NO_PRODUCER, Producer

if TYPE_CHECKING:
    from sim.transactions.world import TransactionWorld

TIMEOUT_MS = 250
_BACKOFF_MS = 15
_ATTEMPTS = 40
_MAX_BYTES = 2_000
_RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}

Found = list[tuple[int, bytes]]
"""The offset and value of records."""


class Ask(NamedTuple):
    """A question to the leader of a partition."""

    key: Key
    handler: str
    request: Any
    timeout_ms: int = TIMEOUT_MS


_ORDERED = (AddPartitionsRequest, EndTxnRequest, TxnOffsetCommitRequest)
Work = Generator[Ask | int, Any, Any]
"""A client's work. It yields pauses in ms too."""


class GaveUpError(Exception):
    """A request was refused, or has been tried too often. ``error`` is None for the latter."""

    def __init__(self, error: TidelogError | None) -> None:
        super().__init__(error)
        self.error = error


class Client(ClientProcess):
    """A process that does its work once."""

    rack = ""

    def __init__(self, transactions: TransactionWorld, number: int) -> None:
        cluster = transactions.cluster
        super().__init__(cluster.world, number, (0, 1000), cluster.checker, list(cluster.nodes))
        self.transactions = transactions
        self._work: Work | None = None
        self.soon(self.refresh)

    def begin(self, work: Work) -> None:
        """Begin to work."""
        self._work = work
        self.soon(self._resume_work, None)

    def go_on(self) -> None:
        """End a pause."""
        self.paused_until_us = 0
        self._resume(self.life)

    def _resume_work(self, answer: Any) -> None:
        assert self._work is not None
        try:
            asked = self._work.send(answer)
        except StopIteration:
            self.end_life()
            return
        if isinstance(asked, int):
            self.after(asked, self._resume_work, None)
            return
        node = self._node_of(asked.key)
        if node is None:
            self.after(_BACKOFF_MS, self._resume_work, None)
        else:
            request = self._addressed(asked)
            self.call(self.world.processes[node], asked.handler, request, self._resume_work, asked.timeout_ms)

    def _addressed(self, asked: Ask) -> Any:
        return asked.request

    def _node_of(self, key: Key) -> int | None:
        leader = self.leader_of(key)
        return None if leader is None else leader[0]

    def ask(self, key: Key, handler: str, request: Any, timeout_ms: int = TIMEOUT_MS) -> Work:
        """Ask until there is an answer that is not to be retried; raises GaveUpError."""
        for _ in range(_ATTEMPTS):
            answer = yield Ask(key, handler, request, timeout_ms)
            error = _error_of(answer)
            if answer is not None and error is None:
                return answer
            if error is not None and error.code not in _RETRIABLE:
                raise GaveUpError(error)
            if error is None or error.code is ErrorCode.NETWORK_EXCEPTION:
                self.reconnect()
            self.refresh()
            yield _BACKOFF_MS
        raise GaveUpError(None)

    def reconnect(self) -> None:
        """Give up all connections. A client that sends one request at a time has none in progress."""

    def fetch(self, key: Key, offset: int) -> Work:
        """Return the visible records from an offset on, and the next offset; nothing if that fails."""
        request = FetchRequest(
            {key: FetchSpec(b"", offset, _MAX_BYTES)},
            _MAX_BYTES,
            is_read_committed=True,
            rack_id=self.rack,
            may_read_followers=True,
        )
        answer = yield Ask(key, "read", ("fetch", request_to_proto(request)))
        if not isinstance(answer, pb.FetchResponse) or answer.HasField("error"):
            self.refresh()
            return None
        [result] = (partition for topic in answer.topics for partition in topic.partitions)
        if result.HasField("error"):
            self.refresh()
            return None
        return visible(key, offset, result)


def visible(key: Key, offset: int, result: pb.FetchPartitionResult) -> tuple[Found, int]:
    """Return the records of a read_committed answer, and the next offset."""
    aborted = tuple((t.producer_id, t.first_offset) for t in result.aborted_transactions)
    found: Found = []
    for position, _ in readable_batches(Deliver(*key, 0, offset, result.records, aborted)):
        records = read_records(result.records, position)
        found += [(record.offset, record.value or b"") for record in records if record.offset >= offset]
    end = max((header.next_offset for _, header in iter_headers(result.records)), default=offset)
    return found, end


def _error_of(answer: Any) -> TidelogError | None:
    if isinstance(answer, TidelogError):
        return answer
    error: TidelogError | None = getattr(answer, "error", None)
    for topic in () if error is not None else getattr(answer, "topics", ()):
        error = next((partition.error for partition in topic.partitions if partition.error is not None), error)
    return error


class TransactionalProducer(Client):
    """One producer instance, which writes to all partitions."""

    def __init__(self, transactions: TransactionWorld, number: int, transactional_id: str) -> None:
        super().__init__(transactions, number)
        self.transactional_id = transactional_id
        self.is_stopping = False
        self.shard = TRANSACTION_TOPIC, partition_for(transactional_id, transactions.count_of(TRANSACTION_TOPIC))
        self.dice = transactions.dice
        self.version = EPOCH_BUMP_VERSION if self.dice.random() < transactions.share_of_version_2 else 0
        self.producer = NO_PRODUCER
        self._sequences: dict[Key, int] = {}
        self._added: set[Key] = set()
        self._serials = 0
        self._connections: dict[int, int] = {}
        """The time on a node's clock at which the connection to it was opened, in us."""
        self._last_opened_us = 0
        self._operation: Op | None = None
        self._committing_ns: int | None = None
        self.begin(self._live())

    def end_life(self) -> None:
        """Die. A transaction whose commit was not requested never happens."""
        super().end_life()
        self._complete("fail" if self._committing_ns is None else "info")
        self.transactions.ended(self)

    def ask(self, key: Key, handler: str, request: Any, timeout_ms: int = TIMEOUT_MS) -> Work:
        """Ask, and let the request stray now and then: the producer asks again on another connection."""
        node = self._node_of(key)
        addressed = self._addressed(Ask(key, handler, request))
        if node is not None and self.world.stray(self.number, node, handler, addressed):
            self.reconnect()
        return super().ask(key, handler, request, timeout_ms)

    def reconnect(self) -> None:
        self._connections.clear()

    def _addressed(self, asked: Ask) -> Any:
        """Return the request, with the connection if only its age tells that the request is late."""
        call, node = asked.request, self._node_of(asked.key)
        is_ordered = isinstance(call, ShardCall) and isinstance(call.request, _ORDERED)
        if self.version >= EPOCH_BUMP_VERSION or node is None or not is_ordered:
            return call
        if node not in self._connections:
            now_us = self.world.processes[node].monotonic_ms() * 1_000
            self._last_opened_us = max(self._last_opened_us + 1, now_us)
            self._connections[node] = self._last_opened_us
        return call._replace(request=replace(call.request, connection_us=self._connections[node]))

    def ask_shard(self, request: Any) -> Work:
        """Ask the coordinator of the transactional id."""
        call = ShardCall(TRANSACTION_TOPIC, self.transactional_id, request)
        return self.ask(self.shard, "coordinate", call)

    def add(self, key: Key) -> Work:
        """Add a partition to the transaction, in version 0."""
        if self.version < EPOCH_BUMP_VERSION and key not in self._added:
            request = AddPartitionsRequest(self.transactional_id, self.producer, (key,), version=self.version)
            yield from self.ask_shard(request)
            self._added.add(key)

    def _live(self) -> Work:
        try:
            yield from self._initialize()
            while not self.is_stopping:
                yield from self.turn()
                yield self.dice.randrange(40)
        except GaveUpError:
            return

    def turn(self) -> Work:
        """Do one transaction."""
        keys = self.transactions.inputs + self.transactions.outputs
        chosen = [self.dice.choice(keys) for _ in range(1 + self.dice.randrange(4))]
        yield from self.transact(chosen, {})

    def send_offsets(self) -> Work:
        """Make offsets a part of the transaction."""
        yield from ()

    def _initialize(self) -> Work:
        transactions, since_ns = self.transactions, self.transactions.now_ns
        request = InitProducerIdRequest(self.transactional_id, transactions.timeout_ms, self.producer)
        response = yield from self.ask_shard(request)
        self._use(response.producer)
        note = {"transactional_id": self.transactional_id, "producer": self.number, "since": since_ns}
        transactions.annotate("initialized", note)

    def transact(self, keys: list[Key], consumed: Mapping[Key, list[int]]) -> Work:
        """Send a value to each key, in a transaction. Return whether it was committed.

        ``consumed`` has the offsets of the records that the values come from, in order.
        """
        transactions = self.transactions
        sends = [(key, transactions.next_value(key)) for key in keys]
        extra: dict[str, Any] = {"transactional_id": self.transactional_id, "producer": self.number}
        if consumed:
            extra["from"] = [[name_of(key), offset] for key, offsets in consumed.items() for offset in offsets]
            extra["consumed"] = {name_of(key): offsets[-1] + 1 for key, offsets in consumed.items()}
        value = [["send", name_of(key), number] for key, number in sends]
        self._operation = transactions.write(self.number, "invoke", "txn", value, **extra)
        will_commit = self.dice.random() < 0.75
        try:
            for key, number in sends:
                yield from self._send(key, b"%d" % number)
            yield from self.send_offsets()
        except GaveUpError as gave_up:
            if gave_up.error is None or gave_up.error.code not in ABORTABLE:
                raise
            will_commit = False
        if self.dice.random() < 0.08:
            raise GaveUpError(None)
        yield from self._end(will_commit)
        return will_commit

    def _send(self, key: Key, value: bytes) -> Work:
        yield from self.add(key)
        builder = RecordBatchBuilder()
        builder.append(b"", value, (), self.wall_ms())
        sequence = self._sequences.get(key, 0)
        batch = builder.build(*self.producer, sequence, is_transactional=True)
        self._serials += 1
        crc = parse_header(batch).crc
        self.checker.clients.note_sent(key, (*self.producer, sequence), crc, self.number, (self._serials,))
        request = Produce(key, batch, -1, TIMEOUT_MS, self.transactional_id, self.version)
        yield from self.ask(key, "produce", request)
        self._sequences[key] = sequence + 1

    def _end(self, committed: bool) -> Work:
        if committed:
            stall_ms = self.transactions.ambush(self)
            if stall_ms:
                yield stall_ms
            self._committing_ns = self.transactions.now_ns
        self.transactions.late_markers.note_end(self)
        request = EndTxnRequest(self.transactional_id, self.producer, committed, self.version)
        response = yield from self.ask_shard(request)
        self._complete("ok" if committed else "fail")
        self._added.clear()
        if self.version >= EPOCH_BUMP_VERSION:
            self._use(response.producer)

    def _use(self, producer: Producer) -> None:
        if producer != self.producer:
            self.producer = producer
            self._sequences.clear()

    def _complete(self, kind: Any) -> None:
        operation, committing_ns = self._operation, self._committing_ns
        self._operation = self._committing_ns = None
        if operation is not None:
            extra = {} if committing_ns is None else {"committing": committing_ns}
            self.transactions.write(self.number, kind, "txn", operation.value, **extra)
            self.transactions.count({"ok": "committed", "fail": "aborted", "info": "unknown"}[kind])


ABORTABLE = {*LOST, ErrorCode.TRANSACTION_ABORTABLE}
"""The errors after which a producer aborts its transaction and goes on."""


class Reader(Client):
    """Reads all partitions in turn, read_committed. One that is ``from_replicas`` fetches from any replica."""

    def __init__(self, transactions: TransactionWorld, number: int, *, from_replicas: bool) -> None:
        super().__init__(transactions, number)
        self._positions = dict.fromkeys(transactions.inputs + transactions.outputs, 0)
        self._from_replicas = from_replicas
        self.rack = rack_of(number) if from_replicas else ""
        self._turns = 0
        self.begin(self._live())

    def is_at_end(self) -> bool:
        """Return whether everything that is stable has been read."""
        return all(self._positions[key] >= self.transactions.stable_end(key) for key in self._positions)

    def _node_of(self, key: Key) -> int | None:
        known = self.leaders.get(key)
        if not self._from_replicas or known is None:
            return super()._node_of(key)
        return known[2][self._turns % len(known[2])]

    def _live(self) -> Work:
        while True:
            for key in self._positions:
                self._turns += 1
                yield from self._poll(key)
            yield 50

    def _poll(self, key: Key) -> Work:
        transactions = self.transactions
        transactions.write(self.number, "invoke", "poll", [["poll"]])
        answer = yield from self.fetch(key, self._positions[key])
        if answer is None:
            transactions.write(self.number, "info", "poll", [["poll", {}]])
            return
        found, self._positions[key] = answer
        transactions.count("read", len(found))
        transactions.write(self.number, "ok", "poll", polled(key, found))


def polled(key: Key, found: Found) -> list[Any]:
    """Return the value of a poll."""
    return [["poll", {name_of(key): [[offset, int(value)] for offset, value in found]} if found else {}]]


def name_of(key: Key) -> str:
    """Return a partition's name in a history."""
    return f"{key[0]}-{key[1]}"
