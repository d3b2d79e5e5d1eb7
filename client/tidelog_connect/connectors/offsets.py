"""Offsets as REST shows them: partitions and offsets of sources and of sinks (KIP-875)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


def partition_key(partition: Mapping[str, Any]) -> str:
    """Return the text that identifies a partition of a source: its JSON with sorted keys."""
    return json.dumps(partition, sort_keys=True, separators=(",", ":"))


def parsed_partition(key: str) -> dict[str, Any]:
    """Return the partition of a key."""
    parsed: dict[str, Any] = json.loads(key)
    return parsed


def sink_entry(topic: str, partition: int, offset: int) -> dict[str, Any]:
    """Return the entry of a sink's offset."""
    return {"partition": {_PARTITION: partition, _TOPIC: topic}, "offset": {_OFFSET: offset}}


def sink_partition_of(partition: Mapping[str, Any]) -> tuple[str, int]:
    """Return topic and partition.

    Raises:
        ValueError: they are missing, or not a text and a number.
    """
    topic, index = partition.get(_TOPIC), partition.get(_PARTITION)
    if topic is None or index is None:
        raise ValueError(
            f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
        )
    return str(topic), _number(index, _PARTITION)


def sink_offset_of(offset: Mapping[str, Any] | None) -> int | None:
    """Return an offset; None to reset it.

    Raises:
        ValueError: it is missing or not a number.
    """
    if offset is None:
        return None
    if set(offset) != {_OFFSET}:
        raise ValueError(f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'")
    return _number(offset[_OFFSET], _OFFSET)


def _number(value: object, key: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 18:
        raise ValueError(f"Failed to parse the {key} {value}: it must be a non-negative whole number")
    return int(text)
