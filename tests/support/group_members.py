"""Members of a consumer group that store their callbacks and the records they have read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog import Consumer, Message, TopicPartition

Key = tuple[str, int]
_QUICK = {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}


class Member:
    """A consumer of a group. Settings are given with underscores and override those that make it quick."""

    def __init__(self, cluster: str | Mapping[str, str], group: str, **config: Any) -> None:
        """Take the addresses of a cluster, or the settings with which its clients connect."""
        servers = {"bootstrap.servers": cluster} if isinstance(cluster, str) else cluster
        given = {key if key == "on_commit" else key.replace("_", "."): value for key, value in config.items()}
        quick = {} if given.get("group.protocol") == "consumer" else _QUICK
        common = {**servers, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**common, **quick, **given})
        self.told: list[tuple[str, set[Key]]] = []
        self.messages: list[Message] = []
        self.errors: list[Message] = []

    def subscribe(self, *topics: str) -> Member:
        self.consumer.subscribe(list(topics), self._tell("assign"), self._tell("revoke"), self._tell("lost"))
        return self

    def poll(self, timeout: float = 0.05) -> None:
        for message in self.consumer.consume(1_000, timeout):
            (self.errors if message.error() else self.messages).append(message)

    @property
    def owned(self) -> set[Key]:
        return {(p.topic, p.partition) for p in self.consumer.assignment()}

    @property
    def values(self) -> list[bytes]:
        return [m.value() for m in self.messages]

    def _tell(self, what: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, partitions: self.told.append((what, {(p.topic, p.partition) for p in partitions}))


def until(members: Sequence[Member], condition: Callable[[], bool], timeout_s: float = 20) -> None:
    """Poll all members until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, [(m.owned, m.told, len(m.messages), m.errors) for m in members]
        for member in members:
            member.poll()


def shared(members: Sequence[Member], keys: set[Key]) -> bool:
    """Return whether every partition has one owner and each member at least one partition."""
    owned = [m.owned for m in members]
    return all(owned) and set().union(*owned) == keys and sum(map(len, owned)) == len(keys)


def keys_of(topic: str, count: int) -> set[Key]:
    """Return the partitions of a topic."""
    return {(topic, p) for p in range(count)}
