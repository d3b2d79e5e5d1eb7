"""`SparkEngine`: runs queries on Spark, over views of the relations that they name."""

from __future__ import annotations

import contextlib
import io
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name by which Spark's users know it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegralType, MapType, StructType

from tidelog_foundation.config import config_keys
from tidelog_foundation.errors import ConfigError
from tidelog_spark.formats.packages import PACKAGES, require_formats
from tidelog_spark.sink.options import EXACTLY_ONCE, SinkOptions
from tidelog_spark.source.options import SourceOptions
from tidelog_spark.sql.definitions import SINK_SEMANTICS, SPARK_PACKAGES, Column, OutputMode, Relation, Start
from tidelog_spark.sql.errors import SqlError, position_in, spark_sentence
from tidelog_spark.sql.plan import ReadPlan, WritePlan, casts, numbered, read_plan
from tidelog_spark.sql.results import Analysis, Resolve, Rows
from tidelog_spark.sql.types import quoted, quoted_if_needed

MAX_VIEWS = 100
"""The number of streams and tables that one query may read."""
_CHUNK_ROWS = 1_000
_QUEUED_CHUNKS = 4
_WAIT_S = 0.2
_MODES = {OutputMode.FINAL: "append", OutputMode.CHANGES: "update"}
_QUERY_ID = "sql.streaming.queryId"
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class Running(Protocol):
    """A persistent query that runs."""

    @property
    def failure(self) -> str | None:
        """The sentence of its error, if it has failed."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it runs still."""
        ...

    def stop(self) -> None:
        """End it, and wait for the end."""
        ...


