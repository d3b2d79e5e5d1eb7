"""`TidelogDataSource`: the data source behind ``format("tidelog")``."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog_foundation.errors import ConfigError
from tidelog_spark.options import batch_plan, parse_options, stream_plan
from tidelog_spark.reader import TidelogReader, TidelogStreamReader
from tidelog_spark.schema import spark_schema


class TidelogDataSource(DataSource):
    """A batch and streaming source with the options and columns of Spark's Kafka source.

    ::

        spark.read.format("tidelog").option("bootstrap.servers", "host:9092").option("subscribe", "flights").load()

    A batch DataFrame ends at the high watermarks of its first action: later actions read the same records, and another
    ``load()`` reads newer ones. Spark recreates the source from its options wherever it needs one.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "tidelog"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    def schema(self) -> StructType:
        """Return the columns; ``headers`` only with ``includeHeaders=true``."""
        return spark_schema(self._options.include_headers)

    def reader(self, schema: StructType) -> TidelogReader:
        """Return the reader of a batch query.

        Raises:
            ConfigError: an option does not apply to batch queries, or the user gave a schema.
        """
        self._check_schema(schema)
        return TidelogReader(batch_plan(self._options), schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802
        """Return the reader of a streaming query.

        Raises:
            ConfigError: an option does not apply to streaming queries, or the user gave a schema.
        """
        self._check_schema(schema)
        return TidelogStreamReader(stream_plan(self._options), schema)

    def _check_schema(self, schema: StructType) -> None:
        own = self.schema()
        if schema != own:
            raise ConfigError(f"the tidelog source has a fixed schema, {own.simpleString()}; leave out .schema(...)")
