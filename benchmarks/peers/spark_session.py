"""The Spark session of the comparison, which has both sources, and the source of ours that yields tuples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from benchmarks.peers.maven import fetch_spark_jars
from tidelog.spark import TidelogDataSource, session
from tidelog_spark.source.reader import TidelogReader

TUPLES = "tidelog-tuples"


class TupleReader(TidelogReader):
    """Reads the same records as `TidelogReader`, and yields each row as a Python tuple."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition."""
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleDataSource(TidelogDataSource):
    """The source without Arrow, as the Python Data Source API has it by default."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return TUPLES

    def reader(self, schema: StructType) -> TupleReader:
        """Return the reader of a batch query."""
        plan = super().reader(schema)._plan
        return TupleReader(plan, schema)


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Yield a session as users get it, with Spark's Kafka source, and end it afterwards.

    ``folder`` receives Spark's own files.
    """
    config = {
        "spark.jars": ",".join(map(str, fetch_spark_jars())),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = session("benchmarks", config=config)
    spark.dataSource.register(TupleDataSource)
    try:
        yield spark
    finally:
        spark.stop()
