"""The parser reads Tidelog's own statements whole, and leaves the rest to Spark as it is written."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_spark.sql.definitions import Column, Kind, OutputMode, Part, Watermark
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.parser import is_complete, parse_script
from tidelog_spark.sql.statements import (
    CreateAs,
    CreateQuery,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    Insert,
    Show,
    SparkStatement,
    Steer,
)
from tidelog_spark.sql.types import quoted_if_needed

ORDERS = """
CREATE OR REPLACE STREAM `shop.orders` (
  id STRING PRIMARY KEY, -- a comment; with a semicolon
  tags MAP<STRING, ARRAY<INT>>,
  price DEC(10, 2),
  `odd name` STRUCT<a: LONG, b STRING>,
  at TIMESTAMP METADATA FROM 'timestamp',
  partition INT METADATA,
  WATERMARK FOR at AS at - INTERVAL '5' seconds
) WITH (topic = 'a;b', 'key.format' = 'json', csv.delimiter = '|', partitions = 3)
"""


def test_create_stream_has_columns_watermark_and_options() -> None:
    assert parse_script(ORDERS) == [
        CreateRelation(
            "shop.orders",
            Kind.STREAM,
            (
                Column("id", "STRING", Part.KEY),
                Column("tags", "MAP<STRING, ARRAY<INT>>"),
                Column("price", "DECIMAL(10, 2)"),
                Column("odd name", "STRUCT<a: BIGINT, b: STRING>"),
                Column("at", "TIMESTAMP", Part.METADATA, "timestamp"),
                Column("partition", "INT", Part.METADATA, "partition"),
            ),
            Watermark("at", "5 SECONDS"),
            options={"topic": "a;b", "key.format": "json", "csv.delimiter": "|", "partitions": "3"},
            is_replacing=True,
        )
    ]


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "CREATE STREAM IF NOT EXISTS s WITH (topic=x)",
            CreateRelation("s", Kind.STREAM, options={"topic": "x"}, if_not_exists=True),
        ),
        (
            "create table t with (key='a') as select 1 AS a",
            CreateAs("t", Kind.TABLE, "select 1 AS a", options={"key": "a"}),
        ),
        ("CREATE STREAM s AS SELECT 1 EMIT FINAL", CreateAs("s", Kind.STREAM, "SELECT 1", OutputMode.FINAL)),
        ("CREATE QUERY q AS INSERT INTO s SELECT 1", CreateQuery("q", Insert("s", "SELECT 1"))),
        ("INSERT INTO s VALUES (1, ';')", Insert("s", "VALUES (1, ';')")),
        ("INSERT INTO s (a, `b c`) SELECT 1, 2", Insert("s", "SELECT 1, 2", ("a", "b c"))),
        ("INSERT INTO s (SELECT 1)", Insert("s", "(SELECT 1)")),
        ("DROP TABLE IF EXISTS t", Drop(Kind.TABLE, "t", True)),
        ("LIST TOPICS", Show("TOPICS")),
        ("DESC `a-b`", Describe("a-b")),
        ("EXPLAIN q", Explain(query="q")),
        ("EXPLAIN SELECT 1", Explain("SELECT 1")),
        ("PAUSE q", Steer("PAUSE", "q")),
        ("SELECT a AS emit FROM t", SparkStatement("SELECT a AS emit FROM t")),
        ("SELECT * FROM t EMIT CHANGES", SparkStatement("SELECT * FROM t", OutputMode.CHANGES)),
        ("SHOW DATABASES", SparkStatement("SHOW DATABASES")),
        ("DESCRIBE QUERY SELECT 1", SparkStatement("DESCRIBE QUERY SELECT 1")),
        ("CREATE TEMP VIEW v AS SELECT 1", SparkStatement("CREATE TEMP VIEW v AS SELECT 1")),
    ],
)
def test_statement_is_read_as_it_is_meant(text: str, statement: object) -> None:
    assert parse_script(text) == [statement]


def test_script_splits_at_semicolons_outside_of_strings_names_and_comments() -> None:
    text = """SELECT ';', `;`, "\\";" /* ; */ -- ;
    ;; SELECT 2;"""
    assert [each.text for each in parse_script(text) if isinstance(each, SparkStatement)] == [
        """SELECT ';', `;`, "\\";\"""",
        "SELECT 2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE STREAM s (a STRNG)", "STRNG is not a type of Spark"),
        ("CREATE STREAM s (a MAP<STRING>)", "the type MAP needs ,, found >"),
        ("CREATE STREAM s (a DECIMAL(50))", "the precision of DECIMAL is 50; it is from 1 to 38"),
        ("CREATE STREAM s (a " + "ARRAY<" * 60 + "INT" + ">" * 60 + ")", "nested deeper than 50"),
        ("CREATE STREAM a.b (c INT)", "line 1, position 16: put the name of a stream in backticks"),
        ("CREATE STREAM s\n (a INT PRIMARY)", "line 2, position 9: expected ), found PRIMARY"),
        ("CREATE STREAM s (a INT", "expected ) at the end"),
        ("CREATE STREAM s (a INT) WITH (topic='a', topic='b')", "the option topic is given twice"),
        ("CREATE STREAM s (a INT METADATA FROM 'size')", "there is no metadata 'size'"),
        ("CREATE STREAM s (a TIMESTAMP, WATERMARK FOR a AS b)", "expected a, the column of the watermark"),
        ("CREATE STREAM s (a INT) AS SELECT 1", "expected the end of the statement, found AS"),
        ("CREATE OR REPLACE STREAM IF NOT EXISTS s (a INT)", "exclude each other"),
        ("CREATE STREAM s AS", "expected a query at the end"),
        ("INSERT INTO s", "expected a query, or VALUES at the end"),
        ("TERMINATE", "expected the name of a query at the end"),
        ("DROP STREAM s CASCADE", "expected the end of the statement, found CASCADE"),
        ("DROP QUERY q", "a query ends with TERMINATE name"),
        ("SELECT 'a", "does not end"),
    ],
)
def test_statement_that_is_not_valid_fails_with_its_place_and_reason(text: str, message: str) -> None:
    with pytest.raises(SqlError) as failed:
        parse_script(text)
    assert message in failed.value.message


def test_script_that_is_too_long_is_refused_by_its_length() -> None:
    with pytest.raises(SqlError, match="1000001 characters; at most 1000000"):
        parse_script(" " * 1_000_001)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT 1; -- a", True),
        ("", False),
        ("/* ;", False),
    ],
)
def test_prompt_waits_for_a_semicolon_outside_of_strings(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=8)
PLAIN_TYPES = st.sampled_from(["STRING", "BIGINT", "DOUBLE", "TIMESTAMP", "DECIMAL(12, 3)", "BINARY"])
TYPES = st.recursive(
    PLAIN_TYPES,
    lambda inner: st.one_of(
        inner.map(lambda element: f"ARRAY<{element}>"),
        st.tuples(PLAIN_TYPES, inner).map(lambda pair: f"MAP<{pair[0]}, {pair[1]}>"),
        st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3).map(
            lambda fields: f"STRUCT<{', '.join(f'{quoted_if_needed(n)}: {t}' for n, t in fields)}>"
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=examples(50))
@given(columns=st.lists(st.tuples(NAMES, TYPES, st.sampled_from([Part.VALUE, Part.KEY])), min_size=1, max_size=4))
def test_columns_that_are_written_as_a_statement_are_read_again(columns: list[tuple[str, str, Part]]) -> None:
    made = tuple(Column(*column) for column in columns)
    written = ", ".join(f"{quoted_if_needed(c.name)} {c.type}{' KEY' * (c.part is Part.KEY)}" for c in made)
    [statement] = parse_script(f"CREATE STREAM s ({written})")
    assert isinstance(statement, CreateRelation)
    assert statement.columns == made
