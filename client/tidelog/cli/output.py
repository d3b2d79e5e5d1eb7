"""What the commands print: tables that line up anywhere, and errors as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer.core import TyperGroup

from tidelog.errors import TidelogError

_GAP = "  "


class CommandGroup(TyperGroup):
    """A group of commands whose errors end as one line on stderr and exit code 1, without a traceback."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own class is given at run time
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except TidelogError as error:
            print_error(str(error))
            raise typer.Exit(1) from None
        except BufferError as error:
            print_error(str(error))
            raise typer.Exit(1) from None
        except BrokenPipeError:
            # The reader has what it wanted; the interpreter must not flush into the closed pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def print_error(text: str) -> None:
    """Print ``error: text`` on stderr, as one line."""
    typer.echo(f"error: {' '.join(text.split())}", err=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers in columns as wide as their widest cell; numbers stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    numeric = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(headers))]
    for row in [list(headers), *cells]:
        padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        typer.echo(_GAP.join(padded).rstrip())
