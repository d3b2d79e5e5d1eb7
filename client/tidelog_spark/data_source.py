"""`TidelogDataSource`: the data source behind ``format("tidelog")``.

Spark starts several processes for each query, and most of them only look the data source up. So the imports of Arrow,
gRPC and the clients are local to the methods that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog_foundation.errors import ConfigError
from tidelog_spark.worker import end_in_silence

if TYPE_CHECKING:
    from tidelog_spark.sink.writer import TidelogBatchWriter, TidelogStreamWriter
    from tidelog_spark.source.reader import TidelogReader, TidelogStreamReader

# Every worker that Spark uses for the data source imports this module before it does anything else.
end_in_silence()


class TidelogDataSource(DataSource):
    """A source and a sink for batch and streaming queries, with the options and columns of Spark's for Kafka.

    ::

        servers = {"bootstrap.servers": "host:9094"}
        spark.read.format("tidelog").options(**servers).option("subscribe", "flights").load()
        rows.write.format("tidelog").options(**servers).option("topic", "delays").mode("append").save()

    A batch DataFrame ends at the high watermarks of its first action: later actions read the same records, and another
    ``load()`` reads newer ones. Spark recreates the source from its options wherever it needs one.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "tidelog"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark does not tell whether it will read or write.
        self._raw = dict(options)

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``, by default all; ``headers`` only with ``includeHeaders=true``.

        Raises:
            ConfigError: an option is not valid.
        """
        from tidelog_spark.source.options import parse_options
        from tidelog_spark.source.schema import spark_schema

        options = parse_options(self._raw)
        return spark_schema(options.include_headers, options.columns)

    def reader(self, schema: StructType) -> TidelogReader:
        """Return the reader of a batch query.

        Raises:
            ConfigError: an option does not apply to batch queries, or the user gave a schema.
        """
        from tidelog_spark.source.options import batch_plan, parse_options
        from tidelog_spark.source.reader import batch_reader

        self._check_schema(schema)
        return batch_reader(batch_plan(parse_options(self._raw)), schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802
        """Return the reader of a streaming query.

        Raises:
            ConfigError: an option does not apply to streaming queries, or the user gave a schema.
        """
        from tidelog_spark.source.options import parse_options, stream_plan
        from tidelog_spark.source.reader import TidelogStreamReader

        self._check_schema(schema)
        return TidelogStreamReader(stream_plan(parse_options(self._raw)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogBatchWriter:
        """Return the writer of a batch query.

        Raises:
            ConfigError: an option or a column is not valid, the mode is not append, or the cluster does not permit
                exactly once.
        """
        from tidelog_spark.sink.options import sink_plan
        from tidelog_spark.sink.writer import TidelogBatchWriter

        return TidelogBatchWriter(sink_plan(self._raw), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:  # noqa: N802
        """Return the writer of a streaming query.

        Raises:
            ConfigError: as `writer`.
        """
        from tidelog_spark.sink.options import sink_plan
        from tidelog_spark.sink.writer import TidelogStreamWriter

        return TidelogStreamWriter(sink_plan(self._raw), schema, overwrite)

    def _check_schema(self, schema: StructType) -> None:
        own = self.schema()
        if schema != own:
            raise ConfigError(
                f"the tidelog source has a fixed schema, {own.simpleString()}; leave out .schema(...). "
                'The option "columns" chooses columns'
            )
