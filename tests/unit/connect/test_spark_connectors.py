"""The settings, positions and options of SparkSource and SparkSink, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.connectors.spark.positions import offset_of, partition_of, value_of
from tidelog_connect.connectors.spark.sink import SparkSinkConnector
from tidelog_connect.connectors.spark.source import SparkSourceConnector

SOURCE = {"name": "s", "connector.class": "SparkSource", "topic": "t"}
SINK = {"name": "s", "connector.class": "SparkSink", "topics": "t"}


def settings(config: dict[str, str]) -> dict[str, Any]:
    return Registry.installed("1").settings(config)


@pytest.mark.parametrize(
    ("config", "name", "text"),
    [
        (SOURCE, "format", "Either format or table is required"),
        ({**SOURCE, "table": "a.b", "path": "/x"}, "path", "table has its own path"),
        (
            {**SOURCE, "format": "json", "mode": "incrementing"},
            "incrementing.column.name",
            "mode=incrementing requires",
        ),
        ({**SOURCE, "format": "json", "incrementing.column.name": "id"}, "incrementing.column.name", "bulk has none"),
        ({**SOURCE, "format": "json", "batch.max.rows": "0"}, "batch.max.rows", "at least 1"),
        (SINK, "format", "Either format or table is required"),
        ({**SINK, "format": "json", "path": "/x", "table": "t"}, "path", "Only one of table and path"),
        ({**SINK, "format": "json", "columns": "key,nothing"}, "columns", "nothing"),
    ],
)
def test_settings_that_do_not_fit_are_errors(config: dict[str, str], name: str, text: str) -> None:
    found = Registry.installed("1").validate(config["connector.class"], config)
    values = {each["value"]["name"]: each["value"]["errors"] for each in found["configs"]}
    [error] = [each for errors in values.values() for each in errors]
    assert text in error
    assert values[name] == [error]


def test_offsets_are_values_of_what_the_source_reads() -> None:
    read = settings({**SOURCE, "format": "json", "path": "/x"})
    assert partition_of(read) == {"format": "json", "path": "/x"}
    assert value_of(offset_of(7)) == 7
    assert value_of(None) is None
    SparkSourceConnector.check_offset({"format": "json", "path": "/x"}, {"incrementing": "2026"})
    for partition, offset in (
        ({}, None),
        ({"file": "x"}, None),
        ({"table": 1}, None),
        ({"table": "t"}, {"incrementing": True}),
        ({"table": "t"}, {"incrementing": 1, "more": 2}),
        ({"table": "t"}, {}),
    ):
        with pytest.raises(ValueError, match="should contain"):
            SparkSourceConnector.check_offset(partition, offset)


def test_formats_that_know_batches_get_their_numbers_and_others_by_names() -> None:
    batch = Batch("query", 7)
    delta = SparkSinkConnector(settings({**SINK, "format": "delta", "path": "/x"}))
    assert delta.options(batch, "") == {"txnAppId": "query", "txnVersion": "7"}
    assert delta.options(batch, "t")["txnAppId"] == "query/t"
    own = SparkSinkConnector(settings({**SINK, "format": "delta", "path": "/x", "option.txnAppId": "mine"}))
    assert own.options(batch, "") == {"txnAppId": "mine", "txnVersion": "7"}
    other = SparkSinkConnector(settings({**SINK, "format": "other", "option.id": "${query}-${batch}-${topic}"}))
    assert other.options(batch, "t") == {"id": "query-7-t"}
