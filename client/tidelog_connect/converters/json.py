"""`JsonConverter`: JSON with a schema in every record, with one given schema, or without."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters import wire
from tidelog_connect.converters.converter import Converted
from tidelog_connect.records import DATA_EXCEPTION, Failure
from tidelog_connect.schemas import ConnectSchema, schema_from_json, schema_to_json

_MALFORMED = "Converting byte[] to Kafka Connect data failed due to serialization error: "
_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. If'
    " you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_CORRUPT = "_malformed"


@dataclass(frozen=True, slots=True)
class JsonConverter:
    """JSON. ``schema`` is the JSON text of the schema that all records have, where they have one.

    With ``in_records``, every record is an object of a schema and a payload, and its schema must be the given one:
    Spark's columns have one type. `with_schema_of` takes it from a record.
    """

    in_records: bool = True
    schema: str | None = None
    decimals_as_numbers: bool = False
    replace_null: bool = True

    def with_schema_of(self, record: bytes) -> JsonConverter:
        """Return the converter for records with the schema of this one.

        Raises:
            ConfigException: the record has no schema, or one that is not valid.
        """
        try:
            found = json.loads(record)
        except ValueError as error:
            raise ConfigException(f"{_MALFORMED}{error}") from None
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            raise ConfigException(_ENVELOPE)
        schema_from_json(found["schema"])
        return replace(self, schema=json.dumps(found["schema"]))

    def decode(self, column: Column) -> Converted:
        """Return the data of JSON text.

        Raises:
            ConfigException: records have schemas, and none is given.
            DataException: the schema is not valid.
        """
        text = column.cast("string")
        if self.schema is not None:
            return self._with_schema(text, json.loads(self.schema))
        if self.in_records:
            raise ConfigException(
                "JsonConverter with schemas.enable needs the schema before the first record: set schema.content to the"
                " schema, or begin with a topic that has a record"
            )
        value = sql.try_parse_json(text)
        malformed = text.isNotNull() & value.isNull()
        present = sql.when(~sql.is_variant_null(value), value)
        return Converted(present, None, [Failure(malformed, DATA_EXCEPTION, _MALFORMED)])

    def _with_schema(self, text: Column, given: object) -> Converted:
        schema = schema_from_json(given)
        failures = []
        wrapped = text
        if self.in_records:
            value = sql.try_parse_json(text)
            keys = sql.map_keys(sql.try_variant_get(value, "$", "map<string,variant>"))
            is_envelope = sql.coalesce(
                sql.array_sort(keys) == sql.array(sql.lit("payload"), sql.lit("schema")), sql.lit(False)
            )
            found = sql.to_json(sql.try_variant_get(value, "$.schema", "variant"))
            expected = sql.to_json(sql.parse_json(sql.lit(json.dumps(given))))
            other = sql.concat(sql.lit("The schema of the record is not that of the connector, but "), found)
            failures = [
                Failure(text.isNotNull() & value.isNull(), DATA_EXCEPTION, _MALFORMED),
                Failure(value.isNotNull() & ~is_envelope, DATA_EXCEPTION, _ENVELOPE),
                Failure(found != expected, DATA_EXCEPTION, other),
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
        problem = wire.unwritable(column, schema, self.decimals_as_numbers)
        return Converted(text.cast("binary"), None, [Failure(problem.isNotNull(), DATA_EXCEPTION, problem)])
