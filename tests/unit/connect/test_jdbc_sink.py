"""The JDBC sink without a database: its columns, the SQL of its tables, and settings that do not fit together."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc import JdbcSinkConnector
from tidelog_connect.connectors.jdbc.batch_table import BatchTable
from tidelog_connect.connectors.jdbc.sink_fields import Origin, sink_fields
from tidelog_connect.connectors.jdbc.sink_settings import SinkSettings
from tidelog_connect.connectors.jdbc.sink_sql import (
    Target,
    add_columns,
    create_stage,
    create_table,
    missing_fields,
    moves,
    target_relation,
)
from tidelog_connect.schemas import DECIMAL, TIME, ConnectSchema, Field, SchemaType

INT = ConnectSchema(SchemaType.INT32)
TEXT = ConnectSchema(SchemaType.STRING, optional=True)
PRICE = ConnectSchema(SchemaType.BYTES, True, name=DECIMAL, version=1, parameters=MappingProxyType({"scale": "2"}))
OPENS = ConnectSchema(SchemaType.INT32, True, name=TIME, version=1)
VALUE = ConnectSchema(SchemaType.STRUCT, fields=(Field("id", INT), Field("name", TEXT), Field("opens", OPENS)))
KEY = ConnectSchema(SchemaType.STRUCT, fields=(Field("id", INT), Field("part", TEXT)))
TARGET = Target('"t"', {"id": "pg_catalog.int4", "name": "public.mood", "opens": "pg_catalog.time"})


def settings(**changed: str) -> SinkSettings:
    given = {"connection.url": "jdbc:postgresql://localhost/db"}
    given |= {name.replace("_", "."): text for name, text in changed.items()}
    return SinkSettings.of({"name": "snk", **JdbcSinkConnector.config().parse(given)})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"insert_mode": "upsert"}, "needs a primary key"),
        ({"delete_enabled": "true", "pk_mode": "record_value"}, "must be 'record_key'"),
        ({"pk_fields": "id"}, "pk.mode=none does not use it"),
        ({"pk_mode": "kafka", "pk_fields": "a,b"}, "needs three names"),
        ({"batch_table_name": "a b"}, "Must be TABLE or SCHEMA.TABLE"),
        ({"pk_mode": "primary"}, "must be one of"),
    ],
)
def test_settings_of_a_sink_that_do_not_fit_together_are_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        settings(**changed)


@pytest.mark.parametrize(
    ("changed", "names", "keys"),
    [
        ({}, ["id", "name", "opens"], 0),
        (
            {"pk_mode": "kafka"},
            ["__connect_topic", "__connect_partition", "__connect_offset", "id", "name", "opens"],
            3,
        ),
        ({"pk_mode": "kafka", "pk_fields": "t,p,o", "fields_whitelist": "name"}, ["t", "p", "o", "name"], 3),
        ({"pk_mode": "record_key"}, ["id", "part", "name", "opens"], 2),
        ({"pk_mode": "record_key", "pk_fields": "part"}, ["part", "id", "name", "opens"], 1),
        ({"pk_mode": "record_value", "pk_fields": "name", "fields_whitelist": "opens"}, ["name", "opens"], 1),
        ({"pk_mode": "record_value"}, ["id", "name", "opens"], 3),
    ],
)
def test_columns_are_the_primary_key_and_other_fields_of_the_value(
    changed: dict[str, str], names: list[str], keys: int
) -> None:
    fields = sink_fields(settings(**changed), KEY, VALUE)
    assert [each.name for each in fields] == names
    assert [each.is_key for each in fields] == [number < keys for number in range(len(names))]


def test_primitive_key_has_the_one_name_of_the_primary_key() -> None:
    own = settings(pk_mode="record_key", pk_fields="user")
    first, *_ = sink_fields(own, ConnectSchema(SchemaType.STRING, True), VALUE)
    assert (first.name, first.origin, first.schema.optional) == ("user", Origin.KEY, False)
    assert [each.name for each in sink_fields(own, TEXT, None)] == ["user"]


@pytest.mark.parametrize(
    ("changed", "key", "value", "message"),
    [
        ({"pk_mode": "record_key"}, None, VALUE, "needs keys with a schema"),
        ({"pk_mode": "record_key"}, TEXT, VALUE, "the one name of their column"),
        ({"pk_mode": "record_key", "pk_fields": "x"}, KEY, VALUE, "no field x, but id, part"),
        ({"fields_whitelist": "id,x"}, None, VALUE, "no field x, but id, name, opens"),
        ({}, None, TEXT, "values are of the type string"),
        ({}, None, None, "no fields"),
        ({}, None, ConnectSchema(SchemaType.STRUCT, fields=(Field("s", VALUE),)), "Field s is a struct"),
    ],
)
def test_records_that_tables_cannot_have_are_refused(
    changed: dict[str, str], key: ConnectSchema | None, value: ConnectSchema | None, message: str
) -> None:
    with pytest.raises(ConfigException, match=message):
        sink_fields(settings(**changed), key, value)


def test_created_table_has_types_defaults_and_the_primary_key() -> None:
    named = ConnectSchema(SchemaType.STRING, default="it's", optional=True)
    flag = ConnectSchema(SchemaType.BOOLEAN, default=True)
    fields = (Field("id", INT), Field("price", PRICE), Field("name", named), Field("ok", flag))
    chosen = sink_fields(
        settings(pk_mode="record_value", pk_fields="id"), None, ConnectSchema(SchemaType.STRUCT, fields=fields)
    )
    assert create_table('"t"', chosen, is_quoted=True) == (
        'CREATE TABLE "t" ("id" INT NOT NULL, "price" DECIMAL, "name" TEXT DEFAULT \'it\'\'s\', '
        '"ok" BOOLEAN DEFAULT true NOT NULL, PRIMARY KEY ("id"))'
    )
    assert create_stage("s", chosen[:2]).endswith("is_deleted boolean NOT NULL, f0 integer, f1 numeric)")


def test_table_gets_columns_for_optional_fields_only() -> None:
    id_, name, opens = sink_fields(settings(), None, VALUE)
    some = Target('"t"', {"name": "pg_catalog.text"})
    assert missing_fields(some, [id_, name, opens], is_quoted=True) == [id_, opens]
    assert add_columns(some, [opens], is_quoted=True) == 'ALTER TABLE "t" ADD COLUMN "opens" TIME'
    with pytest.raises(ConfigException, match=r"id .*not optional and has no default"):
        add_columns(some, [id_, opens], is_quoted=True)


def test_names_are_quoted_or_folded() -> None:
    assert target_relation("App.Users", is_quoted=True) == '"App"."Users"'
    assert target_relation("App.Users", is_quoted=False) == "App.Users"
    for name in ("a.b.c", "a.", ""):
        with pytest.raises(ConfigException, match=r"TABLE or SCHEMA\.TABLE"):
            target_relation(name, is_quoted=True)
    [field] = sink_fields(settings(), None, ConnectSchema(SchemaType.STRUCT, fields=(Field("ID", INT),)))
    assert missing_fields(Target("t", {"id": "int4"}), [field], is_quoted=False) == []


def test_texts_are_cast_to_the_type_of_the_column_and_times_are_added_up() -> None:
    fields = sink_fields(settings(), None, VALUE)
    [insert] = moves("insert", TARGET, "s", ["a", "it's"], fields, deletes=False, is_quoted=True)
    assert "CAST(r.f1 AS public.mood), (TIME '00:00' + r.f2 * INTERVAL '1 millisecond')" in insert
    assert "record_topic IN ('a', 'it''s')" in insert


@pytest.mark.parametrize(
    ("mode", "begins"),
    [("insert", ["DELETE", "INSERT"]), ("upsert", ["DELETE", "INSERT"]), ("update", ["UPDATE", "DELETE"])],
)
def test_deletes_stand_where_later_records_decide(mode: str, begins: list[str]) -> None:
    own = settings(pk_mode="record_key", pk_fields="id", delete_enabled="true")
    fields = sink_fields(own, KEY, VALUE)
    found = moves(mode, TARGET, "s", ["t"], fields, deletes=True, is_quoted=True)
    assert [each.split()[0] for each in found] == begins
    assert len(moves(mode, TARGET, "s", ["t"], fields, deletes=False, is_quoted=True)) == 1


def test_staged_rows_of_a_connector_have_names_of_their_own() -> None:
    own = BatchTable("connect.batches", "snk")
    assert own.stage("x").startswith('"connect".tidelog_stage_')
    assert own.stage("x") != BatchTable("connect.batches", "other").stage("x")
    assert own.stage("x") != BatchTable("connect.others", "snk").stage("x")
    assert len(own.stage("0" * 32).partition(".")[2]) <= 63
