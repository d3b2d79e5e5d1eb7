"""`Records`: the records of a connector as rows of a DataFrame, with the schemas of their keys and values.

One row is one record. These columns belong to the record; others pass every step unchanged:

| column | type | |
|---|---|---|
| `topic` | STRING | |
| `partition` | INT | null where a source leaves it to the producer |
| `offset` | BIGINT | null for records of a source |
| `timestamp` | BIGINT | milliseconds; null where a source sets none |
| `key`, `value` | the Spark type of their schema | VARIANT for data without a schema |
| `headers` | ARRAY<STRUCT<key: STRING, value: BINARY>> | as on the wire, by SimpleHeaderConverter |
| `failure` | STRUCT<stage, class, exception, message> of STRING | null: the record is good |

A schema of a key or value is known before the first record, or is absent: a VARIANT then has what JSON has. A record
that a step cannot process gets a ``failure``, and later steps leave it alone; `tidelog_connect.errors` has the
rules for it. Steps never end the query because of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigException
from tidelog_connect.schemas import ConnectSchema

Side: TypeAlias = Literal["key", "value"]
"""The part of a record that a step operates on."""

HEADERS_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
FAILURE_TYPE = "STRUCT<stage: STRING, class: STRING, exception: STRING, message: STRING>"

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
CONNECT_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"
ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
SCHEMA_BUILDER_EXCEPTION = "org.apache.kafka.connect.errors.SchemaBuilderException"
NULL_POINTER = "java.lang.NullPointerException"


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason for which a step cannot process some records: those where the condition is true."""

    condition: Column
    exception: str
    message: Column | str


@dataclass(frozen=True, slots=True)
class Step:
    """The step that changes records: how failures name it, and the records that it applies to.

    ``applies`` is None for all records. ``spares_tombstones`` says that the others are those without a value.
    """

    stage: str
    executing_class: str
    applies: Column | None = None
    spares_tombstones: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of records, with the schemas of their keys and values. None is no schema: the column is a VARIANT."""

    frame: DataFrame
    key_schema: ConnectSchema | None
    value_schema: ConnectSchema | None
    is_sink: bool = True
    step: Step | None = None
    can_fail: bool = False
    """True once a step may have given records a failure."""
    is_routed: bool = False
    """True once a step may have changed topics."""

    def schema(self, side: Side) -> ConnectSchema | None:
        """Return the schema of the keys or values."""
        return self.key_schema if side == "key" else self.value_schema

    def with_schema(self, side: Side, schema: ConnectSchema | None) -> Records:
        """Return the same rows under another schema."""
        return replace(self, key_schema=schema) if side == "key" else replace(self, value_schema=schema)

    def changed(
        self,
        columns: Mapping[str, Column],
        failures: Sequence[Failure] = (),
        schemas: Mapping[Side, ConnectSchema | None] | None = None,
    ) -> Records:
        """Return the records after the step: good ones with new columns, others with a failure.

        A record with a failure has null in the columns that a step replaces. ``schemas`` are those of new keys and
        values, where they differ.

        Raises:
            ConfigException: the step applies to some records only, and gives them another schema.
        """
        assert self.step is not None
        frame, applies = self.frame, self.step.applies
        after = self
        for side, schema in (schemas or {}).items():
            after = after.with_schema(side, schema)
        if applies is not None:
            self._check_condition(after)
        if failures:
            reasons = [_reason(failure, self.step) for failure in failures]
            found = sql.coalesce(*reasons)
            found = found if applies is None else sql.when(applies, found)
            frame = frame.withColumn("failure", sql.coalesce(sql.col("failure"), found))
            after = replace(after, can_fail=True)
        good = sql.col("failure").isNull()
        new = {}
        for name, column in columns.items():
            if applies is None:
                new[name] = sql.when(good, column)
            elif self.step.spares_tombstones and name == "value":
                new[name] = sql.when(good & applies, column)
            else:
                new[name] = sql.when(good & applies, column).when(good, sql.col(name))
        return replace(after, frame=frame.withColumns(new), is_routed=after.is_routed or "topic" in columns)

    def _check_condition(self, after: Records) -> None:
        assert self.step is not None
        spared = self.step.spares_tombstones
        if after.key_schema != self.key_schema or (after.value_schema != self.value_schema and not spared):
            raise ConfigException(
                f"{self.step.executing_class} with a predicate would give some records another schema than the rest."
                " A transform that changes a schema applies to all records, or to all but tombstones"
                " (RecordIsTombstone with negate=true)"
            )


def _reason(failure: Failure, step: Step) -> Column:
    message = sql.lit(failure.message) if isinstance(failure.message, str) else failure.message
    texts = {"stage": step.stage, "class": step.executing_class, "exception": failure.exception}
    reason = sql.struct(*[sql.lit(text).alias(name) for name, text in texts.items()], message.alias("message"))
    return sql.when(failure.condition, reason.cast(FAILURE_TYPE))
