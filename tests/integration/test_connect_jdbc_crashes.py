"""A table goes through a topic to another table once, directly and by Parquet files, while processes are killed.

``TIDELOG_JDBC_ROWS`` is the number of rows, ``TIDELOG_JDBC_KILLS`` that of kills.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet
import pytest
from compat.jars import Unavailable, postgresql_jar
from connect_process import ConnectProcess
from postgresql import PostgreSql, programs, running_postgresql

from tidelog import AdminClient, NewTopic
from tidelog.testing import LocalCluster

ROWS = int(os.environ.get("TIDELOG_JDBC_ROWS", "100000"))
KILLS = int(os.environ.get("TIDELOG_JDBC_KILLS", "5"))
DEADLINE_S = 3000
BATCHES = 25
PARTITIONS = 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it: it takes minutes"),
]
FIELDS = [
    {"field": "id", "type": "int64"},
    {"field": "customer", "type": "int32", "optional": True},
    {
        "field": "price",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2"},
        "optional": True,
    },
    {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
    {"field": "note", "type": "string", "optional": True},
    {"field": "is_paid", "type": "boolean", "optional": True},
]
SCHEMA = {"type": "struct", "fields": FIELDS}
TO_TOPIC = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.converter.decimal.format": "NUMERIC",
}
FROM_TOPIC = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schema.content": json.dumps(SCHEMA),
    "value.converter.decimal.format": "NUMERIC",
}


@pytest.fixture(scope="module")
def database() -> Iterator[PostgreSql]:
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb")
    with running_postgresql(folder) as server:
        yield server


def test_table_is_copied_exactly_once_while_processes_are_killed(
    database: PostgreSql, cluster: LocalCluster, tmp_path: Path
) -> None:
    run(
        database,
        cluster,
        tmp_path,
        "copy",
        {"source": jdbc_source("jdbc", database), "sink": jdbc_sink("jdbc-orders", "copy", database)},
    )


def test_table_returns_from_parquet_files_exactly_once_while_processes_are_killed(
    database: PostgreSql, cluster: LocalCluster, tmp_path: Path
) -> None:
    files = tmp_path / "lake"
    archive = {
        "connector.class": "FilesSink",
        "topics": "archived-orders",
        "path": str(files),
        "format.class": "ParquetFormat",
        "flush.size": str(max(1000, ROWS // BATCHES)),
        "rotate.interval.ms": "2000",
        "tasks.max": "2",
        **FROM_TOPIC,
    }
    reader = {
        "connector.class": "FilesSource",
        "path": str(files / "archived-orders"),
        "input.path.walk.recursively": "true",
        "format.class": "ParquetFormat",
        "topic": "returned-orders",
        "tasks.max": "2",
        **TO_TOPIC,
    }
    connectors = {
        "archived": jdbc_source("archived", database),
        "archive": archive,
        "reader": reader,
        "returned": jdbc_sink("returned-orders", "returned", database),
    }
    run(database, cluster, tmp_path, "returned", connectors)
    written = [file for file in files.rglob("*.parquet") if "_tidelog" not in file.parts]
    assert sum(pyarrow.parquet.read_metadata(file).num_rows for file in written) == ROWS


def run(
    database: PostgreSql, cluster: LocalCluster, folder: Path, target: str, connectors: Mapping[str, Mapping[str, str]]
) -> None:
    """Run connectors that copy the table to the target, kill processes meanwhile, and compare the tables."""
    try:
        jar = postgresql_jar()
    except Unavailable as error:
        pytest.skip(str(error))
    fill(database, target)
    topics = [f"{each['topic.prefix']}orders" for each in connectors.values() if "topic.prefix" in each]
    topics += [each["topic"] for each in connectors.values() if "topic" in each]
    with AdminClient(cluster.client_settings()) as admin:
        for created in admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics]).values():
            created.result(30)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": target,
        "session.timeout.ms": "6000",
        "checkpoint.location": str(folder / "checkpoints"),
        "spark.jars": str(jar),
        "spark.task.maxFailures": "4",
        "spark.ui.enabled": "false",
        **{f"{kind}.storage.topic": f"{target}-{kind}" for kind in ("config", "offset", "status")},
    }
    worker = ConnectProcess(settings, folder / "connect.log")
    try:
        worker.start()
        started = time.monotonic()
        create_connectors(worker, connectors)
        copied = Copy(worker, cluster, database, target, list(connectors))
        copied.run()
        report(copied, time.monotonic() - started)
        check_equal(database, target)
    except BaseException:
        sys.stderr.write((folder / "connect.log").read_text()[-20_000:])
        raise
    finally:
        worker.stop()


class Copy:
    """The copy of the table, and the kills on its way."""

    def __init__(
        self,
        worker: ConnectProcess,
        cluster: LocalCluster,
        database: PostgreSql,
        target: str,
        connectors: Sequence[str],
    ) -> None:
        self.worker, self.cluster, self.database = worker, cluster, database
        self.target, self.connectors = target, connectors
        self.chance = random.Random(int(os.environ.get("TIDELOG_JDBC_SEED", "1")))
        self.kills: list[str] = []
        self.failures: list[str] = []
        self._down: int | None = None

    def run(self) -> None:
        """Kill processes at certain parts of the copy, until all of it is there."""
        deadline = time.monotonic() + DEADLINE_S
        while (count := copied_rows(self.database, self.target)) < ROWS:
            assert time.monotonic() < deadline, f"{count} of {ROWS} rows after kills {self.kills}: {self.failures[-3:]}"
            if len(self.kills) < KILLS and count >= ROWS * len(self.kills) // (KILLS + 1):
                self._kill()
            self._mend()
            # A part of a batch, so that kills meet other steps of it.
            time.sleep(self.chance.uniform(0.2, 2.0))

    def _kill(self) -> None:
        victims: dict[str, Callable[[], bool]] = {
            "server": self._kill_server,
            "worker": self.worker.kill_python_worker,
            "node": self._kill_node,
            "driver": self.worker.kill_jvm,
            "database": self._kill_database,
        }
        name = list(victims)[len(self.kills) % len(victims)]
        if self.worker.is_running and victims[name]():
            self.kills.append(name)

    def _kill_server(self) -> bool:
        self.worker.kill()
        return True

    def _kill_node(self) -> bool:
        self._down = self.chance.choice(list(self.cluster.nodes))
        self.cluster.nodes[self._down].kill()
        return True

    def _kill_database(self) -> bool:
        self.database.stop()
        self.database.start()
        return True

    def _mend(self) -> None:
        """Do what an operator's supervisor does: start what has ended, and restart what has failed."""
        if self._down is not None and self.chance.random() < 0.3:
            self.cluster.nodes[self._down].start()
            self._down = None
        self.worker.start()
        for name in self.connectors:
            error = self.worker.restart_failed(name)
            if error is not None:
                self.failures.append(error)


