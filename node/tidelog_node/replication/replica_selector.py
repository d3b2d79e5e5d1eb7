"""From which replica a consumer is to read: Kafka's LeaderSelector and RackAwareReplicaSelector (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog_foundation.ids import BrokerId

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_BY_SHORT_NAME = {name.rpartition(".")[2]: name for name in (LEADER_SELECTOR, RACK_AWARE_SELECTOR)}
SELECTORS: Final = (LEADER_SELECTOR, RACK_AWARE_SELECTOR, *_BY_SHORT_NAME)
"""The values of ``replica.selector.class``: the names of Kafka's classes, with or without their package."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that has the offset which is asked for; ``lag_ms`` is how long ago it had all that its leader had."""

    broker_id: BrokerId
    rack: str
    log_end_offset: int
    lag_ms: int


class ReplicaSelector:
    """What ``replica.selector.class`` names."""

    def __init__(self, name: str = LEADER_SELECTOR) -> None:
        self.is_rack_aware = _BY_SHORT_NAME.get(name, name) == RACK_AWARE_SELECTOR

    def select(self, client_rack: str, leader: ReplicaView, others: Iterable[ReplicaView]) -> ReplicaView:
        """Return the replica to read from: of the client's rack the leader, else the one that has come furthest.

        The leader where the client names no rack, or none with a replica, or the selector knows no racks.
        """
        if not (self.is_rack_aware and client_rack) or leader.rack == client_rack:
            return leader
        near = [replica for replica in others if replica.rack == client_rack]
        return max(near, key=lambda r: (r.log_end_offset, -r.lag_ms, r.broker_id), default=leader)
