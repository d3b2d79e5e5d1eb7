"""``tidelog topic``: create, list, describe, delete, delete-records."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tidelog.admin import AdminClient, NewTopic, TopicDescription
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    BootstrapServers,
    Timeout,
    parse_pairs,
)
from tidelog.cli.output import CommandGroup, counted, print_table
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.message import TopicPartition

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Create, list, describe and delete topics, and delete records of them."
)

_DELETION = re.compile(r"(\d+|all):(-1|\d+)", re.ASCII)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics' names.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", help="How many partitions; -1 takes num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", metavar="N", help="Replicas of each; -1 takes default.replication.factor."
        ),
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic. May be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create a topic.

    \b
    Example:
      tidelog topic create flights -p 12 -r 3 --config retention.ms=604800000
    """
    topic = NewTopic(name, partitions, replication_factor, config=parse_pairs(config, "--config"))
    with _admin(bootstrap_servers) as admin:
        try:
            admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)[name].result()
        except TidelogError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            typer.echo(f"{name} exists already")
        else:
            typer.echo(f"created {name}")


@app.command("list")
def list_topics(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, timeout: Timeout = DEFAULT_TIMEOUT_S
) -> None:
    """List the topics with their numbers of partitions and replicas.

    Example: tidelog topic list
    """
    with _admin(bootstrap_servers) as admin:
        topics = admin.list_topics(timeout=timeout).topics.values()
    rows = [
        (t.topic, len(t.partitions), max((len(p.replicas) for p in t.partitions.values()), default=0)) for t in topics
    ]
    print_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows)


@app.command()
def describe(
    names: Names,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the leader, replicas and in-sync replicas of each partition, and the topic's settings.

    Example: tidelog topic describe flights
    """
    with _admin(bootstrap_servers) as admin:
        futures = admin.describe_topics(names, request_timeout=timeout)
        for index, name in enumerate(names):
            if index:
                typer.echo()
            _print_description(futures[name].result())


@app.command()
def delete(
    names: Names,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete topics and all their records.

    Example: tidelog topic delete flights
    """
    with _admin(bootstrap_servers) as admin:
        futures = admin.delete_topics(names, operation_timeout=timeout, request_timeout=timeout)
        failed: list[TidelogError] = []
        for name in names:
            try:
                futures[name].result()
            except TidelogError as error:
                failed.append(error)
            else:
                typer.echo(f"deleted {name}")
    if failed:
        raise error_for(failed[0].code, "; ".join(error.message for error in failed))


@app.command("delete-records")
def delete_records(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    offsets: Annotated[
        list[str],
        typer.Argument(
            metavar="PARTITION:OFFSET",
            help="Delete what is below the offset; -1: all that are committed. all:-1 empties the topic.",
        ),
    ],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete the records below an offset, for good.

    The offsets of later records stay as they are.

    Example: tidelog topic delete-records flights 0:1500 1:-1
    """
    with _admin(bootstrap_servers) as admin:
        partitions = _deletions(admin, name, offsets, timeout)
        futures = admin.delete_records(partitions, operation_timeout=timeout, request_timeout=timeout)
        rows = []
        failed: list[TidelogError] = []
        for partition in sorted(futures):
            try:
                rows.append((partition.partition, futures[partition].result().low_watermark))
            except TidelogError as error:
                failed.append(error)
    if rows:
        print_table(("PARTITION", "LOW WATERMARK"), rows)
    if failed:
        raise error_for(failed[0].code, "; ".join(error.message for error in failed))


def _deletions(admin: AdminClient, topic: str, offsets: list[str], timeout_s: float) -> list[TopicPartition]:
    """Return what the arguments name; ``all`` stands for all partitions that the topic has."""
    wanted: dict[int, int] = {}
    for text in offsets:
        match = _DELETION.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f'"{text}" is not PARTITION:OFFSET', param_hint="PARTITION:OFFSET")
        partition, offset = match.groups()
        if partition == "all":
            known = admin.list_topics(topic, timeout=timeout_s).topics[topic]
            if known.error is not None:
                raise error_for(known.error.error_code(), known.error.str())
            wanted |= dict.fromkeys(known.partitions, int(offset))
        else:
            wanted[int(partition)] = int(offset)
    return [TopicPartition(topic, partition, offset) for partition, offset in wanted.items()]


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "client.id": "tidelog-cli"})


def _print_description(topic: TopicDescription) -> None:
    replicas = max((len(p.replicas) for p in topic.partitions), default=0)
    typer.echo(f"{topic.name}: {counted(len(topic.partitions), 'partition')}, replication factor {replicas}")
    for key, value in sorted(topic.config.items()):
        typer.echo(f"  {key}={value}")
    rows = [
        (
            p.id,
            "none" if p.leader is None else p.leader.id,
            p.leader_epoch,
            ",".join(str(n.id) for n in p.replicas),
            ",".join(str(n.id) for n in p.isr),
        )
        for p in topic.partitions
    ]
    print_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"), rows)
