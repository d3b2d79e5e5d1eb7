"""``tidelog bench``: measures the throughput and latency of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tidelog_cli.bench.report import Report, print_report
from tidelog_cli.options.connection import Acks, Compression, Rate, Session, Topic, connected
from tidelog_cli.output.printing import command_group
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("Measure producing, consuming and end-to-end latency.")

_LARGEST_RECORD = 100_000_000

NumRecords = Annotated[int, typer.Option("--num-records", "-n", min=1, metavar="N", help="The number of records.")]
RecordSize = Annotated[
    int,
    typer.Option("--record-size", "-s", min=1, max=_LARGEST_RECORD, metavar="BYTES", help="The size of each value."),
]


@app.command()
@connected
def producer(
    session: Session,
    topic: Topic,
    num_records: NumRecords = 100_000,
    record_size: RecordSize = 1_024,
    rate: Rate = None,
    acks: Acks = "all",
    compression: Compression = "none",
) -> None:
    """Send records of random bytes, and measure the time until each is acknowledged.

    With --rate, the time counts from the moment a record is due, so that a stall shows in all records that it delays.

    Example: tidelog bench producer flights -n 1000000 -s 1024 -X linger.ms=10
    """
    from tidelog_cli.bench.runs import run_producer

    settings = {"acks": acks, "compression.type": compression}
    _print(session, lambda: run_producer(session, topic, num_records, record_size, rate, settings))


@app.command()
@connected
def consumer(session: Session, topic: Topic, num_records: NumRecords = 100_000) -> None:
    """Read records from the start of all partitions and measure the throughput.

    Example: tidelog bench consumer flights -n 1000000 -X fetch.min.bytes=100000
    """
    from tidelog_cli.bench.runs import run_consumer

    _print(session, lambda: run_consumer(session, topic, num_records))


@app.command("end-to-end")
@connected
def end_to_end(
    session: Session,
    topic: Topic,
    num_records: NumRecords = 1_000,
    record_size: RecordSize = 1_024,
    acks: Acks = "all",
) -> None:
    """Send one record at a time, wait until a consumer reads it, and measure the latency.

    Example: tidelog bench end-to-end flights -n 10000
    """
    from tidelog_cli.bench.runs import run_end_to_end

    _print(session, lambda: run_end_to_end(session, topic, num_records, record_size, {"acks": acks}))


def _print(session: Session, run: Callable[[], Report]) -> None:
    try:
        report = run()
    except ModuleNotFoundError as error:
        raise error_for(ErrorCode._STATE, f"{error.name} is not installed: pip install 'tidelog[cli]'") from error
    print_report(session, report)
