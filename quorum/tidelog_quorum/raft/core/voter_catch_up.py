"""A replica that is to become a voter as soon as it has caught up (thesis 4.2.1).

It catches up in *rounds*: in each it must receive everything that the leader had when the round began. Once a round
takes no longer than an election timeout, little is missing, and the new vote does not reduce availability.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.voters import Voter


@dataclass(slots=True)
class VoterCatchUp:
    """The request of an operator; ``target_index`` is the end of the current round."""

    request_id: int
    voter: Voter
    deadline_ms: int
    target_index: int
    round_began_ms: int

    def is_caught_up(self, match_index: int, leader_last_index: int, now_ms: int, election_timeout_ms: int) -> bool:
        """Return whether the last round was quick; otherwise begin the next one."""
        if match_index < self.target_index:
            return False
        if now_ms - self.round_began_ms <= election_timeout_ms:
            return True
        self.target_index, self.round_began_ms = leader_last_index, now_ms
        return False
