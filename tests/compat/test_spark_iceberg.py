"""Batches that come again are in Iceberg's tables once, which Iceberg's library and PyIceberg read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compat.jars import Unavailable, iceberg_jar, pyiceberg
from quick_jvm import QUICK_JVM

pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("spark_iceberg.py")
READER = """
import json, sys
from pyiceberg.table import StaticTable
found = {}
for folder in sys.argv[1:]:
    number = open(f"{folder}/metadata/version-hint.text").read()
    table = StaticTable.from_metadata(f"{folder}/metadata/v{number}.metadata.json")
    found[folder] = table.scan().to_arrow().to_pylist()
print(json.dumps(found, default=str))
"""


def run(folder: Path, step: str) -> subprocess.CompletedProcess[str]:
    try:
        jar = iceberg_jar()
    except Unavailable as error:
        pytest.skip(str(error))
    [options] = QUICK_JVM.values()
    command = [sys.executable, str(PROGRAM), str(jar), str(folder), step]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def written(folder: Path) -> dict[str, Any]:
    return dict(printed(run(folder, "write")))


def test_tables_have_each_batch_once_whoever_else_commits(written: dict[str, Any]) -> None:
    assert written["repeated"] == [str(index) for index in range(8)]
    assert written["in a commit"] == ["102, same", "103, later", "105, foreign", "205, late"]


def test_columns_are_added_widened_and_keep_their_data_when_renamed(written: dict[str, Any]) -> None:
    assert "The table of the topic t cannot have such columns" in written["refused"]
    rows = ["102, same, null", "103, later, null", "105, foreign, null", "205, late, null"]
    assert written["evolved"] == [*rows, "300, null, Record(1.5)"]


def test_rows_are_divided_by_fields_and_days_and_in_a_catalog(written: dict[str, Any]) -> None:
    assert written["field"] == ["86400, , 1970-01-02T00:00Z"]
    assert written["day"] == ["at_day:", 4]
    assert written["catalog"] == 4


def test_query_of_a_sink_writes_the_records_of_a_topic_over_two_runs(written: dict[str, Any]) -> None:
    assert written["piped"] == [str(id) for id in range(6)]


def test_batch_of_a_killed_process_is_in_the_table_once(folder: Path, written: dict[str, Any]) -> None:
    for step in ("killed-before", "killed-after"):
        assert run(folder, step).returncode == -signal.SIGKILL
    found = printed(run(folder, "again"))
    assert [int(row.split(",")[0]) for row in found] == list(range(8))


def test_pyiceberg_reads_all_tables(folder: Path, written: dict[str, Any]) -> None:
    try:
        packages = pyiceberg()
    except Unavailable as error:
        pytest.skip(str(error))
    names = [str(folder / name / "t") for name in ("lists", "field", "day", "plain")]
    command = [sys.executable, "-c", READER, *names]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    lists, field, day, plain = printed(
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    ).values()
    assert sorted(lists, key=lambda row: row["id"]) == [
        {"tags": ["x", None], "id": id, "named": [["k", {"y": id}]]} for id in (0, 1)
    ]
    assert {row["id"]: row["country"] for row in field} == {86398: "a/b", 86399: "a/b", 86400: "", 86401: None}
    assert len(day) == 4
    assert len(plain) == 13
