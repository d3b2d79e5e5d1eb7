"""SQL over a FakeCluster: reads, inserts, streams and persistent queries, and errors of statements Spark refuses."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from pyspark.sql import SparkSession
from quick_jvm import QUICK_JVM

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog_spark.sql.definitions import Start
from tidelog_spark.sql.engine import SparkEngine
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.interpreter import Interpreter, Reading
from tidelog_spark.sql.parser import parse_script
from tidelog_spark.sql.results import Done, Rows
from tidelog_spark.sql.server import QueryServer
from tidelog_spark.sql.stores import FolderStore
from tidelog_spark.sql.topics import Topics

pytestmark = pytest.mark.slow

DEADLINE_S = 100
MANY = Reading(limit=1_000)
DEFINITIONS = """
CREATE STREAM orders (id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP, k STRING KEY,
  WATERMARK FOR at AS at - INTERVAL 5 SECONDS) WITH (topic = 'orders');
CREATE TABLE customers (id STRING PRIMARY KEY, name STRING) WITH (topic = 'customers')
"""
COUNTS = "CREATE TABLE counts WITH (key='customer', partitions=2) AS SELECT customer, count(*) n FROM orders GROUP BY 1"
Run = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("customers", partitions=2)
        produce_orders(cluster, range(10))
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for key, name in (("c0", "old"), ("c1", "Ada"), ("c0", "Bob"), ("c2", "gone"), ("c2", None)):
                producer.produce("customers", None if name is None else json.dumps({"name": name}), key=key)
        yield cluster


def produce_orders(cluster: FakeCluster, ids: range) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for n in ids:
            order = {"id": n, "customer": f"c{n % 3}", "amount": n / 2, "at": f"2026-01-01T00:00:{n % 60:02d}Z"}
            producer.produce("orders", json.dumps(order), key=f"k{n % 4}")


@pytest.fixture
def engine(spark: SparkSession, fake: FakeCluster) -> SparkEngine:
    return SparkEngine(spark, {"bootstrap.servers": fake.bootstrap_servers, "client.id": "tests"})


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "catalog")


@pytest.fixture
def interpreter(engine: SparkEngine, fake: FakeCluster, store: FolderStore) -> Interpreter:
    topics = Topics({"bootstrap.servers": fake.bootstrap_servers}, 10)
    numbers = itertools.count(1)
    return Interpreter(store, topics, lambda: engine, lambda: str(next(numbers)))


@pytest.fixture
def run(interpreter: Interpreter) -> Run:
    def carry_out(text: str, reading: Reading = MANY) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for statement in parse_script(text):
            result = interpreter.run(statement, reading)
            if isinstance(result, Done):
                found.append((result.text,))
                continue
            assert isinstance(result, Rows)
            found += [tuple(row) for chunk in result.chunks for row in chunk]
        return found

    return carry_out


def test_sql_reads_streams_tables_and_topics_joins_windows_and_inserts(run: Run) -> None:
    assert run("SELECT count(*), sum(amount), min(_key) FROM orders WHERE customer <> 'c2'") == [(7, "15.0", "k0")]
    run(DEFINITIONS)
    assert run("SELECT * FROM customers ORDER BY id") == [("c0", "Bob"), ("c1", "Ada")]
    assert run(
        "SELECT window(at, '5 seconds').start AS w, name, count(*) FROM Orders JOIN customers c ON customer = c.id "
        "GROUP BY ALL ORDER BY w, name"
    ) == [
        *(("2026-01-01 00:00:00", "Ada", 2), ("2026-01-01 00:00:00", "Bob", 2)),
        *(("2026-01-01 00:00:05", "Ada", 1), ("2026-01-01 00:00:05", "Bob", 2)),
    ]
    assert run(
        "CREATE STREAM big (id BIGINT, tags ARRAY<STRING>, at TIMESTAMP METADATA FROM 'timestamp') WITH (partitions=2);"
        "INSERT INTO big SELECT id, array(customer), at FROM orders WHERE amount > 4;"
        "INSERT INTO big (id) VALUES (99); SELECT id, tags FROM big ORDER BY id;"
    )[1:] == [("inserted 1 row into big",), ("inserted 1 row into big",), (9, "[c0]"), (99, None)]
    found = run("SELECT id, tags, at FROM big WHERE id = 9", Reading(limit=1, as_json=True))
    assert found == [('{"id":9,"tags":["c0"],"at":"2026-01-01T00:00:09.000Z"}',)]


class Following:
    """The rows of a query that is followed from the first record."""

    def __init__(self, interpreter: Interpreter, select: str) -> None:
        [statement] = parse_script(select)
        rows = interpreter.run(statement, Reading(follows=True, start=Start.EARLIEST))
        assert isinstance(rows, Rows)
        assert rows.is_stream
        self._chunks = iter(rows.chunks)
        self._found: list[tuple[object, ...]] = []

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._chunks.close()  # type: ignore[attr-defined]  # a generator ends the stream

    def take(self, count: int) -> list[tuple[object, ...]]:
        """Return the next rows, sorted, as their order is free."""

        def come() -> bool:
            self._found += [tuple(row) for row in next(self._chunks)]
            return len(self._found) >= count

        wait_for(come, f"{count} rows", DEADLINE_S)
        taken, self._found = self._found[:count], self._found[count:]
        return sorted(taken, key=str)


@pytest.mark.chaos
def test_followed_rows_come_as_records_do_until_the_stream_is_closed(
    interpreter: Interpreter, fake: FakeCluster, spark: SparkSession
) -> None:
    with Following(interpreter, "SELECT id, customer FROM orders WHERE customer = 'c0'") as following:
        assert following.take(4) == [(0, "c0"), (3, "c0"), (6, "c0"), (9, "c0")]
        produce_orders(fake, range(10, 14))
        assert following.take(1) == [(12, "c0")]
    assert spark.streams.active == []


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_followed_aggregates_come_whenever_they_change_and_joins_of_streams_once(
    run: Run, interpreter: Interpreter, fake: FakeCluster
) -> None:
    run(DEFINITIONS)
    with Following(interpreter, "SELECT customer, count(*) FROM orders GROUP BY customer") as following:
        assert following.take(3) == [("c0", 4), ("c1", 3), ("c2", 3)]
        produce_orders(fake, range(10, 12))
        assert following.take(2) == [("c1", 4), ("c2", 4)]
    select = "SELECT window(at, '5 seconds').start AS start, count(*) FROM orders GROUP BY window(at, '5 seconds') EMIT"
    with Following(interpreter, f"{select} FINAL") as following:
        # The watermark, 5 seconds before the last record, has passed the end of the first window.
        assert following.take(1) == [("2026-01-01 00:00:00", 5)]
    fake.create_topic("payments", partitions=2)
    run("CREATE STREAM payments (id BIGINT, sum DOUBLE) WITH (topic = 'payments')")
    joined = "SELECT orders.id, sum FROM orders JOIN payments p ON orders.id = p.id"
    with Following(interpreter, joined) as following:
        run("INSERT INTO payments VALUES (3, 1.5), (11, 2.5), (99, 3.5)")
        assert following.take(2) == [(11, "2.5"), (3, "1.5")]
        produce_orders(fake, range(99, 100))
        assert following.take(1) == [(99, "3.5")]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_followed_query_that_fails_says_why(interpreter: Interpreter, spark: SparkSession) -> None:
    with (
        pytest.raises(SqlError, match="line 1, position 9: Division by zero"),
        Following(interpreter, "SELECT 1 / (id - id) FROM orders") as following,
    ):
        following.take(1)
    assert spark.streams.active == []


class Serving:
    """A server whose steps a test makes, and the lines that it says."""

    def __init__(self, store: FolderStore, engine: SparkEngine, folder: Path) -> None:
        self.said: list[str] = []
        self._server = QueryServer(store, engine, str(folder), self.said.append)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        def step() -> object:
            self._server.step()
            return condition()

        try:
            wait_for(step, what, DEADLINE_S)
        except AssertionError as error:
            error.add_note("\n".join(self.said))
            raise


@pytest.fixture
def serve(engine: SparkEngine, store: FolderStore, tmp_path: Path) -> Callable[[], Serving]:
    return lambda: Serving(store, engine, tmp_path / "checkpoints")


def values(cluster: FakeCluster, topic: str) -> list[dict[str, object]]:
    found = [record for index in range(2) for record in cluster.records(topic, index, read_committed=True)]
    return [json.loads(record.value or b"") for record in found]


def counts(cluster: FakeCluster) -> list[object]:
    """Return the latest counts in the topic of COUNTS, by key."""
    found = [record for index in range(2) for record in cluster.records("counts", index, read_committed=True)]
    latest = {record.key: json.loads(record.value or b"")["n"] for record in found}
    return [latest[key] for key in sorted(latest)]


def test_persistent_query_writes_each_row_once_over_restarts_until_it_is_terminated(
    run: Run, serve: Callable[[], Serving], fake: FakeCluster, spark: SparkSession
) -> None:
    def stored() -> list[object]:
        return sorted(value["id"] for value in values(fake, "big"))

    run(DEFINITIONS + ";CREATE STREAM big WITH (partitions=2) AS SELECT id FROM orders WHERE customer = 'c0'")
    with serve() as server:
        server.wait(lambda: stored() == [0, 3, 6, 9], "the rows that are there at the start")
        assert server.said == ["started big-1, which writes to big"]
    assert spark.streams.active == []
    produce_orders(fake, range(10, 20))
    with serve() as server:
        server.wait(lambda: len(stored()) >= 7, "the rows that came between")
        run("TERMINATE big")
        server.wait(lambda: spark.streams.active == [], "the end of the query")
        assert server.said[-1] == "stopped big-1: terminated"
    assert stored() == [0, 3, 6, 9, 12, 15, 18]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_persistent_queries_continue_their_counts_and_joins_and_say_why_one_fails(
    run: Run, serve: Callable[[], Serving], fake: FakeCluster
) -> None:
    run(DEFINITIONS)
    run(COUNTS)
    run(
        "CREATE STREAM named WITH (partitions=2) AS SELECT o.id, name FROM orders o JOIN customers c ON customer = c.id"
    )
    with serve() as server:
        server.wait(lambda: counts(fake) == [4, 3, 3] and len(values(fake, "named")) == 7, "all rows")
    run("PAUSE named; CREATE QUERY bad AS INSERT INTO named (id) SELECT 1 / (id - id) FROM orders")
    produce_orders(fake, range(10, 20))
    reason = "line 1, position 9: Division by zero."
    with serve() as server:
        server.wait(lambda: any("bad-3 failed" in line and reason in line for line in server.said), "the failure")
        run("RESUME named; TERMINATE bad")
        server.wait(lambda: counts(fake) == [7, 7, 6], "the counts go on")
        server.wait(lambda: len(values(fake, "named")) >= 14, "the paused query goes on")
    assert sorted(value["id"] for value in values(fake, "named")) == [n for n in range(20) if n % 3 < 2]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_serve_runs_queries_until_sigterm_and_goes_on_when_it_is_started_again(
    run: Run, fake: FakeCluster, tmp_path: Path
) -> None:
    run(DEFINITIONS + ";CREATE STREAM big WITH (partitions=2) AS SELECT id FROM orders WHERE customer = 'c0'")
    run(COUNTS)
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": fake.bootstrap_servers}
    environment["TIDELOG_PROFILE"] = str(tmp_path / "profile.toml")
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "sql", "--serve"]
    command += ["--catalog", str(tmp_path / "catalog"), *(f"--conf={key}={value}" for key, value in QUICK_JVM.items())]
    for expected, counted in (([0, 3, 6, 9], [4, 3, 3]), ([0, 3, 6, 9, 12, 15, 18], [7, 7, 6])):

        def is_done() -> bool:
            return len(values(fake, "big")) >= len(expected) and counts(fake) == counted  # noqa: B023

        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
            try:
                wait_for(is_done, "the rows of the stream and of the table", DEADLINE_S)
            except AssertionError as error:
                server.terminate()
                error.add_note(server.communicate(timeout=DEADLINE_S)[1])
                raise
            server.terminate()
            _, said = server.communicate(timeout=DEADLINE_S)
        assert server.returncode == 0
        assert said.splitlines() == [
            f"serving queries with checkpoints in {tmp_path}/catalog/checkpoints",
            "started big-1, which writes to big",
            "started counts-2, which writes to counts",
            "stopped all queries; their checkpoints stay",
        ]
        assert sorted(value["id"] for value in values(fake, "big")) == expected
        produce_orders(fake, range(10, 20))
    assert run("SELECT * FROM counts ORDER BY customer") == [("c0", 7), ("c1", 7), ("c2", 6)]


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT nope FROM orders", "line 1, position 8: A column, variable, or function parameter with name `nope`"),
        ("SELECT * FROM\n nowhere", "line 2, position 2: there is no stream, table or topic nowhere"),
        ("SELEC 1", "line 1, position 1: Syntax error at or near 'SELEC'."),
        ("SELECT 1/0", "Division by zero."),
        ("INSERT INTO orders SELECT 1", "orders takes 5 columns (id, customer, amount, at, k), and the query has 1: 1"),
        ("INSERT INTO nowhere SELECT 1", "there is no stream, table or topic nowhere"),
        ("CREATE STREAM s AS SELECT 1 AS a", "the query reads no stream"),
        ("CREATE STREAM s AS SELECT id FROM customers", "the query reads no stream"),
        ("CREATE STREAM s AS SELECT count(*) AS n FROM orders", "Invalid streaming output mode: append"),
        ("CREATE STREAM s AS SELECT * FROM raw", "CREATE STREAM `raw` WITH (topic='raw') stores its columns"),
        ("CREATE STREAM s AS SELECT INTERVAL 1 DAY AS a FROM orders", "INTERVAL"),
    ],
)
def test_sql_that_spark_refuses_fails_with_one_sentence(
    run: Run, fake: FakeCluster, statement: str, message: str
) -> None:
    fake.create_topic("raw", partitions=1)
    run(DEFINITIONS)
    with pytest.raises(SqlError) as failed:
        run(statement)
    assert message in failed.value.message
    assert "\n" not in failed.value.message
    assert [relation[0] for relation in run("SHOW STREAMS; SHOW TABLES; SHOW QUERIES")] == ["orders", "customers"]
