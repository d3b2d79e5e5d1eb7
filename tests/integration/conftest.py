from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Three controllers and three nodes."""
    with LocalCluster(controllers=3, nodes=3) as running:
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of a module: it takes seconds to start."""
    from tidelog.spark import spark_session

    session = spark_session("tests", config={"spark.sql.streaming.numRecentProgressUpdates": "50"})
    yield session
    session.stop()
