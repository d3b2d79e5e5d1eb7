"""Shell completion of topic and group names; it gives up after a short time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

_TIMEOUT_S = 2.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that start with ``incomplete``."""
    return _beginning(_topics, ctx, incomplete)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that start with ``incomplete``."""
    return _beginning(_groups, ctx, incomplete)


def _topics(settings: dict[str, str]) -> Iterable[str]:
    from tidelog.admin import AdminClient

    with AdminClient(settings) as admin:
        return list(admin.list_topics(timeout=_TIMEOUT_S).topics)


def _groups(settings: dict[str, str]) -> Iterable[str]:
    from tidelog.admin import AdminClient

    with AdminClient(settings) as admin:
        found = admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
        return [group.group_id for group in found.valid]


def _beginning(names: Callable[[dict[str, str]], Iterable[str]], ctx: typer.Context, incomplete: str) -> list[str]:
    from tidelog_cli.options.connection import find_cluster

    try:
        cluster = find_cluster(ctx.params.get("bootstrap_servers"), ctx.params.get("profile"))
        return sorted(name for name in names(cluster.profile.settings) if name.startswith(incomplete))
    except Exception:  # noqa: BLE001  # after any error there is nothing to complete
        return []
