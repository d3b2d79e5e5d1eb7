"""The Spark session of a worker: created once, and checked for the end of its JVM."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tidelog_connect.server.process import SharedSession
from tidelog_foundation.errors import TidelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_worker_whose_driver_was_killed_ends_with_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        gateway = SimpleNamespace(proc=driver)
        created = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway)))
        session = SharedSession(lambda: created)
        session.check()
        assert session() is session() is created
        session.check()
        driver.kill()
        driver.wait()
        with pytest.raises(TidelogError, match="driver has ended with exit status -9: the worker ends"):
            session.check()
