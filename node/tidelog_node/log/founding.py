"""What makes the folder of a new partition last: whose it is, on the disk before the first record (KIP-516).

Two flushes per folder would hold up a topic of thousands of partitions, and a folder without records has nothing to
lose. As in Kafka, whose log writes ``partition.metadata`` at the first append or in the background, whichever comes
first, a log may therefore be opened ahead of it. After a crash a folder that does not say whose it is has no records.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tidelog.ids import TopicId
from tidelog_node.log.files import Files, storage_errors
from tidelog_node.log.partition_metadata import write_topic_id


class Founding:
    """Of one folder; :meth:`complete` by any thread, and by the log before its first append."""

    __slots__ = ("_directory", "_files", "_is_over", "_lock", "_topic_id")

    def __init__(self, files: Files, directory: Path, topic_id: TopicId) -> None:
        self._files = files
        self._directory = directory
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._is_over = False

    def complete(self) -> None:
        """Write whose the folder is and put both on the disk; does nothing when that is done or given up.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; it may be tried again.
        """
        with self._lock:
            if self._is_over:
                return
            write_topic_id(self._files, self._directory, self._topic_id)
            with storage_errors("Flushing", self._directory.parent):
                self._files.fsync_directory(self._directory.parent)
            self._is_over = True

    def give_up(self) -> None:
        """The folder is going away."""
        with self._lock:
            self._is_over = True
