"""The transactions workload: producers with transactions, and a group that consumes, transforms and produces.

Half of the topics are inputs, the others outputs. Writers send to all of them, several partitions in a transaction.
Members of a group consume the inputs and write the outputs. The group has an offset for each input before its members
start, and they never reset one: a member that would begin anywhere else reports an error. Readers with read_committed
read everything meanwhile, and again in the end. An observer asks for the group's offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.admin import ConsumerGroupTopicPartitions, IsolationLevel, OffsetSpec
from tidelog.message import OFFSET_INVALID, Message, TopicPartition
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import TRANSACTIONS, Op
from tidelog_chaos.workload.client import Client
from tidelog_chaos.workload.keys import Keys, key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer
from tidelog_chaos.workload.observer import OFFSETS_TOPIC, STATE_TOPIC
from tidelog_chaos.workload.reader import AT_MOST_IN_THE_END, Reader
from tidelog_chaos.workload.settings import group_config, transactional_config, transactional_consumer
from tidelog_chaos.workload.transaction_states import describe_transactions
from tidelog_chaos.workload.transactional import TransactionalWriter
from tidelog_chaos.workload.transformer import Transformer
from tidelog_chaos.workload.workload import Workload
from tidelog_foundation.errors import ErrorCode, TidelogError

_TRANSFORMERS = 2
_LEAST_TOPICS = 2
_NEVER = 1 << 40
"""So many writes are never reached: the topics stay."""
_OBSERVE_S = 1.0
_CALL_S = 10.0
_START_S = 30.0
_RESET = "auto.offset.reset"
_DRAIN_S = 90.0
_MARGIN_S = 60.0
_OFFSETS_S = 30.0
_READ_S = 30.0


class TransactionsWorkload(Workload):
    """Transactions of writers and of a group's members. The topics stay the same in the whole run."""

    def _make_keys(self) -> Keys:
        settings = self._settings
        topics = max(_LEAST_TOPICS, settings.topics)
        return Keys(self._create, self._prefix, topics, settings.partitions, _NEVER)

    def _writer(self, number: int) -> Client:
        settings = self._settings
        return TransactionalWriter(
            f"writer {number}",
            self._producer_config(f"{self._prefix}-writer-{number}"),
            self._shared,
            settings.rate_per_s / settings.producers,
            self._dice.randrange(2**32),
        )

    def _make_readers(self) -> Sequence[Client]:
        own = transactional_consumer(self._settings.consumer)
        group = group_config(self._settings.consumer, self._prefix, self._dice)
        self._group = {**self._clients_servers, **group, **own, "enable.auto.commit": False, _RESET: "error"}
        self._reading = Reader("reader", {**self._clients_servers, **own}, self._shared)
        self._transformers: list[Transformer] = []
        self._observing = threading.Event()
        self._observer = threading.Thread(target=self._observe, name="observer", daemon=True)
        return [self._reading]

    @property
    def topics(self) -> list[str]:
        """Every topic of the run, and those of the coordinators."""
        return [*super().topics, OFFSETS_TOPIC, STATE_TOPIC]

    @property
    def _clients(self) -> Sequence[Client]:
        return [*super()._clients, *self._transformers]

    def start(self) -> None:
        """Create the topics, and start."""
        self.keys.start()
        self._commit_starts()
        inputs, outputs = self._inputs(), [key for key in self.keys.all if key not in self._inputs()]
        for number in range(self._settings.consumers or _TRANSFORMERS):
            producer = self._producer_config(f"{self._prefix}-transformer-{number}")
            seed = self._dice.randrange(2**32)
            name = f"transformer {number}"
            self._transformers.append(Transformer(name, producer, self._group, self._shared, (inputs, outputs), seed))
        self._start_clients()
        self._observer.start()

    def stop_writing(self, deadline: Deadline) -> list[str]:
        """Stop all clients, wait until every transaction has ended, and note the group's offsets."""
        problems = super().stop_writing(deadline)
        self._observing.set()
        try:
            problems += self._settle(deadline)
            self._note_offsets("ended", deadline.within(_OFFSETS_S))
        except (TidelogError, TimeoutError) as error:
            problems.append(f"the end of the transactions cannot be known: {error}; {self._states()}")
        return problems

    def give_up(self) -> None:
        """Stop everything without waiting."""
        self._observing.set()
        super().give_up()

    def _drain(self, deadline: Deadline) -> list[str]:
        """Let the group transform every committed record of its inputs."""
        limit = deadline.within(_DRAIN_S)
        left = self._left()
        while left and not limit.is_over:
            time.sleep(_OBSERVE_S / 4)
            left = self._left()
        problems = []
        if left:
            places = ", ".join(f"{key} ({why})" for key, why in left.items())
            text = f"the group had not transformed all of {places} after {limit.limit_s:.0f} s"
            problems.append(f"{text}; {self._states()}")
        return problems + self._end(self._transformers, deadline)

    def _left(self) -> dict[str, str]:
        """Return the inputs that have an open transaction, or a committed record that the group did not transform.

        All inputs are returned if that cannot be known now. The values are the reasons.
        """
        inputs = self._inputs()
        try:
            behind = self._behind()
            open_inputs = [key for key in inputs if key in behind]
            if open_inputs:
                return {key: "stable up to {} of {}".format(*behind[key]) for key in open_inputs}
            return self._unread(inputs)
        except (TidelogError, TimeoutError) as error:
            return dict.fromkeys(inputs, f"unknown: {error or 'no answer'}")

    def _unread(self, inputs: Sequence[str]) -> dict[str, str]:
        """Return an input with a record after the group's offset, if there is one; raise TidelogError if unknown."""
        partitions = [TopicPartition(*partition_of(key)) for key in inputs]
        left = set(inputs)
        limit = Deadline(_READ_S)
        with self._shared.library.consumer({**self._group, "enable.partition.eof": True}) as consumer:
            consumer.incremental_assign(consumer.committed(partitions, timeout=_CALL_S))
            while left and not limit.is_over:
                for message in consumer.consume(len(inputs), timeout=min(_CALL_S, limit.left_s)):
                    error, key = message.error(), key_of(str(message.topic()), int(message.partition() or 0))
                    if error is None:
                        return {key: f"the record at offset {message.offset()} is not transformed"}
                    if error.error_code() is ErrorCode._PARTITION_EOF:
                        left.discard(key)
        return dict.fromkeys(sorted(left), f"its end was not read in {_READ_S:.0f} s")

    def _states(self) -> str:
        return describe_transactions(self._admin, self._prefix, str(self._group["group.id"]))

    def _final_readers(self) -> Sequence[Reader]:
        config = {**self._clients_servers, **transactional_consumer(self._settings.consumer)}
        return [_FinalReader("final reader", {**config, "enable.partition.eof": True}, self._shared)]

    def _producer_config(self, transactional_id: str) -> dict[str, Any]:
        return {**self._clients_servers, **transactional_config(self._settings.producer, transactional_id)}

    def _inputs(self) -> list[str]:
        topics = super().topics
        inputs = set(topics[: max(1, len(topics) // 2)])
        return [key for key in self.keys.all if partition_of(key)[0] in inputs]

    def _commit_starts(self) -> None:
        """Commit the start of each input for the group, and note that.

        Raises:
            TidelogError: That cannot be done in time.
        """
        starts = [TopicPartition(*partition_of(key), 0) for key in self._inputs()]
        self._commit(starts)
        offsets = {key_of(at.topic, at.partition): at.offset for at in starts}
        self._shared.history.note("started", {"offsets": offsets}, process=TRANSACTIONS)

    def _commit(self, offsets: list[TopicPartition]) -> None:
        request = [ConsumerGroupTopicPartitions(self._group["group.id"], offsets)]
        [future] = self._admin.alter_consumer_group_offsets(request, request_timeout=_START_S).values()
        for partition in future.result(2 * _START_S).topic_partitions or ():
            if partition.error is not None:
                raise TidelogError(partition.error)

    def _observe(self) -> None:
        """Ask for the group's stable offsets from time to time."""
        while not self._observing.wait(_OBSERVE_S):
            try:
                self._note_offsets("fetched", Deadline(_CALL_S))
            except TidelogError:
                continue

    def _note_offsets(self, f: str, deadline: Deadline) -> None:
        """Record the group's stable offsets.

        Raises:
            TidelogError: They cannot be known in time.
        """
        with self._shared.library.consumer(self._group) as consumer:
            partitions = [TopicPartition(*partition_of(key)) for key in self._inputs()]
            while True:
                try:
                    found = consumer.committed(partitions, timeout=_CALL_S)
                    break
                except TidelogError as error:
                    if deadline.is_over or error.error.fatal():
                        raise
                    time.sleep(_OBSERVE_S / 4)
        offsets = {
            key_of(at.topic, at.partition): None if at.offset == OFFSET_INVALID else at.offset
            for at in found
            if at.error is None
        }
        self._shared.history.note(f, {"offsets": offsets}, process=TRANSACTIONS)

    def _settle(self, deadline: Deadline) -> list[str]:
        """Wait until the last stable offset of each partition is its high watermark, and note those that stay behind.

        Return a sentence about the transactions if there are such partitions.

        Raises:
            TidelogError: The offsets cannot be known.
            TimeoutError: The deadline passes before the limit of transactions.
        """
        config = transactional_config(self._settings.producer, "")
        limit_s = int(config["transaction.timeout.ms"]) / 1_000 + _MARGIN_S
        limit = deadline.within(limit_s)
        while (behind := self._behind()) and not limit.is_over:
            time.sleep(_OBSERVE_S / 2)
        places = ", ".join(f"{key} is stable up to {stable} of {high}" for key, (stable, high) in behind.items())
        if behind and limit.limit_s < limit_s:
            raise TimeoutError(f"{places} after {limit.limit_s:.0f} s; they may need {limit_s:.0f} s")
        self._shared.history.note("settled", {"limit_s": limit_s, "behind": behind}, process=TRANSACTIONS)
        return [f"{places} after {limit_s:.0f} s; {self._states()}"] if behind else []

    def _behind(self) -> dict[str, list[int]]:
        stable, high = self._latest(IsolationLevel.READ_COMMITTED), self._latest(IsolationLevel.READ_UNCOMMITTED)
        return {key: [offset, high[key]] for key, offset in stable.items() if offset < high[key]}

    def _latest(self, isolation_level: IsolationLevel) -> dict[str, int]:
        partitions = [TopicPartition(*partition_of(key)) for key in self.keys.all]
        futures = self._admin.list_offsets(
            {at: OffsetSpec.latest() for at in partitions}, isolation_level=isolation_level, request_timeout=_CALL_S
        )
        return {key_of(at.topic, at.partition): future.result(2 * _CALL_S).offset for at, future in futures.items()}


class _FinalReader(Reader):
    """Reads to the ends of partitions as the library reports them: markers after the last record have no message."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ended: set[str] = set()

    def _read_to(self, consumer: RunConsumer, ends: Mapping[str, int]) -> set[str]:
        behind = {key for key, end in ends.items() if end > 0}
        self._ended.clear()
        while behind - self._ended and not (self._is_stalled or self._crashing.is_set()):
            before = len(self._ended)
            if self._poll(consumer, AT_MOST_IN_THE_END) or len(self._ended) > before:
                self.progress_s = time.monotonic()
        return behind - self._ended

    def _complete(self, invocation: Op, messages: Sequence[Message]) -> int:
        records = []
        for message in messages:
            error = message.error()
            if error is not None and error.error_code() is ErrorCode._PARTITION_EOF:
                self._ended.add(key_of(str(message.topic()), int(message.partition() or 0)))
            else:
                records.append(message)
        return super()._complete(invocation, records)
