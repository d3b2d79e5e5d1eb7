"""``cleaner-offset-checkpoint`` of a log directory: up to where each of its logs is clean.

Losing an entry costs a cleaning of the whole log. An entry that is too high would leave keys behind that were never
looked at, so whoever moves a log's end back, deletes or moves the log has the entry lowered or removed.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable
from pathlib import Path

from tidelog_node.log.directory.checkpoint_files import TopicPartitionKey, read_offsets, write_offsets
from tidelog_node.log.disk.files import Files

CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class CleanerCheckpoint:
    """The file of one log directory, read when made; owned by its :class:`LogDirectory`.

    Only entries of partitions in ``held`` are taken: others have no folder. Any thread; each change is on the disk when
    the call returns. Methods raise KAFKA_STORAGE_ERROR when the disk refuses; the change is then neither in memory nor,
    surely, on the disk.
    """

    def __init__(self, files: Files, directory: Path, held: Container[TopicPartitionKey]) -> None:
        self._files = files
        self._path = directory / CLEANER_OFFSETS
        self._lock = threading.Lock()
        offsets = read_offsets(files, self._path)
        self._offsets = {key: offset for key, offset in offsets.items() if key in held}

    def get(self, key: TopicPartitionKey) -> int | None:
        """Return the first dirty offset of a partition; None when it was never cleaned here."""
        return self._offsets.get(key)

    def update(self, key: TopicPartitionKey, offset: int) -> None:
        """Note that a partition is clean below ``offset``."""
        with self._lock:
            self._write({**self._offsets, key: offset})

    def lower(self, key: TopicPartitionKey, offset: int) -> None:
        """Note that a partition's log was cut at ``offset``: what comes there later is dirty."""
        with self._lock:
            if self._offsets.get(key, 0) > offset:
                self._write({**self._offsets, key: offset})

    def remove(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Remove the entries of partitions: their logs are not what they were."""
        gone = set(keys)
        with self._lock:
            self._write({key: offset for key, offset in self._offsets.items() if key not in gone})

    def _write(self, offsets: dict[TopicPartitionKey, int]) -> None:
        if offsets != self._offsets:
            write_offsets(self._files, self._path, offsets)
            self._offsets = offsets
