"""`PipelinePlan`: the validated connectors of a pipeline, and the settings of the worker that runs them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog_connect.connectors.connector import SINK
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.errors import RequestError
from tidelog_connect.herder.supervision import StartConnector
from tidelog_connect.rest.settings import RestSettings, is_tls_key
from tidelog_connect.server.settings import WorkerSettings, worker_settings
from tidelog_connect.standalone.document import Document, Mark, PipelineError
from tidelog_foundation.config import config_keys
from tidelog_foundation.config.providers import resolve_settings
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.security.ssl_settings import is_listener_key

_CLASS = "connector.class"
_CONFIGS_TOPIC = "pipeline-configs"
_FOREIGN: Mapping[str, str] = {
    "group.id": "it is pipeline-NAME",
    "rest.advertised.url": "a pipeline has no REST API",
    **dict.fromkeys(config_keys(RestSettings), "a pipeline has no REST API"),
    **dict.fromkeys(config_keys(MonitoringSettings), "a pipeline has no metrics listener"),
    "max.connectors": "the file has the connectors",
    "status.storage.topic": "a pipeline has no statuses",
    "status.storage.partitions": "a pipeline has no statuses",
}


@dataclass(frozen=True, slots=True)
class PlannedConnector:
    """A connector with its valid configuration. ``values`` are all its settings as text, passwords hidden."""

    name: str
    kind: str
    class_name: str
    config: Mapping[str, str]
    tasks: int
    values: Mapping[str, str | None]

    def command(self, run: int) -> StartConnector:
        """Return the command that starts the connector."""
        return StartConnector(self.name, run, self.config, self.tasks)


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The connectors of a pipeline in the order of its file."""

    name: str
    settings: WorkerSettings
    connectors: Sequence[PlannedConnector]

    def stages(self, *, once: bool) -> list[list[PlannedConnector]]:
        """Return the connectors that run together. Once, sinks follow the sources, whose records they may read."""
        if not once:
            return [[*self.connectors]]
        sinks = [each for each in self.connectors if each.kind == SINK]
        sources = [each for each in self.connectors if each.kind != SINK]
        return [stage for stage in (sources, sinks) if stage]


def pipeline_settings(document: Document, overrides: Mapping[str, str]) -> WorkerSettings:
    """Return the settings of the worker that runs a pipeline.

    Raises:
        PipelineError: a setting is not valid.
    """
    given = {**document.settings.values, **overrides}
    foreign = [(key, _FOREIGN.get(key, "a pipeline has no listeners")) for key in given if _is_foreign(key)]
    if foreign:
        marked = [
            (document.settings.mark_of(key), f"{key} is not a setting of pipelines: {why}") for key, why in foreign
        ]
        raise PipelineError(marked)
    defaults = {
        "group.id": f"pipeline-{document.name}",
        "config.storage.topic": _CONFIGS_TOPIC,
        "offset.storage.topic": f"pipeline-{document.name}-offsets",
    }
    try:
        found = worker_settings(defaults | resolve_settings(given))
    except ConfigError as error:
        named = [key for key in sorted(document.settings.settings, key=len, reverse=True) if key in str(error)]
        raise PipelineError([(document.settings.mark_of(named[0] if named else ""), str(error))]) from error
    # The topic of configurations has no more than the records of leaders, so statuses need no topic of their own.
    worker = replace(
        found.worker,
        status_storage_topic=found.worker.config_storage_topic,
        status_storage_partitions=1,
        rest_advertised_url=f"pipeline://{socket.gethostname()}-{os.getpid()}",
    )
    return replace(found, worker=worker)


def plan_pipeline(document: Document, settings: WorkerSettings, registry: Registry) -> PipelinePlan:
    """Return the plan of a pipeline.

    Raises:
        PipelineError: the configurations of connectors have errors; it has all of them.
    """
    problems: list[tuple[Mark, str]] = []
    planned: list[PlannedConnector] = []
    for name, section in document.connectors.items():
        config = {"name": name, **section.values}
        if config["name"] != name:
            problems.append((section.mark_of("name"), f"name must be {name}, as the connector is named in the file"))
        if _CLASS not in config:
            problems.append((section.mark, f"Connector {name} has no {_CLASS}"))
            continue
        try:
            entries = registry.validate(config[_CLASS], config)["configs"]
        except RequestError as error:
            problems.append((section.mark_of(_CLASS), error.message))
            continue
        errors = [
            (section.mark_of(entry["value"]["name"]), f"{entry['value']['name']}: {error}")
            for entry in entries
            for error in entry["value"]["errors"]
        ]
        problems += errors
        if not errors:
            connector = registry.find(config[_CLASS])
            tasks = len(registry.task_configs(config))
            values = {entry["value"]["name"]: _shown(entry) for entry in entries}
            planned.append(PlannedConnector(name, connector.kind, connector.class_name, config, tasks, values))
    if problems:
        raise PipelineError(problems)
    return PipelinePlan(document.name, settings, planned)


def _is_foreign(key: str) -> bool:
    return key in _FOREIGN or is_tls_key(key) or is_listener_key(key)


def _shown(entry: Mapping[str, Any]) -> str | None:
    definition, value = entry["definition"], entry["value"]["value"]
    if value is None or definition is None:
        return None if value is None else str(value)
    return "[hidden]" if definition["type"] == "PASSWORD" else str(value)
