"""The snippets of the page on the client run, one after the other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing import FakeCluster

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
ADDRESS = "127.0.0.1:9094"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_snippets_of_the_client_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    with FakeCluster() as cluster:
        for number, snippet in enumerate(snippets()):
            code = snippet.replace(ADDRESS, cluster.bootstrap_servers)
            exec(compile(code, f"{PAGE.name}, snippet {number}", "exec"), names)
        offset, cluster_id = asyncio.run(names["pipeline"]())
        assert cluster.records("flights", 0)
    assert (offset >= 0, cluster_id) == (True, cluster.cluster_id)
    shown = capsys.readouterr().out
    assert "not delivered" not in shown
    assert "processed flights" in shown
    assert re.search(r"^flights \d \d+ \d+ \d+$", shown, re.MULTILINE)


def test_the_links_of_the_client_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text())
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
