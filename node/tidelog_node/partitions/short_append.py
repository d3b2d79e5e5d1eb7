"""Choice of the short way of a leader's appends: the compiled one if it exists, else a way that always returns None.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the latter. All appends then take the way of :class:`Partition`,
whose outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog_foundation.compiled import compiled
from tidelog_node.log import AppendInfo, CheckedBatch

if TYPE_CHECKING:
    from tidelog_node.partitions.partition import Partition


def _never(partition: Partition, batch: bytes | memoryview | CheckedBatch, needs_all_replicas: bool) -> None:
    """Return None, having changed nothing."""


append: Final[Callable[..., AppendInfo | None]] = compiled("tidelog_node.partitions._fast_append", "append", _never)
"""Append a batch as :meth:`Partition.append` does, without a guard, or return None."""
