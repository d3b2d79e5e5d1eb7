"""JdbcSink: batches of records become rows of tables, each batch in one transaction."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidelog_connect.configuration import ConfigDef, ConfigException
from tidelog_connect.connectors.connector import Batch, Settings, SinkConnector
from tidelog_connect.connectors.jdbc.batch_table import BatchTable
from tidelog_connect.connectors.jdbc.connection import Database, DatabaseError, translated
from tidelog_connect.connectors.jdbc.postgresql import text_literal
from tidelog_connect.connectors.jdbc.sink_fields import Origin, SinkField, sink_fields
from tidelog_connect.connectors.jdbc.sink_settings import NONE, SinkSettings, sink_config
from tidelog_connect.connectors.jdbc.sink_sql import (
    DELETED,
    PLACE,
    Target,
    add_columns,
    columns_query,
    create_stage,
    create_table,
    missing_fields,
    moves,
    target_relation,
)
from tidelog_connect.schemas import SchemaType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger(__name__)

_DROP_TIMEOUT = "SET lock_timeout = '2s'"
_STATE_REPLACED = "0A000"


class JdbcSinkConnector(SinkConnector):
    """Writes rows in two steps: tasks stage them in a table of the batch, then one transaction moves them.

    The transaction also records the number of the batch (`BatchTable`), so a batch that comes again changes nothing.
    """

    class_name = "io.confluent.connect.jdbc.JdbcSinkConnector"
    task_class = "io.confluent.connect.jdbc.sink.JdbcSinkTask"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._own = SinkSettings.of(settings)
        self._batches = BatchTable(self._own.batch_table, self._own.name)
        self._database: Database | None = None

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the sink."""
        return sink_config()

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the error of settings that do not fit the mode, which is among those of ``pk.mode``."""
        try:
            SinkSettings.of(settings)
        except ConfigException as error:
            return {"pk.mode": error.message}
        return {}

    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Write a batch, and try again after errors that can pass.

        Raises:
            ConfigException: the records or the tables do not fit the settings.
            DatabaseError: the database refuses the rows, or the attempts are used up.
        """
        for attempt in range(self._own.max_retries + 1):
            try:
                self._write(rows, batch)
                return
            except (DatabaseError, Py4JJavaError, PySparkException) as error:
                found = error if isinstance(error, DatabaseError) else translated(error)
                if found.is_permanent or attempt == self._own.max_retries:
                    raise found from error
                logger.warning("batch %d of %s is repeated: %s", batch.number, self._own.name, found)
                time.sleep(self._own.retry_backoff_ms / 1000)

    def _write(self, rows: DataFrame, batch: Batch) -> None:
        database = self._opened(rows.sparkSession)
        if self._is_written(database, batch, locks=False):
            return
        fields = sink_fields(self._own, batch.key_schema, batch.value_schema)
        stage = self._batches.stage(uuid.uuid4().hex)
        database.execute(create_stage(stage, fields))
        try:
            self._stage(rows, stage, fields, batch)
            with database.transaction():
                database.execute(self._batches.begin(batch.query))
                if not self._is_written(database, batch, locks=True):
                    self._move(database, stage, fields, has_values=batch.value_schema is not None)
                    database.execute(*self._batches.end(batch.query, batch.number))
                database.execute(f"DROP TABLE {stage}")
        except BaseException:
            self._drop(database, [stage])
            raise

    def _opened(self, spark: SparkSession) -> Database:
        if self._database is None:
            database = Database(spark, self._own.connection)
            if not database.rows(self._batches.exists())[0][0]:
                with database.transaction():
                    database.execute(*self._batches.create())
            self._drop(database, [str(name) for (name,) in database.rows(self._batches.stages())])
            self._database = database
        return self._database

    def _drop(self, database: Database, stages: Sequence[str]) -> None:
        """Drop tables with staged rows. What fails is left to the next run."""
        for stage in stages:
            try:
                database.execute(_DROP_TIMEOUT, f"DROP TABLE IF EXISTS {stage}", "RESET lock_timeout")
            except DatabaseError as error:
                logger.info("the staged rows in %s stay until the connector starts again: %s", stage, error)
                database.close()

    def _is_written(self, database: Database, batch: Batch, *, locks: bool) -> bool:
        found = database.rows(self._batches.last(batch.query, locks=locks))
        if not found:
            return False
        number, is_replaced = found[0]
        if is_replaced:
            raise DatabaseError(
                f"another query of {self._own.name} has written to the database since: a sink of the same name in "
                "another group of workers needs another batch.table.name",
                _STATE_REPLACED,
            )
        return int(number) >= batch.number

    def _stage(self, rows: DataFrame, stage: str, fields: Sequence[SinkField], batch: Batch) -> None:
        from pyspark.sql import functions as sql

        place = [sql.col(name).alias(column) for name, column in zip(("topic", "partition"), PLACE, strict=False)]
        checked = self._checked(fields, batch).alias(PLACE[2])
        deleted = (sql.col("value").isNull() if self._own.deletes else sql.lit(False)).alias(DELETED)
        staged = rows.select(*place, checked, deleted, *map(_staged, fields))
        options = {
            **self._own.connection.spark_options,
            "dbtable": stage,
            "batchsize": str(self._own.batch_size),
            "isolationLevel": "READ_COMMITTED",
            "reWriteBatchedInserts": "true",
        }
        staged.write.format("jdbc").options(**options).mode("append").save()

    def _checked(self, fields: Sequence[SinkField], batch: Batch) -> Column:
        """Return the offset, which fails for a record that cannot be a row."""
        from pyspark.sql import functions as sql

        own, offset = self._own, sql.col("offset")
        place = (sql.col("topic"), sql.lit("-"), sql.col("partition"), sql.lit(" at offset "), offset)
        found = sql.when(sql.lit(False), offset)
        if not own.deletes:
            text = (
                f"Sink connector '{own.name}' is configured with 'delete.enabled=false' and 'pk.mode={own.pk_mode}' "
                "and therefore requires records with a non-null Struct value, but found a record without one in "
            )
            found = found.when(sql.col("value").isNull(), _failed(text, place))
        elif batch.value_schema is None:
            text = f"Sink connector '{own.name}' requires values with a schema, but found one without in "
            found = found.when(sql.col("value").isNotNull(), _failed(text, place))
        for field in fields:
            if field.is_key and own.pk_mode != NONE:
                text = f"The field {field.name} of the primary key is null in "
                is_missing = _column(field).isNull()
                if field.origin is Origin.VALUE_FIELD:
                    is_missing &= sql.col("value").isNotNull()
                found = found.when(is_missing, _failed(text, place))
        return found.otherwise(offset)

    def _move(self, database: Database, stage: str, fields: Sequence[SinkField], *, has_values: bool) -> None:
        own = self._own
        database.execute(f"SET LOCAL TIME ZONE {text_literal(own.timezone)}")
        topics = [str(topic) for (topic,) in database.rows(f"SELECT DISTINCT {PLACE[0]} FROM {stage} ORDER BY 1")]
        tables = [target_relation(own.table_of(topic), own.is_quoted) for topic in topics]
        for relation in dict.fromkeys(tables):
            target = _read_target(database, relation)
            if has_values:
                target = self._fitting(database, target, fields)
            elif not target.columns:
                # There is nothing to delete.
                continue
            own_topics = [topic for topic, table in zip(topics, tables, strict=True) if table == relation]
            database.execute(
                *moves(
                    own.insert_mode,
                    target,
                    stage,
                    own_topics,
                    fields,
                    deletes=own.deletes,
                    is_quoted=own.is_quoted,
                )
            )

    def _fitting(self, database: Database, target: Target, fields: Sequence[SinkField]) -> Target:
        """Return a table with columns for the fields, which is created or gets columns as the settings permit."""
        own, relation = self._own, target.relation
        if not target.columns:
            if not own.creates:
                raise ConfigException(f"Table {relation} is missing and auto-creation is disabled")
            database.execute(create_table(relation, fields, own.is_quoted))
            return _read_target(database, relation)
        missing = missing_fields(target, fields, own.is_quoted)
        if not missing:
            return target
        if not own.evolves:
            names = ", ".join(each.name for each in missing)
            raise ConfigException(f"Table {relation} is missing fields ({names}) and auto-evolution is disabled")
        database.execute(add_columns(target, missing, own.is_quoted))
        return _read_target(database, relation)


def _read_target(database: Database, relation: str) -> Target:
    return Target(relation, {str(name): str(kind) for name, kind in database.rows(columns_query(relation))})


def _failed(text: str, place: Sequence[Column]) -> Column:
    from pyspark.sql import functions as sql

    return sql.raise_error(sql.concat(sql.lit(text), *(each.cast("string") for each in place))).cast("bigint")


def _column(field: SinkField) -> Column:
    from pyspark.sql import functions as sql

    match field.origin:
        case Origin.TOPIC:
            return sql.col("topic")
        case Origin.PARTITION:
            return sql.col("partition")
        case Origin.OFFSET:
            return sql.col("offset")
        case Origin.KEY:
            return sql.col("key")
        case Origin.KEY_FIELD:
            return sql.col("key").getField(field.name)
        case Origin.VALUE_FIELD:
            return sql.col("value").getField(field.name)


def _staged(field: SinkField) -> Column:
    """Return the column that holds a field; the driver writes no TINYINT."""
    found = _column(field)
    if field.schema.type is SchemaType.INT8:
        found = found.cast("smallint")
    return found.alias(field.staged)
