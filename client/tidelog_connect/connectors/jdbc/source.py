"""JdbcSource: rows of tables or of a query, in batches of one table that are committed with their position."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigDef, ConfigException
from tidelog_connect.connectors.connector import Settings, SourceBatch, SourceConnector, SourceOffset
from tidelog_connect.connectors.jdbc.connection import Database
from tidelog_connect.connectors.jdbc.positions import (
    START,
    Position,
    check_partition,
    position_of,
    query_partition,
    table_partition,
)
from tidelog_connect.connectors.jdbc.postgresql import Source, relation_of, relation_of_query, tables_query
from tidelog_connect.connectors.jdbc.source_settings import BULK, SourceSettings, source_config
from tidelog_connect.connectors.jdbc.tables import SourceColumn, TableId, chosen_tables
from tidelog_connect.connectors.jdbc.types import UNBOUNDED_SCALE, is_unbounded, source_schema
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.schemas import ConnectSchema, Field, SchemaType, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FETCH_SIZE = "10000"
_NOW = -1


@dataclass(frozen=True, slots=True)
class _Part:
    """A table, or the query: the element of FROM, the topic, the partition of its offset, and the schema's name."""

    relation: str
    topic: str
    partition: Mapping[str, str]
    name: str | None


class JdbcSourceConnector(SourceConnector):
    """Reads the rows of tables behind their positions. A batch has rows of one table; tables take turns.

    A batch ends at a position that is chosen before the rows are read, so that tasks read it in parallel, and a task
    that is repeated reads the same rows. Reading in bulk is one batch.
    """

    class_name = "io.confluent.connect.jdbc.JdbcSourceConnector"
    task_class = "io.confluent.connect.jdbc.source.JdbcSourceTask"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._own = SourceSettings.of(settings)
        self._database: Database | None = None
        self._parts: list[_Part] = []
        self._parts_due_s = 0.0
        self._due_s: dict[str, float] = {}

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the source."""
        return source_config()

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the error of settings that do not fit the mode, which is among those of ``mode``."""
        try:
            SourceSettings.of(settings)
        except ConfigException as error:
            return {"mode": error.message}
        return {}

    @classmethod
    def tasks(cls, settings: Settings) -> int:
        """Return ``tasks.max``, by which each batch is divided; 1 if rows have no order."""
        return 1 if settings["mode"] == BULK else int(settings["tasks.max"])

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check that the partition is that of a table or the query, and the offset a position.

        Raises:
            ValueError: they are not.
        """
        check_partition(partition)
        if offset is not None:
            position_of(offset)

    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the next rows of the table whose turn it is."""
        if self._database is None:
            self._database = Database(spark, self._own.connection)
        self._read_tables(self._database)
        for part in list(self._parts):
            key = partition_key(part.partition)
            if time.monotonic() < self._due_s.get(key, 0.0):
                continue
            # Its next turn is behind those of the others.
            self._parts.remove(part)
            self._parts.append(part)
            batch = self._batch(spark, self._database, part, position.get(key))
            if batch is not None:
                return batch
            self._wait(key)
        return None

    def _wait(self, key: str) -> None:
        self._due_s[key] = time.monotonic() + self._own.poll_interval_ms / 1000

    def _read_tables(self, database: Database) -> None:
        own = self._own
        if time.monotonic() < self._parts_due_s:
            return
        self._parts_due_s = time.monotonic() + own.table_poll_interval_ms / 1000
        if own.query:
            self._parts = [_Part(relation_of_query(own.query), own.topic_prefix, query_partition(), None)]
            return
        found = database.rows(tables_query(own.table_kinds, own.schema_pattern, own.catalog_pattern))
        tables = chosen_tables((TableId(*map(str, row)) for row in found), own.whitelist, own.blacklist)
        self._parts = [
            _Part(
                # The names are those of the catalog, whatever case a setting has.
                relation_of(table, is_quoted=True),
                own.topic_prefix + table.name,
                table_partition(str(table)),
                table.name,
            )
            for table in tables
        ]

    def _batch(
        self, spark: SparkSession, database: Database, part: _Part, offset: Mapping[str, Any] | None
    ) -> SourceBatch | None:
        own = self._own
        columns = database.columns(part.relation)
        source = Source(
            part.relation,
            columns,
            self._column(columns, own.incrementing, part) if own.incrementing else None,
            [self._column(columns, name, part) for name in own.timestamps],
            own.timezone,
        )
        source.check(own.is_non_null and not own.query)
        key = partition_key(part.partition)
        if not source.is_ordered:
            self._wait(key)
            return self._of_queries(spark, part, source, [source.rows_query()], None)
        after = START if offset is None else position_of(offset)
        if after.timestamp_us is None and own.timestamp_initial_ms is not None:
            return self._initial(spark, database, part, source)
        cuts = database.rows(source.cuts_query(after, own.delay_ms, own.max_rows, own.tasks))
        if not cuts:
            return None
        ends = [Position(us, number) for us, number, _ in cuts]
        # Rows with the same timestamp are not divided.
        ends = [end for index, end in enumerate(ends) if end not in ends[:index]]
        queries = [source.rows_query(start, end) for start, end in zip([after, *ends], ends, strict=False)]
        if cuts[-1][2] < own.max_rows:
            self._wait(key)
        return self._of_queries(spark, part, source, queries, ends[-1])

    def _initial(self, spark: SparkSession, database: Database, part: _Part, source: Source) -> SourceBatch:
        """Return a batch without rows that sets the position to ``timestamp.initial``."""
        given = self._own.timestamp_initial_ms
        assert given is not None
        if given == _NOW:
            given = int(database.rows("SELECT CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) * 1000 AS BIGINT)")[0][0])
        nothing = f"{source.rows_query()} LIMIT 0"
        return self._of_queries(spark, part, source, [nothing], Position(given * 1000, None))

    def _column(self, columns: Sequence[SourceColumn], name: str, part: _Part) -> SourceColumn:
        def is_it(column: SourceColumn) -> bool:
            return column.name == name or (not self._own.is_quoted and column.name == name.lower())

        for column in columns:
            if is_it(column):
                return column
        names = ", ".join(column.name for column in columns)
        raise ConfigException(f"{part.relation} has no column {name}, but {names}")

    def _of_queries(
        self, spark: SparkSession, part: _Part, source: Source, queries: Sequence[str], end: Position | None
    ) -> SourceBatch:
        from pyspark.sql import functions as sql

        reader = spark.read.format("jdbc").options(**self._own.connection.spark_options, fetchsize=_FETCH_SIZE)
        read = [reader.option("dbtable", f"({query}) AS tidelog_rows").load() for query in queries]
        frame: DataFrame = reduce(lambda left, right: left.union(right), read)
        fields = [Field(column.name, source_schema(column, self._own.numeric_mapping)) for column in source.columns]
        value = sql.struct(*map(_converted, source.columns, fields))
        schema = ConnectSchema(SchemaType.STRUCT, name=part.name, fields=tuple(fields))
        rows = frame.select(sql.lit(part.topic).alias("topic"), value.alias("value"))
        offsets = () if end is None else (SourceOffset(part.partition, end.as_offset()),)
        return SourceBatch(rows, offsets, frozenset([part.topic]), value_schema=schema)


def _converted(column: SourceColumn, field: Field) -> Column:
    """Return the column of a query's result as the type of its field."""
    from pyspark.sql import functions as sql

    found = sql.col("`" + column.name.replace("`", "``") + "`")
    kind = spark_type(field.schema)
    if is_unbounded(column):
        pattern = rf"\.\d{{{UNBOUNDED_SCALE}}}\d*[1-9]"
        text = f"Column {column.name} has a number of more than {UNBOUNDED_SCALE} digits behind the point: "
        found = sql.when(
            found.rlike(pattern),
            sql.raise_error(sql.concat(sql.lit(text), found)).cast(kind),
        ).otherwise(found.cast(kind))
        return found.alias(column.name)
    return found.cast(kind).alias(column.name)
