"""Choice of the short way of a leader's appends: the compiled one if it exists, else a way that always returns None.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the latter. All appends then take the way of :class:`Partition`,
whose outcome is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tidelog_node.log import AppendInfo, CheckedBatch

if TYPE_CHECKING:
    from tidelog_node.partitions.partition import Partition


def _never(partition: Partition, batch: bytes | memoryview | CheckedBatch, needs_all_replicas: bool) -> None:
    """Return None, having changed nothing."""


def _compiled() -> Callable[..., AppendInfo | None]:
    if os.environ.get("TIDELOG_PURE_PYTHON"):
        return _never
    try:
        module = import_module("tidelog_node.partitions._fast_append")
    except ImportError:
        return _never
    append: Callable[..., AppendInfo | None] = module.append
    return append


append: Final = _compiled()
"""Append a batch as :meth:`Partition.append` does, without a guard, or return None."""
