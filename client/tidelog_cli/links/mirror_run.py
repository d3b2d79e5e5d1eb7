"""``tidelog mirror run``: MirrorMaker 2's work, by its properties file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog_foundation.errors import ErrorCode, error_for

_PACKAGES = ("cheroot", "javaproperties", "tidelog_mirror", "tidelog_node", "xxhash", "zstandard")

_File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="The properties file: connect-mirror-maker.properties.",
    ),
]
_Override = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="KEY=VALUE", help="A setting that prevails over FILE. May be repeated."),
]
_Clusters = Annotated[
    list[str] | None,
    typer.Option("--clusters", metavar="ALIAS", help="Only flows to this cluster. May be repeated. Default: all."),
]
_Check = Annotated[bool, typer.Option("--check", help="Check the settings, print the flows, and end.")]


def run(file: _File, override: _Override = None, clusters: _Clusters = None, check: _Check = False) -> None:
    """Copy topics, offsets and ACLs between clusters until Ctrl-C or SIGTERM (connect-mirror-maker.sh).

    \b
    Examples:
      tidelog mirror run connect-mirror-maker.properties --check
      tidelog mirror run connect-mirror-maker.properties --clusters B
    """
    try:
        from tidelog_foundation.config.process import load_properties, run_on_loop
        from tidelog_foundation.config.providers import resolve_settings
        from tidelog_foundation.logs.settings import start_logging
        from tidelog_mirror.process import run_mirror, selected_flows
        from tidelog_mirror.settings import describe_flow, parse_mirror_settings
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        text = f"{error.name} is not installed: pip install 'tidelog[node]'"
        raise error_for(ErrorCode._STATE, text) from error
    properties = resolve_settings(load_properties(file, override or ()))
    config = parse_mirror_settings(properties)
    flows = selected_flows(config, clusters or ())
    if not check:
        start_logging(properties)
        run_on_loop(run_mirror(config, flows))
        return
    for warning in config.warnings:
        typer.echo(f"warning: {warning}")
    for flow in flows:
        typer.echo(f"{flow.name}: {describe_flow(flow)}")
