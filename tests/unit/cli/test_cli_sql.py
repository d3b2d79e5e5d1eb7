"""``tidelog sql``: its output, options and errors, over a Spark that is a fake."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog_cli.sql.spark import LazyEngine
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.results import Rows
from tidelog_spark.sql.stores import FolderStore


class FakeEngine:
    """Answers each query with its text, or with rows that are set."""

    def __init__(self) -> None:
        self.found: list[Sequence[object]] = [(1, "a"), (2, None)]
        self.closed = False
        self.calls: list[tuple[str, object, object]] = []

    def rows(self, select: str, resolve: object, limit: int | None, *, as_json: bool = False) -> Rows:
        if "nope" in select:
            raise SqlError("line 1, position 8: no column nope")
        self.calls.append((select, limit, as_json))
        return Rows(("id", "name"), iter([self.found[:limit]]), as_json)

    def follow(self, select: str, resolve: object, start: str, mode: object, *, as_json: bool = False) -> Rows:
        self.calls.append((select, str(start), mode))
        return Rows(("id", "name"), self._stream(), as_json, is_stream=True)

    def _stream(self) -> Iterator[Sequence[Sequence[object]]]:
        try:
            yield [(1, "a" * 10)]
            yield []
            yield [(22222, "b"), (3, None)]
            while True:
                yield []
        finally:
            self.closed = True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(LazyEngine, "__call__", lambda _: fake)
    return fake


Run = Callable[..., Result]


def test_sql_prints_rows_as_table_json_or_csv(run: Run, engine: FakeEngine) -> None:
    assert run("sql", "SELECT 1").stdout == "ID  NAME\n 1  a\n 2  NULL\n"
    assert run("sql", "SELECT 1", "-o", "csv").stdout == "id,name\n1,a\n2,\n"
    engine.found = [('{"id":1}',)]
    assert run("sql", "SELECT 1", "--json").stdout == '{"id":1}\n'
    assert run("sql", "SHOW STREAMS; SHOW TOPICS", "--output", "json").exit_code == 0


def test_sql_asks_for_one_row_more_than_a_table_shows(run: Run, engine: FakeEngine) -> None:
    engine.found = [(n, "x") for n in range(2_000)]
    result = run("sql", "SELECT 1")
    assert len(result.stdout.splitlines()) == 1_001
    assert "there are more than 1,000 rows; --limit" in result.stderr
    assert len(run("sql", "SELECT 1", "--limit", "1500").stdout.splitlines()) == 1_501
    run("sql", "SELECT 1", "-o", "csv")
    assert [limit for _, limit, _ in engine.calls] == [1_001, 1_500, None]


def test_sql_follow_prints_rows_as_they_come_up_to_the_limit_and_ends_the_stream(run: Run, engine: FakeEngine) -> None:
    result = run("sql", "SELECT 1", "--follow", "--from-beginning", "--limit", "2")
    assert result.stdout == "ID  NAME\n1   aaaaaaaaaa\n22222  b\n"
    assert engine.closed
    assert engine.calls == [("SELECT 1", "earliest", None)]


def test_sql_follow_ends_when_nothing_comes(run: Run, engine: FakeEngine) -> None:
    result = run("sql", "SELECT 1 EMIT CHANGES", "-o", "csv", "--idle-timeout", "0.05")
    assert result.stdout == "id,name\n1,aaaaaaaaaa\n22222,b\n3,\n"
    assert (engine.closed, engine.calls[0][1]) == (True, "latest")


def test_sql_defines_and_describes_without_spark(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create_topic("sales", partitions=1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("sales", json.dumps({"amount": 1.5, "by": {"id": 7}}))
    shown = run("sql", "DESCRIBE sales").stdout
    assert [line.split()[:2] for line in shown.splitlines()[1:4]] == [
        *(["_key", "STRING"], ["amount", "DOUBLE"], ["by", "STRUCT<id:"]),
    ]
    folder = ("--catalog", str(tmp_path))
    script = tmp_path / "script.sql"
    script.write_text("CREATE STREAM s WITH (topic='sales'); CREATE TABLE t (id INT KEY, n INT) WITH (partitions=3)")
    assert run("sql", "-f", str(script), *folder).stdout == "created stream s\ncreated table t\n"
    assert (tmp_path / "relations" / "s.yaml").exists()
    assert (
        run("sql", *folder, stdin="SHOW TABLES;").stdout
        == "TABLE  TOPIC  KEY_FORMAT  FORMAT\nt      t      text        json\n"
    )
    assert len(run("sql", *folder, "SHOW TOPICS", "-o", "csv").stdout.split("t,3,1\n")) == 2
    assert "cleanup.policy" in run("topic", "describe", "t").stdout
    assert run("sql", *folder, "DROP STREAM s").stdout == "dropped stream s; its topic stays\n"


def test_sql_definition_of_avro_has_the_schema_and_names_the_package(run: Run, tmp_path: Path) -> None:
    schema = '{"type":"record","name":"o","fields":[{"name":"n","type":"int"}]}'
    (tmp_path / "o.avsc").write_text(schema)
    options = f"format='avro', avro.schema='{tmp_path}/o.avsc', partitions=1"
    run("sql", "--catalog", str(tmp_path), f"CREATE STREAM o (n INT) WITH ({options})")
    (tmp_path / "o.avsc").unlink()
    catalog = FolderStore(tmp_path).read()
    relation = catalog.relation("o")
    assert relation is not None
    assert (relation.options, catalog.spark_packages) == ({"avro.schema": schema}, ["avro"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["SELECT nope"], 1, "line 1, position 8: no column nope"),
        (["DESCRIBE nowhere"], 1, "there is no stream, table or topic nowhere"),
        (["CREATE STREAM s (a INT) WITH (topic='x')"], 1, "the topic x does not exist; WITH (partitions=N) creates it"),
        (["CREATE STREAM s (a FOO)"], 1, "FOO is not a type of Spark"),
        (["INSERT INTO x SELECT 1", "--follow"], 1, "CREATE QUERY name AS INSERT INTO"),
        (["TERMINATE q"], 1, "there is no query q; there are none"),
        (["SELECT 1", "--output", "xml"], 2, "xml is not table, json or csv"),
        (["SELECT 1", "--output", "csv", "--json"], 2, "exclude each other"),
        (["SELECT 1", "--serve"], 2, "--serve runs the queries of the catalog"),
        (["--serve"], 2, "--serve needs --checkpoints FOLDER"),
        (["SELECT 1", "--checkpoints", "x"], 2, "--checkpoints is for --serve"),
        (["SELECT 1", "--conf", "x"], 2, '"x" is not KEY=VALUE'),
        (["--file", "/no/such.sql"], 2, "/no/such.sql' does not exist"),
    ],
)
def test_sql_that_cannot_run_says_why(
    run: Run, engine: FakeEngine, arguments: list[str], code: int, message: str
) -> None:
    result = run("sql", *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())


def test_sql_without_pyspark_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("tidelog_spark", "tidelog_cli.sql"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    result = run("sql", "SELECT 1")
    assert result.exit_code == 1
    assert "is not installed: pip install 'tidelog[spark]'" in result.stderr


def screen(terminal: int) -> Iterator[str]:
    """Yield what a process writes to its terminal, until it ends."""
    with contextlib.suppress(OSError):
        while written := os.read(terminal, 4096):
            yield written.decode()


@pytest.mark.costly
def test_sql_prompt_runs_statements_over_several_lines_and_survives_errors(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    profile = tmp_path / "tidelog" / "profile.toml"
    environment = {
        **os.environ,
        "TIDELOG_PROFILE": str(profile),
        "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "TERM": "dumb",
    }
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "sql", "--catalog", str(tmp_path)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as sql:
        os.close(theirs)
        os.write(ours, b"SHOW\nSTREAMS;\nDROP STREAM x;\nSHOW TABLES;\nquit\n")
        text = "".join(screen(ours))
    os.close(ours)
    assert sql.returncode == 0
    assert text.index("STREAM  TOPIC") < text.index("there is no stream x") < text.index("TABLE  TOPIC")
    history = profile.with_name("sql_history")
    assert "DROP STREAM x;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
