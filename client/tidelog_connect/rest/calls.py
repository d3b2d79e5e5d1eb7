"""Calls of the REST API: plain functions from a `Call` to an `Answer`. Paths are those of Kafka Connect 4.1.

Sources: RootResource, ConnectorsResource, ConnectorPluginsResource, LoggingResource.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidelog.release import version
from tidelog_connect.herder import answers
from tidelog_connect.herder.errors import RequestError, bad_request, not_found
from tidelog_connect.herder.herder import checked_level
from tidelog_connect.herder.records import TargetState
from tidelog_connect.rest.loggers import Loggers
from tidelog_connect.rest.service import Service

Offsets: TypeAlias = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request: the parts of its path, its query, and its body."""

    service: Service
    loggers: Loggers
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: bytes

    @property
    def name(self) -> str:
        """The connector in the path."""
        return self.path["name"]

    def flag(self, name: str) -> bool:
        """Return a parameter of the query that is true or false."""
        return any(value.lower() == "true" for value in self.query.get(name, ()))


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the body, which is JSON; None is an empty body."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def root(call: Call) -> Answer:
    """GET /."""
    release = version()
    return Answer(200, {"version": release, "commit": "unknown", "kafka_cluster_id": call.service.cluster_id()})


def health(call: Call) -> Answer:
    """GET /health (KIP-1017)."""
    is_healthy, message = call.service.health()
    return Answer(200 if is_healthy else 503, {"status": "healthy" if is_healthy else "unhealthy", "message": message})


def list_connectors(call: Call) -> Answer:
    """GET /connectors (KIP-465 for expand)."""
    names = sorted(call.service.state.connectors)
    expands = call.query.get("expand", ())
    if not expands:
        return Answer(200, names)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        entity: dict[str, Any] = {}
        for expand in expands:
            if expand not in ("status", "info"):
                raise bad_request(f"expand must be status or info, but it is {expand}")
            try:
                entity[expand] = (
                    call.service.herder.status(name) if expand == "status" else call.service.herder.info(name)
                )
            except RequestError:
                continue  # it has no status yet, or was deleted meanwhile
        found[name] = entity
    return Answer(200, found)


def create_connector(call: Call) -> Answer:
    """POST /connectors (KIP-980 for initial_state)."""
    body = _object(call.body)
    _check_fields(body, ("config", "name", "initial_state"), "CreateConnectorRequest")
    name, config, initial = body.get("name"), _config(body.get("config")), body.get("initial_state")
    name = config.get("name") if name is None else name
    if not isinstance(name, str) or not (initial is None or isinstance(initial, str)):
        raise bad_request("name and initial_state must be texts")
    info = call.service.change(lambda herder: herder.create(name, config, initial))
    return Answer(201, info, _location(call, name))


def get_connector(call: Call) -> Answer:
    """GET /connectors/{name}."""
    return Answer(200, call.service.herder.info(call.name))


def delete_connector(call: Call) -> Answer:
    """DELETE /connectors/{name}."""
    call.service.change(lambda herder: herder.delete(call.name))
    return Answer(204)


def get_config(call: Call) -> Answer:
    """GET /connectors/{name}/config."""
    return Answer(200, dict(answers.connector_of(call.service.state, call.name).config))


def put_config(call: Call) -> Answer:
    """PUT /connectors/{name}/config."""
    config = _config(_object(call.body))
    is_new = call.name not in call.service.state.connectors
    info = call.service.change(lambda herder: herder.put(call.name, config)[1])
    return Answer(201, info, _location(call, call.name)) if is_new else Answer(200, info)


def patch_config(call: Call) -> Answer:
    """PATCH /connectors/{name}/config (KIP-477)."""
    changes = _config(_object(call.body))
    return Answer(200, call.service.change(lambda herder: herder.patch(call.name, changes)))


def get_status(call: Call) -> Answer:
    """GET /connectors/{name}/status."""
    return Answer(200, call.service.herder.status(call.name))


def list_tasks(call: Call) -> Answer:
    """GET /connectors/{name}/tasks."""
    return Answer(200, answers.task_infos(answers.connector_of(call.service.state, call.name)))


def get_task_status(call: Call) -> Answer:
    """GET /connectors/{name}/tasks/{task}/status."""
    return Answer(200, answers.task_status(call.service.state, call.name, _task(call)))


def pause(call: Call) -> Answer:
    """PUT /connectors/{name}/pause."""
    call.service.change(lambda herder: herder.set_target_state(call.name, TargetState.PAUSED))
    return Answer(202)


def resume(call: Call) -> Answer:
    """PUT /connectors/{name}/resume."""
    call.service.change(lambda herder: herder.set_target_state(call.name, TargetState.STARTED))
    return Answer(202)


def stop(call: Call) -> Answer:
    """PUT /connectors/{name}/stop (KIP-875)."""
    call.service.change(lambda herder: herder.set_target_state(call.name, TargetState.STOPPED))
    return Answer(204)


def restart(call: Call) -> Answer:
    """POST /connectors/{name}/restart (KIP-745)."""
    include_tasks, only_failed = call.flag("includeTasks"), call.flag("onlyFailed")
    status = call.service.change(
        lambda herder: herder.restart(call.name, include_tasks=include_tasks, only_failed=only_failed)
    )
    return Answer(202, status) if include_tasks or only_failed else Answer(204)


