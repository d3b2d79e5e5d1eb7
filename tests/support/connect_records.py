"""Records that pass Tidelog's transforms in Spark, in the form of the program that runs Kafka's own on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters.json import JsonConverter
from tidelog_connect.converters.topic_records import decoded_records, encoded_records
from tidelog_connect.predicates.registry import PREDICATES
from tidelog_connect.records import HEADERS_TYPE
from tidelog_connect.transforms.chain import TransformChain

JSON = "org.apache.kafka.connect.json.JsonConverter"
_COLUMNS = (
    "id INT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    f" headers {HEADERS_TYPE}"
)


def outcomes(spark: SparkSession, cases: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the outcomes of each case's records, from one job over all cases."""
    found: list[list[Any]] = []
    frames = []
    for number, case in enumerate(cases):
        try:
            frames.append(_frame(spark, case).withColumn("case", sql.lit(number)))
            found.append([None] * len(case["records"]))
        except ConfigException as error:
            found.append([{"exception": "ConfigException", "message": error.message}])
    for frame in frames:
        for row in frame.toArrow().to_pylist():
            found[row["case"]][row["id"]] = json.loads(row["outcome"])
    return found


def _frame(spark: SparkSession, case: Mapping[str, Any]) -> DataFrame:
    rows = [_row(number, record) for number, record in enumerate(case["records"])]
    sides = [(JSON, _converter(record[side] for record in case["records"])) for side in ("key", "value")]
    records = decoded_records(spark.createDataFrame(rows, _COLUMNS), sides[0], sides[1])
    first = case["steps"][0]
    if first["class"] in PREDICATES:
        predicate = PREDICATES.find(first["class"])
        condition = predicate.create(predicate.config.parse(first["settings"]))
        return records.frame.select("id", condition.cast("string").alias("outcome"))
    settings = {
        **case.get("predicates", {}),
        "transforms": ",".join(f"t{number}" for number, _ in enumerate(case["steps"])),
    }
    for number, step in enumerate(case["steps"]):
        own = {"type": step["class"], **step["settings"]}
        settings |= {f"transforms.t{number}.{name}": value for name, value in own.items()}
    after = TransformChain.of(settings)(records)
    schemas = [after.key_schema is not None, after.value_schema is not None]
    writers = [(JSON, JsonConverter(in_records=schema, replace_null=False)) for schema in schemas]
    written = encoded_records(after, writers[0], writers[1]).frame
    return written.select("id", _outcome(schemas).alias("outcome"))


def _outcome(schemas: Sequence[bool]) -> Column:
    sides = [
        sql.coalesce(sql.col(side).cast("string"), sql.lit('{"schema":true,"payload":null}' if schema else "null"))
        for side, schema in zip(("key", "value"), schemas, strict=True)
    ]
    texts = sql.transform(
        "headers", lambda each: sql.array(each.getField("key"), each.getField("value").cast("string"))
    )
    good = sql.struct(
        "topic", "partition", "timestamp", sides[0].alias("key"), sides[1].alias("value"), texts.alias("headers")
    )
    failed = sql.struct(sql.col("failure.exception").alias("exception"), sql.col("failure.message").alias("message"))
    options = {"ignoreNullFields": "false"}
    return sql.when(sql.col("failure").isNotNull(), sql.to_json(failed)).otherwise(sql.to_json(good, options))


def _converter(sides: Iterable[Mapping[str, Any]]) -> JsonConverter:
    for side in sides:
        if "schema" in side:
            return JsonConverter(in_records=True, schema=json.dumps(side["schema"]), replace_null=False)
    return JsonConverter(in_records=False)


def _row(number: int, record: Mapping[str, Any]) -> tuple[Any, ...]:
    timestamp = None if record["timestamp"] is None else _date(record["timestamp"])
    headers = [(name, bytearray(value.encode())) for name, value in record["headers"]]
    data = [bytearray(json.dumps(_json(record[side])).encode()) for side in ("key", "value")]
    return (number, record["topic"], record["partition"], record["offset"], timestamp, *data, headers)


def _json(side: Mapping[str, Any]) -> Any:
    return side if "schema" in side else side["payload"]


def _date(millis: int) -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def comparable(outcome: Any) -> Any:
    """Return an outcome without what Kafka's program and ours express differently.

    Null data has the schema of the data before the transform in Kafka, and that of the data after it here. Keys and
    values of ours are JSON text.
    """
    if not isinstance(outcome, dict) or "topic" not in outcome:
        return outcome
    found = dict(outcome)
    for side in ("key", "value"):
        data = json.loads(found[side]) if isinstance(found[side], str) else found[side]
        if not isinstance(data, dict) or "payload" not in data:
            data = {"payload": data}
        if data.get("payload") is None:
            data = None
        found[side] = data
    found["headers"] = [[name, _parsed(text)] for name, text in found["headers"]]
    return found


def _parsed(text: str | None) -> Any:
    """Return a header, whose maps have their fields in any order."""
    return json.loads(text) if text is not None and text.startswith(("{", "[")) else text


def differences(case: Mapping[str, Any], ours: Sequence[Any], kafkas: Sequence[Any]) -> list[str]:
    """Return the records of a case whose outcomes differ, with both."""
    if len(ours) != len(kafkas):
        return [f"{case['steps']}: {ours} is not {kafkas}"]
    found = []
    for record, mine, kafka in zip(case["records"], ours, kafkas, strict=False):
        one, other = comparable(mine), comparable(kafka)
        if one != other and not _is_known(one, other):
            found.append(f"{case['steps']}\n{record}\nours:  {json.dumps(one)}\nKafka: {json.dumps(other)}")
    return found


def _is_known(ours: Any, kafka: Any) -> bool:
    """Tell whether docs/connect/transforms.md lists a difference: SimpleDateFormat parses the start of a text."""
    is_strict = isinstance(ours, dict) and ours.get("message", "").startswith("Could not parse timestamp: value")
    return is_strict and isinstance(kafka, dict) and "exception" not in kafka