class SparkEngine:
    """Runs queries in one session of Spark. Its methods raise `SqlError` for what Spark refuses."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        # Spark logs each error of analysis, which here is a step on the way, or becomes an exception.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        self._reading = _known_to(SourceOptions, settings)
        self._writing = _known_to(SinkOptions, settings)
        self._packages: set[str] = set()

    def rows(self, select: str, resolve: Resolve, limit: int | None, *, as_json: bool = False) -> Rows:
        """Return the rows of a query over the present records: at most ``limit`` if it is given."""
        with _clear_errors(), self._frame(select, resolve, None) as (frame, _):
            shown = _rendered(frame if limit is None else frame.limit(limit), as_json)
            columns = tuple(shown.columns)
            found = iter([shown.collect()]) if limit is not None else _chunks(shown)
            return Rows(columns, found if columns else iter(()), as_json)

    def analyze(self, select: str, resolve: Resolve, mode: OutputMode | None) -> Analysis:
        """Return the columns and the relations of a query; with a ``mode``, check that it can run as a stream so."""
        start = None if mode is None else Start.LATEST
        with _clear_errors(), self._frame(select, resolve, start) as (frame, reads):
            if mode is not None:
                _check_stream(frame)
                self._check_mode(frame, mode)
            columns = tuple(Column(field.name, type_text(field.dataType)) for field in frame.schema.fields)
            return Analysis(columns, reads)

    def explain(self, select: str, resolve: Resolve) -> str:
        """Return Spark's plan of a query over the present records: of a stream, it has none before the first batch."""
        with _clear_errors(), self._frame(select, resolve, None) as (frame, _):
            with contextlib.redirect_stdout(io.StringIO()) as text:
                frame.explain("formatted")
            return text.getvalue().strip()

    def follow(
        self, select: str, resolve: Resolve, start: Start, mode: OutputMode | None, *, as_json: bool = False
    ) -> Rows:
        """Return the rows of a query as they come; without a ``mode``, each change if Spark can tell it."""
        with _clear_errors(), self._frame(select, resolve, start) as (frame, _):
            _check_stream(frame)
            shown = _rendered(frame, as_json)
            follower = _Follower(shown)
            try:
                follower.start(mode or OutputMode.CHANGES)
            except AnalysisException:
                if mode is not None:
                    raise
                # Joins of streams, for example, have no changes.
                follower.start(OutputMode.FINAL)
            return Rows(tuple(shown.columns), follower.chunks(), as_json, is_stream=True)

    def insert(self, select: str, resolve: Resolve, plan: Callable[[tuple[Column, ...]], WritePlan]) -> int:
        """Write the rows of a query over the present records, all of them or none, and return their number."""
        with _clear_errors(), self._frame(select, resolve, None) as (frame, _):
            columns = tuple(Column(field.name, type_text(field.dataType)) for field in frame.schema.fields)
            made = plan(columns)
            self._require_package(made.relation)
            count = Observation()
            rows = _encoded(frame, made).observe(count, F.count(F.lit(1)).alias("rows"))
            rows.write.format("tidelog").options(**self._writing, **made.options).mode("append").save()
            return int(count.get["rows"])

    def start(
        self, name: str, select: str, resolve: Resolve, start: Start, mode: OutputMode, plan: WritePlan, checkpoint: str
    ) -> Running:
        """Start a persistent query, which continues where its checkpoint ends."""
        with _clear_errors(), self._frame(select, resolve, start) as (frame, _):
            _check_stream(frame)
            self._require_package(plan.relation)
            options = {**self._writing, **plan.options}
            writer = _encoded(frame, plan).writeStream.option("checkpointLocation", checkpoint).queryName(name)
            writer = writer.outputMode(_MODES[mode])
            if mode is OutputMode.CHANGES:
                writer = writer.foreachBatch(_write_of_batches(options))
            else:
                writer = writer.format("tidelog").options(**options)
            return _RunningQuery(writer.start())

    def _check_mode(self, frame: DataFrame, mode: OutputMode) -> None:
        """Check that Spark can run a stream in a mode. Spark does so only when the stream starts its processes."""
        jvm: Any = self._spark._jvm
        spark: Any = jvm.org.apache.spark.sql
        plan = frame._jdf.queryExecution().analyzed()
        java_mode = getattr(spark.streaming.OutputMode, _MODES[mode].capitalize())()
        spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, java_mode)

    @contextlib.contextmanager
    def _frame(self, select: str, resolve: Resolve, start: Start | None) -> Iterator[tuple[DataFrame, tuple[str, ...]]]:
        """Analyze a query over views of the relations that it names, which exist in the body of the statement.

        Spark tells the names: a query of which it misses a name is analyzed again with one view more. With ``start``,
        streams are read as streams.
        """
        reads: list[str] = []
        try:
            frame = None
            while frame is None:
                try:
                    frame = self._spark.sql(select)
                except AnalysisException as error:
                    self._add_view(error, resolve, start, reads)
            yield frame, tuple(reads)
        finally:
            for name in reads:
                self._spark.catalog.dropTempView(name)

    def _add_view(self, error: AnalysisException, resolve: Resolve, start: Start | None, reads: list[str]) -> None:
        """Add the view whose absence is the error; raise the error if it has another reason."""
        name = _missing_name(error)
        if name is None or name in reads:
            raise error
        relation = resolve(name)
        if relation is None:
            raise SqlError(f"{position_in(str(error))}there is no stream, table or topic {name}")
        if len(reads) == MAX_VIEWS:
            raise SqlError(f"the query reads more than {MAX_VIEWS} streams and tables") from error
        self._view(read_plan(relation), start).createOrReplaceTempView(quoted(name))
        reads.append(name)

    def _require_package(self, relation: Relation) -> None:
        if relation.format not in SPARK_PACKAGES or relation.format in self._packages:
            return
        try:
            require_formats(self._spark, [relation.format])
        except ConfigError as error:
            raise SqlError(
                f"{relation.name} has the format {relation.format}, and this Spark was started without its package "
                f"{PACKAGES[relation.format]}; tidelog sql has it if it starts after the definition"
            ) from error
        self._packages.add(relation.format)

    def _view(self, plan: ReadPlan, start: Start | None) -> DataFrame:
        self._require_package(plan.relation)
        options = {**self._reading, **plan.options}
        if start is None or plan.keeps_latest:
            source = self._spark.read.format("tidelog").options(**options).load()
        else:
            reader = self._spark.readStream.format("tidelog").options(**options)
            source = reader.option("startingOffsets", start.value).load()
        if plan.keeps_latest:
            source = _latest(source)
        frame = source.selectExpr("*", *plan.decoded).selectExpr(*plan.projected)
        watermark = plan.relation.watermark
        if watermark is not None and start is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        return frame


