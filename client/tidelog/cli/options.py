"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

BOOTSTRAP_SERVERS_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"

BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        metavar="HOST:PORT,...",
        help="Nodes to ask for the cluster first.",
    ),
]
DEFAULT_BOOTSTRAP_SERVERS = "localhost:9094"

Timeout = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for answers.")]
TopicTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to look for the topic's partitions.")
]
DEFAULT_TIMEOUT_S = 10.0

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-X", metavar="KEY=VALUE", help="A setting of the client, such as client.id=me. May be repeated."
    ),
]


def parse_pairs(pairs: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return ``key=value`` texts as a dictionary; a text without ``=`` is a usage error that names ``option``."""
    parsed: dict[str, str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f'"{pair}" is not KEY=VALUE', param_hint=option)
        parsed[key.strip()] = value.strip()
    return parsed
