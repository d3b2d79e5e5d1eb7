"""`Database`: a JDBC connection of the driver's JVM, for what is small: plans, catalogs and the end of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidelog_connect.connectors.jdbc.connection_settings import ConnectionSettings
from tidelog_connect.connectors.jdbc.postgresql import DRIVER, PACKAGE
from tidelog_connect.connectors.jdbc.tables import SourceColumn
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_PERMANENT = ("22", "23", "28", "3D", "3F", "42", "0A", "44", "P0")
"""Classes of SQLSTATE that another attempt does not change: data, constraints, rights, names, syntax, raised errors."""
_VALID_TIMEOUT_S = 5
_RAISED, _RAISED_TEXT, _RAISED_STATE = "USER_RAISED_EXCEPTION", "errorMessage", "P0001"
"""The condition of an error that a row raises, and its text."""


class DatabaseError(TidelogError):
    """An error of the database. ``state`` is its SQLSTATE, where one is known."""

    def __init__(self, message: str, state: str | None) -> None:
        super().__init__(ErrorCode._APPLICATION, message if state is None else f"{message} (SQLSTATE {state})")
        self.state = state

    @property
    def is_permanent(self) -> bool:
        """Whether the same statement would fail again."""
        return self.state is not None and self.state.startswith(_PERMANENT)


class Database:
    """One connection, which is opened at the first use, and again when it breaks. For one thread."""

    def __init__(self, spark: SparkSession, settings: ConnectionSettings) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm: Any = jvm
        self._settings = settings
        self._connection: Any = None

    def rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query.

        Raises:
            DatabaseError: the database refuses it, or cannot be reached.
        """
        with _translated():
            statement = self._open().createStatement()
            try:
                found = statement.executeQuery(sql)
                width = found.getMetaData().getColumnCount()
                rows = []
                while found.next():
                    rows.append([found.getObject(index) for index in range(1, width + 1)])
                return rows
            finally:
                statement.close()

    def columns(self, relation: str) -> list[SourceColumn]:
        """Return the columns of an element of FROM.

        Raises:
            DatabaseError: there is no such relation, or the user may not read it.
        """
        with _translated():
            statement = self._open().prepareStatement(f"SELECT * FROM {relation} WHERE 1 = 0")
            try:
                found = statement.getMetaData()
                return [
                    SourceColumn(
                        found.getColumnLabel(index),
                        _plain_type(found.getColumnTypeName(index)),
                        found.getPrecision(index),
                        found.getScale(index),
                        found.isNullable(index) != 0,
                    )
                    for index in range(1, found.getColumnCount() + 1)
                ]
            finally:
                statement.close()

    def execute(self, *statements: str) -> list[int]:
        """Execute statements, each in a transaction of its own unless `transaction` has begun one.

        Returns the numbers of rows that each has changed.

        Raises:
            DatabaseError: the database refuses one, or cannot be reached.
        """
        with _translated():
            statement = self._open().createStatement()
            try:
                return [statement.executeUpdate(sql) for sql in statements]
            finally:
                statement.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block does, or nothing of it if it raises."""
        with _translated():
            self._open().setAutoCommit(False)
        try:
            yield
            with _translated():
                self._connection.commit()
                self._connection.setAutoCommit(True)
        except BaseException:
            # The server rolls back what a closed connection has not committed.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except Py4JJavaError:
            logger.debug("the connection was closed before", exc_info=True)

    def _open(self) -> Any:
        if self._connection is not None:
            if not self._connection.getAutoCommit() or self._connection.isValid(_VALID_TIMEOUT_S):
                return self._connection
            self.close()
        attempts = self._settings.attempts
        for attempt in range(1, attempts + 1):
            try:
                self._connection = self._connect()
                return self._connection
            except Py4JJavaError as error:
                if attempt == attempts or translated(error).is_permanent:
                    raise
                time.sleep(self._settings.backoff_ms / 1000)
        raise AssertionError("no attempt to connect")

    def _connect(self) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in self._settings.credentials.items():
            properties.setProperty(name, value)
        registry = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
        try:
            registry.register(DRIVER)
            driver = registry.get(DRIVER)
        except Py4JJavaError as error:
            raise ConfigError(
                f"The JDBC driver {DRIVER} is not among Spark's jars; set spark.jars.packages={PACKAGE} "
                "in the settings of the worker, or spark.jars to the path of the driver"
            ) from error
        return driver.connect(self._settings.url, properties)


def translated(error: Py4JJavaError | PySparkException) -> DatabaseError:
    """Return the error of the database with its SQLSTATE, or that of Spark, which has states of its own."""
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if isinstance(error, PySparkException) and error.getCondition() == _RAISED:
        return DatabaseError((error.getMessageParameters() or {}).get(_RAISED_TEXT, str(error)), _RAISED_STATE)
    first = cause
    while cause is not None:
        if hasattr(cause, "getSQLState"):
            state = cause.getSQLState()
            return DatabaseError(str(cause.getMessage()), None if state is None else str(state))
        cause = cause.getCause()
    return DatabaseError(str(first.getMessage() if first is not None else error), None)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise translated(error) from error


def _plain_type(name: str) -> str:
    """Return the name of a type without the schema of the system's types."""
    return name.removeprefix('"pg_catalog".').strip('"')
