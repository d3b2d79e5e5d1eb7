"""``tidelog quorum log-levels``: the levels of a controller's loggers, which change while it runs (KIP-412)."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog_cli.options.connection import Session, connected, parse_pairs
from tidelog_cli.options.controllers import Controllers


@connected
def log_levels(
    session: Session,
    controller: Annotated[int, typer.Argument(metavar="CONTROLLER", help="The id of the controller.")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOGGER=LEVEL]...", help="Levels to set: FATAL, ERROR, WARN, INFO, DEBUG or TRACE."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="LOGGER", help="Give a logger the level above it. May be repeated."),
    ] = None,
    bootstrap_controller: Controllers = None,
) -> None:
    """Show the levels of a controller's loggers, or change them until it ends.

    \b
    Examples:
      tidelog quorum log-levels 1
      tidelog quorum log-levels 1 tidelog_quorum.raft=DEBUG
    """
    levels: dict[str, str | None] = {**parse_pairs(pairs or [], "LOGGER=LEVEL"), **dict.fromkeys(unset or [])}
    with session.quorum_admin(bootstrap_controller) as admin:
        if levels:
            admin.alter_log_levels(controller, levels, request_timeout=session.timeout_s)
            document = {"controller": controller, "changed": sorted(levels)}
            session.done(document, f"changed {', '.join(sorted(levels))} of controller {controller}")
            return
        found = admin.describe_log_levels(controller, request_timeout=session.timeout_s)
    session.show("loggers", [{"logger": name, "level": level} for name, level in found.items()], ("logger", "level"))
