"""The partition of a key by each hash, with confluent-kafka's names; the ``partitioner`` setting
uses the same hashes.
"""

from __future__ import annotations

from tidelog.producer.core.hashes import KeyHash


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's Java client chooses.

    Raises:
        TypeError: the key is not bytes.
        ValueError: ``partition_count`` is below 1.
    """
    return _partition(KeyHash.MURMUR2, key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition that librdkafka chooses by CRC-32. Raise the errors of :func:`murmur2`."""
    return _partition(KeyHash.CRC32, key, partition_count)


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition that Sarama chooses. Raise the errors of :func:`murmur2`."""
    return _partition(KeyHash.FNV1A, key, partition_count)


def _partition(key_hash: KeyHash, key: bytes, partition_count: int) -> int:
    if not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {type(key).__name__}")
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, not {partition_count}")
    return key_hash.of(key) % partition_count
