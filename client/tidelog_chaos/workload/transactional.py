"""Transactional producers of a run. Their transactions commit, abort, end halfway, or exceed their timeout.

A client has one transactional id. One producer instance after another uses it; each is a process of the history, and a
transaction is one ``txn`` operation of it. The fate of a transaction is drawn before it begins:

- COMMIT and ABORT. A call that times out is repeated, since the operation continues in the library.
- DIE: the instance ends without a commit or an abort, like a killed process.
- STALL: the transaction stays open for longer than its timeout, and is then committed.
- ZOMBIE: a successor initializes and commits another transaction. Then the instance continues and commits.

After an error, the instance aborts the transaction if the library requires it. Any other error ends the instance.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Literal

from tidelog.message import Message, TopicPartition
from tidelog_chaos.history import TRANSACTIONS, Op
from tidelog_chaos.workload.client import Client, Shared
from tidelog_chaos.workload.keys import partition_of
from tidelog_chaos.workload.library import RunTransactions
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

CALL_S: Final = 5.0
"""The timeout of one attempt of a call."""
_GIVES_UP_S: Final = 90.0
"""A call that was repeated for longer is given up: faults do not last so long."""
_PAUSE_S: Final = 0.5
_NUMBERS = itertools.count(1)


class Fate(Enum):
    """The planned end of a transaction; the module describes them."""

    COMMIT = auto()
    ABORT = auto()
    DIE = auto()
    STALL = auto()
    ZOMBIE = auto()


_FATES: Final = {Fate.COMMIT: 74, Fate.ABORT: 12, Fate.DIE: 6, Fate.STALL: 2, Fate.ZOMBIE: 6}


@dataclass(frozen=True, slots=True)
class Plan:
    """The content of a transaction. ``sources`` are the consumed records behind the sends, in order."""

    sends: Sequence[tuple[str, int]]
    sources: Sequence[tuple[str, int]] = ()
    consumed: Mapping[str, int] = field(default_factory=dict)
    group_metadata: Any = None

    def value(self, offsets: Mapping[tuple[str, int], int] | None = None) -> list[Any]:
        """Return the value of the operation; the completed one has offsets, None where they are unknown."""
        if offsets is None:
            return [["send", key, number] for key, number in self.sends]
        return [["send", key, [offsets.get((key, number)), number]] for key, number in self.sends]


class DiedError(Exception):
    """The instance ends in the middle of its transaction."""


class Instance:
    """One producer instance, used on one thread. It :attr:`is_over` after an error that it does not survive."""

    def __init__(self, client: TransactionalClient, producer: RunTransactions) -> None:
        self.number = next(_NUMBERS)
        self.process = client.new_process()
        self.is_over = False
        self._client = client
        self._producer = producer
        self._offsets: dict[tuple[str, int], int] = {}
        self._committing_ns: int | None = None

    def initialize(self) -> None:
        """Initialize transactions, which fences earlier instances, and record a note."""
        history = self._client.history
        since_ns = history.now_ns()
        if self._survives(lambda: self._repeat(self._producer.init_transactions)):
            name = self._client.transactional_id
            value = {"transactional_id": name, "producer": self.number, "since": since_ns}
            history.note("initialized", value, process=TRANSACTIONS)

    def transact(self, plan: Plan, fate: Fate, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Run a transaction and record it; return whether it is committed. ``meanwhile`` runs before its end."""
        extra: dict[str, Any] = {"transactional_id": self._client.transactional_id, "producer": self.number}
        if plan.sources:
            extra |= {"from": [list(place) for place in plan.sources], "consumed": dict(plan.consumed)}
        self._offsets.clear()
        self._committing_ns = None
        invocation = self._client.history.invoke(self.process, "txn", plan.value(), **extra)
        outcome, error = self._attempt(plan, fate, meanwhile)
        self._record(invocation, plan, outcome, error)
        return outcome == "ok"

    def close(self) -> None:
        """End without waiting for anything, like a killed process."""
        self.is_over = True
        self._producer.purge()
        self._producer.close(0)
        self._client.history.complete(self._client.history.invoke(self.process, "crash"), "info")

    def _attempt(
        self, plan: Plan, fate: Fate, meanwhile: Callable[[], object]
    ) -> tuple[Literal["ok", "fail", "info"], KafkaError | None]:
        try:
            self._write(plan)
            meanwhile()
            if fate is Fate.DIE or self._client.is_crashing:
                raise DiedError
            if fate is Fate.ABORT:
                self._repeat(self._producer.abort_transaction)
                return "fail", None
            self._committing_ns = self._client.history.now_ns()
            self._repeat(self._producer.commit_transaction)
            return "ok", None
        except DiedError:
            self.is_over = True
            return "fail", None
        except BufferError:
            return self._abort(KafkaError(ErrorCode._QUEUE_FULL)), KafkaError(ErrorCode._QUEUE_FULL)
        except TidelogError as error:
            self._client.count(error.error)
            return self._abort(error.error), error.error

    def _write(self, plan: Plan) -> None:
        self._producer.begin_transaction()
        for key, number in plan.sends:
            topic, partition = partition_of(key)

            def delivered(error: KafkaError | None, message: Message, place: tuple[str, int] = (key, number)) -> None:
                offset = message.offset()
                if error is None and offset is not None and offset >= 0:
                    self._offsets[place] = offset

            self._producer.produce(topic, str(number), partition=partition, on_delivery=delivered)
            self._producer.poll(0)
        if plan.consumed:
            positions = [TopicPartition(*partition_of(key), offset) for key, offset in plan.consumed.items()]
            metadata = plan.group_metadata
            self._repeat(lambda timeout: self._producer.send_offsets_to_transaction(positions, metadata, timeout))

    def _abort(self, error: KafkaError) -> Literal["fail", "info"]:
        """Abort after an error if that is possible; return the outcome. It is unknown once a commit was requested."""
        is_known = self._committing_ns is None
        if error.txn_requires_abort() or error.error_code() is ErrorCode._QUEUE_FULL:
            is_aborted = self._survives(lambda: self._repeat(self._producer.abort_transaction))
            return "fail" if is_known or is_aborted else "info"
        self.is_over = True
        return "fail" if is_known else "info"

    def _survives(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except TidelogError as error:
            self._client.count(error.error)
            self.is_over = True
        except DiedError:
            self.is_over = True
        return not self.is_over

    def _repeat(self, call: Callable[[float], object]) -> None:
        """Make a call until it ends; a crash of the client, or too many attempts, end the instance instead."""
        deadline_s = time.monotonic() + _GIVES_UP_S
        while True:
            try:
                call(CALL_S)
                return
            except TidelogError as error:
                if not error.error.retriable() or time.monotonic() > deadline_s:
                    raise
                self._client.count(error.error)
                if self._client.is_crashing:
                    raise TidelogError(KafkaError(ErrorCode._PURGE_INFLIGHT, "the client crashed")) from None
                time.sleep(_PAUSE_S / 5)

    def _record(
        self, invocation: Op, plan: Plan, outcome: Literal["ok", "fail", "info"], error: KafkaError | None
    ) -> None:
        extra = {} if self._committing_ns is None else {"committing": self._committing_ns}
        text = None if error is None else f"{error.name()}: {error.str()}"
        value = plan.value(self._offsets) if outcome == "ok" else None
        done = self._client.history.complete(invocation, outcome, value, text, **extra)
        self._client.meter_sent(outcome, (done.time_ns - invocation.time_ns) / 1e6, len(plan.sends))
        if outcome == "info":
            # A process ends with an unknown outcome, in histories and here.
            self.is_over = True


class TransactionalClient(Client):
    """One transactional id: instance after instance, in its thread until :meth:`stop`."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared, seed: int) -> None:
        super().__init__(name, config, shared)
        self.transactional_id = str(config["transactional.id"])
        self.history = shared.history
        self.dice = random.Random(seed)
        self.new_process = shared.new_process

    @property
    def is_crashing(self) -> bool:
        """True if the client was told to crash."""
        return self._crashing.is_set()

    def count(self, error: KafkaError) -> None:
        """Count the report of an error."""
        self._count(error)

    def meter_sent(self, outcome: Literal["ok", "fail", "info"], latency_ms: float, records: int) -> None:
        """Measure the records of a transaction."""
        for _ in range(records):
            self._meter.sent(outcome, latency_ms)

    def open(self) -> Instance:
        """Return a new instance. If its initialization failed, the instance :attr:`~Instance.is_over`."""
        instance = Instance(self, self._library.transactional_producer(self._config))
        instance.initialize()
        return instance

    def transact(self, instance: Instance, plan: Plan) -> tuple[Instance, bool]:
        """Run a transaction with a random fate; return the instance to use next, and whether it is committed."""
        fate = self.dice.choices(list(_FATES), list(_FATES.values()))[0]
        if fate is Fate.ZOMBIE:
            return self._overtake(instance, plan)
        meanwhile = self._outstay if fate is Fate.STALL else _at_once
        is_committed = instance.transact(plan, fate, meanwhile)
        return instance, is_committed

    def _overtake(self, zombie: Instance, plan: Plan) -> tuple[Instance, bool]:
        """Let a successor take over while a transaction is open, and then go on with it."""
        successors: list[Instance] = []

        def meanwhile() -> None:
            successors.append(self.open())
            own = self._own_plan()
            if own is not None and not successors[0].is_over:
                successors[0].transact(own, Fate.COMMIT)

        is_committed = zombie.transact(plan, Fate.ZOMBIE, meanwhile)
        if not successors:
            return zombie, is_committed
        zombie.close()
        return successors[0], is_committed

    def _own_plan(self) -> Plan | None:
        """Return the transaction of a successor that overtakes this one; None if the successor has no transaction."""
        return None

    def _outstay(self) -> None:
        """Wait for longer than the transaction's timeout."""
        self._stopping.wait(int(self._config["transaction.timeout.ms"]) / 1_000 + 2 * _PAUSE_S)

    def _rest(self) -> None:
        self._stopping.wait(_PAUSE_S)


class TransactionalWriter(TransactionalClient):
    """Sends to several partitions in each transaction, at a rate of records."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared, rate_per_s: float, seed: int) -> None:
        super().__init__(name, config, shared, seed)
        self._rate = rate_per_s

    def _live(self) -> None:
        instance = self.open()
        while self._goes_on and not instance.is_over:
            plan = self._own_plan()
            instance, _ = self.transact(instance, plan)
            self._stopping.wait(self.dice.uniform(0, 2) * len(plan.sends) / self._rate)
        instance.close()
        if not self._stopping.is_set():
            self._rest()

    def _own_plan(self) -> Plan:
        keys = self._keys.written
        chosen = [self.dice.choice(keys) for _ in range(self.dice.randint(1, 8))]
        return Plan([(key, self._keys.next_value(key)) for key in chosen])


def _at_once() -> None:
    pass
