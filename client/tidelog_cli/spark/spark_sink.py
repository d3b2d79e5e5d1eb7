"""``tidelog spark-sink``: list, abandon."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, counted, counted_names, error_document, fail
from tidelog_cli.output.times import time_text
from tidelog_foundation.errors import TidelogError

app = command_group("List the sinks of Spark queries, and end the transactions that a lost driver has left.")

_COLUMNS = ("sink", "last_batch", "run", "last_change", "open_transactions", "open_since")


@app.command("list")
@connected
def list_sinks(
    session: Session,
    show_all: Annotated[
        bool, typer.Option("--all", help="Include the sinks of batch queries that have nothing open.")
    ] = False,
) -> None:
    """List the sinks that write exactly once, with their last committed batches and open transactions.

    A sink is a streaming query, by the id in its checkpoint, an application (txnAppId), or a batch query. Transactions
    are open while a batch runs. If they stay open, the driver is lost, and readers of committed records wait.

    Example: tidelog spark-sink list
    """
    # Only these commands need the package of Spark's connector.
    from tidelog_spark.sink.operations import report_sinks
    from tidelog_spark.sink.options import operator_plan

    reports = report_sinks(operator_plan(session.settings))
    records = [
        {
            "sink": each.sink,
            "last_batch": each.state.batch,
            "run": each.state.owner,
            "last_change": _text(each.changed_ms),
            "open_transactions": each.open_transactions,
            "open_since": _text(each.open_since_ms),
        }
        for each in reports
        if show_all or not each.is_over
    ]
    session.show("sinks", records, _COLUMNS)


@app.command()
@connected
def abandon(
    session: Session,
    sinks: Annotated[list[str], typer.Argument(metavar="SINK", help="The sinks, as list shows them.")],
    yes: Yes = False,
) -> None:
    """End the open transactions of sinks whose drivers are lost.

    Commits those of the last committed batch and aborts all others. A driver that still runs fails at its next batch
    and loses nothing: its query continues from the checkpoint when it is started again.

    Example: tidelog spark-sink abandon 5f0c9d0e-6f3f-4a59-9a57-0f0d0f4f7f6b --yes
    """
    from tidelog_spark.sink.operations import abandon as abandon_one
    from tidelog_spark.sink.options import operator_plan

    confirm(f"end the transactions of {counted_names('sink', sinks)} and fence their drivers", yes)
    plan = operator_plan(session.settings)
    documents: list[dict[str, Any]] = []
    texts: list[str] = []
    errors: list[TidelogError] = []
    for sink in sinks:
        try:
            ended = abandon_one(plan, sink)
        except TidelogError as error:
            documents.append({"sink": sink, "error": error_document(error)})
            errors.append(error)
            continue
        documents.append({"sink": sink, "committed": ended.committed, "aborted": ended.aborted})
        texts.append(f"abandoned {sink}: {counted(ended.committed, 'transaction')} committed, {ended.aborted} aborted")
    session.done({"sinks": documents}, *texts)
    fail(errors)


def _text(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_text(time_ms)
