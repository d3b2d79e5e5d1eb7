"""Bugs planted into the Raft core, each of which the simulation must find: ``python -m sim.planted_bugs``.

Each leaves out one rule of the paper, the thesis or this project.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sim import planting
from sim.minimiser import minimise
from sim.outcome import NEVER, Outcome
from sim.planting import Finding, Patch, PlantedBug, find
from sim.runs import run
from sim.schedule import draw_schedule

from tidelog_quorum.raft.core import election, follower, membership, snapshots
from tidelog_quorum.raft.core.commands import Commit, ReadFailed
from tidelog_quorum.raft.core.durability import Durability
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import HardState, SnapshotResponse
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import Candidate, IncomingSnapshot, Replica
from tidelog_quorum.raft.core.voters import VoterHistory, VoterSet


def run_seed(seed: int) -> Outcome:
    """Run a seed without the core's own invariants."""
    return run(draw_schedule(seed), check_every=NEVER)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.planted_bugs", description=__doc__)
    return planting.main(parser, PLANTED_BUGS, _find_by_name, arguments)


def _find_by_name(name: str) -> Finding:
    return find(BY_NAME[name], run_seed, _minimised)


def _minimised(seed: int, violated: str) -> Sequence[object]:
    return minimise(draw_schedule(seed), violated, check_every=NEVER)[0].actions


def _skip_the_sync() -> list[Patch]:
    def defer(self: Durability, send: Any, *, acknowledges_log: bool) -> None:
        self._deferred.append((0, send))

    return [(Durability, "defer", defer)]


def _acknowledge_before_durable() -> list[Patch]:
    def defer(self: Durability, send: Any, *, acknowledges_log: bool) -> None:
        self._deferred_for_term.append((self._hard_state_sequence, send))

    return [(Durability, "defer", defer)]


def _starts_with(change: Callable[[HardState], HardState]) -> list[Patch]:
    start = Replica.__init__

    def forgetful(self: Replica, *arguments: Any, hard_state: HardState | None = None, **options: Any) -> None:
        start(self, *arguments, hard_state=change(hard_state or HardState()), **options)

    return [(Replica, "__init__", forgetful)]


def _forget_the_vote() -> list[Patch]:
    return _starts_with(lambda saved: HardState(saved.term))


def _forget_the_term() -> list[Patch]:
    return _starts_with(lambda saved: HardState())


def _commit_older_terms_by_count() -> list[Patch]:
    def advance_commit(self: Replica, leader: Leadership) -> None:
        index = leader.majority_index(self.durability.last_index)
        if index > self.commit_index:
            self.commit_index = index
            leader.reads.start_early(index)

    return [(Replica, "advance_commit", advance_commit)]


def _accept_stale_appends() -> list[Patch]:
    original = follower.on_append_request

    def on_append_request(self: Replica, request: Any) -> None:
        original(self, replace(request, term=max(request.term, self.term)))

    def follow_leader(self: Replica, leader_id: int) -> None:
        self.follow(leader_id)
        self.leader_contact_ms = self.now_ms
        self.restart_election_timer()

    return [(follower, "on_append_request", on_append_request), (follower, "follow_leader", follow_leader)]


def _drop_matching_entries() -> list[Patch]:
    def first_difference(self: RaftLog, entries: Any) -> int | None:
        kept = [entry.index for entry in entries if entry.index > self.start_index]
        return kept[0] if kept else None

    original = follower._take_entries

    def take_entries(self: Replica, entries: Any) -> None:
        after = tuple(entry for entry in entries if entry.index > self.commit_index)
        original(self, after)

    return [(RaftLog, "first_difference", first_difference), (follower, "_take_entries", take_entries)]


def _skip_the_previous_entry_check() -> list[Patch]:
    def has_previous(self: Replica, request: Any) -> bool:
        return bool(request.prev_index <= self.log.last_index)

    return [(follower, "_has_previous", has_previous)]


