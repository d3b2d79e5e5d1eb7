"""Choice of the short way of a follower's answers: the compiled one if it exists, else a way that always returns False.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the latter. All answers then take the way of :class:`Partition`,
whose outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog_foundation.compiled import compiled

if TYPE_CHECKING:
    from tidelog_foundation.ids import LeaderEpoch
    from tidelog_node.log.disk.files import Buffer
    from tidelog_node.partitions.partition import Partition


def _never(
    partition: Partition,
    leader_epoch: LeaderEpoch,
    fetch_offset: int,
    records: Buffer,
    high_watermark: int,
    log_start_offset: int,
) -> bool:
    """Return False, having changed nothing."""
    return False


replicate: Final[Callable[..., bool]] = compiled("tidelog_node.partitions._fast_replicate", "replicate", _never)
"""Apply the answer to a fetch as :meth:`Partition.replicate` does, or return False."""
