"""Reads of whole files within a limit: a setting that names the wrong file must not fill the memory. Blocking."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog_foundation.errors import ConfigError

_SHOWN: Final = 200
"""The characters of a path in errors: a setting may have a whole text in its place."""


def read_file(path: str | Path, limit_bytes: int, what: str = "") -> bytes:
    """Return the content of a file of at most ``limit_bytes``.

    ``what`` stands before the path in errors, such as the setting that names the file.

    Raises:
        ConfigError: the file cannot be read, or is larger.
    """
    where = _where(path, what)
    try:
        with Path(path).open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {where}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"cannot read {where}: {error}") from error
    if len(content) > limit_bytes:
        raise ConfigError(f"{where} has more than {limit_bytes} bytes")
    return content


def read_text(path: str | Path, limit_bytes: int, what: str = "") -> str:
    """Return the text of a file of at most ``limit_bytes``, in UTF-8.

    Raises:
        ConfigError: as `read_file`, or the file is not UTF-8. The error has none of its content.
    """
    content = read_file(path, limit_bytes, what)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {_where(path, what)}: not UTF-8 text") from None


def _where(path: str | Path, what: str) -> str:
    shown = str(path)
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "..."
    return f"{what} {shown}" if what else shown
