"""Bugs of elections, registrations, the metadata log, and of nodes that take it over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sim.cluster.standing import Standing
from sim.planting import Patch, PlantedBug

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.broker.controller_call import ControllerChoice
from tidelog_node.broker.image_application import ChangeReplicas, ImageApplication
from tidelog_node.broker.lifecycle import Lifecycle
from tidelog_node.broker.metadata_stream import MetadataStream
from tidelog_node.replication.leader import LeaderState
from tidelog_quorum.controller import alter_partition, brokers, connections, registration
from tidelog_quorum.controller.feed import MetadataFeed
from tidelog_quorum.controller.partition_change import _Change
from tidelog_quorum.controller.term.commands import Answer
from tidelog_quorum.controller.term.term import ControllerTerm
from tidelog_quorum.metadata.registrations import PartitionRegistration
from tidelog_quorum.raft.core.durability import Durability


def _elect_outside_isr() -> list[Patch]:
    def elect_among(self: _Change, electable: Any, preferred: bool) -> Any:
        if self._before.leader in self._replicas and self._can_serve(self._before.leader):
            return self._before.leader
        return next((b for b in self._replicas if self._can_serve(b)), -1)

    return [(_Change, "_elect_among", elect_among)]


def _elect_the_fenced() -> list[Patch]:
    def elect_among(self: _Change, electable: Any, preferred: bool) -> Any:
        if self._before.leader in electable:
            return self._before.leader
        return next((b for b in self._replicas if b in electable), -1)

    return [(_Change, "_elect_among", elect_among)]


def _forget_unsynced_loss() -> list[Patch]:
    """KIP-966: a restart after a crash is taken for one after a clean stop."""

    def previous_epoch(self: Standing) -> int:
        broker = self.node.checker.metadata.latest.brokers.get(self.node.identity)
        return -1 if broker is None else broker.broker_epoch

    return [(Standing, "previous_epoch", previous_epoch)]


def _keep_the_eligible_after_a_crash() -> list[Patch]:
    """KIP-966: who restarts uncleanly stays among the eligible leader replicas."""
    return [(registration, "_handed_over", _without_unclean(registration._handed_over))]


def _without_unclean(original: Callable[..., Any]) -> Callable[..., Any]:
    def handed_over(image: Any, sessions: Any, queue: Any, existing: Any, registered: Any, request: Any) -> list[Any]:
        if existing is not None:
            request.previous_broker_epoch = existing.broker_epoch
        result: list[Any] = original(image, sessions, queue, existing, registered, request)
        return result

    return handed_over


def _restart_keeps_its_isr() -> list[Patch]:
    """A new incarnation finds itself in the ISRs, and leading, as before."""
    return [(registration, "_handed_over", lambda *_: [])]


def _no_leader_epoch_bump() -> list[Patch]:
    original = PartitionRegistration.changed_by

    def changed_by(self: PartitionRegistration, change: Any) -> PartitionRegistration:
        return dataclasses.replace(original(self, change), leader_epoch=self.leader_epoch)

    return [(PartitionRegistration, "changed_by", changed_by)]


def _isr_of_fenced_brokers() -> list[Patch]:
    """KIP-841 and KIP-903: anybody may join, of whatever registration."""
    return [
        (alter_partition, "_ineligible", lambda *_: ""),
        (LeaderState, "_is_eligible", lambda *_: True),
        (LeaderState, "check_follower", _known_follower),
    ]


def _known_follower(self: LeaderState, replica_id: Any, _replica_epoch: Any) -> None:
    if replica_id not in self.followers:
        raise TidelogError(ErrorCode.UNKNOWN_LEADER_EPOCH, "not a replica")


def _send_before_the_disk_has_it() -> list[Patch]:
    """Raft's promises leave before they are on the disk of who gives them."""

    def defer(self: Durability, send: Any, *, acknowledges_log: bool) -> None:
        self._deferred.append((0, send))

    return [(Durability, "defer", defer)]


def _lead_by_an_image_of_an_earlier_life() -> list[Patch]:
    """A node takes over metadata in which its own registration is not yet."""

    def begin(self: ImageApplication) -> list[Any]:
        image = self._received
        if self._under_way is not None or image is self.applied or self._broker_id not in image.brokers:
            return []
        self._under_way = image
        return [ChangeReplicas(self.applied, image)]

    return [(ImageApplication, "_begin", begin)]


def _join_parts_of_two_streams() -> list[Patch]:
    """Parts of an entry or a snapshot from a broken stream count as the beginning of the next stream's."""
    return [(MetadataStream, "_forget_parts", lambda _self: None)]


def _follow_from_what_is_not_built() -> list[Patch]:
    """A stream goes on behind the last entry that came, of which only a part may be here."""
    original = MetadataStream._take

    def take(self: MetadataStream, response: Any, now_ms: int) -> list[Any]:
        commands = original(self, response, now_ms)
        if response.entries and response.entries[-1].is_continued:
            self.offset = max(self.offset, response.entries[-1].offset)
        return commands

    return [(MetadataStream, "_take", take)]


