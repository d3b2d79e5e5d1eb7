"""The ``tidelog`` command: its subcommands and what they have in common. The ``log`` command comes with the node."""

from __future__ import annotations

import logging

import typer

from tidelog.cli import chaos, cluster, log_dirs, partition, quorum, topic
from tidelog.cli.consume import consume
from tidelog.cli.dev import dev
from tidelog.cli.extensions import ExtensibleGroup
from tidelog.cli.produce import produce

app = typer.Typer(
    name="tidelog",
    cls=ExtensibleGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich's boxes cut long names off, and leave little room for what is said of them.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Produce to, consume from and administer a Tidelog cluster.",
)
app.add_typer(chaos.app, name="chaos")
app.add_typer(topic.app, name="topic")
app.add_typer(cluster.app, name="cluster")
app.add_typer(log_dirs.app, name="log-dirs")
app.add_typer(partition.app, name="partition")
app.add_typer(quorum.app, name="quorum")
app.command()(dev)
app.command()(produce)
app.command()(consume)


@app.callback()
def _tidelog() -> None:
    # What the clients log below an error, the commands say themselves.
    logging.getLogger("tidelog").setLevel(logging.ERROR)
