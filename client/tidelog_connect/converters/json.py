"""`JsonConverter`: JSON with a schema in every record, with one given schema, or without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters import wire
from tidelog_connect.converters.converter import Converted
from tidelog_connect.records import DATA_EXCEPTION, Failure
from tidelog_connect.schemas import ConnectSchema, DataException, merged_schema, schema_from_json, schema_to_json

_MALFORMED = "Converting byte[] to Kafka Connect data failed due to serialization error: "
_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. If'
    " you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_UNKNOWN_SCHEMA = "The schema of the record is not valid"
_OTHER_SCHEMA = "The schema of the record does not fit those of the other records in its batch: "
_CORRUPT = "_malformed"
_MAX_SCHEMAS = 100


@dataclass(frozen=True, slots=True)
class JsonConverter:
    """JSON. ``schema`` is the JSON text of the schema that all records have, where they have one.

    With ``in_records``, every record is an object of a schema and a payload. Spark's columns have one type, so a batch
    has one schema: `of_batch` merges those of its records, which are ``accepted``.
    """

    in_records: bool = True
    schema: str | None = None
    decimals_as_numbers: bool = False
    replace_null: bool = True
    accepted: tuple[str, ...] = ()

    def of_batch(self, rows: DataFrame, side: str) -> JsonConverter:
        """Return the converter for the rows of a batch, whose records have schemas.

        The schemas that most records have come first. One that cannot be merged with those before is not accepted, so
        that its records fail.

        Raises:
            ConfigException: the records have too many schemas.
        """
        if not self.in_records or self.schema is not None:
            return self
        schema = sql.get_json_object(sql.col(side).cast("string"), "$.schema").alias("schema")
        counted = rows.select(schema).where(sql.col("schema").isNotNull()).groupBy("schema").count()
        found = counted.orderBy(sql.desc("count"), "schema").limit(_MAX_SCHEMAS + 1).collect()
        if len(found) > _MAX_SCHEMAS:
            raise ConfigException(f"The {side}s of a batch have more than {_MAX_SCHEMAS} schemas")
        return self.with_schemas([row["schema"] for row in found])

    def with_schemas(self, texts: Sequence[str]) -> JsonConverter:
        """Return the converter for records with these schemas, in JSON; the others do not fit and are left out."""
        merged: ConnectSchema | None = None
        accepted = []
        for text in texts:
            try:
                schema = schema_from_json(json.loads(text))
            except (DataException, ValueError):
                continue
            candidate = schema if merged is None else merged_schema(merged, schema)
            if candidate is not None:
                merged = candidate
                accepted.append(text)
        own = None if merged is None else json.dumps(schema_to_json(merged))
        return replace(self, schema=own, accepted=tuple(accepted))

    def decode(self, column: Column) -> Converted:
        """Return the data of JSON text.

        Raises:
            DataException: the schema is not valid.
        """
        text = column.cast("string")
        if self.schema is not None:
            return self._with_schema(text, json.loads(self.schema))
        value = sql.try_parse_json(text)
        failures = [Failure(text.isNotNull() & value.isNull(), DATA_EXCEPTION, _MALFORMED)]
        if self.in_records:
            failures += [_no_envelope(value), Failure(_schema_text(value) != "null", DATA_EXCEPTION, _UNKNOWN_SCHEMA)]
            value = sql.try_variant_get(value, "$.payload", "variant")
        return Converted(sql.when(~sql.is_variant_null(value), value), None, failures)

    def _with_schema(self, text: Column, given: object) -> Converted:
        schema = schema_from_json(given)
        failures = []
        wrapped = text
        if self.in_records:
            value = sql.try_parse_json(text)
            accepted = self.accepted or (json.dumps(given),)
            expected = [sql.to_json(sql.parse_json(sql.lit(each))) for each in accepted]
            found = _schema_text(value)
            other = sql.concat(sql.lit(_OTHER_SCHEMA), found)
            failures = [
                Failure(text.isNotNull() & value.isNull(), DATA_EXCEPTION, _MALFORMED),
                _no_envelope(value),
                Failure(
                    ~sql.coalesce(found.isin(*expected), sql.lit(False)) & value.isNotNull(), DATA_EXCEPTION, other
                ),
            ]
        else:
            wrapped = sql.concat(sql.lit('{"payload":'), text, sql.lit("}"))
        kind = wire.wire_type(schema, self.decimals_as_numbers)
        row = spark.StructType([spark.StructField("payload", kind), spark.StructField(_CORRUPT, spark.StringType())])
        parsed = sql.from_json(wrapped, row, {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"})
        failures.append(Failure(parsed.getField(_CORRUPT).isNotNull(), DATA_EXCEPTION, _MALFORMED))
        payload = parsed.getField("payload")
        problem = wire.unreadable(payload, schema, self.decimals_as_numbers)
        failures.append(Failure(problem.isNotNull() & text.isNotNull(), DATA_EXCEPTION, problem))
        return Converted(wire.from_wire(payload, schema, self.decimals_as_numbers, self.replace_null), schema, failures)

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return JSON text in UTF-8.

        Raises:
            ConfigException: a map has keys that are no text.
        """
        if schema is None:
            text = sql.to_json(column)
            null = sql.lit('{"schema":null,"payload":')
            return Converted((sql.concat(null, text, sql.lit("}")) if self.in_records else text).cast("binary"), None)
        value = wire.to_wire(column, schema, self.decimals_as_numbers, self.replace_null)
        text = sql.to_json(sql.struct(value.alias("payload")), {"ignoreNullFields": "false"})
        if self.in_records:
            opening = f'{{"schema":{json.dumps(schema_to_json(schema), separators=(",", ":"))},'
            text = sql.concat(sql.lit(opening), sql.substr(text, sql.lit(2)))
        else:
            start = len('{"payload":')
            text = sql.substr(text, sql.lit(start + 1), sql.length(text) - sql.lit(start + 1))
        if self.decimals_as_numbers or not wire.has_decimal(schema):
            return Converted(text.cast("binary"), None)
        problem = wire.unwritable(column, schema, self.decimals_as_numbers)
        return Converted(text.cast("binary"), None, [Failure(problem.isNotNull(), DATA_EXCEPTION, problem)])


def _no_envelope(value: Column) -> Failure:
    keys = sql.map_keys(sql.try_variant_get(value, "$", "map<string,variant>"))
    is_envelope = sql.array_sort(keys) == sql.array(sql.lit("payload"), sql.lit("schema"))
    return Failure(value.isNotNull() & ~sql.coalesce(is_envelope, sql.lit(False)), DATA_EXCEPTION, _ENVELOPE)


def _schema_text(value: Column) -> Column:
    return sql.coalesce(sql.to_json(sql.try_variant_get(value, "$.schema", "variant")), sql.lit("null"))
