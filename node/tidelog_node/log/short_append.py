"""Choice of the short ways of appends: the compiled ones if they exist, else ways that always return None.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the latter. All appends then take the way of the appender, whose
outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog_foundation.compiled import compiled
from tidelog_node.log.append_rules import AppendInfo, CheckedBatch

if TYPE_CHECKING:
    from tidelog_node.log.disk.files import Buffer
    from tidelog_node.log.log import PartitionLog


def _never(log: PartitionLog, batches: Buffer | CheckedBatch, *arguments: int) -> None:
    """Return None, having changed nothing."""


_MODULE: Final = "tidelog_node.log._fast_append"
append_as_leader: Final[Callable[..., AppendInfo | None]] = compiled(_MODULE, "append_as_leader", _never)
"""Append a batch as :meth:`PartitionLog.append_as_leader` does, without a guard, or return None."""
append_as_follower: Final[Callable[..., AppendInfo | None]] = compiled(_MODULE, "append_as_follower", _never)
"""Append batches as :meth:`PartitionLog.append_as_follower` does, or return None."""
IS_COMPILED: Final = append_as_leader is not _never
"""True if the compiled ways are in use."""
