"""The brokers that get no new replicas, because ``cordoned.log.dirs`` is ``*`` for them (KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.config.broker import CORDONED_LOG_DIRS
from tidelog_foundation.ids import BrokerId
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.topic_config import broker_settings


def is_cordoned(image: MetadataImage, broker_id: int) -> bool:
    """Return whether all log directories of a broker are cordoned."""
    return bool(broker_settings(image, broker_id).get(CORDONED_LOG_DIRS, "").strip())


def cordoned_among(image: MetadataImage, brokers: Iterable[BrokerId]) -> list[BrokerId]:
    """Return those of the given brokers that are cordoned, in their order."""
    return [broker for broker in brokers if is_cordoned(image, broker)]
