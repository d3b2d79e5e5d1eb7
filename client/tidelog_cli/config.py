"""``tidelog config``: the settings of topics, groups, a node, or all nodes, and subscriptions to client metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from tidelog_cli.options.connection import Session, ValidateOnly, Yes, connected, parse_pairs
from tidelog_cli.options.option_groups import with_option_groups
from tidelog_cli.output import printing
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.config import describe as describe_settings
from tidelog_foundation.config.broker import DYNAMIC_BROKER_KEYS, READ_ONLY_BROKER_KEYS
from tidelog_foundation.config.client_metrics import CLIENT_METRICS_KEYS
from tidelog_foundation.config.group import GROUP_KEYS
from tidelog_foundation.config.settings import unknown_key

app = printing.command_group("Show and change the settings of topics, nodes and groups while they run.")

Pairs = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="The settings.")]

_TOPIC_DEFAULTS = {info.key: info.default_text for info in describe_settings(TopicConfig)}
_KEYS: Mapping[ResourceType, Collection[str]] = {
    ResourceType.TOPIC: _TOPIC_DEFAULTS.keys(),
    ResourceType.BROKER: DYNAMIC_BROKER_KEYS | READ_ONLY_BROKER_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
_COLUMNS = ("setting", "value", "source", "default")
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "node",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all nodes",
    ConfigSource.STATIC_BROKER_CONFIG: "file",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.GROUP_CONFIG: "group",
    ConfigSource.CLIENT_METRICS_CONFIG: "subscription",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "node",
    ConfigSource.UNKNOWN_CONFIG: None,
}


@dataclass(frozen=True, slots=True)
class _Target:
    """The resource to describe or change."""

    resource: ConfigResource

    @property
    def is_topic(self) -> bool:
        """True if the resource is a topic."""
        return self.resource.restype is ResourceType.TOPIC

    @property
    def is_node(self) -> bool:
        """True if the resource is a node, or all nodes."""
        return self.resource.restype is ResourceType.BROKER

    @property
    def name(self) -> str:
        """The resource in words, for messages."""
        if self.resource.restype is ResourceType.GROUP:
            return f"group {self.resource.name}"
        if self.resource.restype is ResourceType.CLIENT_METRICS:
            return f"client metrics subscription {self.resource.name}"
        if self.resource.restype is ResourceType.BROKER_LOGGER:
            return f"the loggers of node {self.resource.name}"
        if self.is_topic:
            return f"topic {self.resource.name}"
        return f"node {self.resource.name}" if self.resource.name else "all nodes"

    @property
    def document(self) -> dict[str, Any]:
        """The resource as a JSON document."""
        return {"type": self.resource.restype.name.lower(), "name": self.resource.name}


@dataclass(frozen=True, slots=True)
class Targets:
    """The options that name the resources to show or change."""

    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="A topic to change or show. May be repeated."),
    ] = None
    nodes: Annotated[
        list[int] | None, typer.Option("--node", "-n", metavar="ID", help="A node to change or show. May be repeated.")
    ] = None
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="All nodes, unless a node has a value of its own.")] = (
        False
    )
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="A group to change or show. May be repeated."),
    ] = None
    loggers: Annotated[
        list[int] | None,
        typer.Option(
            "--loggers",
            metavar="ID",
            help="The loggers of a node, whose values are FATAL, ERROR, WARN, INFO, DEBUG or TRACE until it ends. "
            "May be repeated.",
        ),
    ] = None

    client_metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--client-metrics",
            metavar="NAME",
            help="A subscription to the metrics of clients (KIP-714), with interval.ms, metrics and match. "
            "May be repeated.",
        ),
    ] = None

    def resolve(self) -> list[_Target]:
        """Return the resources, each once. Raise UsageError if none is named."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self.topics or ()]
        resources += [ConfigResource(ResourceType.BROKER, str(node)) for node in self.nodes or ()]
        resources += [ConfigResource(ResourceType.GROUP, group) for group in self.groups or ()]
        resources += [ConfigResource(ResourceType.BROKER_LOGGER, str(node)) for node in self.loggers or ()]
        resources += [ConfigResource(ResourceType.CLIENT_METRICS, name) for name in self.client_metrics or ()]
        if self.all_nodes:
            resources.append(ConfigResource(ResourceType.BROKER, ""))
        if not resources:
            options = "--topic, --node, --all-nodes, --group, --loggers and --client-metrics"
            raise printing.UsageError(f"Pass at least one of {options}.")
        return [_Target(resource) for resource in dict.fromkeys(resources)]


@app.command()
@with_option_groups
@connected
def describe(
    session: Session,
    wanted: Targets,
    everything: Annotated[bool, typer.Option("--all", help="Also what is as by default.")] = False,
    names: Annotated[
        list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only this setting. May be repeated.")
    ] = None,
) -> None:
    """Show settings, the source of each value, and the default.

    The source "file" is the properties file of the node; "all nodes" is the setting for all of them.

    \b
    Examples:
      tidelog config describe --topic flights --all
      tidelog config describe --node 1 --key log.retention.ms
      tidelog config describe --loggers 1
    """
    targets = wanted.resolve()
    with session.admin() as admin:
        futures = admin.describe_configs([t.resource for t in targets], request_timeout=session.timeout_s)
        found, errors = printing.settle(futures)
    documents = []
    for target in targets:
        if target.resource in found:
            entries = _chosen(found[target.resource].values(), everything, names)
            documents.append(target.document | {"configs": [_entry_document(e, target.is_topic) for e in entries]})
        else:
            documents.append(target.document | {"error": printing.error_document(errors[target.resource])})
    if session.as_json:
        printing.print_json({"resources": documents})
    else:
        _print(targets, documents)
    printing.fail(errors.values())


