"""Idempotent and transactional producers of a partition: the rules, the snapshots, the markers."""

from tidelog_node.log.producers.entries import (
    BatchMetadata,
    CompletedTransaction,
    Duplicate,
    EndTransactionMarker,
    ProducerEntry,
    read_marker,
)
from tidelog_node.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from tidelog_node.log.producers.snapshots import ProducerSnapshots, snapshot_offset, snapshot_path
from tidelog_node.log.producers.state import ProducerState
