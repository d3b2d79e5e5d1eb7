"""``tidelog chaos``: injects faults into a cluster, checks its clients' history, and reports a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog_cli.chaos.run import print_run, run
from tidelog_cli.output.printing import command_group, counted, print_error, print_table

if TYPE_CHECKING:
    from tidelog_chaos.history import InvalidHistoryError
    from tidelog_chaos.verdict import Verdict

app = command_group("Put a cluster under faults and check that it keeps what it promised.")
app.command()(run)

_BAD_FILE = 2
_HISTORY = "history.jsonl"
_REPLICAS = "replicas.json"


@app.command()
def check(
    history: Annotated[
        Path,
        typer.Argument(metavar="HISTORY", help="A history, one JSON object per line, or the directory of a run."),
    ],
    replicas: Annotated[
        Path | None,
        typer.Option(
            "--replicas", metavar="FILE", help="A replicas.json. Default: the one beside the history of a run."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Findings of each name that are written out; all are counted.")
    ] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Check a history of sends and polls: nothing lost, nothing duplicated, nothing reordered.

    Exit code 1: there is an anomaly. 2: the file is not a history; the message names the line.

    Example: tidelog chaos check history.jsonl
    """
    from tidelog_chaos.checker import check as check_history
    from tidelog_chaos.history import InvalidHistoryError, read_history

    path = history / _HISTORY if history.is_dir() else history
    replicas = replicas or (history / _REPLICAS if (history / _REPLICAS).is_file() else None)
    lines = _Lines(path)
    try:
        logs = _replica_logs(replicas)
        verdict = check_history(read_history(lines), replica_logs=logs, limit=limit)
        if lines.are_blank:
            raise InvalidHistoryError("it is empty")
    except InvalidHistoryError as error:
        print_error(f"{path}: {_place(path, error)}{error.message}")
        raise typer.Exit(_BAD_FILE) from None
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}")
        raise typer.Exit(_BAD_FILE) from None
    if as_json:
        typer.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        print_verdict(verdict)
    if not verdict.valid:
        raise typer.Exit(1)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="The page. Default: report.html in DIR.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON, and no summary.")] = False,
) -> None:
    """Rewrite the report page of a run, and print its summary.

    Exit code 1: the run found an anomaly or another problem. 2: DIR is not the directory of a run.

    Example: tidelog chaos report chaos-20260117-120000
    """
    from tidelog_chaos.history import InvalidHistoryError
    from tidelog_chaos.report import read_run, summary_lines, write_page

    try:
        found = read_run(directory)
    except InvalidHistoryError as error:
        print_error(f"{directory}: {error.message}")
        raise typer.Exit(_BAD_FILE) from None
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}")
        raise typer.Exit(_BAD_FILE) from None
    page = output or directory / "report.html"
    write_page(found, page)
    if as_json:
        print_run(found, page)
    else:
        for line in summary_lines(found):
            typer.echo(line)
        typer.echo(f"\n{page}")
    if not found.is_good:
        raise typer.Exit(1)


def print_verdict(verdict: Verdict) -> None:
    """Print whether a history is valid, the findings as a table, and the operations behind each anomaly."""
    from tidelog_chaos.report import verdict_lines

    values = verdict.statistics["values"]
    operations = sum(sum(counts.values()) for counts in verdict.statistics["operations"].values())
    typer.echo(
        f"{'valid' if verdict.valid else 'NOT VALID'}: {counted(operations, 'operation')}, "
        f"{counted(verdict.statistics['keys'], 'key')}, {counted(values['acknowledged'], 'value')} acknowledged, "
        f"{values['read']:,} read"
    )
    rows = list(_rows(verdict))
    if rows:
        typer.echo()
        print_table(("FOUND", "COUNT", "IS", "MEANING"), rows)
    for line in verdict_lines(verdict):
        typer.echo(line)


def _rows(verdict: Verdict) -> Iterator[tuple[str, int, str, str]]:
    from tidelog_chaos.verdict import DESCRIPTIONS

    for kind, word in (("anomalies", "an anomaly"), ("permitted", "permitted")):
        for name, count in verdict.counts.get(kind, {}).items():
            yield name, count, word, DESCRIPTIONS.get(name, "")


class _Lines:
    """The lines of a file; ``are_blank`` tells whether all lines read so far are blank."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.number = 0
        self.are_blank = True

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            for self.number, line in enumerate(file, 1):
                self.are_blank = self.are_blank and not line.strip()
                yield line


def _place(path: Path, error: InvalidHistoryError) -> str:
    """Return ``line N: `` for an error that names an operation only by its index, otherwise ""."""
    from tidelog_chaos.history import read_history

    if error.line or error.index is None:
        return ""
    lines = _Lines(path)
    return next((f"line {lines.number}: " for op in read_history(lines) if op.index == error.index), "")


def _replica_logs(path: Path | None) -> Mapping[str, Mapping[str, list[str]]] | None:
    """Return the replicas' logs from the file of a run.

    Raises:
        InvalidHistoryError: The file is not a replicas.json.
    """
    from tidelog_chaos.report import read_replicas

    return None if path is None else read_replicas(path)
