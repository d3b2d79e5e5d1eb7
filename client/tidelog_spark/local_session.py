"""Sessions that know ``format("tidelog")``: a local one that finds its own Java, and any that exists already."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog_spark.java import find_java
from tidelog_spark.source import TidelogDataSource

_WORKER_PYTHON = "PYSPARK_PYTHON"

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
"""The gateway's own level keeps it from announcing at each start that it sets one."""


def session(
    app_name: str = "tidelog", master: str = "local[2]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active session, or else a new local one, with ``format("tidelog")``; a new one starts a JVM.

    In a new session times are UTC, only errors are logged, there is no web UI, and all sockets are on loopback.
    ``config`` overrides any setting. `tidelog_spark.java.find_java` describes the search for Java. JAVA_HOME and the
    Python of the workers are set for the JVM, not in this process's environment. An active session keeps its settings,
    except for those of ``config``. Stop the session with ``stop()``.

    Raises:
        ConfigError: no Java 17 or newer was found.
    """
    if SparkSession.getActiveSession() is not None:
        return register(_build(SparkSession.builder, config or {}))
    builder = SparkSession.builder.appName(app_name).master(master)
    with _set_environment(_environment()):
        created = _build(builder, {**_settings(), **(config or {})})
    created.sparkContext.setLogLevel("ERROR")
    return register(created)


def register(spark: SparkSession) -> SparkSession:
    """Register ``format("tidelog")`` with a session, and return the session.

    Spark finds the data source by itself only if the Python that it starts has Tidelog. Its default is the first
    ``python3`` on the PATH. For a local session whose Python was not chosen, through PYSPARK_PYTHON or
    ``spark.pyspark.python``, this function chooses the running one.
    """
    context = spark.sparkContext
    is_local = (context.master or "").startswith("local")
    is_chosen = _WORKER_PYTHON in os.environ or spark.conf.get("spark.pyspark.python", None) is not None
    if is_local and not is_chosen:
        context.pythonExec = sys.executable
    spark.dataSource.register(TidelogDataSource)
    return spark


def _build(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # pyspark looks for pandas, which is not used here, and warns of its version.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return builder.getOrCreate()


def _environment() -> dict[str, str]:
    return {
        "JAVA_HOME": str(find_java().home),
        _WORKER_PYTHON: sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The workers share this process's stderr, where gRPC reports every connection that a node closes.
        "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR"),
    }


@contextlib.contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    saved = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in saved.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _settings() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_logging_file()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # One machine has few cores: 200 shuffle tasks would take longer than the work.
        "spark.sql.shuffle.partitions": "4",
        # Half the time per micro-batch, compared to TCP between the JVM and its Python workers.
        "spark.python.unix.domain.socket.enabled": "true",
    }


def _logging_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "log4j2.properties"
    path.write_text(_LOGGING)
    return path
