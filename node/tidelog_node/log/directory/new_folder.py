"""The folder of a new partition, made before its first record: the folder, its log's file, and whose it is (KIP-516).

Making it takes several calls and flushes of the disk, which would hold up a topic of thousands of partitions, and a
partition without records has nothing to lose. As Kafka writes ``partition.metadata`` at the first append or in the
background, whichever comes first, so here all of the folder may follow then. After a crash a folder that is
missing, or that does not say whose it is, had no records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tidelog_foundation.ids import TopicId
from tidelog_node.log.directory.partition_metadata import write_topic_id
from tidelog_node.log.disk.files import Files, storage_errors


class Founding:
    """Of one folder; :meth:`complete` by any thread, and by the log before its first append."""

    __slots__ = ("_directory", "_files", "_is_over", "_lock", "_topic_id")

    def __init__(self, files: Files, directory: Path, topic_id: TopicId) -> None:
        self._files = files
        self._directory = directory
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._is_over = False

    def complete(self, create_log_file: Callable[[], None]) -> None:
        """Make the folder with its files and put it on the disk; does nothing when that is done or given up.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; it may be tried again.
        """
        with self._lock:
            if self._is_over:
                return
            with storage_errors("Creating", self._directory):
                self._files.mkdir(self._directory)
                create_log_file()
            write_topic_id(self._files, self._directory, self._topic_id)
            with storage_errors("Flushing", self._directory.parent):
                self._files.fsync_directory(self._directory.parent)
            self._is_over = True

    def give_up(self) -> None:
        """The log is being closed or deleted without a record; waits for a :meth:`complete` under way."""
        with self._lock:
            self._is_over = True
