"""``tidelog link``: create, list, describe, alter, delete."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tidelog.admin import MirrorTopicState
from tidelog_cli.options.connection import Session, Yes, connected, parse_pairs
from tidelog_cli.output.printing import UsageError, command_group, confirm, counted
from tidelog_foundation.config.process import load_properties

app = command_group("Copy topics of other clusters, byte for byte (cluster links).")

_COLUMNS = ("link", "source_cluster_id", "mirror_topics", "bootstrap.servers")
_Name = Annotated[str, typer.Argument(metavar="LINK", help="The link's name.")]
_Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the link. May be repeated."),
]
_ConfigFile = Annotated[
    Path | None, typer.Option("--config-file", metavar="FILE", help="A properties file with settings of the link.")
]
_Source = Annotated[
    str | None,
    typer.Option("--source", "-s", metavar="HOST:PORT,...", help="Addresses of the source: its bootstrap.servers."),
]


@app.command()
@connected
def create(
    session: Session, name: _Name, source: _Source = None, config: _Config = None, config_file: _ConfigFile = None
) -> None:
    """Create a link to another cluster, Apache Kafka or Tidelog (Confluent: kafka-cluster-links --create).

    \b
    Examples:
      tidelog link create from-kafka --source kafka-1:9092
      tidelog link create other --source kafka-1:9093 --config-file a.properties
    """
    settings = _settings(source, config, config_file)
    if "bootstrap.servers" not in settings:
        raise UsageError("Pass the addresses of the source with --source.")
    with session.admin() as admin:
        admin.create_cluster_link(name, settings, request_timeout=session.timeout_s).result()
    session.done({"link": name}, f"created link {name}")


@app.command("list")
@connected
def list_links(session: Session) -> None:
    """List the links with their settings; secrets are hidden.

    Example: tidelog link list
    """
    with session.admin() as admin:
        links = admin.list_cluster_links(request_timeout=session.timeout_s).result()
    rows = [
        {
            "link": link.name,
            "source_cluster_id": link.source_cluster_id,
            "mirror_topics": link.mirror_topics,
            "bootstrap.servers": link.settings.get("bootstrap.servers", ""),
            "settings": link.settings,
        }
        for link in links
    ]
    session.show("links", rows, _COLUMNS)


@app.command()
@connected
def describe(session: Session, name: _Name) -> None:
    """Describe a link: its settings, and why fetches fail (Confluent: kafka-cluster-links --describe).

    Its state is ACTIVE, or UNAVAILABLE while no partition can be copied. A link without mirrors does not connect.

    Example: tidelog link describe from-kafka
    """
    with session.admin() as admin:
        links = admin.list_cluster_links(request_timeout=session.timeout_s)
        mirrors = admin.describe_mirror_topics(name, request_timeout=session.timeout_s).result()
        link = next(link for link in links.result() if link.name == name)
    copied = (m for m in mirrors.values() if m.state in (MirrorTopicState.ACTIVE, MirrorTopicState.PENDING_STOPPED))
    partitions = [partition for mirror in copied for partition in mirror.partitions.values()]
    errors = Counter(str(p.error) for p in partitions if p.error is not None)
    state = "UNAVAILABLE" if partitions and errors.total() == len(partitions) else "ACTIVE"
    document = {
        "link": name,
        "state": state,
        "source_cluster_id": link.source_cluster_id,
        "mirror_topics": link.mirror_topics,
        "settings": link.settings,
        "errors": [{"error": text, "partitions": count} for text, count in errors.items()],
    }
    first = f"{name}: {state}, {counted(link.mirror_topics, 'mirror topic')} of cluster {link.source_cluster_id}"
    settings = (f"  {key}={value}" for key, value in sorted(link.settings.items()))
    failures = (f"  {counted(count, 'partition')} failing: {text}" for text, count in errors.items())
    session.done(document, first, *settings, *failures)


@app.command()
@connected
def alter(
    session: Session,
    name: _Name,
    source: _Source = None,
    config: _Config = None,
    config_file: _ConfigFile = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A setting to remove. May be repeated.")
    ] = None,
) -> None:
    """Change settings of a link, such as its addresses or its password.

    Example: tidelog link alter from-kafka --config consumer.offset.sync.enable=true
    """
    settings, removed = _settings(source, config, config_file), delete_config or []
    if not settings and not removed:
        raise UsageError("Nothing to change. Pass --source, --config KEY=VALUE or --delete-config KEY.")
    with session.admin() as admin:
        admin.alter_cluster_link(name, settings, removed=removed, request_timeout=session.timeout_s).result()
    session.done({"link": name, "set": sorted(settings), "deleted": removed}, f"altered link {name}")


@app.command()
@connected
def delete(session: Session, name: _Name, yes: Yes = False) -> None:
    """Delete a link, after its mirror topics are promoted, failed over or deleted.

    Example: tidelog link delete from-kafka --yes
    """
    confirm(f"delete link {name}", yes)
    with session.admin() as admin:
        admin.delete_cluster_link(name, request_timeout=session.timeout_s).result()
    session.done({"link": name}, f"deleted link {name}")


def _settings(source: str | None, config: list[str] | None, config_file: Path | None) -> dict[str, str]:
    settings = {} if config_file is None else load_properties(config_file)
    settings |= parse_pairs(config, "--config")
    return settings | ({} if source is None else {"bootstrap.servers": source})
