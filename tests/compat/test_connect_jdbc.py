"""The JDBC source and sink on a PostgreSQL: all types, positions, and batches that come again or are written twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from compat.jars import Unavailable, postgresql_jar
from postgresql import PostgreSql, programs, running_postgresql
from quick_jvm import QUICK_JVM

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch, SourceBatch
from tidelog_connect.connectors.jdbc import JdbcSinkConnector, JdbcSourceConnector
from tidelog_connect.connectors.jdbc.connection import DatabaseError
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.connectors.shared_settings import shared_settings
from tidelog_connect.schemas import ConnectSchema, Field, SchemaType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(600)]

USERS = """
    id bigserial PRIMARY KEY, name varchar(20), price numeric(10,2) NOT NULL, exact numeric, small numeric(5,0),
    at timestamp NOT NULL, instant timestamptz, day date, opens time, photo bytea, ok boolean, code uuid, tree jsonb,
    mood mood, tags text[], numbers integer[], r real, d double precision, s smallint, "Odd ""name" int
"""
KEY = ConnectSchema(SchemaType.INT32)
VALUE = ConnectSchema(SchemaType.STRUCT, fields=(Field("name", ConnectSchema(SchemaType.STRING, True)),))


@pytest.fixture(scope="module")
def database() -> Iterator[PostgreSql]:
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb")
    with running_postgresql(folder) as server:
        server.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        yield server


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    try:
        jar = postgresql_jar()
    except Unavailable as error:
        pytest.skip(str(error))
    settings = {"spark.jars": str(jar), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", **QUICK_JVM}
    session = SparkSession.builder.master("local[2]").appName("jdbc").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def schema(database: PostgreSql, name: str) -> str:
    """A schema of the database for one test."""
    found = name.lower().replace("-", "_")[-50:]
    database.execute(f'CREATE SCHEMA "{found}"')
    return found


def source(database: PostgreSql, **changed: str) -> JdbcSourceConnector:
    given = {"name": "src", "topic.prefix": "p-", "poll.interval.ms": "0", **database.settings, **dotted(changed)}
    parsed = shared_settings("source", "1").parse({"connector.class": "JdbcSource", **given})
    return JdbcSourceConnector({**parsed, **JdbcSourceConnector.config().parse(given)})


def sink(database: PostgreSql, schema: str, **changed: str) -> JdbcSinkConnector:
    defaults = {"table.name.format": f"{schema}.${{topic}}", "batch.table.name": f"{schema}.batches"}
    given = {"name": "snk", "topics": "t", "max.retries": "0", **defaults, **database.settings, **dotted(changed)}
    parsed = shared_settings("sink", "1").parse({"connector.class": "JdbcSink", **given})
    return JdbcSinkConnector({**parsed, **JdbcSinkConnector.config().parse(given)})


def dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in settings.items()}


def drained(
    spark: SparkSession, connector: JdbcSourceConnector, position: dict[str, Mapping[str, Any]]
) -> Iterator[SourceBatch]:
    """Yield batches until nothing is new, and advance the position as a worker does."""
    while (batch := connector.poll(spark, position)) is not None:
        yield batch
        position |= {partition_key(each.partition): each.offset for each in batch.offsets}


def records(spark: SparkSession, *rows: tuple[int, str | None], topic: str = "t") -> DataFrame:
    """Return records of one partition: their keys and the names in their values, which are null without a name."""
    numbered = [(topic, 0, offset, key, None if name is None else (name,)) for offset, (key, name) in enumerate(rows)]
    kind = "topic string, partition int, offset bigint, key int, value struct<name: string>"
    return spark.createDataFrame(numbered, kind)


def named(database: PostgreSql, schema: str, order: str = "id") -> list[tuple[int, str]]:
    return [(row["id"], row["name"]) for row in database.rows(f'SELECT id, name FROM "{schema}".t ORDER BY {order}')]


def test_rows_of_all_types_are_the_same_in_a_copy(spark: SparkSession, database: PostgreSql, schema: str) -> None:
    database.execute(f"""
        CREATE TABLE "{schema}".t ({USERS});
        INSERT INTO "{schema}".t (name, price, exact, small, at, instant, day, opens, photo, ok, code, tree, mood, tags,
            numbers, r, d, s, "Odd ""name") VALUES
        ('ä', 1.50, 0.000000000000000001, 7, '2026-03-29 02:30:00.123456', '2026-10-25 02:30:00+01', '0999-02-28',
         '23:59:59.999', '\\x00ff', true, gen_random_uuid(), '{{"a": [1]}}', 'ok', ARRAY['x', NULL], '{{}}', 1.5, 'NaN',
         -7, 1),
        (NULL, -99999999.99, -12345678901234567890.5, NULL, '1969-12-31 23:59:59.9', NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        CREATE TABLE "{schema}".copy (LIKE "{schema}".t INCLUDING ALL);
        ALTER TABLE "{schema}".copy ALTER id DROP DEFAULT
    """)
    zone = "America/New_York"
    reader = source(
        database, mode="incrementing", incrementing_column_name="id", table_whitelist=f"{schema}.t", db_timezone=zone
    )
    [batch] = drained(spark, reader, {})
    rows = batch.rows.selectExpr("'copy' AS topic", "0 AS partition", "value.id AS offset", "NULL AS key", "value")
    sink(database, schema, db_timezone=zone).put(rows, Batch("q", 0, None, batch.value_schema))
    both = database.rows(
        f'SELECT to_jsonb(a) AS a, to_jsonb(b) AS b FROM "{schema}".t a FULL JOIN "{schema}".copy b ON a.id = b.id'
    )
    assert len(both) == 2
    assert [
        (key, row["a"][key], row["b"][key]) for row in both for key in row["a"] if row["a"][key] != row["b"][key]
    ] == []


def test_number_that_a_decimal_cannot_hold_fails_the_batch(
    spark: SparkSession, database: PostgreSql, schema: str
) -> None:
    database.execute(f'CREATE TABLE "{schema}".t (n numeric); INSERT INTO "{schema}".t VALUES (0.1234567890123456789)')
    [batch] = drained_once(spark, source(database, mode="bulk", table_whitelist=f"{schema}.t"))
    with pytest.raises(Exception, match="Column n has a number of more than 18 digits behind the point"):
        batch.rows.collect()


def drained_once(spark: SparkSession, connector: JdbcSourceConnector) -> list[SourceBatch]:
    batch = connector.poll(spark, {})
    return [] if batch is None else [batch]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize("at", ["timestamp", "timestamptz"])
def test_every_row_is_read_once_while_others_are_added(
    spark: SparkSession, database: PostgreSql, schema: str, mode: str, at: str
) -> None:
    if mode == "incrementing" and at == "timestamptz":
        pytest.skip("the mode has no timestamps")
    database.execute(f'CREATE TABLE "{schema}".t (id serial PRIMARY KEY, at {at} NOT NULL)')
    columns = {}
    if "timestamp" in mode:
        columns["timestamp.column.name"] = "at"
    if "incrementing" in mode:
        columns["incrementing.column.name"] = "id"
    chance = random.Random(mode + at)
    position: dict[str, Mapping[str, Any]] = {}
    found: list[int] = []
    for turn in range(4):
        # Many rows have the same time, and every turn is later than the one before.
        database.execute(
            f"INSERT INTO \"{schema}\".t (at) SELECT timestamp '2026-01-0{turn + 1}' + (i / 7) * interval '1 second'"
            f" FROM generate_series(0, {chance.randint(20, 90)}) i ORDER BY random()"
        )
        reader = source(
            database, mode=mode, table_whitelist=f"{schema}.t", batch_max_rows="40", tasks_max="3", **columns
        )
        for batch in drained(spark, reader, position):
            found += [row["id"] for row in batch.rows.selectExpr("value.id AS id").collect()]
    expected = [row["id"] for row in database.rows(f'SELECT id FROM "{schema}".t ORDER BY id')]
    assert sorted(found) == expected


def test_tables_take_turns_and_a_query_is_read_as_a_table(
    spark: SparkSession, database: PostgreSql, schema: str
) -> None:
    for table in "ab":
        database.execute(
            f'CREATE TABLE "{schema}".{table} (id serial PRIMARY KEY);'
            f'INSERT INTO "{schema}".{table} SELECT generate_series(1, 30)'
        )
    incrementing = {"mode": "incrementing", "incrementing.column.name": "id", "batch.max.rows": "10"}
    topics = [
        next(iter(batch.topics))
        for batch in drained(spark, source(database, **incrementing, schema_pattern=schema), {})
    ]
    assert topics == ["p-a", "p-b"] * 3
    query = f'SELECT a.id FROM "{schema}".a JOIN "{schema}".b USING (id) WHERE id > 15;'
    position: dict[str, Mapping[str, Any]] = {}
    batches = list(drained(spark, source(database, **incrementing, query=query), position))
    assert sum(batch.rows.count() for batch in batches) == 15
    assert position == {'{"query":"query"}': {"incrementing": 30}}


def test_time_of_a_source_without_offset_is_kept_before_the_first_row(
    spark: SparkSession, database: PostgreSql, schema: str
) -> None:
    database.execute(f'CREATE TABLE "{schema}".t (at timestamptz NOT NULL); INSERT INTO "{schema}".t VALUES (now())')
    settings = {"mode": "timestamp", "timestamp.column.name": "at", "table.whitelist": f"{schema}.t"}
    position: dict[str, Mapping[str, Any]] = {}
    [batch] = drained(spark, source(database, **settings, timestamp_initial="-1"), position)
    assert batch.rows.count() == 0
    assert len(position) == 1
    database.execute(f'INSERT INTO "{schema}".t VALUES (now())')
    [batch] = drained(spark, source(database, **settings, timestamp_initial="-1"), position)
    assert batch.rows.count() == 1


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("insert", [(1, "c"), (3, "a")]),
        ("upsert", [(1, "c"), (3, "a")]),
        ("update", []),
    ],
)
def test_last_record_of_a_key_in_a_batch_counts(
    spark: SparkSession, database: PostgreSql, schema: str, mode: str, expected: Sequence[tuple[int, str]]
) -> None:
    database.execute(
        f'CREATE TABLE "{schema}".t (id int PRIMARY KEY, name text); INSERT INTO "{schema}".t VALUES (1, \'x\')'
    )
    connector = sink(
        database, schema, insert_mode=mode, pk_mode="record_key", pk_fields="id", delete_enabled="true", tasks_max="2"
    )
    rows = records(spark, (1, None), (2, "a"), (3, "a"), (1, "c"), (2, None))
    connector.put(rows, Batch("q", 0, KEY, VALUE))
    assert named(database, schema) == expected


def test_batch_that_comes_again_or_late_changes_nothing(spark: SparkSession, database: PostgreSql, schema: str) -> None:
    settings = {"pk.mode": "record_key", "pk.fields": "id", "auto.create": "true"}
    first, second = sink(database, schema, **settings), sink(database, schema, **settings)
    for connector in (first, second, first):
        connector.put(records(spark, (1, "a")), Batch("q", 0, KEY, VALUE))
    second.put(records(spark, (2, "b")), Batch("q", 1, KEY, VALUE))
    first.put(records(spark, (1, "a")), Batch("q", 0, KEY, VALUE))
    assert named(database, schema) == [(1, "a"), (2, "b")]
    second.put(records(spark, (3, "c")), Batch("r", 0, KEY, VALUE))
    with pytest.raises(DatabaseError, match="another query of snk has written"):
        first.put(records(spark, (4, "d")), Batch("q", 2, KEY, VALUE))
    assert named(database, schema) == [(1, "a"), (2, "b"), (3, "c")]


def test_rows_that_a_repeated_task_stages_twice_are_written_once(
    spark: SparkSession, database: PostgreSql, schema: str
) -> None:
    rows = records(spark, (1, "a"), (2, "b"))
    sink(database, schema, pk_mode="none", auto_create="true", fields_whitelist="name").put(
        rows.union(rows), Batch("q", 0, KEY, VALUE)
    )
    assert database.execute(f'SELECT count(*) FROM "{schema}".t') == "2"


def test_failed_batch_leaves_neither_rows_nor_columns_nor_staged_rows(
    spark: SparkSession, database: PostgreSql, schema: str
) -> None:
    database.execute(f'CREATE TABLE "{schema}".t (id int PRIMARY KEY)')
    settings = {"pk.mode": "record_key", "pk.fields": "id"}
    with pytest.raises(ConfigException, match=r"is missing fields \(name\) and auto-evolution is disabled"):
        sink(database, schema, **settings).put(records(spark, (1, "a")), Batch("q", 0, KEY, VALUE))
    twice = records(spark, (1, "a"), (1, "b"))
    connector = sink(database, schema, **settings, auto_evolve="true")
    with pytest.raises(DatabaseError, match="duplicate key"):
        connector.put(twice, Batch("q", 0, KEY, VALUE))
    assert database.rows(f'SELECT * FROM "{schema}".t') == []
    assert (
        database.execute(
            f"SELECT table_name FROM information_schema.columns WHERE table_schema = '{schema}'"
            " AND (column_name = 'name' OR table_name LIKE 'tidelog%')"
        )
        == ""
    )
    connector.put(records(spark, (1, "a")), Batch("q", 0, KEY, VALUE))
    assert named(database, schema) == [(1, "a")]


@pytest.mark.parametrize(
    ("changed", "row", "message"),
    [
        ({}, (1, None), r"requires records with a non-null Struct value.* t-0 at offset 0"),
        ({"pk.mode": "record_value", "pk.fields": "name"}, (1, ""), None),
    ],
)
def test_record_that_cannot_be_a_row_is_named(
    spark: SparkSession,
    database: PostgreSql,
    schema: str,
    changed: dict[str, str],
    row: tuple[int, str | None],
    message: str | None,
) -> None:
    connector = sink(database, schema, auto_create="true", **changed)
    if message is None:
        connector.put(records(spark, row), Batch("q", 0, KEY, VALUE))
        return
    with pytest.raises(DatabaseError, match=message):
        connector.put(records(spark, row), Batch("q", 0, KEY, VALUE))


def test_database_that_comes_back_gets_the_batch(spark: SparkSession, database: PostgreSql, schema: str) -> None:
    connector = sink(database, schema, pk_mode="record_key", pk_fields="id", auto_create="true", max_retries="2")
    connector.put(records(spark, (1, "a")), Batch("q", 0, KEY, VALUE))
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    connector.put(records(spark, (2, "b")), Batch("q", 1, KEY, VALUE))
    assert named(database, schema) == [(1, "a"), (2, "b")]


def test_tombstones_alone_need_no_table(spark: SparkSession, database: PostgreSql, schema: str) -> None:
    connector = sink(database, schema, pk_mode="record_key", pk_fields="id", delete_enabled="true")
    connector.put(records(spark, (1, None)), Batch("q", 0, KEY, None))
    assert database.rows(f'SELECT batch FROM "{schema}".batches') == [{"batch": 0}]
