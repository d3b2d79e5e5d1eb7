"""``tidelog dev``: a cluster on this machine, for as long as the command runs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tidelog.cli.options import Settings, parse_pairs


def dev(
    controllers: Annotated[int, typer.Option("--controllers", min=1, help="How many controllers.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="How many storage nodes.")] = 1,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", file_okay=False, help="Keep the data here; else it is removed at the end."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Run a cluster of real processes on this machine until Ctrl-C.

    Example: tidelog dev --controllers 3 --nodes 3
    """
    from tidelog.testing import LocalCluster  # what servers need is not imported for the other commands

    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with LocalCluster(controllers, nodes, data_dir, parse_pairs(settings, "--set")) as cluster:
            typer.echo(f"{controllers} controllers and {nodes} nodes are ready at {cluster.bootstrap_servers}")
            typer.echo(f"  export TIDELOG_BOOTSTRAP_SERVERS={cluster.bootstrap_servers}")
            typer.echo("  tidelog topic create hello && echo world | tidelog produce hello")
            while not stop.wait(0.5):
                pass
            typer.echo("stopping")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
