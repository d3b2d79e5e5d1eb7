"""``tidelog topic``: create, list, describe, alter, add-partitions, offsets, delete, delete-records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from tidelog.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tidelog.message import TopicPartition
from tidelog_cli.groups.reset_offsets import partitions_of
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Session, Topic, Topics, ValidateOnly, Yes, connected, parse_pairs
from tidelog_cli.output.printing import (
    UsageError,
    command_group,
    confirm,
    counted,
    counted_names,
    error_document,
    fail,
    settle,
)
from tidelog_cli.topics.describe import TopicFilter, describe_topics, internal_topics
from tidelog_cli.transactions.transaction import PRODUCER_COLUMNS, producer_record
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

app = command_group("Create, list, describe, change and delete topics, and delete their records.")

_DELETION = re.compile(r"(\d+|all):(-1|\d+)", re.ASCII)

ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave out the cluster's internal topics.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic. May be repeated."),
]


@app.command()
@connected
def create(
    session: Session,
    name: Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", help="The number of partitions; -1 means num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            help="Replicas of each partition; -1 means default.replication.factor.",
        ),
    ] = -1,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")] = False,
    validate_only: ValidateOnly = False,
) -> None:
    """Create a topic.

    \b
    Example:
      tidelog topic create flights -p 12 -r 3 --config retention.ms=604800000
    """
    topic = NewTopic(name, partitions, replication_factor, config=parse_pairs(config, "--config"))
    timeout = session.timeout_s
    text = f"{name} can be created" if validate_only else f"created {name}"
    with session.admin() as admin:
        futures = admin.create_topics(
            [topic], operation_timeout=timeout, request_timeout=timeout, validate_only=validate_only
        )
        try:
            futures[name].result()
        except TidelogError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            text = f"{name} exists already"
    session.done({"topic": name, "created": text.startswith("created")}, text)


@app.command("list")
@connected
def list_topics(session: Session, exclude_internal: ExcludeInternal = False) -> None:
    """List the topics with their numbers of partitions and replicas.

    Example: tidelog topic list
    """
    with session.admin() as admin:
        topics = admin.list_topics(timeout=session.timeout_s).topics.values()
    records = [
        {
            "topic": t.topic,
            "partitions": len(t.partitions),
            "replication": max((len(p.replicas) for p in t.partitions.values()), default=0),
        }
        for t in topics
        if not (exclude_internal and t.topic in internal_topics())
    ]
    session.show("topics", records, ("topic", "partitions", "replication"))


@app.command()
@connected
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="The names of the topics. Default: all topics.", autocompletion=complete_topic
        ),
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with fewer in-sync replicas than replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only partitions with exactly min.insync.replicas in sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions with fewer than min.insync.replicas in sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader, or whose leader is down.")
    ] = False,
    with_overrides: Annotated[
        bool, typer.Option("--with-overrides", help="Only topics that override settings, with those settings.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
) -> None:
    """Show the leader, replicas and in-sync replicas of partitions, and the topics' settings.

    Several options that choose partitions show the partitions that any of them chooses.

    \b
    Examples:
      tidelog topic describe flights
      tidelog topic describe --under-replicated --unavailable
    """
    wanted = TopicFilter(under_replicated, at_min_isr, under_min_isr, unavailable, with_overrides, exclude_internal)
    if with_overrides and wanted.chooses_partitions:
        raise UsageError("--with-overrides shows topics; it cannot be combined with options that choose partitions.")
    describe_topics(session, names or None, wanted)


@app.command()
@connected
def alter(
    session: Session,
    name: Topic,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Reset a setting to its default. May be repeated."),
    ] = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Change settings of a topic.

    Example: tidelog topic alter flights -c retention.ms=-1 --delete-config segment.bytes
    """
    entries = [_entry(key, value) for key, value in parse_pairs(config, "--config").items()]
    _check_keys(delete_config or ())
    entries += [_entry(key, None) for key in delete_config or ()]
    if not entries:
        raise UsageError("Nothing to change. Pass --config KEY=VALUE or --delete-config KEY.")
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    with session.admin() as admin:
        futures = admin.incremental_alter_configs(
            [resource], request_timeout=session.timeout_s, validate_only=validate_only
        )
        futures[resource].result()
    changed = [entry.name for entry in entries]
    verb = "can change" if validate_only else "changed"
    session.done(
        {"topic": name, "changed": not validate_only, "configs": changed}, f"{verb} {', '.join(changed)} of {name}"
    )


@app.command("add-partitions")
@connected
def add_partitions(
    session: Session,
    name: Topic,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=1, metavar="N", help="The number of partitions that the topic gets in all."
        ),
    ],
    validate_only: ValidateOnly = False,
) -> None:
    """Add partitions to a topic.

    Keys map to other partitions afterwards, so records of one key may be in two partitions.

    Example: tidelog topic add-partitions flights --partitions 24
    """
    timeout = session.timeout_s
    with session.admin() as admin:
        futures = admin.create_partitions(
            [NewPartitions(name, partitions)],
            operation_timeout=timeout,
            request_timeout=timeout,
            validate_only=validate_only,
        )
        futures[name].result()
    verb = "can have" if validate_only else "has"
    document = {"topic": name, "partitions": partitions, "changed": not validate_only}
    session.done(document, f"{name} {verb} {counted(partitions, 'partition')}")


