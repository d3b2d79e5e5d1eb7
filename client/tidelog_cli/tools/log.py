"""``tidelog log``: reads the files of partitions and shows or verifies their content.

It only reads, so it may run beside a node. Exit code 1: a file is damaged or cannot be read; 2: wrong usage.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from tidelog_cli.output.printing import CommandGroup, UsageError, counted, print_table
from tidelog_cli.tools.log_replicas import replicas
from tidelog_node.tools.coordinator_records import RecordDecoder
from tidelog_node.tools.dump import DumpOptions, PayloadFormat, dump
from tidelog_node.tools.dump_output import DumpFormat, dump_output, remark_fields
from tidelog_node.tools.findings import Note, Problem, Row
from tidelog_node.tools.log_files import LogFile, expand, is_partition, partitions_of, topic_partition
from tidelog_node.tools.verification import Advance, LogDirFiles, PartitionReport, verify_partition

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Read the files of partitions: what is in them, are they sound.",
)

_DONE_WITH_PROBLEMS = 1

Files = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", exists=True, help="Files of a log, partitions' directories, log directories."),
]
Directories = Annotated[
    list[Path],
    typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Partitions' directories or log directories."),
]


@app.command("dump")
def dump_files(
    paths: Files,
    deep: Annotated[
        bool, typer.Option("--deep", "--deep-iteration", help="Show the records of each batch too.")
    ] = False,
    print_data: Annotated[
        bool, typer.Option("--print-data", "--print-data-log", help="Show keys and values (implies --deep).")
    ] = False,
    key_format: Annotated[PayloadFormat, typer.Option("--key-format", help="How to show keys.")] = PayloadFormat.AUTO,
    value_format: Annotated[
        PayloadFormat, typer.Option("--value-format", help="How to show values.")
    ] = PayloadFormat.AUTO,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records of __consumer_offsets (implies --print-data).")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        typer.Option("--transaction-log-decoder", help="Decode records of __transaction_state (implies --print-data)."),
    ] = False,
    max_batches: Annotated[
        int | None, typer.Option("--max-batches", min=1, help="Stop after so many batches of each file.")
    ] = None,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Of indexes, check only what a node checks when it starts.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Check indexes against the batches, without their entries.")
    ] = False,
    dump_format: Annotated[
        DumpFormat, typer.Option("--format", help="table, kafka-dump-log's lines, or JSON lines.")
    ] = DumpFormat.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Show the content of a log's files: batches, records, indexes, snapshots, checkpoints.

    \b
    Examples:
      tidelog log dump --print-data --max-batches 10 data/flights-0
      tidelog log dump --transaction-log-decoder data/__transaction_state-3
    """
    if index_sanity_check and verify_index_only:
        raise UsageError("--index-sanity-check and --verify-index-only exclude each other.")
    decoder = _decoder(offsets=offsets_decoder, transactions=transaction_log_decoder)
    if decoder is not None and (key_format, value_format) != (PayloadFormat.AUTO, PayloadFormat.AUTO):
        raise UsageError("--key-format and --value-format have no effect on decoded records.")
    print_data = print_data or decoder is not None
    options = DumpOptions(
        deep=deep or print_data,
        print_data=print_data,
        decoder=decoder,
        key_format=key_format,
        value_format=value_format,
        max_batches=max_batches,
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
    )
    output = dump_output(DumpFormat.JSON if as_json else dump_format, _write_line)
    problems = 0
    for file in list(_expanded(paths)):
        output.begin(file)
        for finding in dump(file, options):
            if isinstance(finding, Row):
                output.row(finding)
            else:
                problems += isinstance(finding, Problem)
                output.remark(finding)
        output.end()
    sys.stdout.flush()
    if problems:
        raise typer.Exit(_DONE_WITH_PROBLEMS)


def _decoder(*, offsets: bool, transactions: bool) -> RecordDecoder | None:
    if offsets and transactions:
        raise UsageError("--offsets-decoder and --transaction-log-decoder exclude each other.")
    if offsets:
        return RecordDecoder.OFFSETS
    return RecordDecoder.TRANSACTIONS if transactions else None


@app.command()
def verify(
    paths: Directories,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every record too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every partition, however many there are.")] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show how far it is.")] = True,
) -> None:
    """Check every batch, index, snapshot and checkpoint of partitions or whole log directories.

    Example: tidelog log verify /var/lib/tidelog
    """
    log_dirs = [path for path in paths if not is_partition(path)]
    checkpoints = {log_dir: LogDirFiles(log_dir) for log_dir in log_dirs}
    found = {path: [path] if is_partition(path) else partitions_of(path) for path in paths}
    for path, partitions in found.items():
        if not partitions and not any(expand_quietly(path)):
            raise UsageError(f"{path} is neither a partition's directory nor a log directory.")
    everything = list(dict.fromkeys(partition for partitions in found.values() for partition in partitions))
    started = time.monotonic()
    with progress_bar(directory_size(everything), progress and not as_json) as advance:
        reports = {partition: verify_partition(partition, deep, advance) for partition in everything}
    problems = [problem for report in reports.values() for problem in report.problems]
    notes = [note for report in reports.values() for note in report.notes]
    for log_dir, files in checkpoints.items():
        problems += files.problems
        notes += files.compare(_by_partition(reports[partition] for partition in found[log_dir]))
    checked, elapsed_s = list(reports.values()), time.monotonic() - started
    if as_json:
        print_json(checked, problems, notes, elapsed_s)
    else:
        print_text(checked, problems, notes, elapsed_s, show_all)
    if problems:
        raise typer.Exit(_DONE_WITH_PROBLEMS)


