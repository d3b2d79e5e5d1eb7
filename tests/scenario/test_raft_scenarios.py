"""The scripts in ``raft/``, one test each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_raft_script(path: Path, raft_script: Any, run_script: Callable[..., None]) -> None:
    run_script(path, raft_script.execute)


def test_scripts_are_found() -> None:
    assert len(SCRIPTS) >= 10
