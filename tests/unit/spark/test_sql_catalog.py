"""Definitions survive their form as YAML; changes keep the rules of relations and queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.testing import FakeCluster
from tidelog_spark.sql.catalog import Catalog, Changes, from_yaml, parse_catalog, to_yaml
from tidelog_spark.sql.definitions import (
    METADATA_TYPES,
    Column,
    Definition,
    Kind,
    OutputMode,
    Part,
    Query,
    Relation,
    Start,
    Watermark,
    check_relation,
)
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.stores import CATALOG_TOPIC, FolderStore, Store, TopicStore
from tidelog_spark.sql.topics import Topics

ORDERS = Relation("orders", Kind.STREAM, "orders", (Column("id", "STRING", Part.KEY), Column("n", "INT")))
TOTALS = Relation("totals", Kind.TABLE, "totals", (Column("id", "STRING", Part.KEY), Column("n", "INT")))
QUERY = Query("totals", "totals-1", "totals", "SELECT id, count(*) AS n FROM orders GROUP BY id", ("orders",))

NAMES = st.text(min_size=1, max_size=6)
COLUMNS = st.builds(
    Column, NAMES, st.sampled_from(["STRING", "MAP<STRING, INT>"]), st.sampled_from([Part.VALUE, Part.KEY])
)
METADATA = st.sampled_from(sorted(METADATA_TYPES)).map(
    lambda n: Column(f"the {n}", METADATA_TYPES[n], Part.METADATA, n)
)
RELATIONS = st.builds(
    Relation,
    st.just("r"),
    st.just(Kind.STREAM),
    NAMES,
    st.lists(st.one_of(COLUMNS, METADATA), min_size=1, max_size=4, unique_by=lambda c: c.name.lower()).map(tuple),
    key_format=st.just("json"),
    options=st.dictionaries(st.just("on.error"), st.sampled_from(["null", "fail"])),
)
QUERIES = st.builds(
    Query,
    st.just("q"),
    NAMES,
    NAMES,
    st.text(),
    st.lists(NAMES).map(tuple),
    st.sampled_from(OutputMode),
    st.sampled_from(Start),
    st.booleans(),
    st.lists(NAMES).map(tuple),
)


def applied(catalog: Catalog, changes: Changes) -> Catalog:
    merged = {**catalog.definitions, **changes}
    return Catalog({key: each for key, each in merged.items() if each is not None})


@settings(max_examples=examples(50))
@given(definition=st.one_of(RELATIONS, QUERIES))
def test_definition_survives_yaml(definition: Definition) -> None:
    assert from_yaml("here", to_yaml(definition)) == definition


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "orders: not YAML"),
        ("- a", "expected a mapping, found list"),
        ("kind: view", "kind is 'view'; it must be one of stream, table, query"),
        ("kind: stream\nname: a", "topic is missing"),
        ("kind: stream\nname: a\ntopic: t\nsize: 1", "unknown key size"),
        ("kind: stream\nname: a\ntopic: 1\ncolumns: []", "topic: expected str, found int"),
        ("kind: stream\nname: a\ntopic: t\ncolumns: []", "has no columns"),
        ("kind: query\nname: a\nid: b\nsink: c\nselect: d\nmode: x", "mode is 'x'; it must be one of final, changes"),
        ("kind: query\nname: a\nid: b\nsink: c\nselect: d\nreads: [1]", "reads: expected names"),
    ],
)
def test_text_that_is_no_definition_fails_with_its_key_and_reason(text: str, message: str) -> None:
    with pytest.raises(SqlError) as failed:
        from_yaml("orders", text)
    assert failed.value.message.startswith("orders")
    assert message in failed.value.message


def test_definition_under_another_name_is_refused() -> None:
    with pytest.raises(SqlError, match="the definition is of orders, which belongs at relations/orders"):
        parse_catalog({"relations/others": to_yaml(ORDERS)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": (Column("a", "INT"), Column("A", "INT"))}, "has the column A twice"),
        ({"columns": (Column("a", "INT", Part.METADATA, "offset"),)}, "column a is INT; offset is BIGINT"),
        ({"columns": (Column("a", "INT", Part.METADATA),)}, "needs both METADATA and its name"),
        ({"columns": tuple(Column(f"c{n}", "INT") for n in range(1001))}, "has 1001 columns; at most 1000"),
        ({"columns": (Column("a", "VOID"),)}, "stream orders: column a: VOID is not a type of Spark"),
        ({"columns": (Column("a", "INT NOT NULL"),)}, "NOT follows INT"),
        ({"format": "xml"}, "the format of stream orders is 'xml'; it must be one of"),
        ({"format": "raw"}, "column n is INT; the format raw is BINARY or STRING"),
        ({"format": "text", "columns": (Column("a", "INT"), Column("b", "INT"))}, "text holds one column"),
        ({"kind": Kind.TABLE, "columns": (Column("a", "INT"),)}, "table orders needs a key"),
        ({"watermark": Watermark("n", "1 DAY")}, "WATERMARK FOR needs a column of type TIMESTAMP; n is INT"),
        ({"options": {"csv.delimiter": ";"}}, "the format json has no option csv.delimiter"),
        ({"options": {"on.error": "skip"}}, "on.error is 'skip'; it must be one of null, fail"),
    ],
)
def test_relation_that_breaks_a_rule_is_refused_with_the_rule(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SqlError) as failed:
        check_relation(replace(ORDERS, **changes))  # type: ignore[arg-type]
    assert message in failed.value.message


def test_relation_is_found_in_any_case_and_replaced_only_when_asked() -> None:
    catalog = applied(Catalog(), Catalog().create(ORDERS))
    upper = replace(ORDERS, name="ORDERS")
    assert catalog.relation("Orders") == ORDERS
    with pytest.raises(SqlError, match="the stream orders exists; CREATE OR REPLACE"):
        catalog.create(upper)
    assert applied(catalog, catalog.create(upper, is_replacing=True)).relations == [upper]


def test_relation_in_use_stays_until_its_queries_are_terminated() -> None:
    catalog = applied(Catalog(), Catalog().create(ORDERS))
    catalog = applied(catalog, catalog.create(TOTALS, QUERY))
    for kind, name in ((Kind.STREAM, "orders"), (Kind.TABLE, "totals")):
        with pytest.raises(SqlError, match=f"{name} is in use by totals; TERMINATE"):
            catalog.drop(kind, name)
    catalog = applied(catalog, catalog.set_query(None, "totals"))
    assert applied(catalog, catalog.drop(Kind.STREAM, "ORDERS")).relations == [TOTALS]


def test_drop_of_another_kind_says_what_there_is() -> None:
    catalog = applied(Catalog(), Catalog().create(ORDERS))
    with pytest.raises(SqlError, match="orders is a stream; there are none"):
        catalog.drop(Kind.TABLE, "orders")


def test_relation_with_the_name_of_a_query_is_refused() -> None:
    catalog = applied(Catalog(), Catalog().create(ORDERS))
    catalog = applied(catalog, catalog.create_query(replace(QUERY, name="copy", sink="orders")))
    with pytest.raises(SqlError, match="there is a query copy; a table needs another name"):
        catalog.create(replace(TOTALS, name="copy"), replace(QUERY, name="copy"))


def test_type_written_by_hand_is_read_in_the_notation_of_definitions() -> None:
    assert check_relation(replace(ORDERS, columns=(Column("a", "map<string,long>"),))).columns[0].type == (
        "MAP<STRING, BIGINT>"
    )


@pytest.mark.parametrize("name", ["../orders", "", "a b", ".."])
def test_name_that_is_no_topic_name_is_refused(name: str) -> None:
    with pytest.raises(SqlError, match="follows the rules of topics"):
        Catalog().create(replace(ORDERS, name=name))


@pytest.mark.parametrize("place", ["folder", "topic"])
def test_store_keeps_what_is_written_for_other_readers(place: str, tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers}

        def opened() -> Store:
            return FolderStore(tmp_path) if place == "folder" else TopicStore(settings, Topics(settings, 10), 10)

        writer, reader = opened(), opened()
        assert reader.read() == Catalog()
        writer.write(Catalog().create(ORDERS))
        writer.write(reader.read().create(TOTALS, QUERY))
        assert (reader.read().relations, reader.read().queries) == ([ORDERS, TOTALS], [QUERY])
        writer.write(reader.read().set_query(None, "totals"))
        assert reader.read() == opened().read() == writer.read()
        assert reader.read().queries == []
        assert (CATALOG_TOPIC in Topics(settings, 10).partitions()) == (place == "topic")
        for store in (writer, reader):
            if isinstance(store, TopicStore):
                store.close()


def test_folder_with_a_bad_file_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "relations").mkdir()
    (tmp_path / "relations" / "orders.yaml").write_text("kind: stream\nname: orders\n")
    with pytest.raises(SqlError, match="relations/orders: topic is missing"):
        FolderStore(tmp_path).read()
