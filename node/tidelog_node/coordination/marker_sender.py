"""The interface through which a transaction coordinator sends markers to the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidelog_foundation.errors import ErrorCode
from tidelog_node.transactions.markers import MarkersRequest
from tidelog_node.transactions.states import TopicPartition


class MarkerSender(Protocol):
    """A sender of markers to all nodes, including this one."""

    async def send(self, request: MarkersRequest) -> Mapping[tuple[int, TopicPartition], ErrorCode]:
        """Send a request and return its results, as ``MarkerQueue.answer`` takes them.

        Raises:
            TidelogError: The call failed: it is unknown which markers were written.
        """
        ...