def fill(database: PostgreSql, target: str) -> None:
    database.execute(f"""
        DROP TABLE IF EXISTS orders;
        CREATE TABLE orders (id bigserial PRIMARY KEY, customer int, price numeric(10,2), at timestamp NOT NULL,
            note text, is_paid boolean);
        INSERT INTO orders (customer, price, at, note, is_paid)
        SELECT CASE WHEN i % 11 > 0 THEN i % 1000 END, (i % 100000) / 100.0,
            timestamp '2026-01-01' + i * interval '1 millisecond', 'Order ' || md5(i::text), i % 3 = 0
        FROM generate_series(1, {ROWS}) i;
        CREATE TABLE {target} (LIKE orders);
        ANALYZE orders
    """)


def jdbc_source(prefix: str, database: PostgreSql) -> dict[str, str]:
    return {
        "connector.class": "JdbcSource",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "orders",
        "topic.prefix": f"{prefix}-",
        "batch.max.rows": str(max(1000, ROWS // BATCHES)),
        "tasks.max": "2",
        **TO_TOPIC,
        **database.settings,
    }


def jdbc_sink(topic: str, table: str, database: PostgreSql) -> dict[str, str]:
    return {
        "connector.class": "JdbcSink",
        "topics": topic,
        "table.name.format": table,
        "tasks.max": "2",
        "retry.backoff.ms": "1000",
        **FROM_TOPIC,
        **database.settings,
    }


def create_connectors(worker: ConnectProcess, connectors: Mapping[str, Mapping[str, str]]) -> None:
    deadline = time.monotonic() + 180
    for name, config in connectors.items():
        while worker.request("PUT", f"/connectors/{name}/config", config) is None:
            assert time.monotonic() < deadline, f"connector {name} cannot be created"
            time.sleep(0.5)


def copied_rows(database: PostgreSql, target: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {target}"))


def check_equal(database: PostgreSql, target: str) -> None:
    """Check that the tables have the same rows, each as often."""
    for one, other in (("orders", target), (target, "orders")):
        query = f"SELECT count(*) FROM (SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}) AS r"
        assert database.execute(query) == "0", f"{one} has rows that {other} has not"
    assert copied_rows(database, target) == ROWS


def report(copy: Copy, took_s: float) -> None:
    kills = ", ".join(copy.kills)
    sys.stdout.write(
        f"\n{ROWS} rows in {took_s:.0f} s ({ROWS / took_s:.0f} rows/s), kills: {kills}; the worker was started "
        f"{copy.worker.starts} times, connectors failed {len(copy.failures)} times\n"
    )