@app.command()
@connected
def offsets(
    session: Session,
    names: Topics,
) -> None:
    """Show the start and end offsets of each partition's log.

    Example: tidelog topic offsets flights
    """
    with session.admin() as admin, session.consumer({}) as consumer:
        keys = [key for name in names for key in _partitions_of(admin, name, session.timeout_s)]
        records = []
        for key in keys:
            low, high = consumer.get_watermark_offsets(key, session.timeout_s)
            records.append(
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "log_start_offset": low,
                    "high_watermark": high,
                    "offsets": high - low,
                }
            )
    session.show("partitions", records, ("topic", "partition", "log_start_offset", "high_watermark", "offsets"))


@app.command()
@connected
def delete(session: Session, names: Topics, yes: Yes = False) -> None:
    """Delete topics and all their records.

    Example: tidelog topic delete flights --yes
    """
    confirm(f"delete {counted_names('topic', names)} and all records", yes)
    timeout = session.timeout_s
    with session.admin() as admin:
        deleted, errors = settle(admin.delete_topics(names, operation_timeout=timeout, request_timeout=timeout))
    documents = [{"topic": name, "deleted": True} for name in deleted]
    documents += [{"topic": name, "deleted": False, "error": error_document(e)} for name, e in errors.items()]
    session.done({"topics": documents}, *(f"deleted {name}" for name in deleted))
    fail(errors.values())


@app.command("describe-producers")
@connected
def describe_producers(
    session: Session,
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:0,1]", help="Topics, or partitions of them.", autocompletion=complete_topic),
    ],
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="NODE", help="Ask this node. Default: the leaders.")
    ] = None,
) -> None:
    """Show the idempotent and transactional producers of partitions, with the start of their open transaction.

    Example: tidelog topic describe-producers orders:0
    """
    with session.admin() as admin:
        wanted = partitions_of(admin, topics, session.timeout_s)
        futures = admin.describe_producers(wanted, broker_id=broker, request_timeout=session.timeout_s)
        found, errors = settle(futures)
    records = [producer_record(partition, producer) for partition in sorted(found) for producer in found[partition]]
    session.show("producers", records, PRODUCER_COLUMNS)
    fail(errors.values())


@app.command("delete-records")
@connected
def delete_records(
    session: Session,
    name: Topic,
    offsets: Annotated[
        list[str],
        typer.Argument(
            metavar="PARTITION:OFFSET",
            help="Delete the records below the offset; -1 means all committed records. all:-1 empties the topic.",
        ),
    ],
    yes: Yes = False,
) -> None:
    """Delete the records below an offset permanently.

    The offsets of later records stay as they are.

    Example: tidelog topic delete-records flights 0:1500 1:-1 --yes
    """
    timeout = session.timeout_s
    _check_deletions(offsets)
    confirm(f"delete records of topic {name} below {' '.join(offsets)}", yes)
    with session.admin() as admin:
        partitions = _deletions(admin, name, offsets, timeout)
        deleted, errors = settle(admin.delete_records(partitions, operation_timeout=timeout, request_timeout=timeout))
    records: list[dict[str, object]] = [
        {"partition": key.partition, "low_watermark": deleted[key].low_watermark} for key in sorted(deleted)
    ]
    if session.as_json:
        records += [{"partition": key.partition, "error": error_document(errors[key])} for key in sorted(errors)]
    if records or session.as_json:
        session.show("partitions", records, ("partition", "low_watermark"))
    fail(errors.values())


def _check_keys(keys: Iterable[str]) -> None:
    """Refuse to delete a setting that topics do not have: a cluster may accept that without any effect."""
    from tidelog_foundation.config import TopicConfig, describe
    from tidelog_foundation.config.settings import unknown_key

    known = {info.key for info in describe(TopicConfig)}
    for key in keys:
        if key not in known:
            raise typer.BadParameter(unknown_key(key, known), param_hint="--delete-config")


def _entry(key: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(key, value, incremental_operation=operation)


def _partitions_of(admin: AdminClient, topic: str, timeout_s: float) -> list[TopicPartition]:
    known = admin.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise error_for(known.error.error_code(), known.error.str())
    return [TopicPartition(topic, partition) for partition in sorted(known.partitions)]


def _check_deletions(offsets: Iterable[str]) -> None:
    for text in offsets:
        if _DELETION.fullmatch(text) is None:
            raise typer.BadParameter(f'"{text}" is not PARTITION:OFFSET.', param_hint="PARTITION:OFFSET")


def _deletions(admin: AdminClient, topic: str, offsets: list[str], timeout_s: float) -> list[TopicPartition]:
    """Return the partitions and offsets of the arguments; ``all`` means all partitions of the topic."""
    wanted: dict[int, int] = {}
    for text in offsets:
        partition, _, offset = text.partition(":")
        if partition == "all":
            wanted |= {key.partition: int(offset) for key in _partitions_of(admin, topic, timeout_s)}
        else:
            wanted[int(partition)] = int(offset)
    return [TopicPartition(topic, partition, offset) for partition, offset in wanted.items()]
