"""A member of a group that consumes, transforms and produces in transactions (KIP-447).

It subscribes to the input topic. Each transaction has one output for each record of a poll, and the offsets after them.
If the transaction is aborted, the consumer goes back. If its outcome is unknown, a new consumer continues where the
group is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.message import Message, TopicPartition
from tidelog_chaos.history import Op
from tidelog_chaos.workload.client import Poller, Shared
from tidelog_chaos.workload.keys import key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer
from tidelog_chaos.workload.transactional import Plan, TransactionalClient
from tidelog_foundation.errors import TidelogError

_AT_MOST: Final = 20
_BACKOFF_S: Final = 0.05


class Transformer(TransactionalClient, Poller):
    """Consumes and produces, in its thread, until :meth:`stop`. ``keys`` are its inputs and the keys of its output."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        consumer_config: Mapping[str, Any],
        shared: Shared,
        keys: tuple[Sequence[str], Sequence[str]],
        seed: int,
    ) -> None:
        super().__init__(name, config, shared, seed)
        self._consumer_config = consumer_config
        self._inputs, self._outputs = keys
        self._polled: list[Message] = []
        self._rebalanced: list[str] = []

    def _live(self) -> None:
        consumer = self._library.consumer(self._consumer_config)
        try:
            if self._subscribe(consumer):
                self._work(consumer)
        finally:
            if self._stopping.is_set() or self.dice.random() < 0.5:
                consumer.close()
            else:
                consumer.abandon()
        self._crash()
        if not self._stopping.is_set():
            self._rest()

    def _work(self, consumer: RunConsumer) -> None:
        instance = self.open()
        while self._goes_on and not instance.is_over:
            self._polled = []
            self._poll(consumer, _AT_MOST)
            if not self._polled:
                continue
            plan = self._plan(consumer)
            instance, is_committed = self.transact(instance, plan)
            if not is_committed:
                if not self._goes_back(consumer, plan):
                    break
                self._stopping.wait(_BACKOFF_S)
        instance.close()

    def _plan(self, consumer: RunConsumer) -> Plan:
        places = [(key_of(str(m.topic()), int(m.partition() or 0)), int(m.offset() or 0)) for m in self._polled]
        keys = [self.dice.choice(self._outputs) for _ in places]
        sends = [(key, self._keys.next_value(key)) for key in keys]
        consumed = {key: offset + 1 for key, offset in places}
        return Plan(sends, places, consumed, consumer.consumer_group_metadata())

    def _goes_back(self, consumer: RunConsumer, plan: Plan) -> bool:
        """Let the consumer begin again with the records of a transaction; return whether it can."""
        first = dict(reversed(plan.sources))
        try:
            for key, offset in first.items():
                consumer.seek(TopicPartition(*partition_of(key), offset))
        except TidelogError as error:
            # The partition is another member's now.
            self._count(error.error)
            return False
        return True

    def _subscribe(self, consumer: RunConsumer) -> bool:
        invocation = self._history.invoke(self._process, "subscribe", list(self._inputs))
        topics = list(dict.fromkeys(partition_of(key)[0] for key in self._inputs))
        try:
            consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=_ignore, on_lost=_ignore)
        except TidelogError as error:
            self._count(error.error)
            self._history.complete(invocation, "fail", None, str(error))
            return False
        self._history.complete(invocation, "ok")
        return True

    def _on_assign(self, _: Any, partitions: Sequence[TopicPartition]) -> None:
        self._rebalanced += [key_of(at.topic, at.partition) for at in partitions]

    def _told(self) -> Mapping[str, Any]:
        keys, self._rebalanced = self._rebalanced, []
        return {"rebalance_log": [{"keys": keys}]} if keys else {}

    def _complete(self, invocation: Op, messages: Sequence[Message]) -> int:
        self._polled = [message for message in messages if message.error() is None]
        return super()._complete(invocation, messages)


def _ignore(_: Any, __: Sequence[TopicPartition]) -> None:
    pass
