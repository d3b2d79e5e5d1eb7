"""``tidelog quorum dump``: prints a controller's metadata log or a snapshot as text, or as JSON lines.

It only reads. Exit code 1: the log is damaged, cannot be read, or a controller uses it; 2: wrong usage.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog_cli.output.printing import UsageError
from tidelog_quorum.tools.metadata_dump import EntryRow, Row, Summary, dump_log, dump_snapshot, is_snapshot, record_line

app = typer.Typer(add_completion=False)


@app.command("dump")
def dump(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR|FILE.checkpoint", exists=True, help="A metadata.log.dir, or a snapshot in one."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", min=0, help="Of a log: begin at this offset.")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", metavar="COUNT", min=0, help="Stop after so many entries, or records.")
    ] = None,
) -> None:
    """Show the content of a stopped controller's metadata log, or of one of its snapshots.

    --max counts the entries of a log, and the records of a snapshot.

    Example: tidelog quorum dump --from 1000 --max 10 /var/lib/tidelog/metadata
    """
    if is_snapshot(path):
        if from_offset is not None:
            raise UsageError("--from cannot be used with a snapshot, which has a single offset.")
        _show(dump_snapshot(path, maximum), as_json)
    elif path.is_dir():
        _show(dump_log(path, from_offset or 0, maximum), as_json)
    else:
        raise UsageError(f"{path} is neither a folder nor a snapshot.")


def _show(rows: Iterable[Row], as_json: bool) -> None:
    for row in rows:
        for line in [json.dumps(_as_dict(row))] if as_json else _lines(row):
            sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _as_dict(row: Row) -> dict[str, Any]:
    return row.values if isinstance(row, Summary) else dataclasses.asdict(row)


def _lines(row: Row) -> list[str]:
    if isinstance(row, Summary):
        return [*(f"{name}: {_text(value)}" for name, value in row.values.items()), ""]
    return [_head(row), *(f"  {record_line(record)}" for record in row.records)]


def _head(row: EntryRow) -> str:
    count = f"{len(row.records)} record{'' if len(row.records) == 1 else 's'}"
    return f"offset: {row.offset} epoch: {row.epoch} type: {row.kind} bytes: {row.size} ({count})"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(f"{v['id']}@{v['endpoint']}" for v in value)
    return str(value)
