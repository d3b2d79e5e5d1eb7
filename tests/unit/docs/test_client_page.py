"""The snippets of the pages on the clients run on a cluster in memory, one after the other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing import FakeCluster

DOCS = Path(__file__).parents[3] / "docs"
ADDRESS = "127.0.0.1:9094"


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run_snippets(page: Path, cluster: FakeCluster) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for number, snippet in enumerate(snippets(page)):
        code = snippet.replace(ADDRESS, cluster.bootstrap_servers)
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), names)
    return names


def test_the_snippets_of_the_client_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeCluster() as cluster:
        names = run_snippets(DOCS / "client.md", cluster)
        offset, cluster_id = asyncio.run(names["pipeline"]())
        assert cluster.records("flights", 0)
    assert (offset >= 0, cluster_id) == (True, cluster.cluster_id)
    shown = capsys.readouterr().out
    assert "not delivered" not in shown
    assert re.search(r"^flights \d \d+ \d+ \d+$", shown, re.MULTILINE)


def test_the_snippets_of_the_consumer_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeCluster() as cluster:
        run_snippets(DOCS / "consumer.md", cluster)
    assert "processed orders" in capsys.readouterr().out
