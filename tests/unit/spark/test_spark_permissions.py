"""The permissions of docs/sql.md and docs/spark.md are enough for the catalog, a source and a sink."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from authorized_cluster import ROOT, authorized_cluster, settings_of
from sink_runner import Runner, expected, open_ids, visible

from tidelog import AdminClient, Producer
from tidelog.admin import AclBinding, AclBindingFilter
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import TidelogError
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.sink.journal_topic import JOURNAL_TOPIC
from tidelog_spark.sql.catalog import Catalog
from tidelog_spark.sql.definitions import Column, Kind, Part, Relation
from tidelog_spark.sql.stores import CATALOG_TOPIC, TopicStore
from tidelog_spark.sql.topics import Topics

USER = "tidelog-spark"
"""The client id of sources and sinks, and so their user."""
ORDERS = Relation("orders", Kind.STREAM, "orders", (Column("id", "STRING", Part.KEY), Column("n", "INT")))
READS_CATALOG = [("TOPIC", CATALOG_TOPIC, "LITERAL", "READ")]
WRITES_CATALOG = [
    ("TOPIC", CATALOG_TOPIC, "LITERAL", "CREATE"),
    ("TOPIC", CATALOG_TOPIC, "LITERAL", "WRITE"),
    ("TRANSACTIONAL_ID", "tidelog-sql-", "PREFIXED", "WRITE"),
    *READS_CATALOG,
]
READS = [("TOPIC", "orders", "LITERAL", "READ")]
WRITES = [
    ("TOPIC", "t", "LITERAL", "WRITE"),
    *(("TOPIC", JOURNAL_TOPIC, "LITERAL", right) for right in ("CREATE", "READ", "WRITE", "DESCRIBE")),
    *(("TRANSACTIONAL_ID", "tidelog-spark-", "PREFIXED", r) for r in ("WRITE", "DESCRIBE", "TWO_PHASE_COMMIT")),
]
Right = tuple[str, str, str, str]
Grant = Callable[[list[Right]], None]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with authorized_cluster() as running:
        running.create_topic("t", partitions=2)
        running.create_topic("orders", partitions=1)
        with Producer(settings_of(running, ROOT)) as producer:
            producer.produce("orders", "1")
        yield running


@pytest.fixture
def grant(cluster: FakeCluster) -> Grant:
    """Replace the user's rights."""

    def replace(rights: list[Right]) -> None:
        everything = AclBindingFilter("ANY", None, "ANY", None, None, "ANY", "ANY")
        acls = [AclBinding(kind, name, pattern, f"User:{USER}", "*", r, "ALLOW") for kind, name, pattern, r in rights]
        with AdminClient(settings_of(cluster, ROOT)) as admin:
            admin.delete_acls([everything])[everything].result(10)
            for future in admin.create_acls(acls).values():
                future.result(10)

    return replace


def store_of(cluster: FakeCluster) -> TopicStore:
    settings = settings_of(cluster, USER)
    return TopicStore(settings, Topics(settings, 10), 10)


def define_and_read(cluster: FakeCluster) -> Catalog:
    with contextlib.closing(store_of(cluster)) as store:
        store.write(store.read().create(ORDERS, is_replacing=True))
        return store.read()


def test_catalog_needs_exactly_the_permissions_of_its_page(cluster: FakeCluster, grant: Grant) -> None:
    for missing in WRITES_CATALOG:
        grant([right for right in WRITES_CATALOG if right != missing])
        with pytest.raises(TidelogError, match="AUTHORIZATION_FAILED"):
            define_and_read(cluster)
    grant(WRITES_CATALOG)
    assert define_and_read(cluster).relations == [ORDERS]
    grant(READS_CATALOG)
    with contextlib.closing(store_of(cluster)) as reader:
        assert reader.read().relations == [ORDERS]
    grant([])
    with contextlib.closing(store_of(cluster)) as hidden:
        assert hidden.read() == Catalog()


def test_topic_of_a_definition_needs_create_and_describe(cluster: FakeCluster, grant: Grant) -> None:
    create, describe = (("TOPIC", "made", "LITERAL", right) for right in ("CREATE", "DESCRIBE"))
    topics = Topics(settings_of(cluster, USER), 0.5)
    grant([describe])
    with pytest.raises(TidelogError, match="TOPIC_AUTHORIZATION_FAILED"):
        topics.create("made", 2, -1, {})
    grant([create])
    with pytest.raises(TidelogError, match="made was created, and no node shows it"):
        topics.create("made", 2, -1, {})
    grant([create, describe])
    topics.create("made", 2, -1, {})
    assert topics.partitions() == {"made": (2, 1)}


def test_source_needs_read_on_its_topic(cluster: FakeCluster, grant: Grant) -> None:
    source = TidelogDataSource({"bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders"})
    grant([])
    with pytest.raises(TidelogError, match="TOPIC_AUTHORIZATION_FAILED"):
        source.reader(source.schema()).partitions()
    grant(READS)
    reader = source.reader(source.schema())
    [planned] = reader.partitions()
    assert [row for batch in reader.read(planned) for row in batch["value"].to_pylist()] == [b"1"]
    assert Topics(settings_of(cluster, USER), 10).sample("orders").values == [b"1"]


def test_sink_writes_with_the_permissions_of_a_writer(cluster: FakeCluster, grant: Grant) -> None:
    grant(WRITES)
    Runner(cluster).run("run", 0)
    assert visible(cluster) == expected(0)
    assert open_ids(cluster) == []
