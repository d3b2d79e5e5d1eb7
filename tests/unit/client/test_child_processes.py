"""Programs that an application starts while a client runs, as PySpark starts its JVM."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.costly
_SCRIPT = """
import signal, subprocess
from tidelog import Producer
from tidelog.testing import FakeCluster

with FakeCluster() as cluster, Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
    producer.list_topics(timeout=30)
    for _ in range(150):
        ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        child = subprocess.run(["true"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignore)
        assert (child.returncode, child.stderr) == (0, b""), child
"""


def test_programs_that_an_application_starts_are_not_disturbed_by_grpc() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    subprocess.run([sys.executable, "-c", _SCRIPT], env=environment, check=True, timeout=60)
