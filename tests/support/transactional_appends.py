"""Batches that begin transactions in partitions of a test, as after the answer of a transaction coordinator."""

from __future__ import annotations

from tidelog_foundation.records import parse_header
from tidelog_node.log import AppendInfo
from tidelog_node.partitions import Partition


def append_verified(partition: Partition, batch: bytes, needs_all_replicas: bool = False) -> AppendInfo:
    """Append a transactional batch whose transaction has the partition."""
    guard = partition.begin_verification(parse_header(batch), begins_at_zero=False)
    return partition.append(batch, needs_all_replicas, guard)