def _known_to(cls: type, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that an end of Spark has: a profile has settings for all clients."""
    known = {key.lower() for key in config_keys(cls)}
    return {key: value for key, value in settings.items() if key.lower() in known or key.startswith("config.providers")}


def _missing_name(error: AnalysisException) -> str | None:
    """Return the plain name of a relation that Spark does not know; None for another error, or a name of parts."""
    if error.getCondition() != _NOT_FOUND:
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    parts = name.removeprefix("`").removesuffix("`").split("`.`")
    return parts[0].replace("``", "`") if len(parts) == 1 else None


def _latest(source: DataFrame) -> DataFrame:
    """Return the latest record of each key that is not a deletion.

    The offset orders the records of a partition. A key has records in several partitions only if the topic has grown,
    and then the timestamp orders the latest ones of each.
    """
    keyed = source.where("key IS NOT NULL")
    for columns, order in ((("key", "partition"), "offset"), (("key",), "timestamp")):
        latest = F.max_by(F.struct("*"), order).alias("latest")
        keyed = keyed.groupBy(*columns).agg(latest).select("latest.*")
    return keyed.where("value IS NOT NULL")


def _encoded(frame: DataFrame, plan: WritePlan) -> DataFrame:
    expressions = casts(plan, frame.columns)
    return frame.toDF(*numbered(len(expressions))).selectExpr(*expressions).selectExpr(*plan.encoded)


def _write_of_batches(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return the function that writes a batch of changes, of which Spark refuses a stream to any sink in Python.

    Spark repeats a batch after a crash, with the same number. The sink drops it then, unless it writes at least once.
    """

    def write(frame: DataFrame, number: int) -> None:
        numbers = {}
        if options.get(SINK_SEMANTICS, EXACTLY_ONCE) == EXACTLY_ONCE:
            # The id in the checkpoint: with a new checkpoint, batches have the numbers from 0 again.
            query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            numbers = {"txnAppId": str(query), "txnVersion": str(number)}
        frame.write.format("tidelog").options(**options, **numbers).mode("append").save()

    return write


def _check_stream(frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise SqlError(
            "the query reads no stream, so nothing follows: a table and a finished query do not change while it runs"
        )


def _rendered(frame: DataFrame, as_json: bool) -> DataFrame:
    """Return the rows as text: Spark knows how its types look, and its session the time zone."""
    if not frame.columns:
        return frame
    if as_json:
        return frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("json"))
    names = numbered(len(frame.columns))
    kinds = [field.dataType for field in frame.schema.fields]
    cells = [
        name if isinstance(kind, IntegralType) else f"CAST({name} AS STRING) AS {name}"
        for name, kind in zip(names, kinds, strict=True)
    ]
    return frame.toDF(*names).selectExpr(*cells).toDF(*frame.columns)


def _chunks(frame: DataFrame) -> Iterator[Sequence[Sequence[object]]]:
    with _clear_errors():
        chunk: list[Sequence[object]] = []
        for row in frame.toLocalIterator():
            chunk.append(row)
            if len(chunk) == _CHUNK_ROWS:
                yield chunk
                chunk = []
        yield chunk


def type_text(kind: DataType) -> str:
    """Return a type in the notation of definitions."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quoted_if_needed(f.name)}: {type_text(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return kind.simpleString().upper()


class _RunningQuery:
    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    @property
    def failure(self) -> str | None:
        error = self._query.exception()
        return None if error is None else spark_sentence(str(error))

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def stop(self) -> None:
        self._query.stop()


class _Follower:
    """Brings the rows of a stream from Spark's thread to the one that iterates over `chunks`, within a bound."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._queue: queue.Queue[list[Sequence[object]]] = queue.Queue(_QUEUED_CHUNKS)
        self._stopped = threading.Event()
        self._query: StreamingQuery | None = None

    def start(self, mode: OutputMode) -> None:
        self._query = self._frame.writeStream.foreachBatch(self._take).outputMode(_MODES[mode]).start()

    def chunks(self) -> Iterator[Sequence[Sequence[object]]]:
        """Yield rows as they come, and an empty chunk when there are none for a moment; closing it ends the stream."""
        assert self._query is not None, "the stream has been started"
        try:
            while True:
                try:
                    yield self._queue.get(timeout=_WAIT_S)
                except queue.Empty:
                    if not self._query.isActive:
                        break
                    yield []
            error = self._query.exception()
            if error is not None:
                raise SqlError(spark_sentence(str(error)))
        finally:
            self._stopped.set()
            self._query.stop()

    def _take(self, frame: DataFrame, _: int) -> None:
        for chunk in _chunks(frame):
            while chunk and not self._stopped.is_set():
                with contextlib.suppress(queue.Full):
                    self._queue.put(list(chunk), timeout=_WAIT_S)
                    break


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise SqlError(spark_sentence(str(error))) from error
    except Py4JJavaError as error:
        # An exception of Java for which PySpark has no class. The first cause says most.
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise SqlError(spark_sentence(str(cause.getMessage() or cause.toString()))) from error
