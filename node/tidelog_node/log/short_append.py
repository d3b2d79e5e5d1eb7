"""Choice of the short ways of appends: the compiled ones if they exist, else ways that always return None.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the latter. All appends then take the way of the appender, whose
outcome is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tidelog_node.log.append_rules import AppendInfo, CheckedBatch

if TYPE_CHECKING:
    from tidelog_node.log.disk.files import Buffer
    from tidelog_node.log.log import PartitionLog


def _never(log: PartitionLog, batches: Buffer | CheckedBatch, *arguments: int) -> None:
    """Return None, having changed nothing."""


def _compiled(name: str) -> Callable[..., AppendInfo | None]:
    if os.environ.get("TIDELOG_PURE_PYTHON"):
        return _never
    try:
        module = import_module("tidelog_node.log._fast_append")
    except ImportError:
        return _never
    append: Callable[..., AppendInfo | None] = getattr(module, name)
    return append


append_as_leader: Final = _compiled("append_as_leader")
"""Append a batch as :meth:`PartitionLog.append_as_leader` does, without a guard, or return None."""
append_as_follower: Final = _compiled("append_as_follower")
"""Append batches as :meth:`PartitionLog.append_as_follower` does, or return None."""
IS_COMPILED: Final = append_as_leader is not _never
"""True if the compiled ways are in use."""
