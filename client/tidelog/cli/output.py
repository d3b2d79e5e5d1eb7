"""What the commands print: tables that line up anywhere, and errors as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from tidelog.errors import ErrorCode, TidelogError

_GAP = "  "
_LONG_SENTENCE = 200
_HINT = " (tidelog dev starts a cluster on this machine)"


class CommandGroup(TyperGroup):
    """A group of commands whose errors end as one line on stderr and exit code 1, without a traceback."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own class is given at run time
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except TidelogError as error:
            hint = _HINT if error.code is ErrorCode._ALL_BROKERS_DOWN else ""
            print_error(f"{error}{hint}")
            raise typer.Exit(1) from None
        except BrokenPipeError:
            _forget_output()
            raise typer.Exit(0) from None
        except OSError as error:
            _forget_output()
            print_error(f"{error.filename or 'output'}: {error.strerror or error}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their first sentences, none of which is cut off."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(n, c.get_short_help_str(_LONG_SENTENCE)) for n, c in commands if c is not None])


def print_error(text: str) -> None:
    """Print ``error: text`` on stderr, as one line."""
    typer.echo(f"error: {' '.join(text.split())}", err=True)


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 topic", "1,200 topics"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _forget_output() -> None:
    # The interpreter must not flush into the closed pipe, or onto the full disk, again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers in columns as wide as their widest cell; numbers stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    numeric = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(headers))]
    for row in [list(headers), *cells]:
        padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        typer.echo(_GAP.join(padded).rstrip())
