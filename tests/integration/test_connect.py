"""``tidelog connect``: lines of a file to a topic and back, two workers of a group, and their REST API."""

from __future__ import annotations

from pathlib import Path

import pytest
from connect_server import running, wait_for
from pyspark.sql import SparkSession

from tidelog.testing import FakeCluster


def test_second_worker_forwards_changes_and_takes_over(tmp_path: Path) -> None:
    sink = {"connector.class": "FileStreamSink", "file": "x", "topics": "lines", "tasks.max": "2"}
    with FakeCluster() as cluster, running(cluster.bootstrap_servers, tmp_path) as first:
        wait_for(lambda: first.server.worker.leads)
        with running(cluster.bootstrap_servers, tmp_path) as second:
            body = {"name": "snk", "config": sink, "initial_state": "PAUSED"}
            assert second.http.post("/connectors", json=body).status_code == 201
            wait_for(lambda: second.status("snk") == ["PAUSED", "PAUSED", "PAUSED"])
            assert second.http.post("/connectors", json=body).status_code == 409
            assert not second.server.worker.leads
            first.stop()
            wait_for(lambda: second.server.worker.leads)
            assert second.http.get("/connectors/snk").json()["config"]["file"] == "x"
            assert second.http.put("/connectors/snk/stop").status_code == 204
            wait_for(lambda: second.status("snk") == ["STOPPED"])


# The slower twin of tests/unit/connect, whose sources and sinks are files without Spark.
@pytest.mark.compat
def test_lines_of_a_file_go_to_a_topic_and_back(tmp_path: Path, spark: SparkSession) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"line {number}\n" for number in range(1000)))
    with FakeCluster() as cluster, running(cluster.bootstrap_servers, tmp_path, spark) as server:
        cluster.create_topic("lines")
        of_source = {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"}
        of_sink = {"connector.class": "FileStreamSink", "file": str(target), "topics": "lines"}
        assert server.http.put("/connectors/src/config", json=of_source).status_code == 201
        assert server.http.put("/connectors/snk/config", json=of_sink).status_code == 201
        wait_for(lambda: target.exists() and target.read_text() == source.read_text())
        assert server.status("src") == ["RUNNING", "RUNNING"]
        assert server.http.get("/connectors/src/offsets").json()["offsets"] == [
            {"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}
        ]
        wait_for(lambda: server.http.get("/connectors/snk/offsets").json()["offsets"])
        assert server.http.put("/connectors/src/stop").status_code == 204
        wait_for(lambda: server.status("src") == ["STOPPED"])
        entry = {"partition": {"filename": str(source)}, "offset": {"position": len("line 0\n")}}
        assert server.http.patch("/connectors/src/offsets", json={"offsets": [entry]}).status_code == 200
        with source.open("a") as file:
            file.write("last\n")
        assert server.http.put("/connectors/src/resume").status_code == 202
        expected = 2 * 1000 - 1 + 1
        wait_for(lambda: len(target.read_text().splitlines()) == expected)
        assert server.http.get("/connectors/snk/topics").json() == {"snk": {"topics": ["lines"]}}
