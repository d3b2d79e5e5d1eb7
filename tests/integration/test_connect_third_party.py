"""The connector of another package, as the page about Connect shows it, runs on a worker and is counted."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from connect_server import running, wait_for
from document_blocks import blocks_of
from pyspark.sql import SparkSession

from tidelog import Consumer
from tidelog.testing import FakeCluster

pytestmark = pytest.mark.compat

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"


def install(folder: Path) -> None:
    """Write the page's connector and its entry point as an installed package."""
    blocks = list(blocks_of(PAGE.read_text()))
    [code] = [each.text for each in blocks if each.language == "python" and "SourceConnector" in each.text]
    [project] = [each.text for each in blocks if each.language == "toml" and "tidelog.connectors" in each.text]
    (folder / "example.py").write_text(code)
    metadata = folder / "example-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    points = tomllib.loads(project)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{key} = {text}\n" for key, text in of.items()) for group, of in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def test_connector_of_the_page_is_found_runs_and_goes_on_behind_its_position(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages)
    monkeypatch.syspath_prepend(str(packages))
    config = {"connector.class": "example.CountingSourceConnector", "topic": "squares"}
    config |= {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    with FakeCluster() as cluster:
        cluster.create_topic("squares")
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["squares"])
        found: list[dict[str, int]] = []

        def enough() -> bool:
            records = [each.value() for each in consumer.consume(100, 1) if each.error() is None]
            found.extend(json.loads(each) for each in records if each is not None)
            return len(found) >= 300

        with running(cluster.bootstrap_servers, tmp_path, spark) as server:
            assert server.http.put("/connectors/numbers/config", json=config).status_code == 201
            wait_for(enough)
            assert server.http.put("/connectors/numbers/stop").status_code == 204
            wait_for(lambda: server.status("numbers") == ["STOPPED"])
            [offset] = server.http.get("/connectors/numbers/offsets").json()["offsets"]
            written = [
                each for each in server.server.worker.families() if each.metric.name.endswith("written_records_total")
            ]
            wait_for(lambda: enough() or len(found) >= offset["offset"]["next"])
        consumer.close()
    found.sort(key=lambda each: each["id"])
    assert found == [{"id": id, "square": id * id} for id in range(offset["offset"]["next"])]
    assert [dict(each.values) for each in written] == [{("numbers",): len(found)}]
