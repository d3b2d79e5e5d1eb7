"""A sound partition, and the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tools_partition import write_partition
from typer.testing import CliRunner, Result

from tidelog_cli.commands import app


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return write_partition(tmp_path / "logs" / "flights-0")


@pytest.fixture
def tidelog() -> Callable[..., Result]:
    """Run the command line."""
    return lambda *args: CliRunner().invoke(app, ["log", *map(str, args)], env={"COLUMNS": "200"})
