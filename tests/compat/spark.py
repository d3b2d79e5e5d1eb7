"""A Spark session with Spark's own Kafka source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from compat.jars import Unavailable, spark_jars
from quick_jvm import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Run a session; the test is skipped where there are no jars."""
    from pyspark.sql import SparkSession

    try:
        jars = spark_jars()
    except Unavailable as error:
        pytest.skip(str(error))
    builder = SparkSession.builder.master("local[2]").appName("compat").config("spark.ui.enabled", "false")
    settings = {"spark.jars": ",".join(map(str, jars)), "spark.sql.shuffle.partitions": "2", **QUICK_JVM}
    session = builder.config(map=settings).getOrCreate()
    yield session
    session.stop()
