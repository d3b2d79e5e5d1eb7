"""One member of a consumer group: it subscribes, polls, commits, crashes now and then and returns.

A member that crashes leaves the group like one that is closed, or without notice, like a killed process. One with a
``group.instance.id`` is the same static member when it returns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.consumer.config import ConsumerConfig
from tidelog.message import TopicPartition
from tidelog_chaos.workload.client import Poller, Shared
from tidelog_chaos.workload.group_notes import GroupNotes
from tidelog_chaos.workload.keys import key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

_AT_MOST = 500
_HOLDS_S = 0.5
_AWAY_S = 0.5


class Member(Poller):
    """Reads as a member of its group, in its thread, until :meth:`stop`."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared, notes: GroupNotes, seed: int) -> None:
        super().__init__(name, config, shared)
        self._commits = not _commits_by_itself(config)
        self._notes = notes
        self._dice = random.Random(seed)
        self._subscribed: list[str] = []
        self._rebalanced: list[str] = []
        self._generation = -1
        self._held_s = 0.0
        self._since_ns = 0

    def _live(self) -> None:
        """Work as one member until its end, clean or not."""
        consumer = self._library.consumer(self._config, self._on_commit)
        self._since_ns = self._notes.now_ns()
        try:
            while self._goes_on:
                self._work(consumer)
        finally:
            self._end(consumer)
        self._crash()
        self._stopping.wait(_AWAY_S)

    def _work(self, consumer: RunConsumer) -> None:
        keys = self._keys.all
        if keys != self._subscribed and not self._subscribe(consumer, keys):
            return
        self._poll(consumer, _AT_MOST)
        self._hold(consumer)
        if self._commits:
            self._commit(consumer)

    def _subscribe(self, consumer: RunConsumer, keys: Sequence[str]) -> bool:
        """Subscribe to the topics of these keys; return whether the consumer still works."""
        invocation = self._history.invoke(self._process, "subscribe", list(keys))
        topics = list(dict.fromkeys(partition_of(key)[0] for key in keys))
        try:
            consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        except TidelogError as error:
            if not error.error.fatal():
                raise
            self._count(error.error)
            self._history.complete(invocation, "fail", None, str(error))
            self._crashing.set()
            return False
        self._subscribed = list(keys)
        self._history.complete(invocation, "ok")
        return True

    def _on_assign(self, consumer: RunConsumer, partitions: Sequence[TopicPartition]) -> None:
        keys = _keys(partitions)
        self._rebalanced += keys
        self._notes.claim("assigned", self._process, consumer.generation, keys)

    def _on_revoke(self, consumer: RunConsumer, partitions: Sequence[TopicPartition]) -> None:
        if self._commits:
            self._commit(consumer)
        self._notes.claim("revoked", self._process, consumer.generation, _keys(partitions))

    def _on_lost(self, consumer: RunConsumer, partitions: Sequence[TopicPartition]) -> None:
        self._notes.claim("lost", self._process, consumer.generation, _keys(partitions))

    def _hold(self, consumer: RunConsumer) -> None:
        """Record the generation when it changes, and from time to time that it is the same."""
        generation, now_s = consumer.generation, time.monotonic()
        if generation != self._generation or now_s >= self._held_s + _HOLDS_S:
            self._generation, self._held_s = generation, now_s
            self._notes.holds(self._process, generation)

    def _commit(self, consumer: RunConsumer) -> None:
        """Commit the polled offsets, and wait."""
        since_ns = self._notes.now_ns()
        try:
            done = consumer.commit(asynchronous=False)
        except TidelogError as error:
            if error.code is not ErrorCode._NO_OFFSET:
                self._count(error.error)
            if error.error.fatal():
                self._crashing.set()
            return
        self._acknowledged(since_ns, done)

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Record an automatic commit, whose start is unknown."""
        self._acknowledged(self._since_ns, partitions)

    def _acknowledged(self, since_ns: int, done: Sequence[TopicPartition]) -> None:
        offsets = {key_of(at.topic, at.partition): at.offset for at in done if at.error is None}
        if offsets:
            self._notes.committed(self._process, since_ns, offsets)

    def _told(self) -> Mapping[str, Any]:
        keys, self._rebalanced = self._rebalanced, []
        return {"rebalance_log": [{"keys": keys}]} if keys else {}

    def _end(self, consumer: RunConsumer) -> None:
        if self._stopping.is_set() or self._dice.random() < 0.5:
            consumer.close()
            self._notes.gone(self._process)
        else:
            self._notes.gone(self._process)
            consumer.abandon()

    def _crash(self) -> None:
        super()._crash()
        self._subscribed, self._rebalanced, self._generation = [], [], -1


def _commits_by_itself(config: Mapping[str, Any]) -> bool:
    names = ("bootstrap.servers", "enable.auto.commit")
    return parse_config(ConsumerConfig, {name: config[name] for name in names}).enable_auto_commit


def _keys(partitions: Sequence[TopicPartition]) -> list[str]:
    return [key_of(partition.topic, partition.partition) for partition in partitions]
