"""Failed starts of a node: one line on stderr and exit code 2."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start_node(tmp_path: Path) -> Start:
    properties = tmp_path / "node.properties"
    properties.write_text(
        "node.id=1\ncluster.id=c\nlisteners=GRPC://127.0.0.1:0\n"
        f"controller.quorum.voters=1@127.0.0.1:1\nlog.dirs={tmp_path / 'data'}\n"
    )

    def start(*overrides: str, file: Path = properties) -> subprocess.CompletedProcess[str]:
        arguments = [word for override in overrides for word in ("--override", override)]
        command = [sys.executable, "-m", "tidelog_node", str(file), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    return start


def assert_one_line(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for part in parts:
        assert part in result.stderr


def test_node_start_fails_in_one_line_when_the_configuration_is_wrong(start_node: Start, tmp_path: Path) -> None:
    assert_one_line(start_node(file=tmp_path / "missing"), "missing", "No such file")
    assert_one_line(start_node("log.dir.s=x"), '"log.dir.s"', "did you mean")
    assert_one_line(start_node("replica.lag.time.max.ms=soon"), "replica.lag.time.max.ms", "soon")


def test_node_start_fails_in_one_line_when_the_port_is_in_use(start_node: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_one_line(start_node(f"listeners=GRPC://127.0.0.1:{port}"), str(port), "in use")


def test_node_start_fails_in_one_line_when_the_folder_is_not_usable(start_node: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_one_line(start_node(f"log.dirs={tmp_path / 'file' / 'data'}"), str(tmp_path / "file"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\ndirectory.id=x\n")
    assert_one_line(start_node(), "other", str(data))
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=2\ndirectory.id=x\n")
    assert_one_line(start_node(), "node.id", "2")
