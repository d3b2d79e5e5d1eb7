"""The SQL of PostgreSQL for names, literals and the reading of tables (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc.positions import START, Position
from tidelog_connect.connectors.jdbc.tables import SourceColumn, TableId
from tidelog_connect.connectors.jdbc.types import INTEGERS, TIMESTAMPS, is_text_cast, is_unbounded

DRIVER = "org.postgresql.Driver"
URL_PREFIX = "jdbc:postgresql:"
PACKAGE = "org.postgresql:postgresql:42.7.8"
"""The Maven coordinates of the driver that the tests use."""
TABLE_KINDS: Mapping[str, str] = {
    "TABLE": "r",
    "PARTITIONED TABLE": "p",
    "VIEW": "v",
    "MATERIALIZED VIEW": "m",
    "FOREIGN TABLE": "f",
}
"""The types of tables by the driver's names, with those of ``pg_class.relkind``."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def identifier(name: str, is_quoted: bool = True) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"' if is_quoted else name


def text_literal(text: str) -> str:
    """Return a text as SQL has it, whatever ``standard_conforming_strings`` is."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def timestamp_literal(us: int) -> str:
    """Return a TIMESTAMPTZ of microseconds since the epoch."""
    found = _EPOCH + timedelta(microseconds=us)
    return f"TIMESTAMPTZ '{found.year:04}-{found:%m-%d %H:%M:%S.%f}+00'"


def tables_query(kinds: Sequence[str], schema_pattern: str | None, catalog_pattern: str | None) -> str:
    """Return the query for catalog, schema and name of all tables of some kinds that the user may read.

    Tables of the system are among them only if the pattern of schemas, that of LIKE, names theirs.
    """
    letters = ", ".join(f"'{TABLE_KINDS[kind]}'" for kind in kinds)
    conditions = [f"c.relkind IN ({letters})", "has_table_privilege(c.oid, 'SELECT')"]
    if schema_pattern:
        conditions.append(f"n.nspname LIKE {text_literal(schema_pattern)}")
    else:
        conditions.append("n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg!_%' ESCAPE '!'")
    if catalog_pattern:
        conditions.append(f"current_database() LIKE {text_literal(catalog_pattern)}")
    return (
        "SELECT current_database(), n.nspname, c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE {' AND '.join(conditions)} ORDER BY 2, 3"
    )


@dataclass(frozen=True, slots=True)
class Source:
    """What a source reads, as an element of FROM, and the columns of its order.

    ``incrementing`` and ``timestamps`` are columns of the table; without both, all rows are read at once.
    """

    relation: str
    columns: Sequence[SourceColumn]
    incrementing: SourceColumn | None
    timestamps: Sequence[SourceColumn]
    timezone: str
    is_quoted: bool = True

    def check(self, is_non_null: bool) -> None:
        """Check the types of the columns of the order, and, if asked to, that they have no nulls.

        Raises:
            ConfigException: a column has another type, or can be null.
        """
        found = self.incrementing
        if found is not None:
            if found.type_name not in INTEGERS and not (found.type_name == "numeric" and found.scale == 0):
                raise ConfigException.of("incrementing.column.name", found.name, f"{found.type_name} is no integer")
            if is_non_null and found.is_nullable:
                raise ConfigException.of("incrementing.column.name", found.name, f"{self.relation} allows nulls in it")
        for column in self.timestamps:
            if column.type_name not in TIMESTAMPS:
                raise ConfigException.of("timestamp.column.name", column.name, f"{column.type_name} is no timestamp")
        if len({column.type_name for column in self.timestamps}) > 1:
            names = ", ".join(column.name for column in self.timestamps)
            raise ConfigException.of("timestamp.column.name", names, "the columns have different types")
        if is_non_null and self.timestamps and all(column.is_nullable for column in self.timestamps):
            names = ", ".join(column.name for column in self.timestamps)
            raise ConfigException.of("timestamp.column.name", names, f"{self.relation} allows nulls in each")

    @property
    def is_ordered(self) -> bool:
        """Whether the rows have an order, so that a part of them can be read."""
        return self.incrementing is not None or bool(self.timestamps)

    def cuts_query(self, after: Position, delay_ms: int, max_rows: int, parts: int) -> str:
        """Return the query for the positions that divide the next rows into parts of the same size.

        Its rows have the timestamp in microseconds, the incrementing value, and the number of rows up to there, in the
        order of the rows. The last one ends the batch. Rows that are younger than the delay wait.
        """
        keys = [*self._keys()]
        conditions = [*self._bound(after, "after")]
        if self.timestamps:
            delay = f" - INTERVAL '{delay_ms} milliseconds'" if delay_ms else ""
            conditions.append(f"{self._timestamp} < {self._local(f'CURRENT_TIMESTAMP{delay}')}")
        elif not conditions:
            conditions.append(f"{keys[0]} IS NOT NULL")
        named = ", ".join(f"{key} AS k{number}" for number, key in enumerate(keys))
        order = ", ".join(f"k{number}" for number in range(len(keys)))
        step = math.ceil(max_rows / parts)
        us = "NULL"
        if self.timestamps:
            instant = "k0" if self._is_instant else self._at_timezone("k0")
            us = f"CAST(round(EXTRACT(EPOCH FROM {instant}) * 1000000) AS BIGINT)"
        last = f"k{len(keys) - 1}" if self.incrementing is not None else "NULL"
        return (
            f"SELECT {us}, CAST({last} AS BIGINT), n FROM (SELECT *, row_number() OVER (ORDER BY {order}) AS n,"
            f" count(*) OVER () AS c FROM (SELECT {named} FROM {self.relation} WHERE {' AND '.join(conditions)}"
            f" ORDER BY {order} LIMIT {max_rows}) AS page) AS numbered WHERE n % {step} = 0 OR n = c ORDER BY n"
        )

    def rows_query(self, after: Position = START, until: Position | None = None) -> str:
        """Return the query for the rows behind a position, up to another one, which is included."""
        conditions = [*self._bound(after, "after"), *(self._bound(until, "until") if until is not None else ())]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(map(self._selected, self.columns))} FROM {self.relation}{where}"

    def _selected(self, column: SourceColumn) -> str:
        name = self._name(column)
        alias = identifier(column.name)
        if column.type_name == "timestamp":
            return f"{self._at_timezone(name)} AS {alias}"
        if column.type_name == "time":
            return f"CAST(trunc(EXTRACT(EPOCH FROM {name}) * 1000) AS INTEGER) AS {alias}"
        if is_text_cast(column) or is_unbounded(column):
            return f"CAST({name} AS TEXT) AS {alias}"
        if column.type_name == "numeric" and column.scale < 0:
            return f"CAST({name} AS NUMERIC(38,0)) AS {alias}"
        return f"{name} AS {alias}"

    def _name(self, column: SourceColumn) -> str:
        return identifier(column.name, self.is_quoted)

    def _keys(self) -> Sequence[str]:
        timestamp = [self._timestamp] if self.timestamps else []
        return [*timestamp, *([self._name(self.incrementing)] if self.incrementing is not None else [])]

    @property
    def _timestamp(self) -> str:
        names = ", ".join(map(self._name, self.timestamps))
        return names if len(self.timestamps) == 1 else f"COALESCE({names})"

    def _at_timezone(self, expression: str) -> str:
        """Return the TIMESTAMPTZ of a TIMESTAMP in the timezone of the source, or the other way round."""
        return f"({expression} AT TIME ZONE {text_literal(self.timezone)})"

    def _local(self, instant: str) -> str:
        """Return the value of a timestamp column for an expression of TIMESTAMPTZ."""
        return f"({instant})" if self._is_instant else self._at_timezone(f"({instant})")

    @property
    def _is_instant(self) -> bool:
        return self.timestamps[0].type_name == "timestamptz"

    def _bound(self, position: Position, side: str) -> list[str]:
        keys, values = [], []
        if self.timestamps and position.timestamp_us is not None:
            keys.append(self._timestamp)
            values.append(self._local(timestamp_literal(position.timestamp_us)))
        # Without its timestamp, a number says nothing in an order by both.
        if self.incrementing is not None and position.incrementing is not None and bool(keys) == bool(self.timestamps):
            keys.append(self._name(self.incrementing))
            values.append(str(position.incrementing))
        if not keys:
            return []
        operator = ">" if side == "after" else "<="
        is_part = self.incrementing is not None and len(keys) < len(self._keys())
        if is_part and side == "after":
            # A user has set the timestamp alone: its rows come again.
            operator = ">="
        if len(keys) == 1:
            return [f"{keys[0]} {operator} {values[0]}"]
        return [f"({', '.join(keys)}) {operator} ({', '.join(values)})"]


def relation_of(table: TableId, is_quoted: bool) -> str:
    """Return a table as FROM has it."""
    return f"{identifier(table.schema, is_quoted)}.{identifier(table.name, is_quoted)}"


def relation_of_query(query: str) -> str:
    """Return a query as FROM has it."""
    return f"({query.strip().rstrip(';')}\n) AS tidelog_query"
