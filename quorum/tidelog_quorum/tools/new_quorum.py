"""Starts a new quorum from a backup, or from the log of a surviving controller: the shell of ``metadata.restoration``.

Blocking; the controller must be stopped.
"""

from __future__ import annotations

from pathlib import Path

from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_quorum.metadata.batches import encode_batches, frame_batches, image_from_batches, read_frames
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.raft.core.messages import EntryKind
from tidelog_quorum.raft.storage.new_quorum import begin_quorum
from tidelog_quorum.raft.storage.snapshot_files import check_snapshot, read_snapshot
from tidelog_quorum.raft.storage.stored_log import read_stored_log
from tidelog_quorum.server.bootstrap_file import is_formatted
from tidelog_quorum.server.config import TIDELOG, QuorumConfig


def check_can_begin(config: QuorumConfig, *, is_new: bool) -> Path:
    """Return the folder of a controller that can become the lone voter of a new quorum.

    Raises:
        ConfigError: The controller has another engine.
        TidelogError: _STATE, a new controller's folder has a log; KAFKA_STORAGE_ERROR, a survivor's has none.
    """
    if config.controller_quorum_engine != TIDELOG:
        raise ConfigError(f"controller.quorum.engine={config.controller_quorum_engine} cannot begin a new quorum")
    directory = Path(config.metadata_log_dir)
    if is_new and is_formatted(directory):
        text = f"{directory} has a metadata log already: restore into the empty folder of a new controller"
        raise error_for(ErrorCode._STATE, text)
    if not is_new and not is_formatted(directory):
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"there is no metadata log in {directory}")
    return directory


def surviving_image(config: QuorumConfig) -> MetadataImage:
    """Return the image at the end of a stopped controller's log.

    It includes the entries that may not have been committed: the lost controllers may have acknowledged them, and an
    entry that nobody acknowledged harms no one.

    Raises:
        TidelogError: see :func:`tidelog_quorum.raft.storage.stored_log.read_stored_log`; INCONSISTENT_CLUSTER_ID or
            INCONSISTENT_VOTER_SET, the log is of another cluster or controller.
    """
    directory = Path(config.metadata_log_dir)
    identity, stored = read_stored_log(directory)
    if identity.cluster_id != config.cluster_id:
        text = f'the metadata log in {directory} is of cluster "{identity.cluster_id}", not "{config.cluster_id}"'
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if identity.node_id != config.node_id:
        text = f"the metadata log in {directory} is controller {identity.node_id}'s, node.id is {config.node_id}"
        raise error_for(ErrorCode.INCONSISTENT_VOTER_SET, text)
    image = MetadataImage()
    if stored.snapshot is not None:
        check_snapshot(directory, stored.snapshot)
        batches = read_frames(read_snapshot(directory, stored.snapshot))
        image = image_from_batches(stored.snapshot.last_index, stored.snapshot.last_term, batches)
    for entry in stored.entries:
        if entry.index > image.offset:
            records = decode_batch(entry.payload) if entry.kind is EntryKind.DATA else []
            image = image.apply(entry.index, entry.term, records)
    # The term of the disk may be above that of the last entry.
    return image.apply(image.offset + 1, max(image.epoch, stored.hard_state.term), [])


def write_new_quorum(config: QuorumConfig, image: MetadataImage) -> None:
    """Make a controller the lone voter of a new quorum with an image.

    Raises:
        TidelogError: see :func:`tidelog_quorum.raft.storage.new_quorum.begin_quorum`.
    """
    begin_quorum(
        Path(config.metadata_log_dir),
        config.cluster_id,
        config.node_id,
        config.advertised,
        image.offset,
        image.epoch,
        frame_batches(encode_batches(image.iterate_records())),
    )
