"""The healthy phase at the end of a run: faults end, and within bounded simulated time all must be well again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raft_properties import PropertyViolatedError, require
from sim.nemesis import Nemesis
from sim.world import FOREVER, World

from tidelog_quorum.raft.core.raft import Raft

ELECTION_BOUND_MS = 3_000
"""Thirty election timeouts; a fresh election of five voters takes two or three."""
CALM_MS = 500
"""The time for which a leader must stay undisturbed."""
POLL_MS = 10
REQUEST_BOUND_MS = 520
"""The longest time-out of a request, by the slowest clock."""
ASK_EVERY_MS = 200
"""The interval at which an operator requests a pending change again."""


class Recovery:
    """Heals a world and waits for progress; ``outcome`` says how far it came."""

    def __init__(self, world: World, nemesis: Nemesis) -> None:
        self.world = world
        self.nemesis = nemesis
        self.cluster = world.cluster
        self._marker = 0
        self._ask_at_ms = 0

    def run(self) -> bool:
        """Return False when too many replicas are gone for good for anything to be expected."""
        self._heal()
        if not all(self.nemesis.has_majority(voters) for voters in self.nemesis.sets_in_use()):
            return False
        deaf = self.world.schedule.deaf
        if deaf == "early":
            self._stay_calm_beside_a_deaf_voter(deaf)
        self._make_progress()
        self._replace_the_lost()
        self._bring_back_the_unheard()
        self._await(self._has_converged, "Convergence")
        self._await(self._is_found_at_its_address, "AddressKnown")
        if deaf.startswith("late"):
            self._stay_calm_beside_a_deaf_voter(deaf)
            self._await(self._has_converged, "Convergence")
        self._pass(REQUEST_BOUND_MS)
        self.nemesis.check_answers()
        self.cluster.checker.check_nothing_lost()
        return True

    def _heal(self) -> None:
        world = self.world
        world.cuts.clear()
        world.noises.clear()
        self.nemesis.stop()
        for node_id, around in world.around.items():
            around.stalled_until_us = 0
            if around.paused_until_us > world.now_us:
                around.paused_until_us = world.now_us
                world.resume(node_id)
            world.restart(node_id, around.life)

    def _stay_calm_beside_a_deaf_voter(self, when: str) -> None:
        """A voter that hears nobody, but is heard, takes the leadership from nobody (thesis 9.6, 4.2.3)."""
        leader_id = self.world.leader()
        ids = [v for v in reversed(self.cluster.checker.latest_voters.ids) if when == "early" or v != leader_id]
        deaf = next((v for v in ids if self.nemesis.can_lose(v)), None)
        # While a change of voters is open, those who know of it and those with the latest log may need each other.
        if deaf is None or len({voters.ids for voters in self.nemesis.sets_in_use()}) > 1:
            return
        for other in self.cluster.nodes:
            if other == leader_id or when != "late to leader":
                self.world.cuts[(other, deaf)] = FOREVER
        if when == "early":
            # It may have led itself; and a change of voters that was under way may still cost a leader its place.
            self._await(lambda: self.world.leader() not in (None, deaf), "ProgressBesideDeafVoter")
            self._pass(CALM_MS)
        before = self._leader_and_term()
        self._pass(CALM_MS)
        require(self._leader_and_term() == before, "StableLeader", f"{before}, {self._describe()}; deaf is {deaf}")
        self._marker = 0
        self._await(lambda: self._has_committed_since_healed(deaf), "ProgressBesideDeafVoter")
        self.world.cuts.clear()

    def _leader_and_term(self) -> tuple[int | None, int]:
        leader_id = self.world.leader()
        raft = None if leader_id is None else self.cluster.nodes[leader_id].raft
        return leader_id, raft.term if raft is not None else 0

    def _make_progress(self) -> None:
        self._marker = 0
        self._await(lambda: self._has_committed_since_healed(None), "Progress")

    def _has_committed_since_healed(self, without: int | None) -> bool:
        """Return whether a proposal made after the faults is committed; make one if none is under way."""
        if self._marker and self._marker <= len(self.cluster.committed):
            return True
        leader_id = self.world.leader()
        if leader_id is None or leader_id == without:
            return False
        self.world.set_clock(leader_id)
        self._marker = self.cluster.offer(leader_id, b"healed") or self._marker
        self.world.settle(leader_id)
        return False

    def _replace_the_lost(self) -> None:
        """An operator removes voters whose disk is gone, and gives those with a new disk their vote back."""
        for old in self.cluster.checker.latest_voters:
            if not self.nemesis.is_itself(old.voter_id, old.directory_id):
                self._await(partial(self._has_no_vote, old.voter_id), "Removal")
                if not self.world.around[old.voter_id].has_failed:
                    self._await(partial(self._has_vote, old.voter_id), "Addition")

    def _bring_back_the_unheard(self) -> None:
        """Give those a vote who have none and are in a later term than the leader: nobody listens to them else."""
        leader_id, term = self._leader_and_term()
        voters = self.cluster.checker.latest_voters
        for node_id, raft in self.cluster.running():
            if leader_id is not None and node_id not in voters and raft.term > term:
                self._await(partial(self._has_vote, node_id), "Addition")

    def _has_no_vote(self, node_id: int) -> bool:
        if node_id not in self.cluster.checker.latest_voters:
            return True
        leader_id = self._ask_leader()
        if leader_id is not None:
            self.nemesis.request_removal(leader_id, node_id)
        return False

    def _has_vote(self, node_id: int) -> bool:
        if node_id in self.cluster.checker.latest_voters:
            return True
        leader_id = self._ask_leader()
        if leader_id is not None:
            self.nemesis.request_voter(leader_id, node_id, ASK_EVERY_MS)
        return False

    def _ask_leader(self) -> int | None:
        """Return who is to be asked for a change now; None when it was asked a moment ago."""
        leader_id = self.world.leader()
        if leader_id is None or self.world.now_ms < self._ask_at_ms:
            return None
        self._ask_at_ms = self.world.now_ms + ASK_EVERY_MS
        return leader_id

    def _has_converged(self) -> bool:
        voters, end = self.cluster.checker.latest_voters, len(self.cluster.committed)
        leader_id = self.world.leader()
        for node_id, raft in self.cluster.running():
            current = voters.get(node_id)
            if current is not None and not self.nemesis.is_itself(node_id, current.directory_id):
                continue
            if not _is_level(raft, end) or raft.leader_id != leader_id:
                return False
        return leader_id is not None

    def _is_found_at_its_address(self) -> bool:
        """Return whether every voter with its own directory listens at its address in the voter set."""
        return all(
            self.nemesis.is_at_its_address(v) or not self.nemesis.is_itself(v.voter_id, v.directory_id)
            for v in self.cluster.checker.latest_voters
        )

    def _pass(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_us + duration_ms * 1000)

    def _await(self, condition: Callable[[], bool], name: str) -> None:
        end_us = self.world.now_us + ELECTION_BOUND_MS * 1000
        while not condition():
            if self.world.now_us >= end_us:
                raise PropertyViolatedError(name, f"not within {ELECTION_BOUND_MS} ms: {self._describe()}")
            self._pass(POLL_MS)

    def _describe(self) -> str:
        return "; ".join(
            f"{i} {type(raft.role).__name__} term={raft.term} leader={raft.leader_id} commit={raft.commit_index} "
            f"applied={raft.applied_index} last={raft.log.last_index} voters={raft.voters.current.ids}"
            for i, raft in self.cluster.running()
        )


def _is_level(raft: Raft, end: int) -> bool:
    return raft.applied_index == end == raft.log.last_index
