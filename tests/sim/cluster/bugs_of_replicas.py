"""Bugs of leaders, followers and fetches: truncation, the ISR, the high watermark."""

from __future__ import annotations

import dataclasses
from typing import Any

from sim.planting import Patch, PlantedBug

from tidelog_node.handlers.fetch_sessions import OpenSession
from tidelog_node.log.epochs import LeaderEpochCache
from tidelog_node.partitions import partition as partition_module
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import state as state_module
from tidelog_node.replication.commands import AdvanceHighWatermark, TruncateTo
from tidelog_node.replication.isr import PendingExpand, PendingShrink
from tidelog_node.replication.isr_changes import IsrChangeQueue
from tidelog_node.replication.leader import LeaderState


def _truncate_to_the_high_watermark() -> list[Patch]:
    """KIP-101: what every Kafka before 0.11 did when a replica began to follow."""
    original = state_module.PartitionState._follow

    def follow(self: Any, event: Any) -> list[Any]:
        high_watermark = min(self.high_watermark, event.log_end_offset)
        commands = original(self, event)
        if commands and event.leader_id >= 0 and high_watermark < event.log_end_offset:
            return [*commands[:-1], TruncateTo(high_watermark), commands[-1]]
        return commands

    return [(state_module.PartitionState, "_follow", follow)]


def _do_not_truncate() -> list[Patch]:
    return [(partition_module, "read_divergence", lambda *_: None)]


def _keep_epochs_of_truncated_records() -> list[Patch]:
    return [(LeaderEpochCache, "truncate_from_end", lambda _self, _end: None)]


def _count_followers_of_an_old_epoch() -> list[Patch]:
    """KIP-320: what a follower had in the epoch before says nothing of this one."""
    original = LeaderState.__init__

    def start(self: LeaderState, *arguments: Any) -> None:
        original(self, *arguments)
        for progress in self.followers.values():
            progress.log_end_offset = self.log_end_offset

    return [(LeaderState, "__init__", start)]


def _expand_before_the_epoch_start() -> list[Patch]:
    """KIP-497: who has reached the high watermark may lack what the epoch began with."""

    def maybe_expand(self: LeaderState, replica_id: Any) -> list[Any]:
        if self.isr.committed is not self.isr or replica_id in self.isr.members:
            return []
        progress = self.followers[replica_id]
        if progress.log_end_offset < self.high_watermark or not self._is_eligible(replica_id, progress):
            return []
        return self._propose(PendingExpand(self.isr.committed, replica_id))

    return [(LeaderState, "_maybe_expand", maybe_expand)]


def _expand_without_reaching_anything() -> list[Patch]:
    def maybe_expand(self: LeaderState, replica_id: Any) -> list[Any]:
        if self.isr.committed is not self.isr or replica_id in self.isr.members:
            return []
        if not self._is_eligible(replica_id, self.followers[replica_id]):
            return []
        return self._propose(PendingExpand(self.isr.committed, replica_id))

    return [(LeaderState, "_maybe_expand", maybe_expand)]


def _high_watermark_over_the_committed_isr() -> list[Patch]:
    """KIP-497: a member that is about to join is in the controller's set perhaps."""
    shrink = property(lambda self: self.committed.members - self.leaving)
    expand = property(lambda self: self.committed.members)
    return [
        (PendingExpand, "maximal", expand),
        (PendingExpand, "proposed", property(lambda self: self.committed.members | {self.joining})),
        (PendingShrink, "maximal", shrink),
        (LeaderState, "_is_about_to_join", lambda *_: False),
    ]


def _shrink_before_it_is_committed() -> list[Patch]:
    return [(PendingShrink, "maximal", property(lambda self: self.committed.members - self.leaving))]


def _forget_a_refused_expand_in_doubt() -> list[Patch]:
    """A refusal says nothing of an earlier copy of the proposal, which may be stored already or later."""
    original = LeaderState.refuse

    def refuse(self: LeaderState, event: Any) -> list[Any]:
        self._is_in_doubt = False
        return original(self, event)

    return [(LeaderState, "refuse", refuse)]


