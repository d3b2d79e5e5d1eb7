"""Tables and columns of a database, and the choice of the tables that a source reads (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog_connect.configuration import ConfigException


@dataclass(frozen=True, slots=True)
class TableId:
    """A table by its names. The catalog of PostgreSQL is the database."""

    catalog: str
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.name}"

    def is_named(self, text: str) -> bool:
        """Tell whether a text names the table: with its schema and catalog, or without."""
        return text in (self.name, f"{self.schema}.{self.name}", str(self))


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source: its type by the database's name, with precision and scale where it has them."""

    name: str
    type_name: str
    precision: int = 0
    scale: int = 0
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a sink's table. ``type_name`` is quoted SQL without length and precision."""

    name: str
    type_name: str
    is_required: bool
    """It is NOT NULL and has no default."""


def chosen_tables(found: Iterable[TableId], whitelist: Sequence[str], blacklist: Sequence[str]) -> list[TableId]:
    """Return the tables that are on the whitelist, if there is one, and not on the blacklist.

    Raises:
        ConfigException: a table of the whitelist does not exist, or two tables have its name.
    """
    tables = list(found)
    if not whitelist:
        return [table for table in tables if not any(table.is_named(text) for text in blacklist)]
    chosen = []
    for text in whitelist:
        named = [table for table in tables if table.is_named(text)]
        if len(named) != 1:
            reason = (
                "no such table exists, or the user may not see it"
                if not named
                else f"it is the name of {' and '.join(map(str, named))}"
            )
            raise ConfigException.of("table.whitelist", text, reason)
        chosen.append(named[0])
    return chosen
