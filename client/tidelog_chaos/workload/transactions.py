"""The transactions workload: producers with transactions, and a group that consumes, transforms and produces.

Half of the topics are inputs, the others outputs. Writers send to all of them, several partitions in a transaction.
Members of a group consume the inputs and write the outputs. The group has an offset for each input before its members
start, and they never reset one: a member that would begin anywhere else reports an error. Readers with read_committed
read everything meanwhile, and again in the end. An observer asks for the group's offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tidelog.admin import ConsumerGroupTopicPartitions
from tidelog.message import OFFSET_INVALID, TopicPartition
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import TRANSACTIONS
from tidelog_chaos.workload.client import Client
from tidelog_chaos.workload.keys import key_of, partition_of
from tidelog_chaos.workload.observer import OFFSETS_TOPIC, STATE_TOPIC
from tidelog_chaos.workload.reader import Reader
from tidelog_chaos.workload.settings import group_config, transactional_consumer
from tidelog_chaos.workload.settling import CALL_S, SettlingWorkload
from tidelog_chaos.workload.transaction_states import describe_transactions
from tidelog_chaos.workload.transformer import Transformer
from tidelog_foundation.errors import ErrorCode, TidelogError

_TRANSFORMERS = 2
_OBSERVE_S = 1.0
_START_S = 30.0
_RESET = "auto.offset.reset"
_DRAIN_S = 90.0
_OFFSETS_S = 30.0
_READ_S = 30.0


class TransactionsWorkload(SettlingWorkload):
    """Transactions of writers and of a group's members. The topics stay the same in the whole run."""

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
            consumer.incremental_assign(consumer.committed(partitions, timeout=CALL_S))
            while left and not limit.is_over:
                for message in consumer.consume(len(inputs), timeout=min(CALL_S, limit.left_s)):
                    error, key = message.error(), key_of(str(message.topic()), int(message.partition() or 0))
                    if error is None:
                        return {key: f"the record at offset {message.offset()} is not transformed"}
                    if error.error_code() is ErrorCode._PARTITION_EOF:
                        left.discard(key)
        return dict.fromkeys(sorted(left), f"its end was not read in {_READ_S:.0f} s")

    def _states(self) -> str:
        return describe_transactions(self._admin, (self._prefix,), str(self._group["group.id"]))

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
                self._note_offsets("fetched", Deadline(CALL_S))
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
                    found = consumer.committed(partitions, timeout=CALL_S)
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
