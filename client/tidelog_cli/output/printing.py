"""Output of the commands: tables, JSON, one-line errors with advice, and confirmation of irreversible actions."""

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

from tidelog_cli.output.hints import hint_for
from tidelog_cli.output.tables import layout
from tidelog_foundation.errors import TidelogError, error_for

K = TypeVar("K")
V = TypeVar("V")

_LONG_SENTENCE = 200
_INTERRUPTED = 130
_OWN_CODE = "_"
"""The prefix of the client's own codes, which Kafka's documentation does not explain."""
_OTHER_COMMANDS = "Commands"


class CommandGroup(TyperGroup):
    """A group of commands that reports errors as one line on stderr and exit code 1, without a traceback."""

    panel_order: ClassVar[Sequence[str]] = ()
    """The headings of the commands, in order."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own class is given at run time
        """Run the selected command."""
        try:
            return super().invoke(ctx)
        except TidelogError as error:
            print_error(error_text(error))
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
        """Write the commands by panel, each with its whole first sentence."""
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
        """Return the heading of a command."""
        panel = getattr(command, "rich_help_panel", None)
        return panel if isinstance(panel, str) else _OTHER_COMMANDS


def command_group(text: str, cls: type[CommandGroup] = CommandGroup) -> typer.Typer:
    """Return an application with commands, which shows this help without one."""
    return typer.Typer(cls=cls, no_args_is_help=True, help=text)


class UsageError(typer.BadParameter):
    """Wrong usage that concerns several options, or none."""

    def format_message(self) -> str:
        """Return the message without the prefix "Invalid value for"."""
        return self.message


def print_error(text: str) -> None:
    """Print ``tidelog: error: text`` on stderr, as one line."""
    typer.echo(f"tidelog: error: {' '.join(text.split())}", err=True)


def print_warning(text: str) -> None:
    """Print ``tidelog: warning: text`` on stderr, as one line."""
    typer.echo(f"tidelog: warning: {' '.join(text.split())}", err=True)


def error_text(error: TidelogError) -> str:
    """Return an error's message, advice about it, and Kafka's name of the error, if it has one."""
    hint = hint_for(error.code)
    text = f"{error.message} ({hint})" if hint else error.message
    return text if error.code.name.startswith(_OWN_CODE) else f"{text} [{error.code.name}]"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number with its noun: "1 topic", "1,200 topics"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def counted_names(noun: str, names: Sequence[str]) -> str:
    """Return names after their noun: "topic a", "topics a, b"."""
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers; on a terminal the lines of the table fit its width."""
    for line in layout(headers, rows, _width()):
        typer.echo(line)


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str], *, err: bool = False) -> None:
    """Print these fields of dictionaries as a table; the header of ``log_end_offset`` is LOG END OFFSET."""
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
    """Raise one error with all messages, each once, and the first one's code; do nothing without errors."""
    found = list(errors)
    if found:
        raise error_for(found[0].code, "; ".join(dict.fromkeys(error.message for error in found)))


def settle(futures: Mapping[K, Future[V]]) -> tuple[dict[K, V], dict[K, TidelogError]]:
    """Wait for futures, and return the results and the errors."""
    results: dict[K, V] = {}
    errors: dict[K, TidelogError] = {}
    for key, future in futures.items():
        try:
            results[key] = future.result()
        except TidelogError as error:
            errors[key] = error
    return results, errors


def error_document(error: TidelogError) -> dict[str, object]:
    """Return an error as the JSON of an item."""
    return {"code": error.code.code, "name": error.code.name, "message": error.message}


def require_answer(action: str, yes: bool, reason: str = "") -> None:
    """Check that an action can be confirmed later, or needs no confirmation.

    Raises:
        UsageError: there is no terminal, and ``--yes`` was not given.
    """
    if yes:
        return
    for stream, name in ((sys.stdin, "stdin"), (sys.stderr, "stderr")):
        if not stream.isatty():
            text = f"Refusing to {action} without confirmation: {name} is not a terminal. Pass --yes to confirm."
            raise UsageError(f"{reason} {text}".lstrip())


def confirm(action: str, yes: bool, reason: str = "") -> None:
    """Ask for confirmation of an irreversible action such as "delete topic t"; "no" exits with code 1.

    ``reason`` is a sentence before the question.

    Raises:
        UsageError: there is no terminal, and ``--yes`` was not given.
    """
    require_answer(action, yes, reason)
    if not yes and not _is_agreed(f"{reason} {action[0].upper()}{action[1:]}?".lstrip()):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)


def _is_agreed(question: str) -> bool:
    # click's own prompt prints a space on stdout, which may be CSV.
    while True:
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line or answer in ("", "n", "no"):
            return False


def _width() -> int | None:
    """Return the columns of the terminal; None if the output is a file or a pipe, which programs read."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _forget_output() -> None:
    # The interpreter must not flush again into the closed pipe or onto the full disk.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
