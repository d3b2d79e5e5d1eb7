"""A command loads what it needs and nothing else: loading takes most of the time of a short command."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from typer.testing import Result

from tidelog import AdminClient
from tidelog.testing import FakeCluster

HEAVY = (
    "hdrh",
    "importlib.metadata",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "rocksdict",
    "tidelog_chaos",
    "tidelog_foundation.config.broker",
    "tidelog_foundation.config.topic",
    "tidelog.consumer.consumer",
    "tidelog.producer",
    "tidelog_spark",
    "tidelog.testing",
    "tidelog_node",
    "tidelog_quorum",
    "tomlkit",
)
PROGRAM = """
import sys
from tidelog_cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
"""


@pytest.mark.costly
def test_topic_list_loads_no_module_that_it_does_not_need(cluster: FakeCluster) -> None:
    cluster.create_topic("light")
    command = [sys.executable, "-c", PROGRAM, "topic", "list", "-b", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "light" in done.stdout
    loaded = done.stderr.split()
    assert "tidelog.admin" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_version_is_that_of_the_package(run: Callable[..., Result]) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"tidelog {version('tidelog')}\n")


@pytest.mark.parametrize("args", [("-vv", "topic", "list"), ("topic", "list", "--verbose", "-v")])
def test_verbose_shows_log_lines_on_the_standard_error(
    run: Callable[..., Result], args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    list_topics = AdminClient.list_topics

    def logging_list_topics(*given: Any, **named: Any) -> Any:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger("tidelog.test").log(level, "a line")
        return list_topics(*given, **named)

    monkeypatch.setattr(AdminClient, "list_topics", logging_list_topics)
    assert run("topic", "list").stderr == "tidelog: warning: a line\n"
    # The ids of the calls have lines too.
    assert [line for line in run(*args).stderr.splitlines() if line.endswith("a line")] == [
        "tidelog: debug: tidelog.test: a line",
        "tidelog: info: tidelog.test: a line",
        "tidelog: warning: a line",
    ]
