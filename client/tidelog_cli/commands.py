"""The ``tidelog`` command: its subcommands, each imported on demand, and their common options.

The node provides the ``log`` command.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_command

from tidelog_cli.extensions import ExtensibleGroup
from tidelog_cli.output.log_lines import Verbose, show_log_lines

_RECORDS, _TOPICS, _CLUSTER, _TOOLS = "Records", "Topics and groups", "The cluster", "Around it"


@dataclass(frozen=True, slots=True)
class _Home:
    """The location of a command: a module, an application or function in it, and its heading."""

    module: str
    panel: str
    name: str = "app"


_HOMES = {
    "produce": _Home("tidelog_cli.records.produce", _RECORDS, "produce"),
    "consume": _Home("tidelog_cli.records.consume", _RECORDS, "consume"),
    "sql": _Home("tidelog_cli.sql.sql", _RECORDS, "sql"),
    "connect": _Home("tidelog_cli.connect.connect", _RECORDS, "connect"),
    "connector": _Home("tidelog_cli.connect.connector", _RECORDS),
    "pipeline": _Home("tidelog_cli.connect.pipeline", _RECORDS),
    "topic": _Home("tidelog_cli.topics.topic", _TOPICS),
    "group": _Home("tidelog_cli.groups.group", _TOPICS),
    "transaction": _Home("tidelog_cli.transactions.transaction", _TOPICS),
    "spark-sink": _Home("tidelog_cli.spark.spark_sink", _TOPICS),
    "acl": _Home("tidelog_cli.acls.acl", _TOPICS),
    "user": _Home("tidelog_cli.users.user", _TOPICS),
    "token": _Home("tidelog_cli.tokens.token", _TOPICS),
    "quota": _Home("tidelog_cli.quotas.quota", _TOPICS),
    "link": _Home("tidelog_cli.links.link", _TOPICS),
    "mirror": _Home("tidelog_cli.links.mirror", _TOPICS),
    "config": _Home("tidelog_cli.config", _TOPICS),
    "partition": _Home("tidelog_cli.partitions.partition", _TOPICS),
    "cluster": _Home("tidelog_cli.cluster", _CLUSTER),
    "node": _Home("tidelog_cli.nodes.node", _CLUSTER),
    "quorum": _Home("tidelog_cli.quorum", _CLUSTER),
    "log-dirs": _Home("tidelog_cli.log_dirs", _CLUSTER),
    "verify": _Home("tidelog_cli.replicas.verify", _CLUSTER),
    "profile": _Home("tidelog_cli.options.profile", _TOOLS),
    "certificate": _Home("tidelog_cli.certificate", _TOOLS, "certificate"),
    "dev": _Home("tidelog_cli.dev", _TOOLS, "dev"),
    "bench": _Home("tidelog_cli.bench.bench", _TOOLS),
    "chaos": _Home("tidelog_cli.chaos.chaos", _TOOLS),
}


class _Root(ExtensibleGroup):
    panel_order: ClassVar[Sequence[str]] = (_RECORDS, _TOPICS, _CLUSTER, _TOOLS)
    panels: ClassVar[Mapping[str, str]] = {"log": _CLUSTER} | {name: home.panel for name, home in _HOMES.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(dict.fromkeys([*_HOMES, *super().list_commands(ctx)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None."""
        return _load(cmd_name) if cmd_name in _HOMES else super().get_command(ctx, cmd_name)

    def panel_of(self, name: str, command: Any) -> str:
        """Return the heading of a command."""
        return self.panels.get(name) or super().panel_of(name, command)


@functools.cache
def _load(name: str) -> Any:
    home = _HOMES[name]
    found = getattr(importlib.import_module(home.module), home.name)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer()
        found.command(name)(function)
    # The root has completion; help text is plain.
    found._add_completion, found.rich_markup_mode = False, None
    command = get_command(found)
    command.name = name
    return command


app = typer.Typer(
    name="tidelog",
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich's boxes truncate long names and leave little space for descriptions.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Produce to, consume from and administer a Tidelog cluster.",
    epilog="The cluster is named by -b, by TIDELOG_BOOTSTRAP_SERVERS or by a profile; tidelog dev starts one on this "
    "machine. Exit codes: 0 done, 1 an error or a finding, 2 wrong usage, 130 Ctrl-C.",
)


def _print_version(is_asked_for: bool) -> None:
    if is_asked_for:
        from importlib.metadata import version  # costs 20 ms

        typer.echo(f"tidelog {version('tidelog')}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def _tidelog(verbose: Verbose = 0, version: _Version = False) -> None:
    show_log_lines(verbose)
