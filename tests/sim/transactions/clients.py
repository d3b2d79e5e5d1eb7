"""Simulated transactional producers and read_committed consumers, and the history of what they do.

A client's work is a generator. It yields questions and pauses, and gets the answers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.world import Process
from sim.transactions.brokers import Broker, Fetch, Produce
from sim.transactions.offsets import NOTHING, name_of
from sim.transactions.partitions import Key

from tidelog_chaos.history import Op
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.transactions.requests import AddPartitionsRequest, EndTxnRequest, InitProducerIdRequest
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, NO_PRODUCER, Producer

if TYPE_CHECKING:
    from sim.transactions.world import TransactionWorld

_TIMEOUT_MS = 150
_BACKOFF_MS = 15
_ATTEMPTS = 25
_RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


class Ask(NamedTuple):
    """A question to the broker of a partition or of a coordinator. ``place`` is a key or a transactional id."""

    place: Key | str
    handler: str
    request: Any


Work = Generator[Ask | int, Any, Any]
"""A client's work. It yields pauses in ms too."""


class GaveUpError(Exception):
    """A request was refused, or has been tried too often. ``error`` is None for the latter."""

    def __init__(self, error: TidelogError | None) -> None:
        super().__init__(error)
        self.error = error


class Client(Process):
    """A process that does its work once."""

    world: TransactionWorld

    def __init__(self, world: TransactionWorld, number: int) -> None:
        super().__init__(world, number, 0, 1000)
        self.begin_life()
        self._work: Work | None = None

    def crashed(self) -> None:
        raise AssertionError("clients have no disk")

    def begin(self, work: Work) -> None:
        """Begin to work."""
        self._work = work
        self.soon(self._resume_work, None)

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
        broker, request = self._addressed(asked)
        self.call(broker, asked.handler, request, self._resume_work, _TIMEOUT_MS)

    def _addressed(self, asked: Ask) -> tuple[Broker, Any]:
        if isinstance(asked.place, str):
            index, broker = self.world.coordinator_of(asked.place)
            return broker, (index, asked.request)
        return self.world.broker_of(asked.place), asked.request

    def ask(self, place: Key | str, handler: str, request: Any) -> Work:
        """Ask until there is an answer that is not to be retried; raises GaveUpError."""
        for _ in range(_ATTEMPTS):
            answer = yield Ask(place, handler, request)
            error = answer if isinstance(answer, TidelogError) else getattr(answer, "error", None)
            if answer is not None and error is None:
                return answer
            if error is not None and error.code not in _RETRIABLE:
                raise GaveUpError(error)
            if error is None or error.code is ErrorCode.NETWORK_EXCEPTION:
                self.reconnect()
            yield _BACKOFF_MS
        raise GaveUpError(None)

    def reconnect(self) -> None:
        """Give up all connections. A client that sends one request at a time has none in progress."""


