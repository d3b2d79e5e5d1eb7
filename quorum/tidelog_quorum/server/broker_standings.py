"""Log lines about state changes of brokers, for operators."""

from __future__ import annotations

import logging

from tidelog_foundation.ids import BrokerId
from tidelog_quorum.metadata import BrokerRegistration, MetadataImage


def log_standings(logger: logging.Logger, before: MetadataImage, after: MetadataImage) -> None:
    """Log a line for each broker whose state has changed."""
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        old, new = _standing(before, broker_id), _standing(after, broker_id)
        if old != new:
            logger.info("broker %s: %s, was %s", broker_id, new, old)


def _standing(image: MetadataImage, broker_id: BrokerId) -> str:
    broker: BrokerRegistration | None = image.brokers.get(broker_id)
    if broker is None:
        return "not registered"
    state = "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "active"
    return f"{state} (epoch {broker.broker_epoch})"
