"""Columns are inferred from samples; plans decode and encode records; errors of Spark become one sentence."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from example_counts import examples
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_spark.sql.catalog import from_yaml, to_yaml
from tidelog_spark.sql.creation import as_settings, relation_of_query, relation_settings
from tidelog_spark.sql.definitions import Column, Kind, Part, Relation, check_relation
from tidelog_spark.sql.errors import SqlError, spark_sentence
from tidelog_spark.sql.inference import infer_relation
from tidelog_spark.sql.parser import parse_script
from tidelog_spark.sql.plan import casts, free_relation, read_plan, write_plan
from tidelog_spark.sql.schemas import MAX_SCHEMA_BYTES, with_schemas
from tidelog_spark.sql.statements import CreateAs, CreateRelation

ORDERS = Relation(
    "orders",
    Kind.STREAM,
    "topic",
    (
        Column("id", "BIGINT", Part.KEY),
        Column("it's", "STRING"),
        Column("n", "INT"),
        Column("at", "TIMESTAMP", Part.METADATA, "timestamp"),
        Column("o", "BIGINT", Part.METADATA, "offset"),
    ),
)


AS_WRITTEN = ", map('timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')) AS value"


def inferred(*values: object) -> list[str]:
    found = infer_relation("t", [b"k"], [json.dumps(value).encode() for value in values])
    return [f"{c.name} {c.type}" for c in found.of(Part.VALUE)]


def test_columns_are_those_of_all_objects_in_the_sample() -> None:
    assert inferred({"a": 1, "b": None}, {"a": 2.5, "c": [{"d": True}]}, {"c": [{"e": "x"}], "f": {}}) == [
        "a DOUBLE",
        "b STRING",
        "c ARRAY<STRUCT<d: BOOLEAN, e: STRING>>",
        "f STRING",
    ]
    assert inferred({"a": 1}, {"a": "x"}, {"a": [1]}) == ["a STRING"]
    assert inferred({"a b": {"c-d": 2**70}}) == ["a b STRUCT<`c-d`: DOUBLE>"]


@pytest.mark.parametrize(
    ("values", "column", "format_name"),
    [
        ([], "STRING", "raw"),
        ([b"text", b'{"a": 1}'], "STRING", "raw"),
        ([b"[1]"], "STRING", "raw"),
        ([b"\xff"], "BINARY", "raw"),
        ([b'{"a": 1, "A": 2}'], "STRING", "raw"),
        ([b"[" * 100_000], "STRING", "raw"),
        ([json.dumps({f"f{n}": 1 for n in range(501)}).encode()], "STRING", "raw"),
        ([None, None], "STRING", "raw"),
    ],
)
def test_sample_that_is_not_all_objects_has_one_column(
    values: list[bytes | None], column: str, format_name: str
) -> None:
    found = infer_relation("t", [], values)
    assert found.of(Part.VALUE) == (Column("value", column),)
    assert found.format == format_name


def test_field_of_a_record_prevails_over_the_metadata_of_its_name() -> None:
    found = infer_relation("t", [b"\xff"], [b'{"_key": 1, "_offset": 2}', None])
    names = [(c.name, c.part) for c in found.columns]
    assert names == [
        *(("_key", Part.VALUE), ("_offset", Part.VALUE)),
        *(("_partition", Part.METADATA), ("_timestamp", Part.METADATA)),
    ]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=examples(100))
@given(values=st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=4), max_size=4))
def test_inferred_columns_are_a_valid_statement_and_do_not_depend_on_the_order(values: list[dict[str, object]]) -> None:
    texts = [json.dumps(value).encode() for value in values]
    found = infer_relation("t", [], texts)
    assert {(c.name, c.type) for c in infer_relation("t", [], texts[::-1]).columns} >= {
        (c.name, c.type) for c in found.columns if "STRUCT" not in c.type
    }
    written = ", ".join(f"`{c.name.replace('`', '``')}` {c.type}" for c in found.of(Part.VALUE))
    [statement] = parse_script(f"CREATE STREAM s ({written})")
    assert isinstance(statement, CreateRelation)
    assert statement.columns == found.of(Part.VALUE)


def test_plan_of_a_read_decodes_key_and_value_and_names_metadata() -> None:
    plan = read_plan(ORDERS)
    assert plan.options == {"subscribe": "topic"}
    assert plan.decoded == (
        "from_json(CAST(value AS STRING), '`it\\'s` STRING, `n` INT', map('mode', 'PERMISSIVE')) AS __value",
        "try_cast(CAST(key AS STRING) AS BIGINT) AS __key",
    )
    assert plan.projected == (
        *("__key AS `id`", "__value.`it's` AS `it's`", "__value.`n` AS `n`"),
        *("timestamp AS `at`", "offset AS `o`"),
    )


def test_plan_of_a_write_encodes_the_columns_that_can_be_written() -> None:
    plan = write_plan(replace(ORDERS, options={"sink.semantics": "at-least-once"}))
    assert [column.name for column in plan.columns] == ["id", "it's", "n", "at"]
    assert plan.options == {"topic": "topic", "sink.semantics": "at-least-once"}
    assert plan.encoded == (
        *("CAST(`id` AS STRING) AS key", "to_json(struct(`it's`, `n`)" + AS_WRITTEN, "`at` AS timestamp"),
    )
    assert casts(plan, ["a", "a", "b", "c"])[0] == "CAST(c0 AS BIGINT) AS `id`"


def test_plan_of_a_write_to_some_columns_leaves_the_others_null() -> None:
    plan = write_plan(ORDERS, ("N", "id"))
    assert [column.name for column in plan.columns] == ["n", "id"]
    assert plan.encoded[1] == "to_json(struct(CAST(NULL AS STRING) AS `it's`, `n`)" + AS_WRITTEN


AVRO = '{"type":"record","name":"o","fields":[{"name":"n","type":["null","int"]}]}'
DESCRIPTOR = FileDescriptorSet(file=[FileDescriptorProto(package="p", message_type=[DescriptorProto(name="O")])])
PROTOBUF = {
    "protobuf.message": "p.O",
    "protobuf.descriptor": base64.b64encode(DESCRIPTOR.SerializeToString()).decode(),
}


@pytest.mark.parametrize(
    ("format_name", "options", "arguments"),
    [
        ("avro", {"avro.schema": AVRO}, f"'{AVRO}'"),
        ("protobuf", PROTOBUF, f"'p.O', X'{DESCRIPTOR.SerializeToString().hex()}'"),
    ],
)
def test_plan_of_a_schema_passes_it_to_the_functions_of_spark_and_casts_to_the_columns(
    format_name: str, options: dict[str, str], arguments: str
) -> None:
    relation = check_relation(
        Relation("s", Kind.STREAM, "s", (Column("n", "BIGINT"),), format_name, "text", None, options)
    )
    assert from_yaml("s", to_yaml(relation)) == relation
    plan = read_plan(replace(relation, options={**options, "on.error": "fail"}))
    assert plan.decoded == (f"from_{format_name}(value, {arguments}, map('mode', 'FAILFAST')) AS __value",)
    assert plan.projected == ("CAST(__value.`n` AS BIGINT) AS `n`",)
    rest = ", map()" if format_name == "protobuf" else ""
    assert write_plan(relation).encoded == (f"to_{format_name}(struct(`n`), {arguments}{rest}) AS value",)


@pytest.mark.parametrize(
    ("format_name", "options", "message"),
    [
        ("avro", {}, "the format avro needs the option avro.schema"),
        ("avro", {"avro.schema": "{"}, "avro.schema is not JSON"),
        ("avro", {"avro.schema": '"int"'}, "avro.schema is '\"int\"'; the values of a stream or table are records"),
        ("avro", {"avro.schema": AVRO, "protobuf.message": "O"}, "the format avro has no option protobuf.message"),
        ("protobuf", {"protobuf.message": "O"}, "the format protobuf needs the option protobuf.descriptor"),
        ("protobuf", {**PROTOBUF, "protobuf.message": "p.X"}, "has no message 'p.X'; it has p.O"),
        ("protobuf", {**PROTOBUF, "protobuf.descriptor": "&"}, "protobuf.descriptor is not base64"),
        ("protobuf", {**PROTOBUF, "protobuf.descriptor": "/////w=="}, "is not a FileDescriptorSet"),
        ("json", {"avro.schema": AVRO}, "the format json has no option avro.schema"),
    ],
)
def test_schema_that_is_not_valid_fails_with_its_option(
    format_name: str, options: dict[str, str], message: str
) -> None:
    relation = Relation("s", Kind.STREAM, "s", (Column("n", "BIGINT"),), format_name, "text", None, options)
    with pytest.raises(SqlError) as failed:
        check_relation(relation)
    assert message in failed.value.message


def test_schemas_of_a_definition_are_the_contents_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "o.avsc").write_text(AVRO)
    (tmp_path / "o.desc").write_bytes(DESCRIPTOR.SerializeToString())
    assert with_schemas("s", {"avro.schema": f"{tmp_path}/o.avsc"}) == {"avro.schema": AVRO}
    assert with_schemas("s", {"avro.schema": AVRO}) == {"avro.schema": AVRO}
    assert with_schemas("s", {**PROTOBUF, "protobuf.descriptor": f"{tmp_path}/o.desc"}) == PROTOBUF
    (tmp_path / "large").write_bytes(bytes(MAX_SCHEMA_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, message in (("nothing", "No such file"), ("large", "more than 500000 bytes"), ("binary", "not UTF-8")):
        with pytest.raises(SqlError, match=f"s: avro.schema.*{message}"):
            with_schemas("s", {"avro.schema": f"{tmp_path}/{name}"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("x",), "orders has no column x; it has id, it's, n, at, o"),
        (("o",), "column o is the offset of a record, which a query cannot set"),
        (("n", "N"), "a column is named twice"),
    ],
)
def test_write_to_a_column_that_cannot_be_written_fails_with_its_name(columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(SqlError) as failed:
        write_plan(ORDERS, columns)
    assert message in failed.value.message


def test_write_to_a_table_needs_its_key() -> None:
    table = Relation("t", Kind.TABLE, "t", (Column("id", "INT", Part.KEY), Column("n", "INT")))
    with pytest.raises(SqlError, match="need all columns of the key"):
        write_plan(table, ("n",))


def test_write_of_another_number_of_columns_names_both() -> None:
    with pytest.raises(SqlError, match=r"orders takes 4 columns \(id, it's, n, at\), and the query has 1: a"):
        casts(write_plan(ORDERS), ["a"])


def test_write_to_a_topic_without_a_definition_takes_key_and_timestamp_by_name() -> None:
    columns = [Column("_key", "INT"), Column("a", "INT"), Column("_timestamp", "TIMESTAMP")]
    assert write_plan(free_relation("t", columns)).encoded == (
        *("CAST(`_key` AS STRING) AS key", "to_json(struct(`a`)" + AS_WRITTEN, "`_timestamp` AS timestamp"),
    )
    assert write_plan(free_relation("t", [Column("value", "STRING")])).encoded == ("CAST(`value` AS BINARY) AS value",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("format='xml'", "format is 'xml'"),
        ("partitions=0", "partitions is '0'; it is a number from 1 to 100000"),
        ("replicas='many'", "replicas is 'many'"),
        ("size=1", "there is no option size; there are topic"),
        ("key='a'", "there is no option key"),
    ],
)
def test_option_that_is_not_valid_fails_with_its_name_and_value(options: str, message: str) -> None:
    [statement] = parse_script(f"CREATE STREAM s (a INT) WITH ({options})")
    assert isinstance(statement, CreateRelation)
    with pytest.raises(SqlError) as failed:
        relation_settings(statement)
    assert message in failed.value.message


@pytest.mark.parametrize(
    ("key", "types", "key_format"),
    [("a", "INT", "text"), ("a, b", "INT", "json"), ("A", "STRUCT<x: INT>", "json"), ("a", "BINARY", "raw")],
)
def test_table_of_a_query_has_the_key_that_is_named_in_the_format_that_fits(
    key: str, types: str, key_format: str
) -> None:
    [statement] = parse_script(f"CREATE TABLE t WITH (key='{key}') AS SELECT 1")
    assert isinstance(statement, CreateAs)
    relation = relation_of_query(statement, as_settings(statement), [Column("a", types), Column("b", "INT")])
    assert relation.key_format == key_format
    assert len(relation.of(Part.KEY)) == len(key.split(","))


@pytest.mark.parametrize(
    ("options", "message"),
    [("", r"table t needs WITH \(key='...'\)"), ("WITH (key='x')", "the key has x; the query has a")],
)
def test_table_of_a_query_without_a_key_says_which_columns_there_are(options: str, message: str) -> None:
    [statement] = parse_script(f"CREATE TABLE t {options} AS SELECT 1 AS a")
    assert isinstance(statement, CreateAs)
    with pytest.raises(SqlError, match=message):
        relation_of_query(statement, as_settings(statement), [Column("a", "INT")])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `x`. SQLSTATE: 42703; line 2 pos 7;\n'P\n+- x",
            "line 2, position 8: No `x`.",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nSELEC",
            "line 1, position 1: Syntax error at 'SELEC'.",
        ),
        (
            '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to "false". SQLSTATE: 22012',
            "Division by zero.",
        ),
        (
            "[STREAM_FAILED] Query q terminated. [CAST_INVALID_INPUT] The value 'a' is malformed. SQLSTATE: 22018",
            "The value 'a' is malformed.",
        ),
        (
            "Job aborted\nTraceback (most recent call last):\n  File x\n"
            "tidelog_foundation.errors.ConfigError: INVALID_CONFIG: offsets 0 to 5 are gone\n\n\tat org.apache\n",
            "INVALID_CONFIG: offsets 0 to 5 are gone",
        ),
        ("Something else\nat x", "Something else"),
    ],
)
def test_error_of_spark_becomes_the_sentence_that_names_its_cause(text: str, sentence: str) -> None:
    assert spark_sentence(text) == sentence
