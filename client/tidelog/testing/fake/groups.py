"""The groups of the fake: the nodes' own coordinator, all in one shard whose records are committed at once.

The coordinator is a part of the node; it is found by its entry point, like the node's commands, so that this package
imports nothing of it. It needs no other dependencies than the SDK.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from tidelog.testing.fake.topics import TopicTable
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_ENTRY_POINTS = "tidelog.testing"
_NAME = "groups"


class Coordinator(Protocol):
    """``tidelog_node.groups.embedded.EmbeddedGroups``; each method returns answers by the ids of their calls."""

    @property
    def next_deadline_ms(self) -> int:
        """When to call ``pass_time``."""
        ...

    def restarted(self, now_ms: int) -> Coordinator:
        """Return what another process finds."""
        ...

    def call(self, call_id: int, request: Any, client_id: str, host: str, now_ms: int) -> Mapping[int, Any]:
        """Take a request."""
        ...

    def abandon(self, call_id: int, now_ms: int) -> Mapping[int, Any]:
        """Forget a call whose caller has gone."""
        ...

    def change_topics(self, topics: Mapping[str, tuple[bytes, int]], now_ms: int) -> Mapping[int, Any]:
        """Take the topics as they are now."""
        ...

    def change_configs(self, configs: Mapping[str, Mapping[str, str]], now_ms: int) -> Mapping[int, Any]:
        """Take what is set on groups."""
        ...

    def pass_time(self, now_ms: int) -> Mapping[int, Any]:
        """Do what is due by the clock."""
        ...

    def refuse(self, request: Any, error: TidelogError) -> Any:
        """Return the answer that refuses a whole request."""
        ...


class FakeGroups:
    """All groups of the fake; the caller holds ``TopicTable.changed``, which is notified of each answer."""

    def __init__(self, table: TopicTable) -> None:
        self._table = table
        self._coordinator: Coordinator | None = None
        self._answers: dict[int, Any] = {}
        self._next_call = 0

    def restart(self) -> None:
        """Do as another process would: calls that wait are forgotten, what was committed is there."""
        if self._coordinator is not None:
            self._coordinator = self._coordinator.restarted(_now_ms())

    def call(self, request: Any, client_id: str, host: str, is_over: Callable[[], bool]) -> Any:
        """Return the answer to a request, or None when ``is_over`` says that nobody waits for it any more."""
        coordinator = self._started()
        call_id, self._next_call = self._next_call, self._next_call + 1
        self._take(coordinator.change_topics(self._topics(), _now_ms()))
        self._take(coordinator.change_configs(self._table.group_configs, _now_ms()))
        self._take(coordinator.pass_time(_now_ms()))
        self._take(coordinator.call(call_id, request, client_id, host, _now_ms()))
        while call_id not in self._answers:
            if is_over() or self._coordinator is not coordinator:
                self._take(coordinator.abandon(call_id, _now_ms()))
                return self._answers.pop(call_id, None)
            wait_ms = min(max(coordinator.next_deadline_ms - _now_ms(), 0), _LOOK_MS)
            self._table.changed.wait(wait_ms / 1000)
            if coordinator.next_deadline_ms <= _now_ms():
                self._take(coordinator.pass_time(_now_ms()))
        return self._answers.pop(call_id)

    def refuse(self, request: Any, error: TidelogError) -> Any:
        """Return the answer that refuses a whole request."""
        return self._started().refuse(request, error)

    def _started(self) -> Coordinator:
        if self._coordinator is None:
            self._coordinator = _load()(_new_id, _now_ms(), heartbeat_interval_ms=_HEARTBEAT_MS)
        return self._coordinator

    def _topics(self) -> dict[str, tuple[bytes, int]]:
        topics = (self._table.topic(name) for name in self._table.names())
        return {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics}

    def _take(self, answers: Mapping[int, Any]) -> None:
        if answers:
            self._answers.update(answers)
            self._table.changed.notify_all()


_HEARTBEAT_MS = 100
"""Of members by KIP-848's protocol, which learn by heartbeats what they are to read: tests do not wait for it."""
_LOOK_MS = 200
"""How often a call that waits looks whether its caller is still there."""


def _new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"


def _load() -> Callable[..., Coordinator]:
    found = entry_points(group=_ENTRY_POINTS, name=_NAME)
    if not found:
        text = f"the coordinator of groups was not found: tidelog is not installed (no entry point {_ENTRY_POINTS})"
        raise error_for(ErrorCode._STATE, text)
    return cast(Callable[..., Coordinator], next(iter(found)).load())


def _now_ms() -> int:
    return int(time.time() * 1000)
