"""Datagen: random records of a schema, the same again for a seed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigException,
    Importance,
    NonEmptyString,
    Range,
    Type,
    ValidString,
)
from tidelog_connect.connectors.connector import Settings, SourceBatch, SourceConnector, SourceOffset
from tidelog_connect.connectors.datagen.generator import RecordGenerator, check_schema
from tidelog_connect.connectors.datagen.quickstarts import QUICKSTARTS, names
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.schemas import DataException, connect_schema_of_avro, spark_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITION = {"task.id": "0"}
_NUMBER, _SEED = "current.iteration", "random.seed"
_MAX_RECORDS = 10_000
"""The maximum number of records in a batch."""


class DatagenConnector(SourceConnector):
    """Generates records at a rate. Its offset is the number of the next record, and the seed.

    A record follows from the seed and its number, so a batch that comes again has the same records.
    """

    class_name = "io.confluent.kafka.connect.datagen.DatagenConnector"
    task_class = "io.confluent.kafka.connect.datagen.DatagenTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the source."""
        high, medium = Importance.HIGH, Importance.MEDIUM
        topic = "The topic to write."
        interval = "The longest wait between two records in ms. The wait is half as long on average; 0 is none."
        iterations = "The number of records to generate; -1 for no end."
        return (
            ConfigDef()
            .define("kafka.topic", Type.STRING, NO_DEFAULT_VALUE, high, topic, validator=NonEmptyString())
            .define("max.interval", Type.LONG, "500", high, interval, validator=Range(0))
            .define("iterations", Type.LONG, "-1", high, iterations, validator=Range(-1))
            .define("schema.string", Type.STRING, "", high, "The Avro schema of records, in JSON.", validator=_schema)
            .define("schema.keyfield", Type.STRING, "", high, "The field of the schema that is the key.")
            .define(
                "quickstart",
                Type.STRING,
                "",
                high,
                f"A schema by its name: {', '.join(names())}.",
                validator=ValidString(("", *names())),
            )
            .define(
                _SEED, Type.LONG, None, medium, "The seed: equal seeds have equal records. By default, it is random."
            )
        )

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of the schema and its key field."""
        if bool(settings["schema.string"]) == bool(settings["quickstart"]):
            return {"quickstart": "Give either quickstart or schema.string"}
        schema, field = _schema_and_key(settings)
        if field and field not in [each["name"] for each in schema["fields"]]:
            return {"schema.keyfield": f"The schema has no field {field}"}
        return {}

    @classmethod
    def tasks(cls, settings: Settings) -> int:
        """Return 1: the records have one order."""
        return 1

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check that an offset has the number of a record and a seed.

        Raises:
            ValueError: it does not.
        """
        if dict(partition) != _PARTITION:
            raise ValueError(f"The partition should be {json.dumps(_PARTITION)}")
        if offset is None:
            return
        numbers = [offset.get(name) for name in (_NUMBER, _SEED)]
        if set(offset) != {_NUMBER, _SEED} or any(type(each) is not int for each in numbers) or offset[_NUMBER] < 0:
            raise ValueError(f"The offset should have whole numbers {_NUMBER}, from 0, and {_SEED}")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._avro, self._key = _schema_and_key(settings)
        self._last = time.monotonic()

    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the records that are due."""
        from pyspark.sql import types

        known = position.get(partition_key(_PARTITION), {})
        start = int(known.get(_NUMBER, 0))
        seed = self.settings[_SEED] if self.settings[_SEED] is not None else known.get(_SEED)
        seed = random.getrandbits(62) if seed is None else int(seed)
        count = self._due(start)
        if not count:
            return None
        schema = connect_schema_of_avro(self._avro)
        value = spark_type(schema)
        generator = RecordGenerator(self._avro, seed)
        records = [generator.record(number) for number in range(start, start + count)]
        fields = [types.StructField("topic", types.StringType()), types.StructField("value", value)]
        topic = self.settings["kafka.topic"]
        rows = spark.createDataFrame([(topic, each) for each in records], types.StructType(fields))
        key = f"value.`{self._key}`" if self._key else "CAST(NULL AS STRING)"
        rows = rows.selectExpr("topic", f"{key} AS key", "value")
        offset = SourceOffset(_PARTITION, {_NUMBER: start + count, _SEED: seed})
        key_schema = schema.field(self._key) if self._key else None
        return SourceBatch(rows, (offset,), frozenset((topic,)), key_schema, schema)

    def _due(self, start: int) -> int:
        """Return the number of records whose time has come, within the limits."""
        now, mean_s = time.monotonic(), self.settings["max.interval"] / 2000
        due = _MAX_RECORDS if not mean_s else min(_MAX_RECORDS, int((now - self._last) / mean_s))
        if due:
            self._last = now
        end = self.settings["iterations"]
        return due if end < 0 else max(0, min(due, end - start))


def _schema_and_key(settings: Settings) -> tuple[dict[str, Any], str]:
    field = settings["schema.keyfield"]
    if settings["quickstart"]:
        schema, key = QUICKSTARTS[settings["quickstart"]]
        return schema, field or key
    parsed: dict[str, Any] = json.loads(settings["schema.string"])
    return parsed, field


def _schema(name: str, value: object) -> None:
    if not value:
        return
    try:
        parsed = json.loads(str(value))
    except ValueError as error:
        raise ConfigException.of(name, str(value)[:100], f"Not JSON: {error}") from None
    check_schema(name, parsed)
    try:
        connect_schema_of_avro(parsed)
    except DataException as error:
        raise ConfigException.of(name, str(value)[:100], str(error)) from None
