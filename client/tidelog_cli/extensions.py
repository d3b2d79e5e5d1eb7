"""Commands of other packages, found by their entry points and loaded on demand.

An entry point of the group ``tidelog.commands`` names a typer application, which becomes a group of that name; one of
``tidelog.quorum.commands`` becomes a command of ``tidelog quorum``. So the client's command line includes the tools of
node and quorum without importing them, and starts as fast as without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.main import get_command

from tidelog_cli.output.printing import CommandGroup
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

ENTRY_POINT_GROUP = "tidelog.commands"


class ExtensibleGroup(CommandGroup):
    """A command group with its own commands, followed by those of the entry points. The root command uses it directly.

    Contexts and commands have the type Any, because their classes have moved between versions of typer.
    """

    entry_point_group: ClassVar[str] = ENTRY_POINT_GROUP
    extras: ClassVar[Mapping[str, str]] = {"log": "node"}
    """Commands that every installation lists, and the extra that installs what they need."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        own = super().list_commands(ctx)
        return [*own, *sorted({*self.extras, *_entry_points(self.entry_point_group).names} - {*own})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None. A command whose package is not installed fails with a message when it runs."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        extra = self.extras.get(cmd_name, "all")
        found = _entry_points(self.entry_point_group).select(name=cmd_name)
        if found:
            return _load(cmd_name, next(iter(found)), extra)
        return _absent(cmd_name, f"tidelog_{extra}", extra) if cmd_name in self.extras else None


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # costs 20 ms, which a client's own command does not need

    return entry_points(group=group)


def _load(name: str, entry_point: EntryPoint, extra: str) -> Any:
    try:
        application: typer.Typer = entry_point.load()
    except ModuleNotFoundError as error:
        return _absent(name, error.name or str(error), extra)
    application.rich_markup_mode = None  # as for the root
    command = get_command(application)
    command.name = name
    return command


def _absent(name: str, missing: str, extra: str) -> Any:
    """Return a command that accepts any arguments and names the package to install."""
    application = typer.Typer(add_completion=False)

    @application.command(
        name,
        help=f"Not available: needs the extra {extra} of tidelog.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def explain() -> None:
        raise error_for(ErrorCode._STATE, f"{missing} is not installed: pip install 'tidelog[{extra}]'")

    return get_command(application)
