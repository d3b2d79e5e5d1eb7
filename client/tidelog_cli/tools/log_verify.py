"""The progress and the result of ``tidelog log verify``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from tidelog_cli.output.printing import print_table
from tidelog_node.tools.dump_output import remark_fields
from tidelog_node.tools.findings import Note, Problem
from tidelog_node.tools.verification import Advance, PartitionReport

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
        fields = {
            "kind": "partition",
            "directory": str(report.directory),
            "segments": report.segments,
            "batches": report.batches,
            "records": report.records,
            "bytes": report.size_in_bytes,
            "startOffset": report.start_offset,
            "endOffset": report.end_offset,
            "problems": len(report.problems),
        }
        typer.echo(json.dumps(fields, ensure_ascii=False))
    totals = _totals(reports)
    typer.echo(
        json.dumps(
            {
                "kind": "summary",
                "partitions": len(reports),
                **dict(zip(("segments", "batches", "records", "bytes"), totals, strict=True)),
                "megabytesPerSecond": round(_speed(totals[3], elapsed_s), 1),
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
    rows = [_row(report) for report in reports if show_all or len(reports) <= _SHOWN_PARTITIONS or report.problems]
    if rows:
        print_table(
            ["PARTITION", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "START OFFSET", "END OFFSET", "PROBLEMS"], rows
        )
    for note in notes:
        typer.echo(f"note: {note}")
    for problem in problems:
        typer.echo(f"problem: {problem}")
    segments, batches, records, size = _totals(reports)
    typer.echo(
        f"{_count(len(reports), 'partition')}, {_count(segments, 'segment')}, {_count(batches, 'batch', 'batches')},"
        f" {_count(records, 'record')}, {size:,} bytes in {elapsed_s:.1f} s ({_speed(size, elapsed_s):,.0f} MB/s):"
        f" {_count(len(problems), 'problem') if problems else 'no problems'}"
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


def _row(report: PartitionReport) -> list[object]:
    return [
        report.directory.name,
        report.segments,
        report.batches,
        report.records,
        report.size_in_bytes,
        report.start_offset,
        report.end_offset,
        len(report.problems),
    ]


def _totals(reports: Sequence[PartitionReport]) -> tuple[int, int, int, int]:
    return (
        sum(report.segments for report in reports),
        sum(report.batches for report in reports),
        sum(report.records for report in reports),
        sum(report.size_in_bytes for report in reports),
    )


def _speed(size: int, elapsed_s: float) -> float:
    return size / _MEGABYTE / max(elapsed_s, 1e-6)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
