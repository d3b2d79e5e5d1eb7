"""The SQL of the table that has the number of each sink's last batch (pure).

A row is one query of one connector: a checkpoint of its own. Its number changes in the transaction that has the rows of
the batch, so that a batch that comes again is found to be written. A new query of the connector replaces the others,
whose late batches are refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidelog_connect.connectors.jdbc.postgresql import identifier, text_literal

_LOCK = 7165434102
"""The advisory lock of those that create the table."""
_DIGITS = 16
_STAGE = "tidelog_stage"


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The statements of one connector. ``name`` is that of the table, with or without a schema."""

    name: str
    connector: str

    def create(self) -> list[str]:
        """Return the statements that create the table if there is none; for one transaction."""
        return [
            f"DO $$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK}); END $$",
            f"CREATE TABLE IF NOT EXISTS {self.name} (connector text NOT NULL, query text NOT NULL,"
            " batch bigint NOT NULL, is_replaced boolean NOT NULL DEFAULT false, PRIMARY KEY (connector, query))",
        ]

    def exists(self) -> str:
        """Return the query that is true if the table exists."""
        return f"SELECT to_regclass({text_literal(self.name)}) IS NOT NULL"

    def begin(self, query: str) -> str:
        """Return the statement that adds the row of a query, if it is not there."""
        return (
            f"INSERT INTO {self.name} (connector, query, batch) VALUES ({self._own}, {text_literal(query)}, -1)"
            " ON CONFLICT DO NOTHING"
        )

    def last(self, query: str, *, locks: bool) -> str:
        """Return the query for the last batch of a query and whether another one has replaced it."""
        lock = " FOR UPDATE" if locks else ""
        return f"SELECT batch, is_replaced FROM {self.name} WHERE {self._is(query)}{lock}"

    def end(self, query: str, number: int) -> list[str]:
        """Return the statements that record a batch."""
        return [
            f"UPDATE {self.name} SET is_replaced = true WHERE connector = {self._own}"
            f" AND query <> {text_literal(query)} AND NOT is_replaced",
            f"UPDATE {self.name} SET batch = {number} WHERE {self._is(query)}",
        ]

    def stage(self, suffix: str) -> str:
        """Return the name of a table for staged rows, in the schema of the table of batches."""
        return f"{self._schema}{self._stage_prefix}{suffix}"

    def stages(self) -> str:
        """Return the query for the tables with staged rows of the connector."""
        prefix = text_literal(self._stage_prefix.replace("_", "!_") + "%")
        return (
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'"
            f" AND c.relname LIKE {prefix} ESCAPE '!' AND n.oid ="
            f" (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass({text_literal(self.name)}))"
        )

    @property
    def _own(self) -> str:
        return text_literal(self.connector)

    def _is(self, query: str) -> str:
        return f"connector = {self._own} AND query = {text_literal(query)}"

    @property
    def _schema(self) -> str:
        schema, point, _ = self.name.rpartition(".")
        return identifier(schema) + point if point else ""

    @property
    def _stage_prefix(self) -> str:
        known = hashlib.sha256(f"{self.name}/{self.connector}".encode()).hexdigest()[:_DIGITS]
        return f"{_STAGE}_{known}_"
