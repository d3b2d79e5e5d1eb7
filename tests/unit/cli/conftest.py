"""The command line on a cluster in memory, without any profile of who runs the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidelog.testing import FakeCluster
from tidelog_cli.commands import app


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running


@pytest.fixture(autouse=True)
def profile_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "profile.toml"
    monkeypatch.setenv("TIDELOG_PROFILE", str(path))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    return path


@pytest.fixture
def run(cluster: FakeCluster) -> Callable[..., Result]:
    def invoke(*args: str, stdin: str | bytes | None = None) -> Result:
        environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "COLUMNS": "200"}
        return CliRunner().invoke(app, list(args), input=stdin, env=environment)

    return invoke


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., Any]:
    """Return the one JSON document that a command prints; it must succeed."""

    def invoke(*args: str, stdin: str | bytes | None = None) -> Any:
        result = run(*args, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return invoke
