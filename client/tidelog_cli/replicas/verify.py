"""``tidelog verify``: compares the replicas of partitions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tidelog.admin import AdminClient, ConfigResource, ResourceType
from tidelog.message import TopicPartition
from tidelog_cli.groups.reset_offsets import partitions_of
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.output.printing import CommandGroup, counted, settle
from tidelog_cli.replicas.check import DIFFERENT, SAME, PartitionCheck, ReplicaCheck

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Compare the replicas of partitions with each other.")

_COLUMNS = ("topic", "partition", "replicas", "from_offset", "to_offset", "batches", "result", "detail")


@app.callback()
def _verify() -> None:
    """Compare the replicas of partitions with each other."""


@app.command()
@connected
def replicas(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Topics, or partitions of them. Default: all topics.",
            autocompletion=complete_topic,
        ),
    ] = None,
    max_bytes: Annotated[
        int,
        typer.Option("--fetch-size", min=1, metavar="BYTES", help="The bytes to read from a replica at a time."),
    ] = 1_048_576,
) -> None:
    """Read each replica of partitions up to the high watermark, and compare them byte by byte.

    Partitions are read one after another, from the first offset that all replicas have to the high watermark at the
    start. Replicas of a compacted topic may be compacted to different extents: only their common records are
    compared. Exit code 1: replicas differ, or one could not be read.

    \b
    Examples:
      tidelog verify replicas
      tidelog verify replicas flights:0,1 orders --json
    """
    with session.admin() as admin:
        keys = _wanted(admin, topics, session.timeout_s)
        compacted = _compacted(admin, {key.topic for key in keys}, session.timeout_s)
    check = ReplicaCheck(session.settings, max_bytes, session.timeout_s)
    try:
        found = list(_checked(check, keys, compacted))
    finally:
        check.close()
    session.show("partitions", [_document(one) for one in found], _COLUMNS)
    bad = [one for one in found if one.result != SAME]
    if not bad:
        typer.echo(f"the replicas of {counted(len(found), 'partition')} are the same", err=True)
        return
    different = sum(one.result == DIFFERENT for one in bad)
    typer.echo(
        f"{different} of {counted(len(found), 'partition')} differ, {len(bad) - different} not compared", err=True
    )
    raise typer.Exit(1)


def _wanted(admin: AdminClient, topics: list[str] | None, timeout_s: float) -> list[TopicPartition]:
    if topics:
        return partitions_of(admin, topics, timeout_s)
    known = admin.list_topics(timeout=timeout_s).topics
    return [TopicPartition(name, index) for name, topic in sorted(known.items()) for index in sorted(topic.partitions)]


def _compacted(admin: AdminClient, topics: set[str], timeout_s: float) -> set[str]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
    found, errors = settle(admin.describe_configs(resources, request_timeout=timeout_s) if resources else {})
    for error in errors.values():
        raise error
    return {r.name for r, configs in found.items() if "compact" in str(configs["cleanup.policy"].value)}


def _checked(check: ReplicaCheck, keys: list[TopicPartition], compacted: set[str]) -> Iterator[PartitionCheck]:
    for number, key in enumerate(keys, 1):
        yield check.run(key, is_compacted=key.topic in compacted)
        if sys.stderr.isatty():
            typer.echo(f"{number} of {counted(len(keys), 'partition')}\r", err=True, nl=False)


def _document(found: PartitionCheck) -> dict[str, Any]:
    return {
        "topic": found.key.topic,
        "partition": found.key.partition,
        "replicas": found.replicas,
        "from_offset": found.from_offset,
        "to_offset": found.to_offset,
        "batches": found.batches,
        "result": found.result,
        "detail": found.detail or None,
    }
