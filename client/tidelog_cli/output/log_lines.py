"""Prints the log lines of the clients on the standard error: warnings always, more of them with ``--verbose``."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_LOGGER = "tidelog"

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        show_default=False,
        help="Show on the standard error what the client does; -vv shows every step.",
    ),
]


def show_log_lines(verbosity: int = 0) -> None:
    """Start to print the clients' log lines: warnings with 0, information with 1, everything with 2.

    A later call can only raise the verbosity, because the option may come before and after the command.
    """
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
        logger.addHandler(_StandardError())
        logger.setLevel(_LEVELS[0])
    logger.setLevel(min(logger.level, _LEVELS[min(verbosity, len(_LEVELS) - 1)]))


class _StandardError(logging.Handler):
    """Writes lines in the format of the command's own messages."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno < logging.WARNING:
            text = f"{record.name}: {text}"
        typer.echo(f"tidelog: {record.levelname.lower()}: {text}", err=True)
