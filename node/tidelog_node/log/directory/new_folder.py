"""The folder of a new partition, created before its first record: the folder, its log file and its topic id (KIP-516).

Creating it takes several system calls and flushes, which would delay the creation of a topic with thousands of
partitions, and a partition without records has nothing to lose. Kafka writes ``partition.metadata`` at the first append
or in the background, whichever comes first; here the whole folder may be created then. After a crash, a folder that is
missing or has no topic id had no records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tidelog_foundation.ids import TopicId
from tidelog_node.log.directory.partition_metadata import write_topic_id
from tidelog_node.log.disk.files import Files, storage_errors


class NewFolder:
    """The deferred creation of one folder; any thread may call :meth:`create`, as does the log's first append."""

    __slots__ = ("_directory", "_files", "_is_done", "_lock", "_topic_id")

    def __init__(self, files: Files, directory: Path, topic_id: TopicId) -> None:
        self._files = files
        self._directory = directory
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._is_done = False

    def create(self, create_log_file: Callable[[], None]) -> None:
        """Create the folder with its files, durably; do nothing if that is done or cancelled.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the caller may try again.
        """
        with self._lock:
            if self._is_done:
                return
            with storage_errors("Creating", self._directory):
                self._files.mkdir(self._directory)
                create_log_file()
            write_topic_id(self._files, self._directory, self._topic_id)
            with storage_errors("Flushing", self._directory.parent):
                self._files.fsync_directory(self._directory.parent)
            self._is_done = True

    def cancel(self) -> None:
        """Cancel the creation: the log closes or is deleted without a record. Wait for a running :meth:`create`."""
        with self._lock:
            self._is_done = True
