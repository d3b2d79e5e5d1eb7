"""Datagen's records, rate and settings, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog_connect.connectors.datagen.generator import RecordGenerator
from tidelog_connect.connectors.datagen.quickstarts import QUICKSTARTS, names
from tidelog_connect.connectors.datagen.source import DatagenConnector
from tidelog_connect.connectors.registry import Registry

CONFIG = {"name": "gen", "connector.class": "Datagen", "kafka.topic": "t"}


def record_schema(**fields: object) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": each} for name, each in fields.items()]}


def argued(kind: str, **arguments: object) -> dict[str, object]:
    return {"type": kind, "arg.properties": arguments}


def connector(**settings: str) -> DatagenConnector:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return DatagenConnector(Registry.installed("1").settings({**CONFIG, **named}))


@pytest.mark.parametrize("name", names())
def test_quickstarts_have_the_same_records_for_a_seed(name: str) -> None:
    schema, key = QUICKSTARTS[name]
    one, other = RecordGenerator(schema, 7), RecordGenerator(schema, 7)
    records = [one.record(number) for number in range(20)]
    assert [other.record(number) for number in reversed(range(20))] == records[::-1]
    assert [RecordGenerator(schema, 8).record(number) for number in range(20)] != records
    assert all(each[key] is not None for each in records)


def test_arguments_choose_the_values() -> None:
    schema = record_schema(
        option=argued("string", options=["a", "b"]),
        number=argued("long", range={"min": 5, "max": 7}),
        count=argued("int", iteration={"start": 10, "step": 5, "restart": 25}),
        text=argued("string", regex="x[0-9]{2}"),
        short=argued("string", length=3),
        listed={"type": "array", "items": "boolean", "arg.properties": {"length": 2}},
        maybe=["null", "double"],
        kind={"type": "enum", "name": "e", "symbols": ["S"]},
        again="e",
        inner=record_schema(flag="boolean"),
    )
    records = [RecordGenerator(schema, 1).record(number) for number in range(40)]
    assert {each["option"] for each in records} == {"a", "b"}
    assert {each["number"] for each in records} == {5, 6}
    assert [each["count"] for each in records[:4]] == [10, 15, 20, 10]
    assert all(each["text"][0] == "x" and each["text"][1:].isdigit() and len(each["text"]) == 3 for each in records)
    assert {len(each["short"]) for each in records} == {3}
    assert {len(each["listed"]) for each in records} == {2}
    assert {each["maybe"] is None for each in records} == {True, False}
    assert records[0]["kind"] == records[0]["again"] == "S"
    assert isinstance(records[0]["inner"]["flag"], bool)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "Give either quickstart or schema.string"),
        ({"quickstart": "cars"}, "String must be one of: , inventory"),
        ({"quickstart": "users", "schema.string": json.dumps(record_schema(a="int"))}, "Give either"),
        ({"schema.string": "{"}, "Not JSON"),
        ({"schema.string": '"int"'}, "must be an Avro record"),
        ({"schema.string": json.dumps(record_schema(a="intt"))}, "unknown type 'intt'"),
        ({"schema.string": json.dumps(record_schema(a=argued("int", odds=1)))}, ".a: arg.properties has no odds"),
        ({"schema.string": json.dumps(record_schema(a=argued("string", regex="[")))}, "no text can be generated"),
        ({"schema.string": json.dumps(record_schema(a={"type": "int", "logicalType": "date"}))}, "logical types"),
        ({"quickstart": "users", "schema.keyfield": "x"}, "The schema has no field x"),
    ],
)
def test_settings_of_datagen_that_cannot_work_are_errors(settings: dict[str, str], text: str) -> None:
    errors = Registry.installed("1").errors({**CONFIG, **settings})
    assert len(errors) == 1
    assert text in errors[0]


def test_records_are_due_by_the_interval_and_end_with_the_iterations() -> None:
    eager = connector(quickstart="users", max_interval="0", iterations="12000")
    assert (eager._due(0), eager._due(10_000), eager._due(12_000)) == (10_000, 2_000, 0)
    slow = connector(quickstart="users", max_interval="3600000")
    assert slow._due(0) == 0


@pytest.mark.parametrize("offset", [{}, {"current.iteration": -1, "random.seed": 1}, {"current.iteration": 1}])
def test_datagen_refuses_offsets_that_are_not_numbers(offset: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        DatagenConnector.check_offset({"task.id": "0"}, offset)
    DatagenConnector.check_offset({"task.id": "0"}, {"current.iteration": 3, "random.seed": 1})
    with pytest.raises(ValueError, match="The partition should be"):
        DatagenConnector.check_offset({}, None)
