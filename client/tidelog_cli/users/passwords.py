"""Passwords of commands: from a terminal without echo, a file, or standard input, and never from the command line."""

from __future__ import annotations

import contextlib
import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.output.printing import UsageError
from tidelog_foundation.errors import ConfigError

_MAX_BYTES = 65_536

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of a file, or of standard input (-). Without it: ask.",
        allow_dash=True,
    ),
]


def read_password(user: str, file: Path | None) -> str:
    """Return the password for a user. At a terminal, ask for it twice.

    Raises:
        UsageError: There is neither a file nor a terminal.
        ConfigError: The password is empty, the two differ, or the file cannot be read or is not UTF-8.
    """
    text = ": pass --password-file FILE, or - for stdin."
    password = ask_password(user, text, is_new=True) if file is None else first_line(file)
    if not password:
        raise ConfigError(f"the password of user {user} must not be empty")
    return password


def first_line(file: Path) -> str:
    """Return the first line of a file, or of standard input (-), without its end.

    Raises:
        ConfigError: The file cannot be read or is not UTF-8, or the line is too long.
    """
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            line = stream.readline(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(line) > _MAX_BYTES:
        raise ConfigError(f"the first line of {file} has more than {_MAX_BYTES} bytes")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8") from None


def ask_password(user: str, otherwise: str, *, is_new: bool = False) -> str:
    """Ask for the password of a user at the terminal, for a new one twice.

    Raises:
        UsageError: There is no terminal; ``otherwise`` ends the message and names what to do.
        ConfigError: The password is empty, or the two differ.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"There is no terminal to ask for the password{otherwise}")
    password = getpass.getpass(f"Password for user {user}: ", stream=sys.stderr)
    if is_new and getpass.getpass("The same again: ", stream=sys.stderr) != password:
        raise ConfigError("the two passwords differ")
    if not password:
        raise ConfigError(f"the password of user {user} must not be empty")
    return password
