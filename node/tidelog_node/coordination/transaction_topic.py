"""The topic __transaction_state: its name and its creation."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.topics import CreatableTopic

TRANSACTION_TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class TransactionTopicSettings:
    """The settings for the creation of __transaction_state (``transaction.state.log.*``)."""

    num_partitions: int
    replication_factor: int
    min_insync_replicas: int
    segment_bytes: int

    def creatable(self) -> CreatableTopic:
        """Return the creation request to the controller (TransactionCoordinator.transactionStateTopicConfigs)."""
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(self.min_insync_replicas),
            "segment.bytes": str(self.segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=TRANSACTION_TOPIC,
            num_partitions=self.num_partitions,
            replication_factor=self.replication_factor,
            configs=tuple(ConfigEntry(name, value) for name, value in configs.items()),
        )
