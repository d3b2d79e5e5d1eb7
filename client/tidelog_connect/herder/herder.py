"""`Herder`: answers requests about connectors with records and a response.

Nothing is changed by a request itself. The shell writes the records to the topics; what comes back of them is replayed
into the `GroupState`. Sources of rules and texts: AbstractHerder, DistributedHerder, ConnectorsResource of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidelog_connect.herder import answers, records
from tidelog_connect.herder.errors import RequestError, bad_request, conflict, not_found
from tidelog_connect.herder.records import Record, State, Status, TargetState
from tidelog_connect.herder.state import GroupState

NAME = "name"
CONNECTOR_CLASS = "connector.class"
UNKNOWN_TYPE = "unknown"
MAX_NAME_BYTES = 249
_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")
_INITIAL_STATES = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}


class Plugins(Protocol):
    """The connectors that are installed, as the herder sees them."""

    def kind(self, connector_class: str) -> str:
        """Return ``source`` or ``sink``.

        Raises:
            RequestError: 400, no such connector is installed.
        """
        ...

    def errors(self, config: Mapping[str, str]) -> Sequence[str]:
        """Return the errors of a connector's configuration.

        Raises:
            RequestError: 400, the configuration cannot be validated.
        """
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """The records that a request writes, in one transaction, and its response once they are written."""

    records: tuple[Record, ...]
    response: Any = None


class Herder:
    """Answers the requests that change connectors. ``max_connectors`` bounds their number."""

    def __init__(self, state: GroupState, plugins: Plugins, max_connectors: int) -> None:
        self._state = state
        self._plugins = plugins
        self._max_connectors = max_connectors

    def kind(self, config: Mapping[str, str]) -> str:
        """Return ``source``, ``sink``, or ``unknown`` for a connector that is not installed any more."""
        try:
            return self._plugins.kind(config.get(CONNECTOR_CLASS, ""))
        except RequestError:
            return UNKNOWN_TYPE

    def info(self, name: str) -> dict[str, Any]:
        """Return a connector's configuration and tasks.

        Raises:
            RequestError: 404, it does not exist.
        """
        connector = answers.connector_of(self._state, name)
        return answers.connector_info(connector, self.kind(connector.config))

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a connector and its tasks.

        Raises:
            RequestError: 404, it does not exist or has no status yet.
        """
        connector = self._state.connectors.get(name)
        if connector is None:
            raise not_found(f"No status found for connector {name}")
        return answers.connector_status(self._state, name, self.kind(connector.config))

    def create(self, name: str, config: Mapping[str, str | None], initial_state: str | None = None) -> Result:
        """Create a connector.

        Raises:
            RequestError: 409, it exists; 400, its configuration is not valid, or the limit of connectors is reached.
        """
        full = self._checked(name, config)
        if name in self._state.connectors:
            raise conflict(f"Connector {name} already exists")
        self._check_room()
        written = [records.connector_record(name, full)]
        if initial_state is not None:
            # Written first, so that no worker starts a connector that is created stopped.
            written.insert(0, records.target_state_record(name, _initial(initial_state)))
        return Result(tuple(written), self._created(name, full))

    def put(self, name: str, config: Mapping[str, str | None]) -> tuple[bool, Result]:
        """Create a connector or replace its configuration. Return whether it is new, and the result.

        Raises:
            RequestError: 400, the configuration is not valid, or the limit of connectors is reached.
        """
        full = self._checked(name, config)
        known = self._state.connectors.get(name)
        if known is None:
            self._check_room()
            return True, Result((records.connector_record(name, full),), self._created(name, full))
        info = answers.connector_info(known, self.kind(full)) | {"config": full}
        return False, Result((records.connector_record(name, full),), info)

    def patch(self, name: str, changes: Mapping[str, str | None]) -> Result:
        """Change single settings; null removes one (KIP-477).

        Raises:
            RequestError: 404, the connector does not exist; 400, the configuration is not valid.
        """
        known = answers.connector_of(self._state, name)
        merged: dict[str, str | None] = {**known.config, **changes}
        return self.put(name, {key: value for key, value in merged.items() if value is not None})[1]

    def delete(self, name: str) -> Result:
        """Delete a connector, with its tasks, statuses and topics. Its offsets stay, as Connect's do.

        Raises:
            RequestError: 404, it does not exist.
        """
        connector = answers.connector_of(self._state, name)
        tasks = range(len(connector.tasks))
        return Result(
            (
                records.connector_record(name, None),
                records.target_state_record(name, None),
                *(records.task_record(name, index, None) for index in tasks),
                records.commit_record(name, None),
                records.connector_status_record(name, None),
                *(records.task_status_record(name, index, None) for index in self._state.task_statuses.get(name, ())),
                *self._topic_resets(name),
            )
        )

    def set_target_state(self, name: str, target: TargetState) -> Result:
        """Pause, resume or stop a connector. A connector that stops has no tasks from then on (KIP-875).

        Raises:
            RequestError: 404, it does not exist.
        """
        answers.connector_of(self._state, name)
        written = [records.target_state_record(name, target)]
        if target is TargetState.STOPPED:
            written.append(records.commit_record(name, 0))
        return Result(tuple(written))

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> Result:
        """Restart a connector; with ``only_failed``, only if it or one of the tasks that are included has failed.

        The response is the status, with RESTARTING for all that restarts (KIP-745).

        Raises:
            RequestError: 404, the connector or its status does not exist.
        """
        answers.connector_of(self._state, name)
        status = self.status(name)
        parts = [status["connector"], *(status["tasks"] if include_tasks else ())]
        chosen = [part for part in parts if not only_failed or part["state"] == State.FAILED]
        for part in chosen:
            part["state"] = State.RESTARTING.value
            part.pop("trace", None)
        if not chosen:
            return Result((), status)
        written = [records.restart_record(name, include_tasks, only_failed)]
        if status["connector"] in chosen:
            known = self._state.connector_statuses[name]
            written.append(records.connector_status_record(name, _restarting(known)))
        for index, known in sorted(self._state.task_statuses.get(name, {}).items()):
            if any(part.get("id") == index for part in chosen):
                written.append(records.task_status_record(name, index, _restarting(known)))
        return Result(tuple(written), status)

    def restart_task(self, name: str, index: int) -> Result:
        """Restart a task, and so the query that runs it.

        Raises:
            RequestError: 404, the connector or the task does not exist.
        """
        connector = self._state.connectors.get(name)
        if connector is None:
            raise not_found(f"Unknown connector: {name}")
        if index >= len(connector.tasks):
            raise not_found(f"Unknown task: {name}-{index}")
        return Result((records.restart_record(name, True, False),))

    def reset_topics(self, name: str) -> Result:
        """Forget the topics that a connector has used.

        Raises:
            RequestError: 404, it does not exist.
        """
        answers.connector_of(self._state, name)
        return Result(self._topic_resets(name))

    def set_logger_level(self, name: str, level: object) -> Result:
        """Set the level of a logger, and of those below it, on all workers.

        Raises:
            RequestError: 400, no level is given; 404, it is not a level.
        """
        return Result((records.logger_record(name, checked_level(level)),))

    def check_stopped(self, name: str) -> None:
        """Check that the offsets of a connector may be changed.

        Raises:
            RequestError: 404, it does not exist; 400, it is not stopped; 409, its tasks have not ended yet.
        """
        connector = answers.connector_of(self._state, name)
        status = self._state.connector_statuses.get(name)
        if self._state.target_state(name) is not TargetState.STOPPED:
            raise bad_request(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        if connector.tasks or status is None or status.state is not State.STOPPED:
            raise conflict(f"Connector {name} is stopping; its offsets can be modified once its tasks have ended")

    def _checked(self, name: str, config: Mapping[str, str | None]) -> dict[str, str]:
        check_name(name)
        given = config.get(NAME, name)
        if given != name:
            raise bad_request(
                f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})"
            )
        full = {key: value for key, value in config.items() if value is not None} | {NAME: name}
        if not full.get(CONNECTOR_CLASS):
            raise bad_request(f"Connector config {full} contains no connector type")
        errors = self._plugins.errors(full)
        if errors:
            raise bad_request(
                f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
                + "".join(f"\n{error}" for error in errors)
                + "\nYou can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`"
            )
        return full

    def _check_room(self) -> None:
        if len(self._state.connectors) >= self._max_connectors:
            raise bad_request(
                f"The group has {len(self._state.connectors)} connectors, and max.connectors is {self._max_connectors}"
            )

    def _created(self, name: str, config: Mapping[str, str]) -> dict[str, Any]:
        return {"name": name, "config": dict(config), "tasks": [], "type": self.kind(config)}

    def _topic_resets(self, name: str) -> tuple[Record, ...]:
        return tuple(records.topic_record(name, topic, 0, None) for topic in sorted(self._state.topics.get(name, ())))


def check_name(name: str) -> None:
    """Check the name of a connector.

    Raises:
        RequestError: 400, it is empty, too long, or has control characters.
    """
    if not name.strip():
        raise bad_request("connector name may not be empty")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise bad_request(f"connector name may not be longer than {MAX_NAME_BYTES} bytes: {name[:20]}...")
    if any(ord(character) < 32 or character == "/" for character in name):
        raise bad_request(f"connector name may not contain slashes or control characters: {name!r}")


def checked_level(level: object) -> str:
    """Return a level's name in capitals.

    Raises:
        RequestError: 400, no level is given; 404, it is not a level.
    """
    if not isinstance(level, str):
        raise bad_request("Desired 'level' parameter was not specified in request.")
    if level.upper() not in _LEVELS:
        raise not_found(f"invalid log level '{level}'.")
    return level.upper()


def _restarting(status: Status) -> Status:
    return replace(status, state=State.RESTARTING, trace=None)


def _initial(text: str) -> TargetState:
    if text.upper() not in _INITIAL_STATES:
        raise bad_request(f"initial_state must be one of {', '.join(_INITIAL_STATES)}, but it is {text}")
    return _INITIAL_STATES[text.upper()]
