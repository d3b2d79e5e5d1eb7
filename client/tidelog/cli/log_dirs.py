"""``tidelog log-dirs``: where replicas are on their nodes' disks, and moving them to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from tidelog.admin import AdminClient, LogDirDescription, TopicPartitionReplica
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, BootstrapServers, Timeout
from tidelog.cli.output import CommandGroup, counted, print_table
from tidelog.errors import TidelogError, error_for

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Show the nodes' log directories, and move replicas between them."
)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic. May be repeated.")
]


@app.command()
def describe(
    nodes: Annotated[
        list[int] | None, typer.Option("--node", "-n", metavar="ID", help="Only this node. May be repeated.")
    ] = None,
    topics: Topics = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show each log directory with its replicas, their bytes and how many offsets they are behind.

    A replica that is marked "future" is the copy of a move that is under way.

    Example: tidelog log-dirs describe --node 1 --topic flights
    """
    failed: list[TidelogError] = []
    with _admin(bootstrap_servers) as admin:
        ids = nodes or [node.id for node in admin.describe_cluster(request_timeout=timeout).result().nodes]
        futures = admin.describe_log_dirs(sorted(set(ids)), request_timeout=timeout)
        for index, (node_id, future) in enumerate(futures.items()):
            try:
                directories = future.result()
            except TidelogError as error:
                failed.append(error_for(error.code, f"node {node_id}: {error.message}"))
                continue
            if index:
                typer.echo()
            _print_node(node_id, directories, topics)
    if failed:
        raise error_for(failed[0].code, "; ".join(error.message for error in failed))


@app.command()
def move(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where to: one of the node's log.dirs.")],
    node: Annotated[int, typer.Option("--node", "-n", metavar="ID", help="The node that has the replicas.")],
    replicas: Annotated[
        list[str], typer.Argument(metavar="TOPIC-PARTITION", help="The replicas, such as flights-0 flights-3.")
    ],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Begin to move replicas of a node to another of its log directories.

    "tidelog log-dirs describe" shows how far it is.

    Example: tidelog log-dirs move /disk2/tidelog flights-0 flights-3 --node 1
    """
    targets = {_replica(text, node): path for text in replicas}
    failed: list[TidelogError] = []
    with _admin(bootstrap_servers) as admin:
        for replica, future in admin.alter_replica_log_dirs(targets, request_timeout=timeout).items():
            name = f"{replica.topic}-{replica.partition}"
            try:
                future.result()
            except TidelogError as error:
                failed.append(error_for(error.code, f"{name}: {error.message}"))
            else:
                typer.echo(f"moving {name} of node {node} to {path}")
    if failed:
        raise error_for(failed[0].code, "; ".join(error.message for error in failed))


def _replica(text: str, node_id: int) -> TopicPartitionReplica:
    topic, separator, partition = text.rpartition("-")
    if not separator or not topic or not (partition.isascii() and partition.isdigit()):
        raise typer.BadParameter(f'"{text}" is not TOPIC-PARTITION', param_hint="TOPIC-PARTITION")
    return TopicPartitionReplica(topic, int(partition), node_id)


def _print_node(node_id: int, directories: dict[str, LogDirDescription], topics: Sequence[str] | None) -> None:
    for path, directory in sorted(directories.items()):
        if directory.error is not None:
            typer.echo(f"node {node_id} {path}: offline, {directory.error}")
            continue
        size = sum(replica.size for replica in directory.replica_infos.values())
        space = f"{directory.usable_bytes:,} of {directory.total_bytes:,} bytes free"
        replicas = counted(len(directory.replica_infos), "replica")
        typer.echo(f"node {node_id} {path}: {replicas}, {size:,} bytes, {space}")
        rows = list(_rows(directory, topics))
        if rows:
            print_table(("  REPLICA", "BYTES", "LAG", "STATE"), rows)


def _rows(directory: LogDirDescription, topics: Sequence[str] | None) -> Iterable[tuple[str, int, int, str]]:
    for key, info in sorted(directory.replica_infos.items()):
        if not topics or key.topic in topics:
            yield (
                f"  {key.topic}-{key.partition}",
                info.size,
                info.offset_lag,
                "future" if info.is_future else "current",
            )


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "client.id": "tidelog-cli"})