def restart_task(call: Call) -> Answer:
    """POST /connectors/{name}/tasks/{task}/restart."""
    task = _task(call)
    call.service.change(lambda herder: herder.restart_task(call.name, task))
    return Answer(204)


def get_topics(call: Call) -> Answer:
    """GET /connectors/{name}/topics (KIP-558)."""
    answers.connector_of(call.service.state, call.name)
    return Answer(200, {call.name: {"topics": sorted(call.service.state.topics.get(call.name, ()))}})


def reset_topics(call: Call) -> Answer:
    """PUT /connectors/{name}/topics/reset."""
    call.service.change(lambda herder: herder.reset_topics(call.name))
    return Answer(202)


def get_offsets(call: Call) -> Answer:
    """GET /connectors/{name}/offsets (KIP-875)."""
    answers.connector_of(call.service.state, call.name)
    return Answer(200, {"offsets": call.service.offsets(call.name)})


def alter_offsets(call: Call) -> Answer:
    """PATCH /connectors/{name}/offsets."""
    offsets = _offsets(_object(call.body))
    call.service.herder.check_stopped(call.name)
    call.service.alter_offsets(call.name, offsets)
    return Answer(200, {"message": "The offsets for this connector have been altered successfully"})


def reset_offsets(call: Call) -> Answer:
    """DELETE /connectors/{name}/offsets."""
    call.service.herder.check_stopped(call.name)
    call.service.reset_offsets(call.name)
    return Answer(200, {"message": "The offsets for this connector have been reset successfully"})


def list_plugins(call: Call) -> Answer:
    """GET /connector-plugins; connectorsOnly=false adds transforms, predicates and converters (KIP-769)."""
    chosen = next(iter(call.query.get("connectorsOnly", ())), "true")
    return Answer(200, call.service.registry.plugins(connectors_only=chosen.lower() == "true"))


def get_plugin_config(call: Call) -> Answer:
    """GET /connector-plugins/{plugin}/config (KIP-769)."""
    return Answer(200, call.service.registry.definitions(call.path["plugin"]))


def validate_config(call: Call) -> Answer:
    """PUT /connector-plugins/{plugin}/config/validate."""
    return Answer(200, call.service.registry.validate(call.path["plugin"], _config(_object(call.body))))


def list_loggers(call: Call) -> Answer:
    """GET /admin/loggers (KIP-495)."""
    return Answer(200, call.loggers.listed())


def get_logger(call: Call) -> Answer:
    """GET /admin/loggers/{logger}."""
    name = call.path["logger"]
    if not call.loggers.is_known(name):
        raise not_found(f"Logger {name} not found.")
    return Answer(200, call.loggers.level(name))


def set_logger(call: Call) -> Answer:
    """PUT /admin/loggers/{logger} (KIP-976 for scope)."""
    name, level = call.path["logger"], checked_level(_object(call.body).get("level"))
    scope = next(iter(call.query.get("scope", ())), "worker")
    if scope == "cluster":
        call.service.change(lambda herder: herder.set_logger_level(name, level))
        return Answer(204)
    if scope != "worker":
        raise bad_request(f"scope must be worker or cluster, but it is {scope}")
    return Answer(200, call.loggers.set_level(name, level))


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise RequestError(500, f"The body is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise RequestError(500, "The body must be a JSON object")
    return parsed


def _check_fields(body: Mapping[str, Any], known: Sequence[str], entity: str) -> None:
    for field_name in body:
        if field_name not in known:
            names = ", ".join(f'"{each}"' for each in known)
            text = f'Unrecognized field "{field_name}" (class {entity}), not marked as ignorable'
            raise RequestError(500, f"{text} ({len(known)} known properties: {names})")


def _config(value: object) -> dict[str, str | None]:
    """Return a configuration. Numbers and booleans become texts, as in Connect."""
    if not isinstance(value, dict):
        raise bad_request("config must be an object")
    found: dict[str, str | None] = {}
    for key, each in value.items():
        if isinstance(each, dict | list):
            raise RequestError(500, f'The value of "{key}" must be a text')
        found[key] = each if each is None or isinstance(each, str) else json.dumps(each)
    return found


def _offsets(body: Mapping[str, Any]) -> Offsets:
    _check_fields(body, ("offsets",), "ConnectorOffsets")
    given = body.get("offsets")
    if not isinstance(given, list) or not given:
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    found: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []
    for each in given:
        partition = each.get("partition") if isinstance(each, dict) else None
        offset = each.get("offset") if isinstance(each, dict) else None
        if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
            raise bad_request('Each element of "offsets" needs an object "partition", and an object or null "offset"')
        found.append((partition, offset))
    return found


def _task(call: Call) -> int:
    text = call.path["task"]
    if not text.isdecimal() or len(text) > 9:
        raise not_found("HTTP 404 Not Found")
    return int(text)


def _location(call: Call, name: str) -> dict[str, str]:
    from urllib.parse import quote

    return {"Location": f"{call.service.url()}/connectors/{quote(name, safe='')}"}
