"""A command loads what it needs and nothing else: loading takes most of the time of a short command."""

from __future__ import annotations

import subprocess
import sys

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
    "tidelog.chaos",
    "tidelog.config.broker",
    "tidelog.config.topic",
    "tidelog.consumer.consumer",
    "tidelog.producer",
    "tidelog.spark",
    "tidelog.testing",
    "tidelog_node",
    "tidelog_quorum",
    "tomlkit",
)
PROGRAM = """
import sys
from tidelog.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
"""


def test_topic_list_loads_no_module_that_it_does_not_need(cluster: FakeCluster) -> None:
    cluster.create_topic("light")
    command = [sys.executable, "-c", PROGRAM, "topic", "list", "-b", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "light" in done.stdout
    loaded = done.stderr.split()
    assert "tidelog.admin" in loaded
    assert [name for name in HEAVY if name in loaded] == []
