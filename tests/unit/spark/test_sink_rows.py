"""A sink refuses columns that do not fit before any row, and packs Spark's small batches together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, StructType

from tidelog_foundation.errors import ConfigError
from tidelog_spark.sink import rows
from tidelog_spark.sink.options import check_of_stream, sink_plan
from tidelog_spark.sink.rows import tables_of
from tidelog_spark.sink.schema import check_schema

SERVERS = {"bootstrap.servers": "host:9094"}


def schema(**columns: str) -> StructType:
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, TimestampType

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "headers": ArrayType(header),
        "array<string>": ArrayType(StringType()),
    }
    return StructType([StructField(name, types[kind]) for name, kind in columns.items()])


def test_schema_with_every_column_is_taken() -> None:
    check_schema(
        schema(key="string", value="binary", topic="string", partition="int", headers="headers", timestamp="timestamp"),
        None,
    )
    check_schema(schema(value="string"), "t")


@pytest.mark.parametrize(
    ("columns", "topic", "text"),
    [
        ({"key": "binary"}, "t", "the column value is missing; the columns are key"),
        ({"value": "binary"}, None, 'nothing names the topic: set the option "topic", or add a column topic'),
        ({"value": "bigint"}, "t", "column value is bigint, but must be binary or string"),
        ({"value": "binary", "partition": "bigint"}, "t", "column partition is bigint, but must be int"),
        ({"value": "binary", "timestamp": "bigint"}, "t", "column timestamp is bigint, but must be timestamp or"),
        ({"value": "binary", "headers": "array<string>"}, "t", "but must be array<struct<key:string,value:binary>>"),
        ({"value": "binary", "offset": "bigint"}, "t", "unknown column offset: the tidelog sink takes key, value"),
    ],
)
def test_schema_that_does_not_fit_is_an_error(columns: dict[str, str], topic: str | None, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_schema(schema(**columns), topic)
    assert text in str(raised.value)


def test_small_batches_are_packed_and_empty_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BUFFER_BYTES", 100)
    batches = [pa.record_batch({"value": [b"x" * 10] * count}) for count in (0, 3, 0, 5, 3)]
    assert [table.num_rows for table in tables_of(batches)] == [8, 3]
    assert list(tables_of(batches[:1])) == []


def test_options_of_sparks_writers_are_no_options_of_the_sink() -> None:
    plan = sink_plan({**SERVERS, "topic": "t", "checkpointlocation": "c", "path": "p", "queryname": "q"})
    assert plan.client == {**SERVERS, "client.id": "tidelog-spark"}
    assert plan.options.is_exactly_once


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sink.semantics": "once"}, "exactly-once, at-least-once"),
        ({"subscribe": "t"}, 'unknown configuration "subscribe"'),
        ({"compression.type": "brotli"}, "brotli"),
        ({"txnAppId": "app"}, "the options txnAppId and txnVersion belong together: txnVersion is missing"),
        ({"txnVersion": "1"}, "the options txnAppId and txnVersion belong together: txnAppId is missing"),
        ({"txnAppId": "app", "txnVersion": "-1"}, "must be from 0 to 9223372036854775807"),
        ({"txnAppId": "app", "txnVersion": "1.5"}, "1.5"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId is missing"),
        ({"txnAppId": "é" * 129, "txnVersion": "1"}, "must have 1 to 256 bytes"),
        (
            {"txnAppId": "app", "txnVersion": "1", "sink.semantics": "at-least-once"},
            'txnAppId needs sink.semantics=exactly-once, but it is "at-least-once"',
        ),
        ({"kafka.security.protocol": "SSL", "security.protocol": "SSL"}, "they mean the same"),
        (
            {"kafka.delivery.timeout.ms": "9", "message.timeout.ms": "9"},
            "both kafka.delivery.timeout.ms and message.timeout.ms are given",
        ),
        ({"kafka.max.block.ms": "-1"}, "kafka.max.block.ms"),
    ],
)
def test_bad_option_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sink_plan({**SERVERS, **options})
    assert text in str(raised.value)


def test_application_has_a_sink_for_each_topic() -> None:
    def sink(**options: str) -> str | None:
        return sink_plan({**SERVERS, **options}).options.application_sink

    assert sink(topic="t") is None
    assert sink(txnappid="a/b:c", txnversion="0", topic="t") == "app:a%2Fb%3Ac:t"
    assert sink(txnappid="a", txnversion="0") == "app:a"


def test_stream_has_no_application() -> None:
    with pytest.raises(ConfigError, match=r"txnAppId and txnVersion are for df.write, as in foreachBatch"):
        check_of_stream(sink_plan({**SERVERS, "txnAppId": "a", "txnVersion": "0"}).options)


def test_security_settings_reach_the_clients() -> None:
    plan = sink_plan({**SERVERS, "kafka.ssl.ca.location": "ca.pem", "compression.type": "lz4"})
    assert plan.client["ssl.ca.location"] == "ca.pem"
    assert plan.producer["compression.type"] == "lz4"


def test_settings_of_kafkas_producer_have_their_names_there() -> None:
    kafkas = {"kafka.delivery.timeout.ms": "1", "kafka.max.request.size": "2000", "kafka.max.block.ms": "3"}
    producer = sink_plan({**SERVERS, **kafkas, "KAFKA.Compression.Type": "lz4"}).producer
    own = ("message.timeout.ms", "message.max.bytes", "topic.metadata.propagation.max.ms", "compression.type")
    assert [producer[key] for key in own] == ["1", "2000", "3", "lz4"]