app.command()(replicas)


def expand_quietly(path: Path) -> Iterator[LogFile]:
    """Yield the files in a path; none if it has none."""
    try:
        yield from expand(path)
    except ValueError:
        return


def _expanded(paths: list[Path]) -> Iterator[LogFile]:
    for path in paths:
        try:
            yield from expand(path)
        except ValueError as cause:
            raise UsageError(str(cause)) from cause


def _by_partition(reports: Iterator[PartitionReport]) -> dict[tuple[str, int], PartitionReport]:
    named = ((topic_partition(report.directory), report) for report in reports)
    return {name: report for name, report in named if name is not None}


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")


_SHOWN_PARTITIONS = 40
_MEGABYTE = 1_000_000


@contextmanager
def progress_bar(total_bytes: int, is_wanted: bool) -> Iterator[Advance]:
    """Show the progress on stderr, if that is a terminal; yield a function that counts the bytes."""
    console = Console(stderr=True)
    if not is_wanted or not console.is_terminal:
        yield lambda size: None
        return
    columns = (
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("verify", total=total_bytes)
        yield lambda size: progress.advance(task, size)


def print_json(
    reports: Sequence[PartitionReport], problems: Sequence[Problem], notes: Sequence[Note], elapsed_s: float
) -> None:
    """Print one JSON line per problem, note and partition, and one with the totals."""
    findings: list[Problem | Note] = [*problems, *notes]
    for finding in findings:
        typer.echo(json.dumps(remark_fields(finding), ensure_ascii=False))
    for report in reports:
        fields = {"kind": "partition", "directory": str(report.directory), **_numbers(report)}
        typer.echo(json.dumps(fields, ensure_ascii=False))
    totals = _totals(reports)
    typer.echo(
        json.dumps(
            {
                "kind": "summary",
                "partitions": len(reports),
                **totals,
                "megabytesPerSecond": round(_speed(totals["bytes"], elapsed_s), 1),
                "problems": len(problems),
            }
        )
    )


def print_text(
    reports: Sequence[PartitionReport],
    problems: Sequence[Problem],
    notes: Sequence[Note],
    elapsed_s: float,
    show_all: bool,
) -> None:
    """Print a table of the partitions, the problems, and a summary line.

    With more than 40 partitions, only those with problems have a row, unless ``show_all``.
    """
    shown = [report for report in reports if show_all or len(reports) <= _SHOWN_PARTITIONS or report.problems]
    if rows := [[report.directory.name, *_numbers(report).values()] for report in shown]:
        print_table(
            ["PARTITION", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "START OFFSET", "END OFFSET", "PROBLEMS"], rows
        )
    for note in notes:
        typer.echo(f"note: {note}")
    for problem in problems:
        typer.echo(f"problem: {problem}")
    segments, batches, records, size = _totals(reports).values()
    typer.echo(
        f"{counted(len(reports), 'partition')}, {counted(segments, 'segment')}, {counted(batches, 'batch', 'batches')},"
        f" {counted(records, 'record')}, {size:,} bytes in {elapsed_s:.1f} s ({_speed(size, elapsed_s):,.0f} MB/s):"
        f" {counted(len(problems), 'problem') if problems else 'no problems'}"
    )
    sys.stdout.flush()


def directory_size(partitions: Sequence[Path]) -> int:
    """Return the size of all segments in these directories; a directory that disappears counts as empty."""
    total = 0
    for directory in partitions:
        for path in directory.glob("*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    return total


def _numbers(report: PartitionReport) -> dict[str, int]:
    """Return the numbers of a partition by their names in JSON, in the order of the table."""
    return {
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.size_in_bytes,
        "startOffset": report.start_offset,
        "endOffset": report.end_offset,
        "problems": len(report.problems),
    }


def _totals(reports: Sequence[PartitionReport]) -> dict[str, int]:
    numbers = [_numbers(report) for report in reports]
    return {name: sum(of[name] for of in numbers) for name in ("segments", "batches", "records", "bytes")}


def _speed(size: int, elapsed_s: float) -> float:
    return size / _MEGABYTE / max(elapsed_s, 1e-6)
