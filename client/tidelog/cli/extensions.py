"""Commands of other parts: found by the entry point group ``tidelog.commands``, loaded when they are asked for.

An entry point names a typer application, which becomes a group of that name. So the client's command line carries the
node's tools without importing the node, and starts as fast as without them.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.main import get_command

from tidelog.cli.output import CommandGroup
from tidelog.errors import ErrorCode, error_for

ENTRY_POINT_GROUP = "tidelog.commands"

_EXTRAS = {"log": "node"}
"""Commands that every installation shows, and the extra that brings what they need."""


class ExtensibleGroup(CommandGroup):
    """The root group: its own commands, then those of the entry points.

    The types of contexts and commands are typer's own, which have moved between its versions.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        own = super().list_commands(ctx)
        return [*own, *sorted({*_EXTRAS, *entry_points(group=ENTRY_POINT_GROUP).names} - {*own})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None; one whose part is not installed says so when it runs."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = entry_points(group=ENTRY_POINT_GROUP, name=cmd_name)
        if found:
            return _load(cmd_name, next(iter(found)))
        return _absent(cmd_name, f"tidelog_{_EXTRAS[cmd_name]}") if cmd_name in _EXTRAS else None


def _load(name: str, entry_point: EntryPoint) -> Any:
    try:
        application: typer.Typer = entry_point.load()
    except ModuleNotFoundError as error:
        return _absent(name, error.name or str(error))
    command = get_command(application)
    command.name = name
    return command


def _absent(name: str, missing: str) -> Any:
    """Return a command that takes anything and says what to install."""
    extra = _EXTRAS.get(name, "all")
    application = typer.Typer()

    @application.command(
        name,
        help=f"Not available: needs tidelog[{extra}].",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def explain() -> None:
        raise error_for(ErrorCode._STATE, f"{missing} is not installed: pip install 'tidelog[{extra}]'")

    return get_command(application)
