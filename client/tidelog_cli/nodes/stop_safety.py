"""``tidelog node safe-to-stop``: whether a process can stop and everything stays available."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from tidelog.admin import AdminClient, StopSafety
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.options.durations import seconds
from tidelog_cli.output.printing import print_json, print_records
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests import stop_safety as kinds

_POLL_S: Final = 0.5
_REASONS: Final = {
    kinds.LAST_IN_SYNC_REPLICA: "has no other in-sync replica",
    kinds.BELOW_MIN_INSYNC_REPLICAS: "would fall below min.insync.replicas",
    kinds.NOT_REDUNDANT: "has no replica to spare, ever",
    kinds.ALREADY_BELOW: "is below min.insync.replicas already (does not count)",
    kinds.QUORUM_MAJORITY: "would lose its majority",
}
_PASSING: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode._TRANSPORT, ErrorCode.NOT_CONTROLLER)
"""Errors while the leadership of the quorum moves."""


@connected
def safe_to_stop(
    session: Session,
    process: Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of the node or controller.")],
    controller: Annotated[bool, typer.Option("--controller", help="The id is a controller's, not a node's.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the process can stop, if that can change.")] = False,
    wait_timeout: Annotated[
        float,
        typer.Option("--wait-timeout", parser=seconds(0.1), metavar="SECONDS", help="The limit of --wait."),
    ] = 300.0,
    ignore_unreplicated: Annotated[
        bool,
        typer.Option(
            "--ignore-unreplicated",
            help="Ignore partitions that every stop hits: with one replica, or as many as min.insync.replicas.",
        ),
    ] = False,
) -> None:
    """Tell whether a process can stop and everything stays available. Exit with 0 if so, else with 1.

    A node can stop if no partition falls below min.insync.replicas or loses its last in-sync replica, and a controller
    if the quorum keeps a majority.

    Example: tidelog node safe-to-stop 2 --wait --wait-timeout 60
    """
    deadline = time.monotonic() + (wait_timeout if wait else 0)
    with session.admin() as admin:
        while True:
            found = _describe(admin, session, process, controller, deadline)
            if found is not None:
                is_safe = found.is_safe(ignores_unreplicated=ignore_unreplicated)
                if is_safe or not found.waiting_helps or time.monotonic() + _POLL_S > deadline:
                    break
            time.sleep(_POLL_S)
    _show(session, process, found, is_safe)
    raise typer.Exit(0 if is_safe else 1)


def _describe(
    admin: AdminClient, session: Session, process: int, is_controller: bool, deadline: float
) -> StopSafety | None:
    """Return the leader's answer, or None if there is none now but time to ask again."""
    try:
        return admin.describe_stop_safety(
            process, is_controller=is_controller, request_timeout=session.timeout_s
        ).result()
    except TidelogError as error:
        if error.code not in _PASSING or time.monotonic() + _POLL_S > deadline:
            raise
        return None


def _show(session: Session, process: int, found: StopSafety, is_safe: bool) -> None:
    if session.as_json:
        print_json({"process": process, "safe_to_stop": is_safe, **asdict(found)})
        return
    typer.echo(f"{process} {'can' if is_safe else 'cannot'} stop safely")
    if found.obstacles:
        typer.echo()
        print_records(_records(found), ("what", "in_sync", "required", "reason"))
    hidden = sum(each.count for each in found.counts) - len(found.obstacles)
    if hidden:
        typer.echo(f"... and {hidden} more")


def _records(found: StopSafety) -> list[dict[str, Any]]:
    return [
        {
            "what": f"{each.topic}-{each.partition}" if each.topic else "quorum",
            "in_sync": list(each.in_sync),
            "required": each.required,
            "reason": _REASONS.get(each.kind, each.kind),
        }
        for each in found.obstacles
    ]
