"""The interactive prompt of ``tidelog sql``: statements over several lines, with a history."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from tidelog_cli.output.printing import error_text, print_error
from tidelog_foundation.errors import TidelogError
from tidelog_spark.sql.parser import is_complete

_PROMPT, _CONTINUATION = "sql> ", "  -> "
_ENDS = ("exit", "quit")
_HISTORY_LINES = 1_000


def run_prompt(run: Callable[[str], None], history: Path) -> None:
    """Read statements, each ended by a semicolon, and run them until the end of input, ``exit`` or ``quit``.

    A statement that fails, or that Ctrl-C ends, does not end the prompt.
    """
    typer.echo("Statements end with ; exit or Ctrl-D ends the prompt.", err=True)
    with _history(history):
        text = ""
        while True:
            try:
                line = input(_CONTINUATION if text else _PROMPT)
            except EOFError:
                typer.echo("", err=True)
                return
            except KeyboardInterrupt:
                typer.echo("", err=True)
                text = ""
                continue
            if not text and line.strip().rstrip(";").lower() in _ENDS:
                return
            text = f"{text}{line}\n" if text or line.strip() else ""
            if text and is_complete(text):
                _run(run, text)
                text = ""


def _run(run: Callable[[str], None], text: str) -> None:
    try:
        run(text)
    except TidelogError as error:
        print_error(error_text(error))
    except KeyboardInterrupt:
        typer.echo("", err=True)


@contextlib.contextmanager
def _history(path: Path) -> Iterator[None]:
    try:
        import readline
    except ImportError:  # a Python without it has lines that cannot be edited
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_LINES)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Statements may contain what others must not read.
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.write_history_file(path)
