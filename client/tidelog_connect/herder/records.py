"""Records of the config and status topics, with the keys and values of Kafka Connect.

The values are JSON without schemas, so that tools which read the topics of Kafka Connect read these. Sources:
KafkaConfigBackingStore, KafkaStatusBackingStore (KIP-980 for the states of v2, KIP-158 for topics).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

CONNECTOR_PREFIX = "connector-"
TARGET_STATE_PREFIX = "target-state-"
TASK_PREFIX = "task-"
COMMIT_PREFIX = "commit-"
RESTART_PREFIX = "restart-connector-"
LOGGER_PREFIX = "logger-cluster-"
LEADER_KEY = "leader"
STATUS_CONNECTOR_PREFIX = "status-connector-"
STATUS_TASK_PREFIX = "status-task-"
STATUS_TOPIC_PREFIX = "status-topic-"
_TOPIC_SEPARATOR = ":connector-"


class Store(Enum):
    """The topics that a herder writes."""

    CONFIG = "config"
    STATUS = "status"


class TargetState(StrEnum):
    """The state that a user wants of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """The state of a connector or a task."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a connector or a task on a worker; ``trace`` is the text of a failure.

    ``generation`` is the epoch of the leader that reported it.
    """

    state: State
    worker_id: str
    generation: int
    version: str
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record of one of the topics. The value None deletes the key."""

    store: Store
    key: str
    value: Mapping[str, Any] | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Return key and value as bytes."""
        value = None if self.value is None else json.dumps(self.value, separators=(",", ":")).encode()
        return self.key.encode(), value


def decoded(store: Store, key: bytes | None, value: bytes | None) -> Record | None:
    """Return a record; None if it is not one that a herder understands, which readers skip as Connect does."""
    try:
        if key is None:
            return None
        parsed = None if value is None else json.loads(value)
        return Record(store, key.decode(), parsed) if parsed is None or isinstance(parsed, dict) else None
    except ValueError:
        return None


def connector_record(name: str, config: Mapping[str, str] | None) -> Record:
    """Return the record of a connector's configuration, or of its deletion."""
    return Record(Store.CONFIG, CONNECTOR_PREFIX + name, None if config is None else {"properties": dict(config)})


def target_state_record(name: str, state: TargetState | None) -> Record:
    """Return the record of a target state. Readers before KIP-875 take STOPPED for PAUSED."""
    key = TARGET_STATE_PREFIX + name
    if state is None:
        return Record(Store.CONFIG, key, None)
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return Record(Store.CONFIG, key, {"state": old.value, "state.v2": state.value})


def task_record(name: str, index: int, config: Mapping[str, str] | None) -> Record:
    """Return the record of a task's configuration, which counts from the commit record behind it."""
    return Record(
        Store.CONFIG, f"{TASK_PREFIX}{name}-{index}", None if config is None else {"properties": dict(config)}
    )


def commit_record(name: str, tasks: int | None) -> Record:
    """Return the record that makes the task configurations before it valid."""
    return Record(Store.CONFIG, COMMIT_PREFIX + name, None if tasks is None else {"tasks": tasks})


def restart_record(name: str, include_tasks: bool, only_failed: bool) -> Record:
    """Return the record of a request to restart (KIP-745)."""
    value = {"include-tasks": include_tasks, "only-failed": only_failed}
    return Record(Store.CONFIG, RESTART_PREFIX + name, value)


def logger_record(name: str, level: str) -> Record:
    """Return the record of the level of a logger on all workers (KIP-976)."""
    return Record(Store.CONFIG, LOGGER_PREFIX + name, {"level": level})


def leader_record(worker_id: str, url: str, session_key: str = "") -> Record:
    """Return the record by which a worker takes the lead. Its offset is the leader's epoch.

    Workers sign the requests that they forward with ``session_key`` (KIP-507).
    """
    return Record(Store.CONFIG, LEADER_KEY, {"worker_id": worker_id, "url": url, "session_key": session_key})


def connector_status_record(name: str, status: Status | None) -> Record:
    """Return the record of a connector's status."""
    return Record(Store.STATUS, STATUS_CONNECTOR_PREFIX + name, _status_value(status))


def task_status_record(name: str, index: int, status: Status | None) -> Record:
    """Return the record of a task's status."""
    return Record(Store.STATUS, f"{STATUS_TASK_PREFIX}{name}-{index}", _status_value(status))


def topic_record(connector: str, topic: str, task: int, discovered_ms: int | None) -> Record:
    """Return the record of a topic that a connector uses; without a time, of its reset (KIP-558)."""
    key = f"{STATUS_TOPIC_PREFIX}{topic}{_TOPIC_SEPARATOR}{connector}"
    if discovered_ms is None:
        return Record(Store.STATUS, key, None)
    value = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": discovered_ms}
    return Record(Store.STATUS, key, {"topic": value})


def topic_and_connector(key: str) -> tuple[str, str] | None:
    """Return topic and connector of a topic record's key."""
    topic, separator, connector = key.removeprefix(STATUS_TOPIC_PREFIX).partition(_TOPIC_SEPARATOR)
    return (topic, connector) if separator else None


def name_and_index(rest: str) -> tuple[str, int] | None:
    """Return connector and number of ``NAME-3``; names may have dashes themselves."""
    name, _, index = rest.rpartition("-")
    return (name, int(index)) if name and index.isdecimal() else None


def parse_status(value: Mapping[str, Any]) -> Status | None:
    """Return the status in a record's value; None if it is not one."""
    try:
        return Status(
            State(value["state"]),
            str(value["worker_id"]),
            int(value["generation"]),
            str(value.get("version") or "unknown"),
            value.get("trace"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _status_value(status: Status | None) -> Mapping[str, Any] | None:
    if status is None:
        return None
    return {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