@app.command("set")
@with_option_groups
@connected
def set_configs(
    session: Session,
    pairs: Pairs,
    wanted: Targets,
    validate_only: ValidateOnly = False,
    yes: Yes = False,
) -> None:
    """Set values.

    Nodes keep a setting that they do not have, as Kafka's brokers do: it has no effect, and the command asks first.

    \b
    Examples:
      tidelog config set retention.ms=604800000 --topic flights --topic orders
      tidelog config set tidelog_node.partitions=DEBUG --loggers 1
      tidelog config set 'metrics=*' interval.ms=60000 --client-metrics all
    """
    entries = _entries(parse_pairs(pairs, "KEY=VALUE"), AlterConfigOpType.SET)
    targets = wanted.resolve()
    for key in () if validate_only else [entry.name for entry in entries]:
        if known := _known_keys_without(key, [t for t in targets if t.is_node]):
            printing.confirm(f"set {key}, which has no effect", yes, _sentence(unknown_key(key, known)))
    _change(session, targets, entries, validate_only)


@app.command()
@with_option_groups
@connected
def delete(
    session: Session,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The settings.")],
    wanted: Targets,
    validate_only: ValidateOnly = False,
    yes: Yes = False,
) -> None:
    """Reset settings to their defaults.

    Example: tidelog config delete log.retention.ms --all-nodes
    """
    entries = _entries(dict.fromkeys(keys), AlterConfigOpType.DELETE)
    targets = wanted.resolve()
    for key in () if validate_only else keys:
        if known := _known_keys_without(key, targets):
            printing.confirm(f"delete {key} where it is set", yes, _sentence(unknown_key(key, known)))
    _change(session, targets, entries, validate_only)


@app.command()
@with_option_groups
@connected
def append(
    session: Session,
    pairs: Pairs,
    wanted: Targets,
    validate_only: ValidateOnly = False,
) -> None:
    """Add values to settings that are lists.

    Example: tidelog config append cleanup.policy=compact --topic flights
    """
    entries = _entries(parse_pairs(pairs, "KEY=VALUE"), AlterConfigOpType.APPEND)
    _change(session, wanted.resolve(), entries, validate_only)


@app.command()
@with_option_groups
@connected
def subtract(
    session: Session,
    pairs: Pairs,
    wanted: Targets,
    validate_only: ValidateOnly = False,
) -> None:
    """Take values out of settings that are lists.

    Example: tidelog config subtract cleanup.policy=delete --topic flights
    """
    entries = _entries(parse_pairs(pairs, "KEY=VALUE"), AlterConfigOpType.SUBTRACT)
    _change(session, wanted.resolve(), entries, validate_only)


def _known_keys_without(key: str, targets: Iterable[_Target]) -> Iterable[str]:
    """Return the known keys of a target that does not have ``key``; empty if all have it."""
    known_keys = (_KEYS[t.resource.restype] for t in targets if t.resource.restype in _KEYS)
    return next((known for known in known_keys if key not in known), ())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith("?") else ".")


def _entries(values: dict[str, str] | dict[str, None], operation: AlterConfigOpType) -> list[ConfigEntry]:
    return [ConfigEntry(key, value, incremental_operation=operation) for key, value in values.items()]


def _change(session: Session, targets: list[_Target], entries: list[ConfigEntry], validate_only: bool) -> None:
    resources = [ConfigResource(t.resource.restype, t.resource.name, incremental_configs=entries) for t in targets]
    with session.admin() as admin:
        futures = admin.incremental_alter_configs(
            resources, request_timeout=session.timeout_s, validate_only=validate_only
        )
        _, errors = printing.settle(futures)
    keys = [entry.name for entry in entries]
    documents = [
        t.document
        | {"configs": keys, "changed": t.resource not in errors and not validate_only}
        | ({"error": printing.error_document(errors[t.resource])} if t.resource in errors else {})
        for t in targets
    ]
    verb = "can change" if validate_only else "changed"
    texts = [f"{verb} {', '.join(keys)} of {t.name}" for t in targets if t.resource not in errors]
    session.done({"resources": documents}, *texts)
    printing.fail(errors.values())


def _chosen(entries: Iterable[ConfigEntry], everything: bool, names: list[str] | None) -> list[ConfigEntry]:
    if names:
        return [entry for entry in entries if entry.name in names]
    return [
        e for e in entries if everything or e.source not in (ConfigSource.DEFAULT_CONFIG, ConfigSource.UNKNOWN_CONFIG)
    ]


def _entry_document(entry: ConfigEntry, of_topic: bool) -> dict[str, Any]:
    return {
        "setting": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": _SOURCES[entry.source],
        "default": _default(entry, of_topic),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "type": entry.config_type,
        "documentation": entry.documentation,
    }


def _default(entry: ConfigEntry, of_topic: bool) -> str | None:
    """Return the default value; for a topic under the topic's key, because a synonym may have another unit."""
    if entry.source is ConfigSource.DEFAULT_CONFIG:
        return entry.value
    if of_topic and entry.name in _TOPIC_DEFAULTS:
        return _TOPIC_DEFAULTS[entry.name]
    return next((s.value for s in entry.synonym_chain if s.source is ConfigSource.DEFAULT_CONFIG), None)


def _print(targets: list[_Target], documents: list[dict[str, Any]]) -> None:
    shown = [(t, d) for t, d in zip(targets, documents, strict=True) if "configs" in d]
    for index, (target, document) in enumerate(shown):
        if index:
            typer.echo()
        if document["configs"]:
            typer.echo(f"{target.name}:")
            printing.print_records(document["configs"], _COLUMNS)
        else:
            typer.echo(f"{target.name}: no setting is changed; --all shows the defaults")
