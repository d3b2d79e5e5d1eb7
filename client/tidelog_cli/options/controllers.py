"""The option that names the controllers."""

from __future__ import annotations

from typing import Annotated

import typer

Controllers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controllers",
        "--bootstrap-controller",
        metavar="HOST:PORT,...",
        help="Controllers to ask instead of nodes, for when no node runs.",
    ),
]
