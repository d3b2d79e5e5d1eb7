"""The state of a group: what the records of the config and status topics add up to.

`GroupState.replay` is the only method that mutates. All workers replay the same records in the same order and so have
the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog_connect.herder import records
from tidelog_connect.herder.records import Record, Status, Store, TargetState


@dataclass(slots=True)
class Connector:
    """A connector's configuration, target state and tasks.

    ``revision`` is the number, in the group, of the last change after which a query that runs has to end: the
    connector's creation, a changed configuration, a stop or a restart. ``tasks`` are the configurations of the last
    commit record; ``pending`` those of a later one.
    """

    name: str
    config: Mapping[str, str]
    revision: int
    tasks: tuple[Mapping[str, str], ...] = ()
    pending: dict[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leader:
    """The worker that leads, the URL of its REST listener, and its epoch: the offset of its record."""

    worker_id: str
    url: str
    epoch: int
    session_key: str = field(default="", repr=False)
    """The key that signs forwarded requests, empty for the leader of a former release."""


@dataclass(slots=True)
class GroupState:
    """Connectors by name, statuses, topics by connector, levels of loggers, and the leader."""

    connectors: dict[str, Connector] = field(default_factory=dict)
    target_states: dict[str, TargetState] = field(default_factory=dict)
    connector_statuses: dict[str, Status] = field(default_factory=dict)
    task_statuses: dict[str, dict[int, Status]] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)
    logger_levels: dict[str, str] = field(default_factory=dict)
    leader: Leader | None = None
    revisions: int = 0
    """The number of changes that end queries."""

    def replay(self, record: Record, offset: int) -> None:
        """Apply a record. Records that are not understood change nothing."""
        if record.store is Store.STATUS:
            self._replay_status(record.key, record.value)
        else:
            self._replay_config(record.key, record.value, offset)

    def target_state(self, name: str) -> TargetState:
        """Return the target state of a connector."""
        return self.target_states.get(name, TargetState.STARTED)

    def check_invariants(self) -> None:
        """Assert what holds after each record."""
        for name, connector in self.connectors.items():
            assert connector.name == name
            assert 1 <= connector.revision <= self.revisions
        assert all(self.topics.values())
        assert all(self.task_statuses.values())

    def _replay_config(self, key: str, value: Mapping[str, Any] | None, offset: int) -> None:
        if key == records.LEADER_KEY:
            if value is not None:
                session_key = str(value.get("session_key", ""))
                self.leader = Leader(str(value.get("worker_id")), str(value.get("url")), offset, session_key)
        elif key.startswith(records.CONNECTOR_PREFIX):
            self._set_connector(key.removeprefix(records.CONNECTOR_PREFIX), value)
        elif key.startswith(records.TARGET_STATE_PREFIX):
            self._set_target_state(key.removeprefix(records.TARGET_STATE_PREFIX), value)
        elif key.startswith(records.TASK_PREFIX):
            self._set_task(key.removeprefix(records.TASK_PREFIX), value)
        elif key.startswith(records.COMMIT_PREFIX):
            self._commit_tasks(key.removeprefix(records.COMMIT_PREFIX), value)
        elif key.startswith(records.RESTART_PREFIX):
            connector = self.connectors.get(key.removeprefix(records.RESTART_PREFIX))
            if connector is not None and value is not None:
                connector.revision = self._next_revision()
        elif key.startswith(records.LOGGER_PREFIX) and value is not None:
            self.logger_levels[key.removeprefix(records.LOGGER_PREFIX)] = str(value.get("level"))

    def _set_connector(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            # The target state goes with the connector: a new one of the same name starts.
            self.connectors.pop(name, None)
            self.target_states.pop(name, None)
            return
        properties = value.get("properties")
        if not isinstance(properties, dict):
            return
        config = {str(key): each for key, each in properties.items()}
        known = self.connectors.get(name)
        if known is None:
            self.connectors[name] = Connector(name, config, self._next_revision())
        elif dict(known.config) != config:
            known.config = config
            known.revision = self._next_revision()

    def _set_target_state(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.target_states.pop(name, None)
            return
        state = value.get("state.v2", value.get("state"))
        if state in TargetState.__members__:
            self.target_states[name] = TargetState[state]
            connector = self.connectors.get(name)
            if connector is not None and state == TargetState.STOPPED.value:
                connector.revision = self._next_revision()

    def _next_revision(self) -> int:
        self.revisions += 1
        return self.revisions

    def _set_task(self, rest: str, value: Mapping[str, Any] | None) -> None:
        found = records.name_and_index(rest)
        connector = None if found is None else self.connectors.get(found[0])
        if found is not None and connector is not None and value is not None:
            connector.pending[found[1]] = dict(value.get("properties") or {})

    def _commit_tasks(self, name: str, value: Mapping[str, Any] | None) -> None:
        connector = self.connectors.get(name)
        if connector is None or value is None:
            return
        known = dict(enumerate(connector.tasks)) | connector.pending
        count = int(value.get("tasks", 0))
        # Compaction may have deleted the tasks of an older commit; such a commit counts when its tasks are complete.
        if all(index in known for index in range(count)):
            connector.tasks = tuple(known[index] for index in range(count))
            connector.pending = {}

    def _replay_status(self, key: str, value: Mapping[str, Any] | None) -> None:
        if key.startswith(records.STATUS_TOPIC_PREFIX):
            found = records.topic_and_connector(key)
            if found is not None:
                self._set_topic(*found, is_used=value is not None)
            return
        status = None if value is None else records.parse_status(value)
        if value is not None and status is None:
            return
        if key.startswith(records.STATUS_CONNECTOR_PREFIX):
            name = key.removeprefix(records.STATUS_CONNECTOR_PREFIX)
            if status is None:
                self.connector_statuses.pop(name, None)
            else:
                self.connector_statuses[name] = status
        elif key.startswith(records.STATUS_TASK_PREFIX):
            task = records.name_and_index(key.removeprefix(records.STATUS_TASK_PREFIX))
            if task is not None:
                self._set_task_status(*task, status)

    def _set_task_status(self, name: str, index: int, status: Status | None) -> None:
        statuses = self.task_statuses.setdefault(name, {})
        if status is None:
            statuses.pop(index, None)
        else:
            statuses[index] = status
        if not statuses:
            del self.task_statuses[name]

    def _set_topic(self, topic: str, connector: str, *, is_used: bool) -> None:
        topics = self.topics.setdefault(connector, set())
        (topics.add if is_used else topics.discard)(topic)
        if not topics:
            del self.topics[connector]