def _report_metadata_before_serving() -> list[Patch]:
    """KIP-631: a broker is unfenced, and may lead, before it answers anybody."""
    return [(Lifecycle, "reported_offset", property(lambda self: self.applied_offset))]


def _stop_by_any_answer() -> list[Patch]:
    """A controlled shutdown that does not wait until the broker leads nothing."""
    original = Lifecycle._heartbeat_answered

    def heartbeat_answered(self: Lifecycle, answer: Any, now_ms: int) -> list[Any]:
        return original(self, dataclasses.replace(answer, should_shut_down=True), now_ms)

    return [(Lifecycle, "_heartbeat_answered", heartbeat_answered)]


def _hand_over_at_once() -> list[Patch]:
    """A controlled shutdown that does not wait for replicas that catch up."""
    return [(brokers, "waits_for_replicas", lambda *_: False)]


def _answer_before_the_commit() -> list[Patch]:
    """A request is answered as soon as its records are in the leader's log."""

    def answer_when_committed(self: ControllerTerm, request_id: int, response: object, offset: int) -> None:
        self._commands.append(Answer(request_id, response))

    return [(ControllerTerm, "_answer_when_committed", answer_when_committed)]


def _answer_after_the_leadership() -> list[Patch]:
    """An answer waits for its offset to be committed, by whomever."""
    original = ControllerTerm._change_leader

    def change_leader(self: ControllerTerm, leader: Any, now_ms: int) -> None:
        waiting, self._waiting = self._waiting, []
        original(self, leader, now_ms)
        self._waiting = waiting

    return [(ControllerTerm, "_change_leader", change_leader)]


def _fence_after_one_refusal() -> list[Patch]:
    """A listener that is opened again a moment later is not waited for."""
    return [(connections, "_REFUSALS", 1)]


def _take_silence_for_a_refusal() -> list[Patch]:
    """A listener that cannot be reached counts as one that refuses."""
    original = connections.BrokerConnections._take_answers

    def take_answers(self: connections.BrokerConnections, examination: Any, answers: Any) -> None:
        refused = connections.Answer.REFUSED
        original(self, examination, [refused if a is connections.Answer.NONE else a for a in answers])

    return [(connections.BrokerConnections, "_take_answers", take_answers)]


def _leave_out_what_the_tail_has_dropped() -> list[Patch]:
    """A follower that is behind the tail of the metadata log goes on with what is left of it."""
    original = MetadataFeed._send_next

    def give_next(self: MetadataFeed, follower: Any) -> None:
        if 0 < follower.position < self._tail_start <= self._image.offset:
            follower.position = self._tail_start
        original(self, follower)

    return [(MetadataFeed, "_send_next", give_next)]


def _ask_the_same_controller_again() -> list[Patch]:
    """A controller that fails or does not lead is asked again and again."""
    return [(ControllerChoice, "turn", lambda self, asked, hint: None)]


CONTROLLER_BUGS = (
    PlantedBug("elects outside of ISR and ELR", 40, _elect_outside_isr),
    PlantedBug("elects the fenced", 150, _elect_the_fenced),
    PlantedBug("takes a crash for a clean stop", 300, _forget_unsynced_loss),
    PlantedBug("keeps who crashed among the eligible", 300, _keep_the_eligible_after_a_crash),
    PlantedBug("a restart keeps its place in the ISR", 60, _restart_keeps_its_isr),
    PlantedBug("no leader epoch of its own for a leader", 20, _no_leader_epoch_bump),
    PlantedBug("fenced or restarted brokers join the ISR", 60, _isr_of_fenced_brokers),
    PlantedBug("metadata log sends before it persists", 20, _send_before_the_disk_has_it),
    PlantedBug("controller answers before the commit", 10, _answer_before_the_commit),
    PlantedBug("controller answers when another one leads", 150, _answer_after_the_leadership),
    PlantedBug("controller fences after one refusal", 20, _fence_after_one_refusal),
    PlantedBug("controller takes silence for a refusal", 150, _take_silence_for_a_refusal),
    PlantedBug("metadata feed leaves out what its tail has dropped", 20, _leave_out_what_the_tail_has_dropped, 1),
    PlantedBug("leads by an image of an earlier life", 60, _lead_by_an_image_of_an_earlier_life),
    PlantedBug("joins parts of two metadata streams", 20, _join_parts_of_two_streams),
    PlantedBug("takes a part of a metadata entry for all of it", 20, _follow_from_what_is_not_built),
    PlantedBug("is unfenced before it serves", 60, _report_metadata_before_serving),
    PlantedBug("stops before it has handed over", 150, _stop_by_any_answer),
    PlantedBug("hands over without a wait for replicas that catch up", 150, _hand_over_at_once, seen=18),
    PlantedBug("asks the same controller again", 10, _ask_the_same_controller_again),
)