def _high_watermark_below_min_isr() -> list[Patch]:
    """KIP-966: the high watermark moves with fewer members than min.insync.replicas."""

    def advance(self: LeaderState, now_ms: int) -> list[Any]:
        reached = self.log_end_offset
        for replica_id, progress in self.followers.items():
            if replica_id in self.isr.maximal or self._is_about_to_join(replica_id, progress, now_ms):
                reached = min(reached, progress.log_end_offset)
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    return [(LeaderState, "advance", advance)]


def _high_watermark_by_majority() -> list[Patch]:
    def advance(self: LeaderState, _now_ms: int) -> list[Any]:
        ends = sorted([self.log_end_offset, *(p.log_end_offset for p in self.followers.values())], reverse=True)
        reached = ends[len(ends) // 2]
        if self.is_under_min_isr or reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    return [(LeaderState, "advance", advance)]


def _high_watermark_goes_back() -> list[Patch]:
    def advance(self: LeaderState, _now_ms: int) -> list[Any]:
        members = [self.followers[m].log_end_offset for m in self.isr.maximal if m in self.followers]
        reached = max(0, min([self.log_end_offset, *members]))
        if self.is_under_min_isr or reached == self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    return [(LeaderState, "advance", advance)]


def _restart_empty_replicas_at_the_leaders_end() -> list[Patch]:
    """A replica that is behind takes the leader's end for its own."""
    original = Partition.read_as_leader

    def read_as_leader(self: Partition, request: Any, follower: Any) -> Any:
        result = original(self, request, follower)
        if follower is not None and result.diverging is None:
            return dataclasses.replace(result, log_start_offset=self.high_watermark)
        return result

    return [(Partition, "read_as_leader", read_as_leader)]


def _forget_what_was_marked() -> list[Patch]:
    """KIP-227 here: a session looks only at partitions that have new records."""
    return [(OpenSession, "mark", lambda *_: None)]


def _forget_proposals_of_a_busy_time() -> list[Patch]:
    """A proposal made during a call is never sent."""
    original = IsrChangeQueue._end_call

    def end_call(self: IsrChangeQueue[Any], refused: Any, now_ms: int) -> None:
        self._waiting.clear()
        original(self, refused, now_ms)

    return [(IsrChangeQueue, "_end_call", end_call)]


REPLICA_BUGS = (
    PlantedBug("truncates to the high watermark", 200, _truncate_to_the_high_watermark),
    PlantedBug("does not truncate", 40, _do_not_truncate),
    PlantedBug("keeps the epochs of truncated records", 200, _keep_epochs_of_truncated_records),
    PlantedBug("counts followers of an old epoch", 40, _count_followers_of_an_old_epoch),
    PlantedBug("expands the ISR before the epoch's start", 600, _expand_before_the_epoch_start),
    PlantedBug("expands the ISR by whoever fetches", 20, _expand_without_reaching_anything),
    PlantedBug("high watermark over the committed ISR", 20, _high_watermark_over_the_committed_isr, 2),
    PlantedBug("shrinks the ISR before the controller has", 20, _shrink_before_it_is_committed, 2),
    PlantedBug("high watermark below min.insync.replicas", 20, _high_watermark_below_min_isr, 1),
    PlantedBug("high watermark by majority", 20, _high_watermark_by_majority),
    PlantedBug("high watermark goes back", 20, _high_watermark_goes_back),
    PlantedBug("a follower skips to the high watermark", 20, _restart_empty_replicas_at_the_leaders_end, 1),
    PlantedBug("a session forgets what was marked", 40, _forget_what_was_marked),
    PlantedBug("forgets ISRs that are proposed during a call", 200, _forget_proposals_of_a_busy_time),
)

FORGETS_A_REFUSED_EXPAND = PlantedBug("forgets a refused expand", 3, _forget_a_refused_expand_in_doubt)
"""The script of :mod:`sim.cluster.late_expands` shows it."""
