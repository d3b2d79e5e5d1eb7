"""Prints the rows of SQL: as a table, as JSON objects, or as CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence

import typer

from tidelog_cli.output.printing import print_table
from tidelog_spark.sql.results import Rows

TABLE_ROWS = 1_000
"""The number of rows of a table without ``--limit``: its columns need all rows in memory."""
_NULL = "NULL"


def row_limit(output: str, limit: int | None) -> int | None:
    """Return the number of rows to request: one more than a table shows tells whether there are more."""
    return TABLE_ROWS + 1 if limit is None and output == "table" else limit


def print_rows(rows: Rows, output: str, limit: int | None, idle_s: float | None) -> None:
    """Print rows up to a limit; those of a stream as they come, until none has come for ``idle_s`` seconds."""
    if not rows.columns:
        return  # a statement of Spark that returns nothing
    chunks = _following(rows, limit, idle_s) if rows.is_stream else iter(rows.chunks)
    if output == "json":
        for chunk in chunks:
            _write("".join(f"{_json_line(rows, row)}\n" for row in chunk))
    elif output == "csv":
        _write(_csv([rows.columns]))
        for chunk in chunks:
            _write(_csv(chunk))
    elif rows.is_stream:
        _print_stream(rows.columns, chunks)
    else:
        _print_table(rows.columns, [_cells(row) for chunk in chunks for row in chunk], limit)


def _following(rows: Rows, limit: int | None, idle_s: float | None) -> Iterator[Sequence[Sequence[object]]]:
    with contextlib.closing(iter(rows.chunks)) as chunks:  # type: ignore[type-var]  # a generator ends the stream
        count, last_s = 0, time.monotonic()
        for chunk in chunks:
            now_s = time.monotonic()
            last_s = now_s if chunk else last_s
            shown = chunk if limit is None else chunk[: limit - count]
            count += len(shown)
            yield shown
            if count == limit or (idle_s is not None and now_s - last_s >= idle_s):
                return


def _print_table(columns: Sequence[str], cells: Sequence[Sequence[object]], limit: int | None) -> None:
    if columns == ("plan",):
        # Its lines are wider than a terminal, and indented.
        _write("".join(f"{line}\n" for (line,) in cells))
        return
    shown = cells if limit is not None else cells[:TABLE_ROWS]
    print_table([column.upper() for column in columns], shown)
    if len(shown) < len(cells):
        typer.echo(f"there are more than {TABLE_ROWS:,} rows; --limit shows more of them", err=True)


def _print_stream(columns: Sequence[str], chunks: Iterator[Sequence[Sequence[object]]]) -> None:
    """Print a table that grows: columns become wider with the cells that need it."""
    widths = [len(column) for column in columns]
    typer.echo(_line([column.upper() for column in columns], widths))
    sys.stdout.flush()
    for chunk in chunks:
        found = [[str(cell) for cell in _cells(row)] for row in chunk]
        widths = [max(width, *(len(row[i]) for row in found), 0) for i, width in enumerate(widths)]
        for row in found:
            typer.echo(_line(row, widths))
        sys.stdout.flush()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(row: Sequence[object]) -> list[object]:
    return [_NULL if cell is None else cell for cell in row]


def _json_line(rows: Rows, row: Sequence[object]) -> object:
    if rows.is_json:
        return row[0]
    return json.dumps(dict(zip(rows.columns, row, strict=True)), ensure_ascii=False)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _write(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
