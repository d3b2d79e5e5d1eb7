"""`RecordCount`: counts the rows of a DataFrame while Spark writes them, without another pass over the data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as sql
from pyspark.sql.observation import Observation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_COUNT = "records"
_TIMEOUT_S = 10
"""Spark reports a count soon after the write that it belongs to, on a thread of its own."""


class RecordCount:
    """The count of one write."""

    def __init__(self) -> None:
        self._observation = Observation()
        self._jvm: Any = None

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows; the first write of them is counted."""
        self._jvm = rows.sparkSession.sparkContext._jvm
        return rows.observe(self._observation, sql.count(sql.lit(1)).alias(_COUNT))

    def wait(self) -> int:
        """Return the count of the write that has ended; 0 if Spark does not report it in time."""
        future = self._observation._jo.future()  # type: ignore[union-attr]
        concurrent = self._jvm.scala.concurrent
        try:
            concurrent.Await.ready(future, concurrent.duration.Duration.apply(_TIMEOUT_S, "s"))
        except Py4JJavaError:
            logger.warning("Spark has not reported the number of records of a batch")
            return 0
        return int(self._observation.get[_COUNT])
