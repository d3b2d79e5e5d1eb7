"""Sessions that know ``format("tidelog")``: a local one that finds its own Java, and any that exists already."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidelog_foundation.errors import ConfigError
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.java import find_java

_WORKER_PYTHON = "PYSPARK_PYTHON"
_WORKER_PYTHON_SETTING = "spark.pyspark.python"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets for the program that it starts."""

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
    app_name: str = "tidelog",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    formats: Sequence[str] = (),
) -> SparkSession:
    """Return the active session, or else a new one, with ``format("tidelog")``; a new one starts a JVM.

    In a new session times are UTC, only errors are logged, and there is no web UI. The default ``master`` is
    ``local[2]``. All sockets of a local session are on loopback. ``config`` overrides any setting.
    `tidelog_spark.java.find_java` describes the search for Java. JAVA_HOME and the Python of the workers are set for
    the JVM, not in this process's environment. The workers run ``spark.pyspark.python`` or, on a cluster,
    PYSPARK_PYTHON; otherwise, the Python of this process.

    An active session, and the session of a program that spark-submit has started, keep their settings, except for
    those of ``config`` and a given ``master``. A new session stops with the program, or before with ``stop()``.

    ``formats`` are formats of keys and values whose packages the session must have: ``avro``, ``protobuf``, or
    ``json``, which needs none. A new session downloads missing packages from Maven Central, in the versions of the
    installed Spark, unless spark-submit has started the program; without network, pass the path of the jar instead of
    the format's name.

    Raises:
        ConfigError: no Java 17 or newer was found, or the package of a format is missing.
    """
    # The import is local: every process that Spark starts to read would load the formats.
    from tidelog_spark.formats.packages import add_packages, installed_spark, require_formats

    given = dict(config or {})
    active = SparkSession.getActiveSession()
    if active is not None:
        require_formats(active, formats)
        return register(_build(SparkSession.builder, given))
    builder = SparkSession.builder.appName(app_name)
    if _GATEWAY in os.environ:
        created = _build(builder if master is None else builder.master(master), given)
    else:
        master = master or "local[2]"
        settings = add_packages(formats, {**_settings(master), **given}, installed_spark())
        with _set_environment(_environment(master, given)), _name_packages(settings.get("spark.jars.packages")):
            created = _build(builder.master(master), settings)
        created.sparkContext.setLogLevel("ERROR")
        atexit.register(_stop, created)
    require_formats(created, formats)
    return register(created)


def register(spark: SparkSession) -> SparkSession:
    """Register ``format("tidelog")`` with a session, and return the session.

    Spark finds the data source by itself only if the Python that it starts has Tidelog. Its default is the first
    ``python3`` on the PATH. This function chooses the one of ``spark.pyspark.python``, which Spark ignores unless
    spark-submit has started the program. For a local session without that setting and without PYSPARK_PYTHON, it
    chooses the running one. The Python of a Spark Connect server needs Tidelog.
    """
    # A session of Spark Connect has another class, and its Python is chosen where the server starts.
    if isinstance(spark, SparkSession):
        _choose_python(spark)
    spark.dataSource.register(TidelogDataSource)
    return spark


def _choose_python(spark: SparkSession) -> None:
    context = spark.sparkContext
    chosen = spark.conf.get(_WORKER_PYTHON_SETTING, None)
    if chosen is not None:
        context.pythonExec = chosen
    elif is_local(context.master or "") and _WORKER_PYTHON not in os.environ:
        context.pythonExec = sys.executable


def is_local(master: str) -> bool:
    """Return whether the tasks of a master run on this machine, in the driver's process or beside it."""
    return master.startswith("local")


def _build(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # pyspark looks for pandas, which is not used here, and warns of its version.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return builder.getOrCreate()


def _stop(created: SparkSession) -> None:
    """Stop a session when the program ends: otherwise Spark's workers print that their pipe is broken."""
    # Java may have ended before, for example at Ctrl-C.
    with contextlib.suppress(Py4JError, OSError):
        if created.sparkContext._jsc is not None:
            created.stop()


@contextlib.contextmanager
def _name_packages(packages: str | None) -> Iterator[None]:
    """Name the packages of a Spark that does not start: its own report on the missing ones is long."""
    try:
        yield
    except PySparkRuntimeError as error:
        if not packages or error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigError(
            f"Spark did not start; its output says whether it could not download {packages}. Without network, pass the"
            f" paths of the jars as formats"
        ) from error


def _environment(master: str, config: Mapping[str, str]) -> dict[str, str]:
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}
    default = sys.executable if is_local(master) else os.environ.get(_WORKER_PYTHON, sys.executable)
    return local | {
        "JAVA_HOME": str(find_java().home),
        _WORKER_PYTHON: config.get(_WORKER_PYTHON_SETTING, default),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
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


_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # One machine has few cores: 200 shuffle tasks would take longer than the work.
    "spark.sql.shuffle.partitions": "4",
}


def _settings(master: str) -> dict[str, str]:
    return (_LOCAL_SETTINGS if is_local(master) else {}) | {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_logging_file()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Filters on partitions, offsets and timestamps narrow what a batch query reads.
        "spark.sql.python.filterPushdown.enabled": "true",
        # Half the time per micro-batch, compared to TCP between the JVM and its Python workers.
        "spark.python.unix.domain.socket.enabled": "true",
    }


def _logging_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "log4j2.properties"
    path.write_text(_LOGGING)
    return path
