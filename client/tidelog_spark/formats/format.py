"""The interface of all formats, and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pyspark.sql import Column

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_text

Mode: TypeAlias = Literal["PERMISSIVE", "FAILFAST"]
"""The outcome of a malformed record: nulls, or an error that ends the query. Spark's functions have no other mode."""

MAX_SCHEMA_BYTES = 16 * 1024 * 1024
"""The largest file of a schema or a descriptor."""

MODES: tuple[Mode, ...] = ("PERMISSIVE", "FAILFAST")


class Format(Protocol):
    """A conversion between bytes and fields. A null record stays null in both directions."""

    def decode(self, column: Column | str) -> Column:
        """Return the fields of a column of bytes, as one column."""
        ...

    def encode(self, column: Column | str) -> Column:
        """Return the bytes of a column of fields."""
        ...


def check_options(mode: Mode, options: Mapping[str, str]) -> None:
    """Check what all formats have in common.

    Raises:
        ConfigError: the mode is not one of Spark's, or it is among the options too.
    """
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if any(name.lower() == "mode" for name in options):
        raise ConfigError("pass mode=... instead of the option mode")


def text_of(schema: str | Path) -> str:
    """Return a schema that is given as text, or as the path of a file.

    Raises:
        ConfigError: the file cannot be read, or has more than `MAX_SCHEMA_BYTES`.
    """
    if isinstance(schema, str):
        return schema
    return read_text(schema, MAX_SCHEMA_BYTES, "the schema in")
