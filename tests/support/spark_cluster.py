"""The Spark that tests run on: local, or with TIDELOG_SPARK_MASTER=standalone a cluster of processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
from acknowledged import wait_for
from quick_jvm import QUICK_JVM

from tidelog.testing.ports import lease_ports, release_ports
from tidelog_spark.java import find_java

SUPPORT = Path(__file__).parent
SPARK_HOME = Path(pyspark.__file__).parent
IS_STANDALONE = os.environ.get("TIDELOG_SPARK_MASTER") == "standalone"
_DAEMONS = "org.apache.spark.deploy"
_WORKER = ("--cores", "2", "--memory", "1g")
_STOP_S = 20
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Spark:
    """A master URL, and the settings of the sessions that use it."""

    master: str
    settings: Mapping[str, str]

    def master_with_retries(self) -> str:
        """Return a master whose tasks are repeated, as a cluster's are."""
        return "local[2,3]" if self.master == "local[2]" else self.master


@contextlib.contextmanager
def spark_under_test() -> Iterator[Spark]:
    """Run the Spark of TIDELOG_SPARK_MASTER, which is ``standalone`` or, by default, ``local[2]``."""
    if IS_STANDALONE:
        with standalone_cluster() as found:
            yield found
        return
    name = os.environ.get("TIDELOG_SPARK_MASTER", "local[2]")
    assert name == "local[2]", f"invalid TIDELOG_SPARK_MASTER {name!r}: must be local[2] or standalone"
    yield Spark(name, QUICK_JVM)


@contextlib.contextmanager
def standalone_cluster(workers: int = 2) -> Iterator[Spark]:
    """Run a master and workers. An application has one executor of 512 MB on each of two workers.

    Each worker has an address of its own, as Spark runs no copy of a task on the same host, and room for two executors,
    so two applications can run at the same time. All connections of Spark are authenticated and encrypted.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidelog-spark-cluster-"))
    port, *web = lease_ports(2 + workers)
    encryption = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(),
        "spark.network.crypto.enabled": "true",
    }
    properties = folder / "spark.properties"
    properties.write_text("".join(f"{key} {value}\n" for key, value in encryption.items()))
    common = ("--properties-file", str(properties))
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(release_ports, (port, *web))
        arguments = ["master.Master", *common, "--port", str(port), "--webui-port", str(web[0])]
        stack.enter_context(_daemon("127.0.0.1", arguments, folder / "master"))
        for number, web_port in enumerate(web[1:], 1):
            arguments = ["worker.Worker", *common, "--webui-port", str(web_port), *_WORKER, master]
            stack.enter_context(_daemon(f"127.0.0.{number}", arguments, folder / f"worker-{number}"))
        wait_for(lambda: _alive_workers(web[0]) == workers, f"{workers} workers; see {folder}", _START_S)
        yield Spark(master, QUICK_JVM | encryption | _EXECUTORS)


_EXECUTORS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.executor.defaultJavaOptions": next(iter(QUICK_JVM.values())),
    # The modules of the tests, for functions that travel by name.
    "spark.executorEnv.PYTHONPATH": str(SUPPORT),
    "spark.executorEnv.GRPC_VERBOSITY": "ERROR",
    "spark.sql.shuffle.partitions": "4",
}


@contextlib.contextmanager
def _daemon(host: str, arguments: list[str], folder: Path) -> Iterator[None]:
    folder.mkdir()
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": next(iter(QUICK_JVM.values())),
    }
    module, *more = arguments
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"{_DAEMONS}.{module}", "--host", host, *more]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _alive_workers(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, json.JSONDecodeError):
        # While the master starts, it refuses connections, and then its answers are empty.
        return 0
