"""``tidelog cluster``: what the cluster is made of."""

from __future__ import annotations

import typer

from tidelog.admin import AdminClient
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, BootstrapServers, Timeout
from tidelog.cli.output import CommandGroup, counted, print_table

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Show the controllers and the nodes of a cluster.")


@app.callback()
def _cluster() -> None:
    """Show the controllers and the nodes of a cluster."""


@app.command()
def info(bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, timeout: Timeout = DEFAULT_TIMEOUT_S) -> None:
    """Show the cluster's id, the controllers and the nodes.

    Example: tidelog cluster info --bootstrap-servers node1:9094,node2:9094
    """
    with AdminClient({"bootstrap.servers": bootstrap_servers, "client.id": "tidelog-cli"}) as admin:
        cluster = admin.describe_cluster(request_timeout=timeout).result()
        topics = admin.list_topics(timeout=timeout).topics.values()
    leading = cluster.controller.id if cluster.controller else None
    led = [p.leader for t in topics for p in t.partitions.values()]
    typer.echo(f"cluster {cluster.cluster_id}: {counted(len(topics), 'topic')}, {counted(len(led), 'partition')}\n")
    voters = [(v.id, f"{v.host}:{v.port}", "leader" if v.id == leading else "follower") for v in cluster.voters]
    print_table(("CONTROLLER", "ADDRESS", "ROLE"), voters)
    typer.echo()
    nodes = [
        (
            n.id,
            f"{n.host}:{n.port}",
            n.rack or "-",
            "fenced" if n.id in cluster.fenced_ids else "ready",
            led.count(n.id),
        )
        for n in cluster.nodes
    ]
    print_table(("NODE", "ADDRESS", "RACK", "STATE", "LEADS"), nodes)
