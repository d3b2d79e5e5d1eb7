"""Brokers of a metadata image, as input for the partitions' state machines."""

from __future__ import annotations

from tidelog_node.replication.events import EligibleBrokersChanged
from tidelog_quorum.metadata import MetadataImage


def brokers_of(image: MetadataImage) -> EligibleBrokersChanged:
    """Return the epochs of all registered brokers, and of those that may join an ISR."""
    brokers = image.brokers.values()
    return EligibleBrokersChanged(
        {b.broker_id: b.broker_epoch for b in brokers if b.is_active}, {b.broker_id: b.broker_epoch for b in brokers}
    )
