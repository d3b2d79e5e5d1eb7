"""``tidelog quorum restore`` and ``recover``: a controller becomes the lone voter of a new quorum.

Both change the folder of a stopped controller, without a connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog_cli.output.printing import UsageError, counted, print_json
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog_quorum.metadata.restoration import Restoration
    from tidelog_quorum.server.config import QuorumConfig

_RISK = """\
WARNING: a quorum of one controller begins, without the others.
- If the other controllers ever start again with their disks, the cluster has two quorums, which both acknowledge
  changes. Erase their metadata.log.dir first.
- Changes that only they have stored are lost: topics, configurations, ACLs, users, quotas.
- Nodes that run end, and must be started again."""

Properties = Annotated[
    Path, typer.Argument(metavar="PROPERTIES", exists=True, help="The properties file of the stopped controller.")
]
Inventories = Annotated[
    list[Path] | None,
    typer.Option(
        "--replicas",
        metavar="FILE",
        exists=True,
        help="What tidelog log replicas --json printed on a stopped node. Once for each node: the longest log of each "
        "partition leads.",
    ),
]
WithoutNodes = Annotated[
    list[int] | None,
    typer.Option("--without-node", metavar="ID", help="A node that is lost for good, and has no file for --replicas."),
]
RecordedIsrs = Annotated[
    bool,
    typer.Option(
        "--recorded-isrs",
        help="Trust the in-sync replicas in the metadata, in place of --replicas. Acknowledged records are lost if "
        "they have changed since.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the result.")]


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, help="A backup of tidelog quorum backup.")],
    properties: Properties,
    replicas: Inventories = None,
    without_node: WithoutNodes = None,
    recorded_isrs: RecordedIsrs = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Begin a new quorum with a backup, on a controller that has never run.

    The cluster keeps its id, topics, configurations, ACLs, users, quotas and features as of the backup. Start the
    controller, then add others with add-voter, then start the nodes. Topics that were created since the backup are
    unknown to it: nodes keep their directories aside, with the suffix -stray.

    \b
    Example:
      tidelog quorum restore metadata.backup controller.properties \\
        --replicas node-1.json --replicas node-2.json --replicas node-3.json
    """
    from tidelog_quorum.tools.backup_file import read_backup
    from tidelog_quorum.tools.new_quorum import check_can_begin, write_new_quorum

    config = _config(properties)
    check_can_begin(config, is_new=True)
    backup, image = read_backup(file)
    if backup.cluster_id != config.cluster_id:
        text = f'{file} is of cluster "{backup.cluster_id}", cluster.id is "{config.cluster_id}" in {properties}'
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    restoration = _restored(config, image, replicas, without_node, recorded_isrs)
    if not dry_run:
        write_new_quorum(config, restoration.image)
    _report(config, image.offset, restoration, dry_run, as_json)


def recover(
    properties: Properties,
    cluster_id: Annotated[str, typer.Option("--cluster-id", metavar="ID", help="The cluster's id, as a confirmation.")],
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Accept that changes which only lost controllers have are lost.")
    ] = False,
    replicas: Inventories = None,
    without_node: WithoutNodes = None,
    recorded_isrs: RecordedIsrs = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a stopped controller the only voter, after most controllers were lost for good.

    This is unsafe: the lost controllers may have acknowledged changes that this one does not have. Of several
    survivors, choose the one with the longest log (tidelog quorum dump DIR). The others must never start again with
    their disks.

    \b
    Example:
      tidelog quorum recover controller.properties --unsafe \\
        --cluster-id my-cluster --recorded-isrs
    """
    from tidelog_quorum.tools.new_quorum import check_can_begin, surviving_image, write_new_quorum

    typer.echo(_RISK, err=True)
    if not unsafe and not dry_run:
        raise UsageError("Refusing to discard the other controllers' logs without --unsafe.")
    config = _config(properties)
    if cluster_id != config.cluster_id:
        raise UsageError(f'--cluster-id is "{cluster_id}", but cluster.id is "{config.cluster_id}" in {properties}.')
    check_can_begin(config, is_new=False)
    image = surviving_image(config)
    restoration = _restored(config, image, replicas, without_node, recorded_isrs)
    if not dry_run:
        write_new_quorum(config, restoration.image)
    _report(config, image.offset, restoration, dry_run, as_json)


def _config(properties: Path) -> QuorumConfig:
    from tidelog_foundation.config.process import load_properties
    from tidelog_foundation.config.providers import resolve_settings
    from tidelog_quorum.server.config import parse_quorum_config

    return parse_quorum_config(resolve_settings(load_properties(properties)))


def _restored(
    config: QuorumConfig, image: Any, files: list[Path] | None, without: list[int] | None, recorded_isrs: bool
) -> Restoration:
    from tidelog_foundation.ids import BrokerId
    from tidelog_quorum.metadata.replica_inventory import parse_inventory
    from tidelog_quorum.metadata.restoration import restored

    if bool(files) == recorded_isrs:
        raise UsageError("Pass --replicas for each node, or --recorded-isrs to trust the in-sync replicas as recorded.")
    if without and recorded_isrs:
        raise UsageError("--without-node has no effect with --recorded-isrs.")
    inventories = [parse_inventory(file.read_text(), str(file)) for file in files or ()]
    for inventory in inventories:
        if inventory.cluster_id != config.cluster_id:
            text = f'the inventory of node {inventory.node_id} is of cluster "{inventory.cluster_id}"'
            raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    return restored(image, None if recorded_isrs else inventories, [BrokerId(node) for node in without or ()])


def _report(config: QuorumConfig, offset: int, restoration: Restoration, dry_run: bool, as_json: bool) -> None:
    from tidelog_quorum.metadata.restoration import listed

    image = restoration.image
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    if as_json:
        document = {
            "controller": config.node_id,
            "cluster_id": config.cluster_id,
            "offset": offset,
            "changed": not dry_run,
            "topics": len(image.topics),
            "partitions": partitions,
            "moved": list(restoration.moved),
            "empty": list(restoration.empty),
            "strays": list(restoration.strays),
        }
        print_json(document)
        return
    verb = "would become" if dry_run else "is"
    typer.echo(
        f"controller {config.node_id} {verb} the only voter of cluster {config.cluster_id}, with the metadata of "
        f"offset {offset}: {counted(len(image.topics), 'topic')}, {counted(partitions, 'partition')}"
    )
    notes = (
        (restoration.moved, "were moved since; their replicas are the nodes that have them"),
        (restoration.empty, "have no replica on any disk, and will be empty"),
        (restoration.strays, "are unknown to this metadata; nodes will keep their directories aside as strays"),
    )
    for names, text in notes:
        if names:
            typer.echo(f"{counted(len(names), 'partition')} {text}: {listed(names)}")
