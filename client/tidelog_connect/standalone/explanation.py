"""The explanation of a plan: what would run, in YAML (pure)."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tidelog_connect.connectors.connector import SINK
from tidelog_connect.server.topic_storage import sink_group
from tidelog_connect.standalone.plan import PipelinePlan, PlannedConnector

_SECRET = re.compile(r"password|secret|token|credential|authorization|jaas|access\.?key", re.IGNORECASE)
_HIDDEN = "[hidden]"


def explanation(plan: PipelinePlan, *, once: bool) -> str:
    """Return the steps, effective settings and places of progress of a pipeline. Secrets are hidden."""
    worker = plan.settings.worker
    document = {
        "name": plan.name,
        "stages": [[each.name for each in stage] for stage in plan.stages(once=once)],
        "settings": {
            "bootstrap.servers": worker.bootstrap_servers,
            "config.storage.topic": worker.config_storage_topic,
            "offset.storage.topic": worker.offset_storage_topic,
            "checkpoint.location": worker.checkpoint_location,
            "session.timeout.ms": worker.session_timeout_ms,
            "source.poll.interval.ms": worker.source_poll_interval_ms,
            "sink.trigger.interval.ms": worker.sink_trigger_interval_ms,
            "sink.max.offsets.per.trigger": worker.sink_max_offsets_per_trigger,
            **dict.fromkeys(sorted(plan.settings.security), _HIDDEN),
            **{key: _shown(key, value) for key, value in sorted(plan.settings.spark.items())},
        },
        "connectors": {each.name: _connector(each, plan) for each in plan.connectors},
    }
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return text


def _connector(connector: PlannedConnector, plan: PipelinePlan) -> dict[str, Any]:
    worker, config = plan.settings.worker, connector.config
    names = [name.strip() for name in config.get("transforms", "").split(",") if name.strip()]
    transforms = [f"transform {name}: {config[f'transforms.{name}.type']}" for name in names]
    converters = [
        f"{side}.converter: {config.get(f'{side}.converter', plan.settings.converters[f'{side}.converter'])}"
        for side in ("key", "value", "header")
    ]
    if connector.kind == SINK:
        topics = config.get("topics") or f"those that match {config.get('topics.regex')}"
        steps = [f"read topics: {topics}", *converters, *transforms, f"put: {connector.class_name}"]
        folder = f"{worker.checkpoint_location}/{worker.group_id}"
        progress = f"group {sink_group(connector.name)}, checkpoint below {folder}"
    else:
        steps = [f"poll: {connector.class_name}", *transforms, *converters, "write topics with offsets, in one commit"]
        progress = f"topic {worker.offset_storage_topic}"
    effective = {
        key: plan.settings.converters.get(key) if value is None else value for key, value in connector.values.items()
    }
    settings = {key: None if value is None else _shown(key, value) for key, value in effective.items()}
    return {
        "type": connector.kind,
        "tasks": connector.tasks,
        "steps": steps,
        "progress": progress,
        "settings": settings,
    }


def _shown(key: str, value: str) -> str:
    return _HIDDEN if _SECRET.search(key) else value
