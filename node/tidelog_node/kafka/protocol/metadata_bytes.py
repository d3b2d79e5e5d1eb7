"""Hand-written encoding of the topics in Metadata responses, which may have a hundred thousand partitions.

The bytes are those that :class:`~tidelog_node.kafka.protocol.messages.metadata.MetadataResponseTopic` declares.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeAlias

from tidelog_node.kafka.protocol.messages.metadata import MetadataResponse
from tidelog_node.kafka.protocol.primitives import write_count, write_string
from tidelog_node.kafka.protocol.writer import Writer

Partition: TypeAlias = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Error, index, leader, leader epoch, replicas, ISR, offline replicas."""

_WITH_EPOCH: Final = Struct(">hiii").pack
_WITHOUT_EPOCH: Final = Struct(">hii").pack
_OPERATIONS: Final = Struct(">i").pack
_MOST_LISTS: Final = 50_000
_OFFLINE_SINCE, _EPOCH_SINCE, _OPERATIONS_SINCE, _IDS_SINCE, _NULL_NAMES_SINCE = 5, 7, 8, 10, 12


class TopicWriter:
    """The encoding of topics in one version. It caches the bytes of replica lists, few of which differ."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._is_flexible = version >= MetadataResponse.FLEXIBLE
        self._lists: dict[tuple[int, ...], bytes] = {}

    def topic(
        self, error: int, name: str | None, topic_id: bytes, is_internal: bool, partitions: Iterable[Partition]
    ) -> bytes:
        """Return a topic without its last field, which :meth:`ending` returns.

        The name may be null from version 12 on.
        """
        writer = Writer()
        writer.int16(error)
        self._name(writer, name)
        if self.version >= _IDS_SINCE:
            writer.uuid(topic_id)
        if self.version >= 1:
            writer.boolean(is_internal)
        found = list(map(self._partition, partitions))
        write_count(writer, len(found), is_flexible=self._is_flexible)
        writer.buffer += b"".join(found)
        return bytes(writer.buffer)

    def ending(self, operations: int) -> bytes:
        """Return the end of a topic: its client's authorized operations as bits."""
        ending = _OPERATIONS(operations) if self.version >= _OPERATIONS_SINCE else b""
        return ending + b"\0" if self._is_flexible else ending

    def _name(self, writer: Writer, name: str | None) -> None:
        if name is None and self.version < _NULL_NAMES_SINCE:
            raise ValueError(f"version {self.version} of Metadata has no topic without a name")
        write_string(writer, name, is_flexible=self._is_flexible)

    def _partition(self, partition: Partition) -> bytes:
        error, index, leader, epoch, replicas, isr, offline = partition
        version = self.version
        head = (
            _WITH_EPOCH(error, index, leader, epoch)
            if version >= _EPOCH_SINCE
            else _WITHOUT_EPOCH(error, index, leader)
        )
        lists = self._ids(replicas) + self._ids(isr) + (self._ids(offline) if version >= _OFFLINE_SINCE else b"")
        return head + lists + b"\0" if self._is_flexible else head + lists

    def _ids(self, ids: tuple[int, ...]) -> bytes:
        known = self._lists.get(ids)
        if known is None:
            writer = Writer()
            write_count(writer, len(ids), is_flexible=self._is_flexible)
            for one in ids:
                writer.int32(one)
            if len(self._lists) >= _MOST_LISTS:
                self._lists.clear()
            known = self._lists[ids] = bytes(writer.buffer)
        return known
