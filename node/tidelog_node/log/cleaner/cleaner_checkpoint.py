"""``cleaner-offset-checkpoint`` of a log directory: the end of the clean part of each log.

Losing an entry costs a cleaning of the whole log. An entry that is too high would leave keys uncleaned forever, so
truncating, deleting or moving a log lowers or removes its entry.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable
from pathlib import Path

from tidelog_node.log.directory.offset_checkpoint_file import TopicPartitionKey, read_offsets, write_offsets
from tidelog_node.log.disk.files import Files

CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class CleanerCheckpoint:
    """The checkpoint file of one log directory, loaded on creation; owned by its :class:`LogDirectory`.

    Only entries of partitions in ``held`` are loaded; others have no folder. Thread-safe; each change is on the disk
    when the call returns. Methods raise KAFKA_STORAGE_ERROR if the disk refuses; the change is then not in memory, and
    may or may not be on the disk.
    """

    def __init__(self, files: Files, directory: Path, held: Container[TopicPartitionKey]) -> None:
        self._files = files
        self._path = directory / CLEANER_OFFSETS
        self._lock = threading.Lock()
        offsets = read_offsets(files, self._path)
        self._offsets = {key: offset for key, offset in offsets.items() if key in held}

    def get(self, key: TopicPartitionKey) -> int | None:
        """Return the first dirty offset of a partition; None if it was never cleaned here."""
        return self._offsets.get(key)

    def update(self, key: TopicPartitionKey, offset: int) -> None:
        """Record that a partition is clean below ``offset``."""
        with self._lock:
            self._write({**self._offsets, key: offset})

    def lower(self, key: TopicPartitionKey, offset: int) -> None:
        """Record that a partition's log was truncated to ``offset``; later records there are dirty."""
        with self._lock:
            if self._offsets.get(key, 0) > offset:
                self._write({**self._offsets, key: offset})

    def remove(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Remove the entries of partitions whose logs were replaced or deleted."""
        gone = set(keys)
        with self._lock:
            self._write({key: offset for key, offset in self._offsets.items() if key not in gone})

    def _write(self, offsets: dict[TopicPartitionKey, int]) -> None:
        if offsets != self._offsets:
            write_offsets(self._files, self._path, offsets)
            self._offsets = offsets
