"""Reads the inventory of a stopped node from its log directories: the replicas with the ends of their logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from tidelog_foundation.config.process import load_properties
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_node.log.directory.meta_properties import CLEAN_SHUTDOWN, META_PROPERTIES
from tidelog_node.log.directory.offset_checkpoint_file import RECOVERY_POINTS, read_offsets
from tidelog_node.log.directory.partition_folder import read_topic_id
from tidelog_node.log.disk.files import OS_FILES
from tidelog_node.tools.log_files import FileKind, LogFile, files_of, partitions_of, topic_partition
from tidelog_node.tools.segment_scan import SegmentScan
from tidelog_quorum.metadata.replica_inventory import LogEnd, ReplicaInventory, StoredReplica

_NO_EPOCH = -1


def read_inventory(log_dirs: Iterable[Path]) -> ReplicaInventory:
    """Return the inventory of a node, of which these are all log directories.

    Of each log, the last segment with a batch is read or, after an unclean shutdown, all from the recovery point on.
    Records after the first batch that is torn or damaged do not count, because the node drops it when it starts.

    Raises:
        TidelogError: INVALID_REQUEST, a directory is not a node's, or they are of several; KAFKA_STORAGE_ERROR.
    """
    dirs = list(log_dirs)
    owners = {path: _owner(path) for path in dirs}
    if len(set(owners.values())) != 1:
        named = ", ".join(f"{path} of node {node} of {cluster}" for path, (cluster, node) in owners.items())
        raise _invalid(f"an inventory is for all log directories of one node, not for {named or 'none'}")
    cluster_id, node_id = owners[dirs[0]]
    try:
        epochs = [_shutdown_epoch(path) for path in dirs]
        pairs = zip(dirs, epochs, strict=True)
        replicas = tuple(replica for path, epoch in pairs for replica in _replicas(path, is_clean=epoch is not None))
    except OSError as error:
        text = f"cannot read {error.filename}: {error.strerror}"
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
    # A directory without the marker was not closed cleanly, and one with another epoch not together with the rest.
    epoch = epochs[0] if len(set(epochs)) == 1 else None
    return ReplicaInventory(cluster_id, node_id, epoch, replicas)


def _owner(log_dir: Path) -> tuple[str, BrokerId]:
    path = log_dir / META_PROPERTIES
    try:
        found = load_properties(path)
        return found["cluster.id"], BrokerId(int(found["node.id"]))
    except (TidelogError, KeyError, ValueError) as error:
        raise _invalid(f"{log_dir} is not a log directory of a node: it has no valid {META_PROPERTIES}") from error


def _shutdown_epoch(log_dir: Path) -> BrokerEpoch | None:
    try:
        document = json.loads((log_dir / CLEAN_SHUTDOWN).read_bytes())
        return BrokerEpoch(int(document["brokerEpoch"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return BrokerEpoch(_NO_EPOCH)


def _replicas(log_dir: Path, *, is_clean: bool) -> Iterator[StoredReplica]:
    recovery_points = {} if is_clean else read_offsets(OS_FILES, log_dir / RECOVERY_POINTS)
    for directory in partitions_of(log_dir):
        named, topic_id = topic_partition(directory), read_topic_id(OS_FILES, directory)
        if named is not None and topic_id is not None:
            segments = [f for f in files_of(directory) if f.kind is FileKind.SEGMENT]
            recovered = [] if is_clean else _unsynced(segments, recovery_points.get(named, 0))
            yield StoredReplica(named[0], topic_id, named[1], _log_end(segments, recovered))


def _unsynced(segments: Sequence[LogFile], recovery_point: int) -> list[LogFile]:
    """Return the segments that may have data above the recovery point, the first of them included."""
    following = [file.base_offset for file in segments[1:]]
    return [file for file, end in zip_longest(segments, following) if end is None or end > recovery_point]


def _log_end(segments: Sequence[LogFile], recovered: Sequence[LogFile]) -> LogEnd:
    """Return the end of a log. ``recovered`` are its last segments, which a node checks when it starts."""
    kept = list(segments[: len(segments) - len(recovered)])
    for file in recovered:
        kept.append(file)
        if not _ends(file)[1]:
            break
    end_offset = kept[-1].base_offset if kept else 0
    for file in reversed(kept):
        (epoch, log_end_offset), _ = _ends(file)
        if epoch != _NO_EPOCH:
            return LogEnd(epoch, max(log_end_offset, end_offset))
    return LogEnd(_NO_EPOCH, end_offset)


def _ends(file: LogFile) -> tuple[tuple[int, int], bool]:
    """Return the epoch and the end of a segment's last whole batch, and whether nothing torn or damaged follows."""
    epoch, end_offset = _NO_EPOCH, file.base_offset
    with SegmentScan(file.path) as scan:
        for batch in scan.batches():
            if not batch.is_valid:
                return (epoch, end_offset), False
            epoch, end_offset = batch.header.partition_leader_epoch, batch.header.next_offset
        return (epoch, end_offset), scan.fault is None


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
