"""``tidelog cluster``: the controllers and nodes of the cluster, and its features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from tidelog.admin import DescribeClusterResult, FeatureUpdate, UpgradeType
from tidelog_cli.balance.rebalance import rebalance
from tidelog_cli.health.health import doctor, health
from tidelog_cli.options.connection import Session, ValidateOnly, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, counted, print_json, print_records
from tidelog_foundation.config.endpoints import NamedListener, format_address

app = command_group("Show the cluster, its health and its features, and balance the nodes.")
features = command_group("Show and change the levels of features.")
app.add_typer(features, name="features")
app.command()(rebalance)
app.command()(health)
app.command()(doctor)

_NODE_COLUMNS = ("node", "address", "kafka", "rack", "state", "leads")
_CONTROLLER_COLUMNS = ("controller", "address", "role")

Levels = Annotated[
    list[str],
    typer.Argument(
        metavar="FEATURE=LEVEL", help="The levels, such as eligible.leader.replicas.version=1; 0 turns a feature off."
    ),
]


@app.command()
@connected
def describe(session: Session) -> None:
    """Show the cluster's id, the controllers and the nodes.

    Example: tidelog cluster describe --bootstrap-servers node1:9094,node2:9094
    """
    with session.admin() as admin:
        cluster = admin.describe_cluster(request_timeout=session.timeout_s).result()
        topics = admin.list_topics(timeout=session.timeout_s).topics.values()
    led = [p.leader for t in topics for p in t.partitions.values()]
    document = _document(cluster, led) | {"topics": len(topics), "partitions": len(led)}
    if session.as_json:
        print_json(document)
        return
    typer.echo(f"cluster {cluster.cluster_id}: {counted(len(topics), 'topic')}, {counted(len(led), 'partition')}\n")
    print_records(document["controllers"], _CONTROLLER_COLUMNS)
    typer.echo()
    print_records(document["nodes"], _NODE_COLUMNS)


app.command("info", hidden=True)(describe)


@app.command()
@connected
def unregister(
    session: Session,
    node: Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of the node.")],
    yes: Yes = False,
) -> None:
    """Remove a node that is gone for good from the list of nodes (Kafka: kafka-cluster.sh unregister).

    Stop the node first: while it runs it registers again. Its id stays among the replicas of its partitions until
    tidelog partition reassign moves them.

    Example: tidelog cluster unregister 4 --yes
    """
    confirm(f"unregister node {node}", yes)
    with session.admin() as admin:
        admin.unregister_broker(node, request_timeout=session.timeout_s).result()
    session.done({"node": node, "registered": False}, f"unregistered node {node}")


@features.command("describe")
@connected
def describe_features(session: Session) -> None:
    """Show the feature levels that the cluster uses and supports.

    Example: tidelog cluster features describe
    """
    with session.admin() as admin:
        found = admin.describe_features(request_timeout=session.timeout_s).result()
    records = [
        {
            "feature": name,
            "level": found.finalized_features.get(name, 0),
            "min_level": levels.min_version,
            "max_level": levels.max_version,
        }
        for name, levels in sorted(found.supported_features.items())
    ]
    session.show("features", records, ("feature", "level", "min_level", "max_level"))


@features.command()
@connected
def upgrade(session: Session, levels: Levels, validate_only: ValidateOnly = False) -> None:
    """Raise the levels of features, all or none.

    Example: tidelog cluster features upgrade eligible.leader.replicas.version=1
    """
    _update(session, _parse_levels(levels), UpgradeType.UPGRADE, validate_only)


@features.command()
@connected
def downgrade(
    session: Session,
    levels: Levels,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Downgrade even if metadata is lost.")] = False,
    validate_only: ValidateOnly = False,
    yes: Yes = False,
) -> None:
    """Lower the levels of features, all or none; level 0 turns a feature off.

    Example: tidelog cluster features downgrade eligible.leader.replicas.version=0
    """
    wanted = _parse_levels(levels)
    if unsafe and not validate_only:
        confirm(f"lower {', '.join(levels)}, and lose the metadata that needs a higher level", yes)
    _update(session, wanted, UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE, validate_only)


def _update(session: Session, levels: Mapping[str, int], kind: UpgradeType, validate_only: bool) -> None:
    updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
    timeout = session.timeout_s
    with session.admin() as admin:
        futures = admin.update_features(
            updates, validate_only=validate_only, operation_timeout=timeout, request_timeout=timeout
        )
        for future in futures.values():
            future.result()
    verb = "can have" if validate_only else "has"
    document = {"features": dict(levels), "changed": not validate_only}
    session.done(document, *(f"{name} {verb} level {level}" for name, level in levels.items()))


def _parse_levels(texts: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in texts:
        name, separator, level = text.partition("=")
        if not (name and separator and level.isascii() and level.isdigit()):
            raise typer.BadParameter(f'"{text}" is not FEATURE=LEVEL.', param_hint="FEATURE=LEVEL")
        levels[name] = int(level)
    return levels


def _document(cluster: DescribeClusterResult, led: list[int]) -> dict[str, Any]:
    leading = cluster.controller.id if cluster.controller else None
    return {
        "cluster_id": cluster.cluster_id,
        "controllers": [
            {
                "controller": v.id,
                "address": f"{v.host}:{v.port}",
                "role": "leader" if v.id == leading else "follower",
            }
            for v in cluster.voters
        ],
        "nodes": [
            {
                "node": n.id,
                "address": f"{n.host}:{n.port}",
                "kafka": _kafka_addresses(cluster.listeners.get(n.id, ())),
                "rack": n.rack or None,
                "state": "fenced" if n.id in cluster.fenced_ids else "ready",
                "leads": led.count(n.id),
            }
            for n in cluster.nodes
        ],
    }


def _kafka_addresses(listeners: Iterable[NamedListener]) -> list[str]:
    """Return the addresses for the bootstrap.servers of Kafka clients."""
    return [format_address(x.host, x.port) for x in listeners if not x.speaks_grpc]
