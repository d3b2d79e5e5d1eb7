"""What a voter knows and does while it leads: its followers' progress, what to send them, what is committed.

Appends may leave before the leader's own disk has the entries; the leader counts itself only up to
what its disk acknowledged (thesis 10.2.1), and counts only entries of its own term (paper 5.4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog_quorum.raft.core.commands import Send
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import AppendRequest, AppendResponse, Entry
from tidelog_quorum.raft.core.progress import Progress
from tidelog_quorum.raft.core.reads import ReadQueue


class Leadership:
    """One term of office, from the election to the resignation.

    ``start_index`` is the index of the term's no-op: once it is committed, the leader knows the commit index.
    """

    def __init__(
        self, node_id: int, peers: Iterable[int], term: int, log: RaftLog, config: RaftConfig, now_ms: int
    ) -> None:
        self.start_index = log.last_index + 1
        self.reads = ReadQueue()
        self.next_heartbeat_ms = now_ms + config.heartbeat_interval_ms
        self.progress = {peer: Progress(next_index=self.start_index, contact_ms=now_ms) for peer in peers}
        self._node_id = node_id
        self._term = term
        self._log = log
        self._config = config

    @property
    def quorum_deadline_ms(self) -> int | None:
        """When to resign unless more followers are heard from (check quorum, thesis 6.2); None for a single voter."""
        if not self.progress:
            return None
        contacts = sorted((p.contact_ms for p in self.progress.values()), reverse=True)
        return contacts[(len(contacts) + 1) // 2 - 1] + self._config.election_timeout_ms

    def majority_index(self, durable_index: int) -> int:
        """Return the last index that is on the disks of a majority; ``durable_index`` is the leader's own."""
        return self._majority([p.match_index for p in self.progress.values()], durable_index)

    def confirmed_context(self) -> int:
        """Return the last read context that a majority has echoed."""
        return self._majority([p.acknowledged_context for p in self.progress.values()], self.reads.context)

    def on_response(self, response: AppendResponse, now_ms: int) -> None:
        """Learn from a follower's answer of this term."""
        progress = self.progress[response.sender_id]
        progress.contact_ms = now_ms
        progress.acknowledged_context = max(progress.acknowledged_context, response.read_context)
        if response.success:
            progress.acknowledged(response.match_index)
        else:
            hint = self._log.latest_not_after(response.match_index, response.conflict_term)
            progress.refused(response.rejected_prev_index, hint)

    def heartbeats(self, commit_index: int, now_ms: int) -> Iterator[Send]:
        """Yield a message to every follower when they are due."""
        if now_ms < self.next_heartbeat_ms:
            return
        self.next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        for peer, progress in self.progress.items():
            yield self._append(peer, progress, (), commit_index)

    def appends(self, commit_index: int) -> Iterator[Send]:
        """Yield what followers lack and their windows allow, then news of commits and reads that did not go along."""
        for peer, progress in self.progress.items():
            while progress.may_send_entries(self._log.last_index, self._config.max_inflight_appends):
                entries = self._log.batch(progress.next_index, self._config.max_append_bytes)
                yield self._append(peer, progress, entries, commit_index)
                progress.entries_sent(entries[-1].index)
            news = not progress.probing and progress.sent_commit_index < commit_index
            if news or progress.sent_context < self.reads.context:
                yield self._append(peer, progress, (), commit_index)

    def check_invariants(self) -> None:
        """Assert those of every follower's progress."""
        for progress in self.progress.values():
            progress.check_invariants(self._log.last_index, self._config.max_inflight_appends)

    def _majority(self, followers: list[int], own: int) -> int:
        values = sorted([*followers, own], reverse=True)
        return values[len(values) // 2]

    def _append(self, peer: int, progress: Progress, entries: tuple[Entry, ...], commit_index: int) -> Send:
        progress.sent_context = self.reads.context
        progress.sent_commit_index = commit_index
        prev_index = progress.next_index - 1
        message = AppendRequest(
            self._node_id,
            self._term,
            prev_index,
            self._log.term_at(prev_index),
            commit_index,
            entries,
            self.reads.context,
        )
        return Send(peer, message)
