"""Choice of the replica from which a consumer reads: Kafka's LeaderSelector and RackAwareReplicaSelector (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_BY_SHORT_NAME = {name.rpartition(".")[2]: name for name in (LEADER_SELECTOR, RACK_AWARE_SELECTOR)}
SELECTORS: Final = (LEADER_SELECTOR, RACK_AWARE_SELECTOR, *_BY_SHORT_NAME)
"""The values of ``replica.selector.class``: the names of Kafka's classes, with or without their package."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that has the requested offset; ``lag_ms`` is the time since it had all of its leader's records."""

    broker_id: BrokerId
    rack: str
    log_end_offset: int
    lag_ms: int


class ReplicaSelector:
    """The policy that ``replica.selector.class`` names."""

    def __init__(self, name: str = LEADER_SELECTOR) -> None:
        self.is_rack_aware = _BY_SHORT_NAME.get(name, name) == RACK_AWARE_SELECTOR

    def select(self, client_rack: str, leader: ReplicaView, others: Iterable[ReplicaView]) -> ReplicaView:
        """Return the replica to read from: in the client's rack the leader, or else the most advanced replica.

        Return the leader if the client names no rack, its rack has no replica, or the selector ignores racks.
        """
        if not (self.is_rack_aware and client_rack) or leader.rack == client_rack:
            return leader
        near = [replica for replica in others if replica.rack == client_rack]
        return max(near, key=lambda r: (r.log_end_offset, -r.lag_ms, r.broker_id), default=leader)
