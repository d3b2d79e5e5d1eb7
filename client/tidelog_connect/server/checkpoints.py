"""`Checkpoints`: the folders of sinks' checkpoints, on any file system of Hadoop."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tidelog_connect.server.settings import WorkerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIGITS = 16


class Checkpoints:
    """The checkpoints of a group. A sink has one for each set of topics, and no more than one at a time.

    A checkpoint has the offsets of certain topics. With other topics, a sink begins a new one from the offsets of its
    group; that of before would be out of date if the topics came back.
    """

    def __init__(self, spark: SparkSession, settings: WorkerSettings) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._folder = f"{settings.worker.checkpoint_location.rstrip('/')}/{quote(settings.worker.group_id, safe='')}"

    def of_subscription(self, name: str, subscription: str) -> str:
        """Return the folder of a sink's checkpoint for its topics, and delete those for other topics."""
        own = hashlib.sha256(subscription.encode()).hexdigest()[:_DIGITS]
        folder = self._of_sink(name)
        path = self._path(folder)
        files = path.getFileSystem(self._hadoop)
        if files.exists(path):
            for status in files.listStatus(path):
                if status.getPath().getName() != own:
                    files.delete(status.getPath(), True)
        return f"{folder}/{own}"

    def forget(self, name: str) -> None:
        """Delete the checkpoint of a sink."""
        path = self._path(self._of_sink(name))
        path.getFileSystem(self._hadoop).delete(path, True)

    def _of_sink(self, name: str) -> str:
        return f"{self._folder}/{quote(name, safe='')}"
