"""The Spark of ``tidelog sql``: it starts when a statement needs it, and says nothing unless it fails."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog_spark.sql.engine import SparkEngine

_OWN_SETTINGS = {"spark.sql.streaming.stopTimeout": "30s"}
_STDERR = 2


class LazyEngine:
    """A `SparkEngine` that starts with the first call, and ends with the `with` statement.

    ``formats`` returns the formats whose packages Spark needs, at its start.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        master: str,
        conf: Mapping[str, str],
        formats: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._formats = formats
        self._settings = settings
        self._master = master
        self._conf = conf
        self._spark: SparkSession | None = None
        self._engine: SparkEngine | None = None

    def __enter__(self) -> LazyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            self._spark.stop()

    def __call__(self) -> SparkEngine:
        """Return the engine."""
        if self._engine is None:
            self._spark = self._start()
            from tidelog_spark.sql.engine import SparkEngine

            self._engine = SparkEngine(self._spark, self._settings)
        return self._engine

    def _start(self) -> SparkSession:
        from tidelog_spark.local_session import session

        if sys.stderr.isatty():
            typer.echo(f"starting Spark on {self._master}", err=True)
        settings = {**_OWN_SETTINGS, **self._conf}
        formats = self._formats()
        with _stderr_of_children() as log:
            try:
                spark = session("tidelog sql", self._master, settings, formats)
            except (RuntimeError, ConfigError) as error:
                reason = _last_line(log) or str(error)
                if formats:
                    reason += f"; without network, give the jars of {' and '.join(formats)} by --conf spark.jars=PATHS"
                raise error_for(ErrorCode._FAIL, f"Spark did not start: {reason}") from error
        spark.sparkContext.setLogLevel("OFF")
        return spark


@contextlib.contextmanager
def _stderr_of_children() -> Iterator[str]:
    """Give the processes that start in the body of the statement a file as their standard error, and yield its name.

    The JVM and the workers of Python keep it for good. The file has no name any more at the end of the body.
    """
    saved = os.dup(_STDERR)
    with tempfile.NamedTemporaryFile(prefix="tidelog-sql-", suffix=".log") as log:
        os.dup2(log.fileno(), _STDERR)
        try:
            yield log.name
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)


def _last_line(path: str) -> str:
    with open(path, errors="replace") as log:
        lines = [line.strip() for line in log if line.strip()]
    return lines[-1] if lines else ""
