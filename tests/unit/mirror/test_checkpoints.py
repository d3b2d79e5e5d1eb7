"""Checkpoints and the offsets that they give to groups, by the rules of Kafka's MirrorCheckpointTask."""

from __future__ import annotations

from tidelog_mirror.checkpoints import Checkpoints, Committed
from tidelog_mirror.internal_records import Checkpoint, OffsetSync
from tidelog_mirror.offset_syncs import OffsetSyncStore


def store(*offsets: tuple[int, int]) -> OffsetSyncStore:
    found = OffsetSyncStore()
    found.is_loaded = True
    for upstream, downstream in offsets:
        found.add(OffsetSync("t", 0, upstream, downstream))
    return found


def due(checkpoints: Checkpoints, offset: int, syncs: OffsetSyncStore) -> list[tuple[int, int]]:
    found = checkpoints.due("g", {("t", 0): Committed(offset, "m")}, syncs, lambda topic: f"A.{topic}")
    for checkpoint in found:
        assert (checkpoint.group_id, checkpoint.topic, checkpoint.partition) == ("g", "A.t", 0)
        assert checkpoint.metadata == "m"
        checkpoints.add(checkpoint)
    return [(checkpoint.upstream_offset, checkpoint.downstream_offset) for checkpoint in found]


def test_a_checkpoint_is_emitted_once_and_goes_back_only_with_its_group() -> None:
    checkpoints = Checkpoints()
    assert due(checkpoints, 100, store((0, 0), (100, 50))) == [(100, 50)]
    assert due(checkpoints, 100, store((0, 0), (100, 50))) == []
    assert due(checkpoints, 120, store((0, 0), (100, 50))) == [(120, 51)]
    # A store with fewer syncs translates worse. The checkpoint does not go back.
    assert due(checkpoints, 130, store((0, 0))) == []
    assert due(checkpoints, 110, store((0, 0), (100, 50))) == [(110, 51)]


def test_an_offset_without_a_translation_has_no_checkpoint() -> None:
    assert due(Checkpoints(), 5, store((10, 10))) == []
    assert due(Checkpoints(), 5, store()) == []


def test_offsets_of_groups_on_the_target_never_go_back() -> None:
    checkpoints = Checkpoints()
    checkpoints.add(Checkpoint("g", "A.t", 0, 9, 5, "m"))
    checkpoints.add(Checkpoint("g", "A.t", 1, 9, 6, ""))
    everything = {("A.t", 0): Committed(5, "m"), ("A.t", 1): Committed(6)}
    assert checkpoints.offsets_to_commit("g", {}) == everything
    assert checkpoints.offsets_to_commit("g", {("A.t", 0): 5, ("A.t", 1): 4}) == {("A.t", 1): Committed(6)}
    assert checkpoints.offsets_to_commit("g", {("A.t", 0): 7, ("A.t", 1): 9}) == {}
    assert checkpoints.offsets_to_commit("h", {}) == {}
