"""`IcebergTable`: one table of Iceberg, to which a batch of a sink is committed once.

It uses Iceberg's own library in the driver's JVM, not its data source for Spark, so it depends on no version of Spark.
A commit adds files to the table, and in the same step sets the property ``tidelog.batch.QUERY`` to the number of the
batch. Iceberg commits by comparing and swapping the table's metadata. Before each attempt, a validator reads the number
in the metadata that is to be replaced, so whoever comes second with a batch, even after a pause of days, fails. The
number is a property of the table, for snapshots expire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.java_gateway import ensure_callback_server_started

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch
from tidelog_foundation.errors import ErrorCode, RetriableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCEPTIONS = "org.apache.iceberg.exceptions."
_PASSING = (f"{_EXCEPTIONS}CommitFailedException", f"{_EXCEPTIONS}CommitStateUnknownException")
"""Errors after which the batch may be put again: others have committed meanwhile, or the outcome is unknown."""
_BATCH = "tidelog.batch."
_NAMES = "schema.name-mapping.default"
_CATALOG = "spark.sql.catalog."
_PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true"}
"""Properties of a new table. Each batch writes a file of metadata; the table keeps the last hundred."""
_VALIDATOR = "org.apache.iceberg.SnapshotAncestryValidator"


class IcebergCatalog:
    """The tables of a catalog, which ``spark.sql.catalog.NAME.*`` describes, or of a folder if the name is empty."""

    def __init__(self, spark: SparkSession, folder: str, name: str, namespace: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        self._levels = [each for each in namespace.split(".") if each]
        prefix = f"{_CATALOG}{name}."
        settings = dict(context.getConf().getAll())
        found = {key.removeprefix(prefix): text for key, text in settings.items() if name and key.startswith(prefix)}
        properties = found if name else {"type": "hadoop", "warehouse": folder}
        if not properties:
            raise ConfigException(f"The worker has no settings {prefix}*, which describe the catalog {name}")
        hadoop = self._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        for key, text in properties.items():
            if key.startswith("hadoop."):
                hadoop.set(key.removeprefix("hadoop."), text)
        build = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog
        self._catalog = build(name or "tidelog", properties, hadoop)

    def table(self, topic: str, schema: Mapping[str, Any], partitions: Sequence[tuple[str, str]]) -> IcebergTable:
        """Return the table of a topic. It is made, partitioned by transforms of columns, if it does not exist.

        Raises:
            ConfigException: there is no such column, or its type does not allow the transform.
        """
        named, iceberg = self._identifier(topic), self._jvm.org.apache.iceberg
        if not self._catalog.tableExists(named):
            columns = iceberg.SchemaParser.fromJson(json.dumps(schema))
            spec = iceberg.PartitionSpec.builderFor(columns)
            with _refused(topic):
                for transform, column in partitions:
                    getattr(spec, transform)(column)
                names = iceberg.mapping.NameMappingParser.toJson(iceberg.mapping.MappingUtil.create(columns))
                self._create(named, columns, spec.build(), {**_PROPERTIES, _NAMES: names})
        return IcebergTable(self._jvm, self._catalog.loadTable(named), topic)

    def _create(self, named: Any, columns: Any, spec: Any, properties: Mapping[str, str]) -> None:
        namespace = named.namespace()
        try:
            if self._levels and not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace)
        except Py4JJavaError as error:
            if not _is(error, "AlreadyExistsException"):
                raise
        try:
            self._catalog.createTable(named, columns, spec, properties)
        except Py4JJavaError as error:
            if not _is(error, "AlreadyExistsException"):
                raise

    def _identifier(self, topic: str) -> Any:
        catalog = self._jvm.org.apache.iceberg.catalog
        levels = self._gateway.new_array(self._jvm.java.lang.String, len(self._levels))
        for index, level in enumerate(self._levels):
            levels[index] = level
        return catalog.TableIdentifier.of(catalog.Namespace.of(levels), topic)


class IcebergTable:
    """A table as it was when it was loaded. For one batch and one thread."""

    def __init__(self, jvm: Any, table: Any, topic: str) -> None:
        self._jvm, self._table, self._topic = jvm, table, topic

    @property
    def schema(self) -> dict[str, Any]:
        """The schema, as JSON."""
        return dict(json.loads(self._jvm.org.apache.iceberg.SchemaParser.toJson(self._table.schema())))

    @property
    def spec(self) -> dict[str, Any]:
        """The partitioning, as JSON."""
        return dict(json.loads(self._jvm.org.apache.iceberg.PartitionSpecParser.toJson(self._table.spec())))

    def folder(self, name: str) -> str:
        """Return the path of a folder for files of data."""
        return str(self._table.locationProvider().newDataLocation(name))

    def has(self, batch: Batch) -> bool:
        """Tell whether the table has the batch, or a later one of its query."""
        return _last_batch(self._table.properties(), batch.query) >= batch.number

    def evolve(self, schema: Mapping[str, Any]) -> None:
        """Add the columns that the table lacks, and widen those whose type has grown.

        Raises:
            ConfigException: a column has another type.
            RetriableError: others have changed the table meanwhile.
        """
        columns = self._jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(schema))
        with _refused(self._topic), _passing(self._topic):
            update = self._table.updateSchema().unionByNameWith(columns)
            if not update.apply().sameSchema(self._table.schema()):
                update.commit()

    def map_names(self) -> None:
        """Let columns of files without ids be found by their names."""
        if self._table.properties().get(_NAMES) is None:
            mapping = self._jvm.org.apache.iceberg.mapping
            names = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(self._table.schema()))
            with _passing(self._topic):
                self._table.updateProperties().set(_NAMES, names).commit()

    def append(self, batch: Batch, folder: str, files: Mapping[str, Sequence[str | None]]) -> bool:
        """Commit Parquet files of a folder, by their paths with their partitions. Without rows, commit nothing.

        Returns False if the table has the batch already.

        Raises:
            RetriableError: the batch may or may not be committed; put it again.
        """
        found = [self._data_file(f"{folder}/{path}", partition) for path, partition in files.items()]
        with_rows = [each for each in found if each.recordCount()]
        if not with_rows:
            return True
        fence = _Fence(self._table.operations(), batch)
        transaction = self._table.newTransaction()
        try:
            with _passing(self._topic):
                append = transaction.newAppend().validateWith(fence)
                append.set("tidelog.query", batch.query).set("tidelog.batch", str(batch.number))
                for each in with_rows:
                    append.appendFile(each)
                append.commit()
                transaction.updateProperties().set(_BATCH + batch.query, str(batch.number)).commit()
                transaction.commitTransaction()
        except Py4JJavaError:
            if fence.is_late:
                return False
            raise
        return True

    def _data_file(self, path: str, partition: Sequence[str | None]) -> Any:
        iceberg, table = self._jvm.org.apache.iceberg, self._table
        file = table.io().newInputFile(path)
        names = iceberg.mapping.MappingUtil.create(table.schema())
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(table), names)
        found = iceberg.DataFiles.builder(table.spec()).withInputFile(file).withFormat("parquet").withMetrics(metrics)
        if partition:
            values = self._jvm.java.util.ArrayList()
            for each in partition:
                values.add(each)
            found = found.withPartitionValues(values)
        return found.build()


class _Fence:
    """Iceberg's validator of a commit, which it calls before each attempt."""

    def __init__(self, operations: Any, batch: Batch) -> None:
        self._operations, self._batch = operations, batch
        self.is_late = False
        """True once the table has the batch, by another commit."""

    def validate(self, _ancestors: object) -> bool:
        """Tell whether the metadata that is to be replaced lacks the batch."""
        properties = self._operations.current().properties()
        self.is_late = _last_batch(properties, self._batch.query) >= self._batch.number
        return not self.is_late

    def errorMessage(self) -> str:  # noqa: N802  # Iceberg's name
        """Return the text of the error."""
        return f"Batch {self._batch.number} of the query {self._batch.query} was committed by another worker"

    class Java:
        """The interface that py4j shows to Java."""

        implements: ClassVar = [_VALIDATOR]


def _last_batch(properties: Any, query: str) -> int:
    text = properties.get(_BATCH + query)
    return -1 if text is None else int(text)


def _is(error: Py4JJavaError, *names: str) -> bool:
    return error.java_exception.getClass().getName().removeprefix(_EXCEPTIONS) in names


@contextmanager
def _passing(topic: str) -> Iterator[None]:
    """Raise errors of commits that pass as such."""
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() not in _PASSING:
            raise
        text = f"The table of the topic {topic} could not be changed: {error.java_exception.getMessage()}"
        raise RetriableError(ErrorCode._APPLICATION, text) from error


@contextmanager
def _refused(topic: str) -> Iterator[None]:
    """Raise what Iceberg refuses as an error of the configuration."""
    try:
        yield
    except IllegalArgumentException as error:
        raise _refusal(topic, str(error)) from error
    except Py4JJavaError as error:
        if not _is(error, "ValidationException"):
            raise
        raise _refusal(topic, error.java_exception.getMessage()) from error


def _refusal(topic: str, message: str) -> ConfigException:
    return ConfigException(f"The table of the topic {topic} cannot have such columns: {message}")
