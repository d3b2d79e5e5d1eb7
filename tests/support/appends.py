"""Appends without their compiled short ways, for comparisons."""

from __future__ import annotations

import pytest

from tidelog_node.log import short_append
from tidelog_node.partitions import short_append as short_partition_append


def without_short_appends(patch: pytest.MonkeyPatch) -> None:
    """Let all appends take the way of many steps."""

    def never(*_: object) -> None:
        pass

    patch.setattr(short_append, "append_as_leader", never)
    patch.setattr(short_append, "append_as_follower", never)
    patch.setattr(short_partition_append, "append", never)