def _count_replaced_entries_as_durable() -> list[Patch]:
    def forget_from(self: Durability, index: int) -> None:
        self.last_index = min(self.last_index, index - 1)

    return [(Durability, "forget_from", forget_from)]


def _count_learners() -> list[Patch]:
    def majority_index(self: Leadership, durable_index: int) -> int:
        return self._majority([p.match_index for p in self.progress.values()], durable_index)

    return [(Leadership, "majority_index", majority_index)]


def _count_a_removed_leader() -> list[Patch]:
    def majority(self: Leadership, others: list[int], own: int) -> int:
        values = sorted([*others, own], reverse=True)
        return values[len(values) // 2]

    return [(Leadership, "_majority", majority)]


def _refusal_without(rule: str) -> list[Patch]:
    original = membership._refusal_of_change

    def refusal_of_change(self: Replica, leader: Leadership) -> Any:
        refusal = original(self, leader)
        return None if refusal is not None and rule in refusal[1] else refusal

    return [(membership, "_refusal_of_change", refusal_of_change)]


def _two_changes_at_once() -> list[Patch]:
    return _refusal_without("is not committed yet")


def _change_before_own_term() -> list[Patch]:
    return _refusal_without("has not committed an entry of its own term")


def _keep_voters_of_dropped_entries() -> list[Patch]:
    def truncate_from(self: VoterHistory, index: int) -> None:
        while self._indexes[-1] > index and len(self._indexes) > 1:
            self._indexes.pop()
            self._sets.pop()
        if self._indexes[-1] >= index:
            self._indexes[-1] = index - 1

    return [(VoterHistory, "truncate_from", truncate_from)]


def _vote_without_log_check() -> list[Patch]:
    return [(RaftLog, "is_covered_by", lambda _self, _term, _index: True)]


def _vote_twice() -> list[Patch]:
    original = election.on_vote_request

    def on_vote_request(self: Replica, request: Any) -> None:
        if self.leader_id is None and request.term == self.term and not request.pre_vote:
            self.hard_state = HardState(self.term, None)
        original(self, request)

    return [(election, "on_vote_request", on_vote_request)]


def _count_votes_of_older_terms() -> list[Patch]:
    def on_vote_response(self: Replica, response: Any) -> None:
        if response.granted and isinstance(self.role, Candidate) and self.role.pre_vote == response.pre_vote:
            election._count_vote(self, self.role, response.sender_id)

    return [(election, "on_vote_response", on_vote_response)]


def _no_stickiness() -> list[Patch]:
    return [(election, "has_live_leader", lambda _replica: False)]


def _no_pre_vote() -> list[Patch]:
    original = election._campaign

    def campaign(self: Replica, *, pre_vote: bool, transfer: bool = False) -> None:
        original(self, pre_vote=False, transfer=transfer)

    # Without a pre-vote, the one defence left is that voters who hear a leader do not answer: take it as well.
    return [(election, "_campaign", campaign), (election, "has_live_leader", lambda _replica: False)]


def _no_check_quorum() -> list[Patch]:
    return [(Leadership, "quorum_deadline_ms", property(lambda _self: None))]


def _apply_before_durable() -> list[Patch]:
    def add_commit(self: Raft, commands: list[Any]) -> None:
        start, end = self.applied_index + 1, self.commit_index + 1
        if start < end:
            self.applied_index = end - 1
            commands.append(Commit(self.log.slice(start, end)))

    return [(Raft, "_add_commit", add_commit)]


def _install_older_snapshots() -> list[Patch]:
    def has_all_of(_replica: Replica, _snapshot: Any) -> bool:
        return False

    return [(snapshots, "_has_all_of", has_all_of), (snapshots, "drop_superseded", lambda _replica: None)]


def _take_chunks_out_of_place() -> list[Patch]:
    def accepts(self: IncomingSnapshot, request: Any) -> bool:
        return bool(request.position + len(request.chunk) <= self.snapshot.size and request.chunk)

    return [(IncomingSnapshot, "accepts", accepts)]


def _acknowledge_snapshots_at_once() -> list[Patch]:
    original = snapshots._take_chunk

    def take_chunk(self: Replica, incoming: Any, request: Any) -> None:
        original(self, incoming, request)
        if incoming.is_whole:
            response = SnapshotResponse(
                self.node_id, self.term, incoming.snapshot.last_index, incoming.snapshot.last_term, 0, True
            )
            self.reply(request.sender_id, response)

    return [(snapshots, "_take_chunk", take_chunk)]


def _read_without_quorum() -> list[Patch]:
    return [(Leadership, "confirmed_context", lambda self: self.reads.context)]


def _read_before_own_term() -> list[Patch]:
    def on_read_requested(self: Raft, request_id: int) -> None:
        if isinstance(self.role, Leadership):
            self.role.reads.add(request_id, self.commit_index)
        else:
            self.outbox.append(ReadFailed(request_id))

    return [(Raft, "_on_read_requested", on_read_requested)]


def _never_update_an_address() -> list[Patch]:
    return [(Leadership, "note_endpoints", lambda _self, _sender_id, _directory_id, _endpoints: None)]


def _ignore_directory_ids() -> list[Patch]:
    def is_voter(self: VoterSet, voter_id: int, _directory_id: bytes) -> bool:
        return voter_id in self

    def admit(self: Leadership, sender_id: int, _directory_id: bytes, _now_ms: int) -> Any:
        return self.progress.get(sender_id)

    return [(VoterSet, "is_voter", is_voter), (Leadership, "admit", admit)]


PLANTED_BUGS = (
    PlantedBug("sends before the disk has it", 5, _skip_the_sync),
    PlantedBug("acknowledges entries before they are durable", 5, _acknowledge_before_durable),
    PlantedBug("forgets its vote over a restart", 200, _forget_the_vote),
    PlantedBug("forgets its term over a restart", 30, _forget_the_term),
    PlantedBug("commits an older term's entry by count", 60, _commit_older_terms_by_count),
    PlantedBug("accepts appends of an older term", 100, _accept_stale_appends),
    PlantedBug("drops entries that match", 100, _drop_matching_entries),
    PlantedBug("takes entries without the one before", 60, _skip_the_previous_entry_check),
    PlantedBug("counts replaced entries as durable", 500, _count_replaced_entries_as_durable),
    PlantedBug("counts learners", 60, _count_learners),
    PlantedBug("counts a leader that was removed", 300, _count_a_removed_leader),
    PlantedBug("begins a change while another is open", 30, _two_changes_at_once),
    PlantedBug("changes voters before it committed in its term", 30, _change_before_own_term),
    PlantedBug("keeps the voters of a dropped entry", 300, _keep_voters_of_dropped_entries),
    PlantedBug("votes for shorter logs", 60, _vote_without_log_check),
    PlantedBug("votes twice in a term", 30, _vote_twice),
    PlantedBug("counts votes of older terms", 600, _count_votes_of_older_terms),
    PlantedBug("votes although it hears a leader", 120, _no_stickiness),
    PlantedBug("campaigns without asking first", 60, _no_pre_vote),
    PlantedBug("leads on without a majority", 1_000, _no_check_quorum),
    PlantedBug("applies what is not on its disk", 5, _apply_before_durable),
    PlantedBug("installs a snapshot older than its state", 1_200, _install_older_snapshots),
    PlantedBug("takes a snapshot's chunks out of place", 150, _take_chunks_out_of_place),
    PlantedBug("acknowledges a snapshot before it is durable", 40, _acknowledge_snapshots_at_once),
    PlantedBug("reads without asking a majority", 500, _read_without_quorum),
    PlantedBug("reads before it committed in its term", 200, _read_before_own_term),
    PlantedBug("knows a voter by its first address alone", 60, _never_update_an_address),
    PlantedBug("takes a new disk for the old one", 60, _ignore_directory_ids),
)
BY_NAME = {bug.name: bug for bug in PLANTED_BUGS}


if __name__ == "__main__":
    sys.exit(main())
