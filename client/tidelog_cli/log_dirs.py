"""``tidelog log-dirs``: shows replicas in the nodes' log directories, and moves them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import typer

from tidelog.admin import LogDirDescription, TopicPartitionReplica
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.output.printing import command_group, counted, error_document, fail, print_json, print_table, settle
from tidelog_foundation.errors import TidelogError, error_for

app = command_group("Show the nodes' log directories, and move replicas between them.")

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic. May be repeated.")
]


@app.command()
@connected
def describe(
    session: Session,
    nodes: Annotated[
        list[int] | None, typer.Option("--node", "-n", metavar="ID", help="Only this node. May be repeated.")
    ] = None,
    topics: Topics = None,
) -> None:
    """Show each log directory with its replicas, their size and lag.

    A replica marked "future" is the copy of a move in progress.

    Example: tidelog log-dirs describe --node 1 --topic flights
    """
    timeout = session.timeout_s
    with session.admin() as admin:
        ids = nodes or [node.id for node in admin.describe_cluster(request_timeout=timeout).result().nodes]
        found, errors = settle(admin.describe_log_dirs(sorted(set(ids)), request_timeout=timeout))
    documents = [
        {"node": node_id, "log_dirs": [_document(path, d, topics) for path, d in sorted(directories.items())]}
        for node_id, directories in found.items()
    ]
    if session.as_json:
        print_json({"nodes": documents + [{"node": n, "error": error_document(e)} for n, e in errors.items()]})
    else:
        for index, document in enumerate(documents):
            if index:
                typer.echo()
            _print_node(document)
    fail(_of(f"node {node_id}", error) for node_id, error in errors.items())


@app.command()
@connected
def move(
    session: Session,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The target directory, one of the node's log.dirs.")],
    node: Annotated[int, typer.Option("--node", "-n", metavar="ID", help="The node that has the replicas.")],
    replicas: Annotated[
        list[str], typer.Argument(metavar="TOPIC-PARTITION", help="The replicas, such as flights-0 flights-3.")
    ],
) -> None:
    """Start moving replicas of a node to another of its log directories.

    "tidelog log-dirs describe" shows the progress.

    Example: tidelog log-dirs move /disk2/tidelog flights-0 flights-3 --node 1
    """
    targets = {_replica(text, node): path for text in replicas}
    with session.admin() as admin:
        begun, errors = settle(admin.alter_replica_log_dirs(targets, request_timeout=session.timeout_s))
    documents: list[dict[str, Any]] = [{"replica": _name(r), "moving": True} for r in begun]
    documents += [{"replica": _name(r), "moving": False, "error": error_document(e)} for r, e in errors.items()]
    texts = [f"moving {_name(replica)} of node {node} to {path}" for replica in begun]
    session.done({"node": node, "log_dir": path, "replicas": documents}, *texts)
    fail(_of(_name(replica), error) for replica, error in errors.items())


def _of(what: str, error: TidelogError) -> TidelogError:
    return error_for(error.code, f"{what}: {error.message}")


def _name(replica: TopicPartitionReplica) -> str:
    return f"{replica.topic}-{replica.partition}"


def _replica(text: str, node_id: int) -> TopicPartitionReplica:
    topic, separator, partition = text.rpartition("-")
    if not separator or not topic or not (partition.isascii() and partition.isdigit()):
        raise typer.BadParameter(f'"{text}" is not TOPIC-PARTITION.', param_hint="TOPIC-PARTITION")
    return TopicPartitionReplica(topic, int(partition), node_id)


def _document(path: str, directory: LogDirDescription, topics: Collection[str] | None) -> dict[str, Any]:
    if directory.error is not None:
        return {"path": path, "error": str(directory.error)}
    return {
        "path": path,
        "replica_count": len(directory.replica_infos),
        "bytes": sum(replica.size for replica in directory.replica_infos.values()),
        "usable_bytes": directory.usable_bytes,
        "total_bytes": directory.total_bytes,
        "replicas": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "bytes": info.size,
                "lag": info.offset_lag,
                "future": info.is_future,
            }
            for key, info in sorted(directory.replica_infos.items())
            if not topics or key.topic in topics
        ],
    }


def _print_node(document: dict[str, Any]) -> None:
    for directory in document["log_dirs"]:
        place = f"node {document['node']} {directory['path']}"
        if "error" in directory:
            typer.echo(f"{place}: offline, {directory['error']}")
            continue
        space = f"{directory['usable_bytes']:,} of {directory['total_bytes']:,} bytes free"
        typer.echo(f"{place}: {counted(directory['replica_count'], 'replica')}, {directory['bytes']:,} bytes, {space}")
        rows = [
            (f"  {r['topic']}-{r['partition']}", r["bytes"], r["lag"], "future" if r["future"] else "current")
            for r in directory["replicas"]
        ]
        if rows:
            print_table(("  REPLICA", "BYTES", "LAG", "STATE"), rows)
