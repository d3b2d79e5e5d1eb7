"""The JDBC source without a database: offsets, the choice of tables, types, and the SQL that it asks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc import JdbcSourceConnector
from tidelog_connect.connectors.jdbc.positions import Position, position_of
from tidelog_connect.connectors.jdbc.postgresql import Source, identifier, tables_query, text_literal, timestamp_literal
from tidelog_connect.connectors.jdbc.source_settings import SourceSettings
from tidelog_connect.connectors.jdbc.tables import SourceColumn, TableId, chosen_tables
from tidelog_connect.connectors.jdbc.types import source_schema
from tidelog_connect.schemas import DECIMAL, TIMESTAMP, SchemaType

ID = SourceColumn("id", "bigserial", is_nullable=False)
AT = SourceColumn("at", "timestamp", is_nullable=False)
ATZ = SourceColumn("atz", "timestamptz")
LONGS = st.integers(-(2**63), 2**63 - 1)
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
WHOLE = {
    "name": "users",
    "connector.class": "JdbcSource",
    "connection.url": "jdbc:postgresql://localhost/db",
    "topic.prefix": "p-",
    "mode": "bulk",
}


def source(incrementing: SourceColumn | None, *timestamps: SourceColumn) -> Source:
    return Source('"public"."t"', [ID, AT, ATZ], incrementing, timestamps, "Europe/Helsinki")


def settings(**changed: str) -> SourceSettings:
    given = {**WHOLE, **{name.replace("_", "."): text for name, text in changed.items()}}
    return SourceSettings.of({"tasks.max": 1, **JdbcSourceConnector.config().parse(given)})


@given(st.none() | MICROS, st.none() | LONGS)
def test_position_is_the_same_after_a_round_trip_as_an_offset(us: int | None, number: int | None) -> None:
    offset = Position(us, number).as_offset()
    assert position_of(offset) == Position(us, number)
    assert us is None or offset["timestamp"] * 1_000_000 + offset["timestamp_nanos"] % 1_000_000 == us * 1000


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        ({"position": 1}, "not position"),
        ({"incrementing": "7"}, "'7' of incrementing must be a whole number"),
        ({"incrementing": 2**63}, "must be a whole number from"),
        ({"timestamp": 1, "timestamp_nanos": 10**9}, "1000000000 of timestamp_nanos"),
        ({"timestamp_nanos": 1}, "no timestamp"),
    ],
)
def test_offset_that_is_none_of_a_jdbc_source_is_refused(offset: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JdbcSourceConnector.check_offset({"protocol": "1", "table": "db.public.t"}, offset)


def test_partition_names_a_table_or_the_query() -> None:
    JdbcSourceConnector.check_offset({"query": "query"}, None)
    JdbcSourceConnector.check_offset({"protocol": "1", "table": "db.public.t"}, {"incrementing": 7})
    for partition in ({"table": "t"}, {"query": "other"}, {"protocol": "0", "table": "t"}):
        with pytest.raises(ValueError, match="partition of a JDBC source"):
            JdbcSourceConnector.check_offset(partition, None)


@given(st.text())
def test_text_in_sql_ends_only_at_its_last_quote(text: str) -> None:
    literal = text_literal(text)
    quoted = literal.removeprefix(" E")
    assert quoted[0] == quoted[-1] == "'"
    inner = quoted[1:-1]
    if literal.startswith(" E"):
        assert re.fullmatch(r"([^'\\]|''|\\\\)*", inner, re.DOTALL)
        inner = inner.replace("\\\\", "\\")
    else:
        assert "\\" not in inner
    assert inner.replace("''", "'") == text
    assert identifier(text)[1:-1].replace('""', '"') == text


@given(MICROS)
def test_timestamps_in_sql_have_four_digits_of_the_year(us: int) -> None:
    assert re.fullmatch(r"TIMESTAMPTZ '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00'", timestamp_literal(us))


def test_rows_lie_behind_a_position_and_end_at_the_next_one() -> None:
    after, until = Position(1_000_000, 7), Position(2_500_000, 3)
    numbers = source(ID).rows_query(after, until)
    assert numbers.endswith(' FROM "public"."t" WHERE "id" > 7 AND "id" <= 3')
    both = source(ID, ATZ).rows_query(after, until)
    assert both.endswith(
        """ WHERE ("atz", "id") > ((TIMESTAMPTZ '1970-01-01 00:00:01.000000+00'), 7)"""
        """ AND ("atz", "id") <= ((TIMESTAMPTZ '1970-01-01 00:00:02.500000+00'), 3)"""
    )
    local = source(None, AT).rows_query(Position(), until)
    assert local.endswith(
        """ WHERE "at" <= ((TIMESTAMPTZ '1970-01-01 00:00:02.500000+00') AT TIME ZONE 'Europe/Helsinki')"""
    )
    assert """("at" AT TIME ZONE 'Europe/Helsinki') AS "at", "atz" AS "atz" FROM""" in local
    assert "WHERE" not in source(None).rows_query()


def test_position_with_a_timestamp_alone_repeats_the_rows_of_that_time() -> None:
    assert """"atz" >= (TIMESTAMPTZ""" in source(ID, ATZ).rows_query(Position(1_000_000, None))
    assert "WHERE" not in source(ID, ATZ).rows_query(Position(None, 7))


def test_cuts_divide_the_next_rows_and_leave_young_ones_out() -> None:
    query = source(ID, AT, ATZ).cuts_query(Position(), 1500, 1000, 3)
    assert "n % 334 = 0 OR n = c" in query
    assert "LIMIT 1000" in query
    assert """COALESCE("at", "atz") < (""" in query
    assert "CURRENT_TIMESTAMP - INTERVAL '1500 milliseconds'" in query
    assert '"id" IS NOT NULL' in source(ID).cuts_query(Position(), 0, 10, 1)


@pytest.mark.parametrize(
    ("ordered", "message"),
    [
        (source(AT), "timestamp is no integer"),
        (source(None, ID), "bigserial is no timestamp"),
        (source(None, AT, ATZ), "different types"),
        (source(None, ATZ), "allows nulls in each"),
        (source(SourceColumn("n", "int4")), "allows nulls"),
        (source(SourceColumn("n", "numeric", 10, 2)), "numeric is no integer"),
    ],
)
def test_columns_of_the_order_have_fitting_types_without_nulls(ordered: Source, message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        ordered.check(is_non_null=True)


def test_tables_are_chosen_by_any_form_of_their_names() -> None:
    a, b, other = (TableId("db", schema, name) for schema, name in (("s", "a"), ("s", "b"), ("t", "a")))
    assert chosen_tables([a, b, other], [], []) == [a, b, other]
    assert chosen_tables([a, b, other], [], ["a"]) == [b]
    assert chosen_tables([a, b, other], ["b", "db.t.a"], []) == [b, other]
    with pytest.raises(ConfigException, match=r"is the name of db\.s\.a and db\.t\.a"):
        chosen_tables([a, b, other], ["a"], [])
    with pytest.raises(ConfigException, match="no such table exists"):
        chosen_tables([a], ["c"], [])
    assert "c.relkind IN ('r', 'v')" in tables_query(["TABLE", "VIEW"], "app%", None)


@pytest.mark.parametrize(
    ("precision", "scale", "mapping", "kind"),
    [
        (5, 0, "none", SchemaType.BYTES),
        (2, 0, "precision_only", SchemaType.INT8),
        (4, 0, "precision_only", SchemaType.INT16),
        (9, 0, "precision_only", SchemaType.INT32),
        (18, 0, "precision_only", SchemaType.INT64),
        (19, 0, "precision_only", SchemaType.BYTES),
        (5, 2, "precision_only", SchemaType.BYTES),
        (3, -2, "precision_only", SchemaType.BYTES),
        (3, -2, "best_fit", SchemaType.INT32),
        (18, 2, "best_fit", SchemaType.FLOAT64),
        (19, 2, "best_fit", SchemaType.BYTES),
        (30, 2, "best_fit_eager_double", SchemaType.FLOAT64),
        (30, 0, "best_fit_eager_double", SchemaType.BYTES),
        (0, 0, "best_fit", SchemaType.BYTES),
    ],
)
def test_numerics_are_mapped_as_the_setting_says(precision: int, scale: int, mapping: str, kind: SchemaType) -> None:
    schema = source_schema(SourceColumn("n", "numeric", precision, scale), mapping)
    assert schema.type is kind
    assert (schema.name == DECIMAL) == (kind is SchemaType.BYTES)


def test_types_without_a_counterpart_are_texts_and_too_long_numbers_are_refused() -> None:
    assert source_schema(SourceColumn("u", "uuid"), "none").type is SchemaType.STRING
    assert source_schema(AT, "none").name == TIMESTAMP
    array = source_schema(SourceColumn("a", "_int4"), "none")
    assert array.value_schema is not None
    assert array.value_schema.type is SchemaType.INT32
    with pytest.raises(ConfigException, match=r"numeric\(40,2\)"):
        source_schema(SourceColumn("n", "numeric", 40, 2), "none")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "incrementing"}, "incrementing.column.name must be set"),
        ({"mode": "timestamp"}, "timestamp.column.name must be set"),
        ({"incrementing_column_name": "id"}, "Mode bulk does not use it"),
        ({"timestamp_initial": "7"}, "Mode bulk does not use it"),
        ({"timestamp_delay_interval_ms": "7"}, "Mode bulk does not use it"),
        ({"table_whitelist": "a", "table_blacklist": "b"}, "exclusive"),
        ({"table_whitelist": "a", "query": "SELECT 1"}, "filtering configs with query"),
        ({"connection_url": "jdbc:mysql://h/d?password=x"}, "jdbc:mysql:... for .*Only PostgreSQL"),
        ({"dialect_name": "MySqlDatabaseDialect"}, "must be one of"),
        ({"db_timezone": "Mars/Base"}, "Invalid time zone"),
        ({"table_types": "INDEX"}, "must be one of"),
    ],
)
def test_settings_of_a_source_that_do_not_fit_together_are_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        settings(**changed)


def test_password_is_not_printed() -> None:
    own = settings(connection_password="hunter2")
    assert "hunter2" not in repr(own)
    assert own.connection.credentials == {"password": "hunter2"}
