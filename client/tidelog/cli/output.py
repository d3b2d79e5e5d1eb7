"""What the commands print: tables, JSON, errors as one line with what to do next, questions before what is for good."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

import typer
from typer.core import TyperGroup

from tidelog.cli.hints import hint_for
from tidelog.cli.tables import layout
from tidelog.errors import TidelogError, error_for

K = TypeVar("K")
V = TypeVar("V")

_LONG_SENTENCE = 200
_INTERRUPTED = 130
_OTHER_COMMANDS = "Commands"


class CommandGroup(TyperGroup):
    """A group of commands whose errors end as one line on stderr and exit code 1, without a traceback."""

    panel_order: ClassVar[Sequence[str]] = ()
    """The headings of the commands, in their order."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own class is given at run time
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except TidelogError as error:
            hint = hint_for(error.code)
            print_error(f"{error} ({hint})" if hint else str(error))
            raise typer.Exit(1) from None
        except BrokenPipeError:
            _forget_output()
            raise typer.Exit(0) from None
        except OSError as error:
            _forget_output()
            print_error(f"{error.filename or 'output'}: {error.strerror or error}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by their panels, with their first sentences, none of which is cut off."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                lines = panels.setdefault(self.panel_of(name, command), [])
                lines.append((name, command.get_short_help_str(_LONG_SENTENCE)))
        rank = {title: index for index, title in enumerate(self.panel_order)}
        for title, lines in sorted(panels.items(), key=lambda panel: rank.get(panel[0], len(rank))):
            with formatter.section(title):
                formatter.write_dl(lines)

    def panel_of(self, name: str, command: Any) -> str:
        """Return the heading that a command stands under."""
        panel = getattr(command, "rich_help_panel", None)
        return panel if isinstance(panel, str) else _OTHER_COMMANDS


def print_error(text: str) -> None:
    """Print ``error: text`` on stderr, as one line."""
    typer.echo(f"error: {' '.join(text.split())}", err=True)


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 topic", "1,200 topics"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers; on a terminal the table is laid out so that its lines fit."""
    for line in layout(headers, rows, _width()):
        typer.echo(line)


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str], *, err: bool = False) -> None:
    """Print these fields of dictionaries as a table: ``log_end_offset`` stands under LOG END OFFSET."""
    rows = [[shown(record.get(column)) for column in columns] for record in records]
    for line in layout([column.replace("_", " ").upper() for column in columns], rows, _width()):
        typer.echo(line, err=err)


def shown(value: object) -> object:
    """Return a value as a cell of a table: "-" for None, a list with commas, yes or no."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return value


def fail(errors: Iterable[TidelogError]) -> None:
    """Raise one error that says what all of them say, with the first one's code; do nothing when there is none."""
    found = list(errors)
    if found:
        raise error_for(found[0].code, "; ".join(error.message for error in found))


def settle(futures: Mapping[K, Future[V]]) -> tuple[dict[K, V], dict[K, TidelogError]]:
    """Wait for futures, and return what they gave and how the others failed."""
    results: dict[K, V] = {}
    errors: dict[K, TidelogError] = {}
    for key, future in futures.items():
        try:
            results[key] = future.result()
        except TidelogError as error:
            errors[key] = error
    return results, errors


def error_document(error: TidelogError) -> dict[str, object]:
    """Return an error as the JSON of an item has it."""
    return {"code": error.code.code, "name": error.code.name, "message": error.message}


def require_answer(question: str, yes: bool) -> None:
    """See that a question can be asked later, or need not be.

    Raises:
        click.UsageError: there is no terminal to ask at, and ``--yes`` was not given.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter(f"is needed where nobody can be asked: {question}", param_hint="--yes")


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be taken back; a "no" ends the command with exit code 1.

    Raises:
        click.UsageError: there is no terminal to ask at, and ``--yes`` was not given.
    """
    require_answer(question, yes)
    if not yes and not _is_agreed(question):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)


def _is_agreed(question: str) -> bool:
    # click's own question leaves a space on stdout, which may be CSV.
    while True:
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line or answer in ("", "n", "no"):
            return False


def _width() -> int | None:
    """Return the columns of the terminal; None where the output is a file or a pipe, whose lines programs read."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _forget_output() -> None:
    # The interpreter must not flush into the closed pipe, or onto the full disk, again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
