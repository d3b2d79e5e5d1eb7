"""`Storage`: the config, status and offset topics, as the worker uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from tidelog_connect.herder.records import Record

Offsets: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The offset of each partition of a source, by the partition's JSON with sorted keys."""


class Storage(Protocol):
    """Blocking. Raises TidelogError when the cluster does not answer or has fenced this worker."""

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        ...

    def write(self, records: Sequence[Record]) -> None:
        """Write records in one transaction, as the leader.

        Raises:
            TidelogError: another worker leads, or the outcome is unknown.
        """
        ...

    def source_offsets(self, name: str) -> Offsets:
        """Return the committed offsets of a source, up to date."""
        ...

    def write_source_offsets(self, name: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write offsets of a source as the leader; None deletes one."""
        ...

    def sink_offsets(self, name: str) -> Mapping[tuple[str, int], int]:
        """Return the committed offsets of a sink's group by topic and partition."""
        ...

    def write_sink_offsets(self, name: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
        """Set offsets of a sink's group, and delete its checkpoint; None deletes an offset."""
        ...
