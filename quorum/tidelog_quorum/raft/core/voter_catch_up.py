"""A replica that shall become a voter as soon as it has caught up (thesis 4.2.1).

It has to in *rounds*: in each it must get all that the leader had when the round began. When a round took no longer
than an election timeout, what is missing is little, and the voters' availability does not suffer from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.voters import Voter


@dataclass(slots=True)
class VoterCatchUp:
    """The request of an operator; ``target_index`` is where the present round ends."""

    request_id: int
    voter: Voter
    deadline_ms: int
    target_index: int
    round_began_ms: int

    def is_caught_up(self, match_index: int, leader_last_index: int, now_ms: int, election_timeout_ms: int) -> bool:
        """Return whether the last round was quick; begins the next one when it was not."""
        if match_index < self.target_index:
            return False
        if now_ms - self.round_began_ms <= election_timeout_ms:
            return True
        self.target_index, self.round_began_ms = leader_last_index, now_ms
        return False