class TransactionalProducer(Client):
    """One producer instance. A ``source`` is the partition that it consumes, if any."""

    def __init__(self, world: TransactionWorld, number: int, transactional_id: str, source: Key | None) -> None:
        super().__init__(world, number)
        self.transactional_id = transactional_id
        self.source = source
        self.is_stopping = False
        dice = world.dice
        self._version = EPOCH_BUMP_VERSION if dice.random() < world.share_of_version_2 else 0
        self._producer = NO_PRODUCER
        self._sequences: dict[Key, int] = {}
        self._added: set[Key] = set()
        self._connections: dict[int, int] = {}
        """The time on the broker's clock at which the connection to each broker was opened, in us."""
        self._last_opened_us = 0
        self._position = 0
        self._operation: Op | None = None
        self._committing_ns: int | None = None
        self.begin(self._live())

    def end_life(self) -> None:
        """Die. A transaction whose commit was not requested never happens."""
        super().end_life()
        self._complete("fail" if self._committing_ns is None else "info")

    def ask(self, place: Key | str, handler: str, request: Any) -> Work:
        """Ask, and let the request stray now and then: the producer asks again on another connection."""
        world = self.world
        if world.dice.random() < world.share_of_strays:
            broker, addressed = self._addressed(Ask(place, handler, request))
            world.stray(broker.number, handler, addressed)
            self.reconnect()
        return super().ask(place, handler, request)

    def reconnect(self) -> None:
        self._connections.clear()

    def _addressed(self, asked: Ask) -> tuple[Broker, Any]:
        """Return the broker and the request, with the connection if only its age tells that the request is late."""
        broker, request = super()._addressed(asked)
        if self._version >= EPOCH_BUMP_VERSION or not isinstance(asked.request, AddPartitionsRequest | EndTxnRequest):
            return broker, request
        if broker.number not in self._connections:
            self._last_opened_us = max(self._last_opened_us + 1, broker.monotonic_ms() * 1_000)
            self._connections[broker.number] = self._last_opened_us
        index, asking = request
        return broker, (index, replace(asking, connection_us=self._connections[broker.number]))

    def _live(self) -> Work:
        try:
            yield from self._initialize()
            while not self.is_stopping:
                if self.source is not None and self._position == NOTHING - 1:
                    yield from self._find_position()
                yield from self._transact()
                yield self.world.dice.randrange(40)
        except GaveUpError:
            return

    def _initialize(self) -> Work:
        world, since_ns = self.world, self.world.now_ns
        request = InitProducerIdRequest(self.transactional_id, world.timeout_ms, self._producer)
        response = yield from self.ask(self.transactional_id, "transaction", request)
        self._use(response.producer)
        world.annotate(
            "initialized",
            {"transactional_id": self.transactional_id, "producer": self.number, "since": since_ns},
        )
        self._position = NOTHING - 1

    def _find_position(self) -> Work:
        assert self.source is not None
        found = yield from self.ask(self.world.offsets.key, "stable_offsets", self.source)
        self.world.annotate("fetched", {"offsets": {name_of(self.source): None if found == NOTHING else found}})
        self._position = max(found, 0)

    def _transact(self) -> Work:
        sends, sources, consumed = yield from self._draw()
        if not sends:
            return
        dice = self.world.dice
        value = [["send", name_of(key), number] for key, number in sends]
        extra: dict[str, Any] = {"transactional_id": self.transactional_id, "producer": self.number}
        if sources:
            extra |= {"from": sources, "consumed": consumed}
        self._operation = self.world.write(self.number, "invoke", "txn", value, **extra)
        will_commit = dice.random() < 0.75
        try:
            for key, number in sends:
                yield from self._send(key, b"", b"%d" % number)
            for name, offset in consumed.items():
                yield from self._send(self.world.offsets.key, name.encode(), b"%d" % offset)
        except GaveUpError as gave_up:
            if gave_up.error is None or gave_up.error.code is not ErrorCode.TRANSACTION_ABORTABLE:
                raise
            will_commit = False
        if dice.random() < 0.08:
            raise GaveUpError(None)
        yield from self._end(will_commit)
        if consumed:
            self._position = next(iter(consumed.values())) if will_commit else NOTHING - 1

    def _draw(self) -> Work:
        """Return the sends of a transaction, and the records that they come from."""
        world, dice = self.world, self.world.dice
        keys = world.outputs if self.source is not None else world.inputs + world.outputs
        if self.source is None:
            chosen = [dice.choice(keys) for _ in range(1 + dice.randrange(4))]
            return [(key, world.next_value(key)) for key in chosen], [], {}
        found, end = yield from self.ask(self.source, "fetch", Fetch(self.source, self._position, False))
        found = found[: 1 + dice.randrange(4)]
        if not found:
            self._position = end
            yield 20
            return [], [], {}
        sends = [(key, world.next_value(key)) for key in (dice.choice(keys) for _ in found)]
        name = name_of(self.source)
        return sends, [[name, offset] for offset, _, _ in found], {name: found[-1][0] + 1}

    def _send(self, key: Key, record_key: bytes, value: bytes) -> Work:
        if self._version < EPOCH_BUMP_VERSION and key not in self._added:
            request = AddPartitionsRequest(self.transactional_id, self._producer, (key,), version=self._version)
            yield from self.ask(self.transactional_id, "transaction", request)
            self._added.add(key)
        builder = RecordBatchBuilder()
        builder.append(record_key, value, (), self.wall_ms())
        sequence = self._sequences.get(key, 0)
        batch = builder.build(*self._producer, sequence, is_transactional=True)
        yield from self.ask(key, "produce", Produce(key, batch, self.transactional_id, self._version))
        self._sequences[key] = sequence + 1

    def _end(self, committed: bool) -> Work:
        if committed:
            self._committing_ns = self.world.now_ns
            self.world.ambush(self)
        request = EndTxnRequest(self.transactional_id, self._producer, committed, self._version)
        response = yield from self.ask(self.transactional_id, "transaction", request)
        self._complete("ok" if committed else "fail")
        self._added.clear()
        if self._version >= EPOCH_BUMP_VERSION:
            self._use(response.producer)

    def _use(self, producer: Producer) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences.clear()

    def _complete(self, kind: Any) -> None:
        operation, committing_ns = self._operation, self._committing_ns
        self._operation = self._committing_ns = None
        if operation is not None:
            extra = {} if committing_ns is None else {"committing": committing_ns}
            self.world.write(self.number, kind, "txn", operation.value, **extra)
            self.world.count({"ok": "committed", "fail": "aborted", "info": "unknown"}[kind])


class Reader(Client):
    """Reads all partitions in turn, read_committed. A ``from_follower`` reader fetches from followers."""

    def __init__(self, world: TransactionWorld, number: int, *, from_follower: bool) -> None:
        super().__init__(world, number)
        self._positions = dict.fromkeys(world.inputs + world.outputs, 0)
        self._from_follower = from_follower
        self.begin(self._live())

    def _live(self) -> Work:
        while True:
            for key in self._positions:
                yield from self._poll(key)
            yield 10

    def _poll(self, key: Key) -> Work:
        self.world.write(self.number, "invoke", "poll", [["poll"]])
        answer = yield Ask(key, "fetch", Fetch(key, self._positions[key], self._from_follower))
        if answer is None or isinstance(answer, TidelogError):
            self.world.write(self.number, "info", "poll", [["poll", {}]])
            return
        found, self._positions[key] = answer
        self.world.write(self.number, "ok", "poll", polled(key, found))


def polled(key: Key, found: list[tuple[int, bytes, bytes]]) -> list[Any]:
    """Return the value of a poll."""
    return [["poll", {name_of(key): [[offset, int(value)] for offset, _, value in found]} if found else {}]]
