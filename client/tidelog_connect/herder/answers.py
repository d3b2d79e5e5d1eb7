"""Answers about connectors, with the fields of Kafka Connect's REST API."""

from __future__ import annotations

from typing import Any

from tidelog_connect.herder.errors import not_found, unknown_connector
from tidelog_connect.herder.records import Status
from tidelog_connect.herder.state import Connector, GroupState


def connector_of(state: GroupState, name: str) -> Connector:
    """Return a connector.

    Raises:
        RequestError: 404, it does not exist.
    """
    found = state.connectors.get(name)
    if found is None:
        raise unknown_connector(name)
    return found


def connector_info(connector: Connector, kind: str) -> dict[str, Any]:
    """Return the entity ConnectorInfo; ``kind`` is source, sink or unknown."""
    tasks = [{"connector": connector.name, "task": index} for index in range(len(connector.tasks))]
    return {"name": connector.name, "config": dict(connector.config), "tasks": tasks, "type": kind}


def task_infos(connector: Connector) -> list[dict[str, Any]]:
    """Return a list of the entity TaskInfo."""
    return [
        {"id": {"connector": connector.name, "task": index}, "config": dict(config)}
        for index, config in enumerate(connector.tasks)
    ]


def connector_status(state: GroupState, name: str, kind: str) -> dict[str, Any]:
    """Return the entity ConnectorStateInfo.

    Raises:
        RequestError: 404, the connector does not exist, or has no status yet.
    """
    status = state.connector_statuses.get(name)
    if status is None:
        raise not_found(f"No status found for connector {name}")
    tasks = [{"id": index, **_status(each)} for index, each in sorted(state.task_statuses.get(name, {}).items())]
    return {"name": name, "connector": _status(status), "tasks": tasks, "type": kind}


def task_status(state: GroupState, name: str, index: int) -> dict[str, Any]:
    """Return the entity TaskState.

    Raises:
        RequestError: 404, the task has no status.
    """
    status = state.task_statuses.get(name, {}).get(index)
    if status is None:
        raise not_found(f"No status found for task {name}-{index}")
    return {"id": index, **_status(status)}


def _status(status: Status) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    if status.trace is not None:
        answer["trace"] = status.trace
    return answer
