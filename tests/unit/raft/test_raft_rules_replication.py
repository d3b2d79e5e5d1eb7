"""One test per rule of the paper's figure 2 about the log: appends, commits, and what a leader may have under way."""

from __future__ import annotations

import pytest
from raft_voter import TestedVoter, append, data

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import QuorumReplica
from tidelog_quorum.raft.core.commands import Commit, Persist, ProposalAccepted, ProposalRejected, Send
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.events import Persisted, Proposed, Tick
from tidelog_quorum.raft.core.messages import AppendRequest, AppendResponse, Entry, EntryKind
from tidelog_quorum.raft.core.progress import Probing, Replicating


def test_all_servers_apply_in_order_once_commit_index_passes() -> None:
    voter = TestedVoter()
    voter.receive_and_sync(append(2, 1, (0, 0), (data(1, 1), data(2, 1), data(3, 1)), commit=2))
    assert voter.of(Commit) == [Commit((data(1, 1), data(2, 1)))]
    voter.receive(append(2, 1, (3, 1), commit=3))
    assert voter.of(Commit) == [Commit((data(3, 1),))]


def test_all_servers_apply_only_what_their_own_disk_has() -> None:
    voter = TestedVoter()
    voter.receive(append(2, 1, (0, 0), (data(1, 1),), commit=1))
    assert voter.of(Commit) == []
    voter.sync()
    assert voter.of(Commit) == [Commit((data(1, 1),))]


def test_append_of_an_older_term_is_refused_with_the_own_term() -> None:
    voter = TestedVoter(term=5)
    voter.receive(append(2, 4))
    assert voter.answer() == AppendResponse(1, 5, False, 0, 0, 0, 0)
    assert voter.raft.leader_id is None


@pytest.mark.parametrize(
    ("terms", "prev", "hint"),
    [([1, 1], (5, 3), (2, 1)), ([1, 1, 2, 2], (3, 3), (3, 2)), ([1, 4, 4, 4], (3, 2), (1, 1)), ([], (2, 1), (0, 0))],
)
def test_append_is_refused_with_a_hint_when_the_log_has_no_such_previous_entry(
    terms: list[int], prev: tuple[int, int], hint: tuple[int, int]
) -> None:
    voter = TestedVoter(terms=terms, term=5)
    voter.receive(append(2, 5, prev))
    assert voter.answer() == AppendResponse(1, 5, False, hint[0], hint[1], prev[0], 0)


def test_append_drops_conflicting_entries_and_all_that_follow() -> None:
    voter = TestedVoter(terms=[1, 1, 2, 2], term=3)
    voter.receive_and_sync(append(2, 3, (1, 1), (data(2, 1), data(3, 3))))
    assert voter.of(Persist) == [Persist(1, None, 3, (data(3, 3),))]
    assert voter.answer() == AppendResponse(1, 3, True, 3, 0, 0, 0)


def test_append_keeps_matching_entries_that_it_does_not_mention() -> None:
    voter = TestedVoter(terms=[1, 1, 1, 1], term=1)
    voter.receive(append(2, 1, (1, 1), (data(2, 1),)))
    assert voter.of(Persist) == []
    assert voter.raft.log.last_index == 4
    # What it proves equal is up to index 2 only.
    assert voter.answer() == AppendResponse(1, 1, True, 2, 0, 0, 0)


def test_append_is_acknowledged_only_after_it_is_on_disk() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1),)))
    assert voter.messages() == []
    # Nor may a later answer pass it.
    voter.receive(append(2, 1, (1, 1)))
    assert voter.messages() == []
    voter.sync()
    assert [m.match_index for m in voter.messages() if isinstance(m, AppendResponse)] == [1, 1]


def test_append_sets_commit_index_no_further_than_what_it_proves_equal() -> None:
    voter = TestedVoter(terms=[1, 1, 2], term=3)
    voter.receive(append(2, 3, (1, 1), commit=3))
    assert voter.raft.commit_index == 1


def test_append_never_contradicts_a_committed_entry() -> None:
    voter = TestedVoter(terms=[1, 1], term=1)
    voter.receive(append(2, 1, (2, 1), commit=2))
    with pytest.raises(TidelogError, match="index 2 is committed with term 1"):
        voter.receive(append(3, 2, (1, 1), (data(2, 2),)))


def test_append_of_a_second_leader_in_a_term_stops_the_voter() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1))
    with pytest.raises(TidelogError, match="term 1 has two leaders, 2 and 3"):
        voter.receive(append(3, 1))


def test_acknowledgement_of_replaced_entries_does_not_cover_their_replacements() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1), data(2, 1))))
    voter.receive(append(3, 2, (0, 0), (data(1, 2),)))
    voter.step(Persisted(1))
    assert voter.raft.durability.last_index == 0
    assert voter.messages() == []
    voter.step(Persisted(2))
    assert voter.answer() == AppendResponse(1, 2, True, 1, 0, 0, 0)


def test_leader_begins_with_a_no_op_to_all() -> None:
    voter = TestedVoter(terms=[1], term=1)
    voter.become_leader()
    no_op = Entry(2, 2, EntryKind.NO_OP, b"")
    assert voter.messages() == [AppendRequest(1, 2, 1, 1, 0, (no_op,), 0)] * 2
    assert voter.of(Persist)[0].entries == (no_op,)


def test_leader_sends_heartbeats() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.wait(99)
    assert voter.messages() == []
    voter.wait(1)
    assert voter.messages() == [AppendRequest(1, 1, 0, 0, 0, (), 0)] * 2


def test_leader_answers_a_proposal_with_its_index_and_replicates_those_of_one_moment_together() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    for index in (2, 3):
        voter.step(Proposed(b"%d" % index, 1))
        assert voter.commands == [ProposalAccepted(index, 1)]
    assert voter.raft.next_deadline_ms == voter.now_ms
    voter.step(Tick())
    both = (data(2, 1, b"2"), data(3, 1, b"3"))
    assert [m.entries for m in voter.messages() if isinstance(m, AppendRequest)] == [both]
    assert [write.entries for write in voter.of(Persist)] == [both]


def test_leader_of_another_epoch_and_a_follower_refuse_a_proposal() -> None:
    voter = TestedVoter()
    voter.step(Proposed(b"x", 0))
    assert voter.commands == [ProposalRejected(None, 0)]
    voter.become_leader()
    voter.step(Proposed(b"x", 0))
    assert voter.commands == [ProposalRejected(1, 1)]
    assert voter.raft.log.last_index == 1


def test_leader_commits_what_a_majority_of_disks_has() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    assert voter.raft.commit_index == 0, "its own disk does not have it yet"
    voter.sync()
    assert voter.raft.commit_index == 1


def test_leader_commits_by_two_followers_before_its_own_disk() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.ack(3, 1)
    assert voter.raft.commit_index == 1
    assert voter.of(Commit) == []
    voter.sync()
    assert len(voter.of(Commit)) == 1


def test_leader_commits_entries_of_older_terms_only_with_one_of_its_own() -> None:
    voter = TestedVoter(terms=[1, 2], term=2)
    voter.become_leader()
    voter.sync()
    voter.ack(2, 2)
    assert voter.raft.commit_index == 0
    voter.ack(2, 3)
    assert voter.raft.commit_index == 3


def test_leader_ignores_acknowledgements_of_an_older_term() -> None:
    voter = TestedVoter(terms=[1, 1], term=1)
    voter.become_leader()
    voter.sync()
    voter.receive(AppendResponse(2, 1, True, 3, 0, 0, 0))
    assert voter.raft.commit_index == 0


def test_leader_repairs_a_follower_by_its_hint() -> None:
    voter = TestedVoter(terms=[1, 1, 1, 3, 3], term=3)
    voter.become_leader()
    voter.receive(AppendResponse(2, 4, False, 5, 2, 5, 0))
    [request] = voter.messages()
    assert isinstance(request, AppendRequest)
    assert (request.prev_index, request.prev_term) == (3, 1)
    assert [e.index for e in request.entries] == [4, 5, 6]


def test_leader_bounds_a_batch_in_bytes_and_the_appends_under_way() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    for _ in range(6):
        voter.step(Proposed(b"abc", 1))
    voter.step(Tick())
    sizes = [len(m.entries) for m in voter.messages() if isinstance(m, AppendRequest)]
    assert sizes == [1, 1], "4 bytes in a batch, 2 batches under way, to the one follower that is known to match"
    voter.ack(2, 2)
    assert [len(m.entries) for m in voter.messages() if isinstance(m, AppendRequest)] == [1]


def test_leader_is_not_misled_by_late_answers() -> None:
    voter = TestedVoter(terms=[1, 1, 1], term=1)
    leader = voter.become_leader()
    voter.ack(2, 4)
    progress = leader.progress[2]
    voter.receive(AppendResponse(2, 2, False, 0, 0, 3, 0))
    assert (progress.match_index, progress.next_index, progress.state) == (4, 5, Replicating())
    voter.ack(2, 1)
    assert (progress.match_index, progress.next_index, progress.state) == (4, 5, Replicating())
    other = leader.progress[3]
    voter.receive(AppendResponse(3, 2, False, 2, 1, 3, 0))
    assert (other.next_index, other.state) == (3, Probing(is_sent=True))
    voter.receive(AppendResponse(3, 2, False, 0, 0, 1, 0))
    assert (other.next_index, other.state) == (3, Probing(is_sent=True))


def test_leader_tells_followers_of_a_commit_at_once() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.sync()
    voter.ack(2, 1)
    assert [(s.to, s.message.commit_index) for s in voter.of(Send) if isinstance(s.message, AppendRequest)] == [(2, 1)]


def test_leader_finds_a_lost_append_by_the_refused_heartbeat() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.step(Proposed(b"lost", 1))
    voter.step(Tick())
    voter.wait(100)
    [heartbeat] = [s.message for s in voter.of(Send) if s.to == 2 and isinstance(s.message, AppendRequest)]
    assert (heartbeat.prev_index, heartbeat.entries) == (2, ())
    voter.receive(AppendResponse(2, 1, False, 1, 1, 2, 0))
    [again] = voter.messages()
    assert isinstance(again, AppendRequest)
    assert [e.payload for e in again.entries] == [b"lost"]


def test_leader_never_changes_its_own_log() -> None:
    voter = TestedVoter(terms=[1], term=1)
    voter.become_leader()
    before = voter.raft.log.slice(1, 3)
    voter.receive(append(2, 1, (0, 0), (data(1, 1), data(2, 1))))
    assert voter.raft.log.slice(1, 3) == before
    with pytest.raises(TidelogError, match="term 2 has two leaders, 1 and 3"):
        voter.receive(append(3, 2, (1, 1), (data(2, 2),)))


def test_leader_bounds_the_bytes_under_way() -> None:
    config = RaftConfig(1000, 100, max_append_bytes=4, max_inflight_appends=100, max_inflight_bytes=10)
    voter = TestedVoter(config=config)
    leader = voter.become_leader()
    voter.ack(2, 1)
    for _ in range(6):
        voter.step(Proposed(b"abc", 1))
    voter.step(Tick())
    assert [m.entries[-1].index for to, m in voter.sent(AppendRequest) if to == 2] == [2, 3, 4]
    assert leader.progress[2].state.inflight_bytes == 9
    voter.ack(2, 3)
    assert [m.entries[-1].index for to, m in voter.sent(AppendRequest) if to == 2] == [5, 6]
    assert leader.progress[2].state.inflight_bytes == 9


def test_leader_sends_an_entry_larger_than_all_bounds_alone() -> None:
    config = RaftConfig(1000, 100, max_append_bytes=4, max_inflight_appends=100, max_inflight_bytes=10)
    voter = TestedVoter(config=config)
    voter.become_leader()
    voter.ack(2, 1)
    for payload in (b"a", b"b" * 50, b"c"):
        voter.step(Proposed(payload, 1))
    voter.step(Tick())
    assert [[e.index for e in m.entries] for to, m in voter.sent(AppendRequest) if to == 2] == [[2]]
    voter.ack(2, 2)
    assert [[e.index for e in m.entries] for to, m in voter.sent(AppendRequest) if to == 2] == [[3]]
    voter.ack(2, 3)
    assert [[e.index for e in m.entries] for to, m in voter.sent(AppendRequest) if to == 2] == [[4]]


def test_leader_probes_with_one_append_at_a_time() -> None:
    voter = TestedVoter(terms=[1, 1, 1], term=1)
    voter.become_leader()
    for _ in range(3):
        voter.step(Proposed(b"abc", 2))
        voter.step(Tick())
        assert voter.sent(AppendRequest) == []
    voter.receive(AppendResponse(2, 2, False, 1, 1, 3, 0))
    [(to, probe)] = voter.sent(AppendRequest)
    assert (to, probe.prev_index) == (2, 1)


def test_leader_begins_anew_behind_a_conflict_whatever_was_under_way() -> None:
    voter = TestedVoter(terms=[1, 1, 1], term=1)
    leader = voter.become_leader()
    voter.ack(2, 1)
    assert [m.prev_index for to, m in voter.sent(AppendRequest) if to == 2] == [1]
    voter.receive(AppendResponse(2, 2, False, 1, 1, 4, 0))
    progress = leader.progress[2]
    assert (progress.state, progress.next_index) == (Probing(is_sent=True), 2)
    [(_, probe)] = voter.sent(AppendRequest)
    assert (probe.prev_index, probe.entries[0].index) == (1, 2)
    voter.receive(AppendResponse(2, 2, False, 0, 0, 3, 0))
    assert voter.sent(AppendRequest) == [], "the second append that was under way is refused as well, and that is old"


def test_append_before_the_commit_index_is_acknowledged_without_truncating() -> None:
    voter = TestedVoter(terms=[1, 1, 1], term=1)
    voter.receive(append(2, 1, (3, 1), commit=3))
    voter.receive(append(2, 1, (0, 0), (data(1, 1),), commit=1))
    assert voter.answer() == AppendResponse(1, 1, True, 1, 0, 0, 0)
    assert (voter.raft.log.last_index, voter.raft.commit_index) == (3, 3)


def test_append_is_refused_with_a_hint_not_before_the_commit_index() -> None:
    voter = TestedVoter(terms=[1, 2, 2, 2], term=2)
    voter.receive(append(2, 2, (2, 2), commit=2))
    voter.receive_and_sync(append(3, 5, (4, 1)))
    assert voter.answer() == AppendResponse(1, 5, False, 2, 2, 4, 0)


def test_append_whose_previous_entry_contradicts_a_committed_one_stops_the_voter() -> None:
    voter = TestedVoter(terms=[1, 1], term=1)
    voter.receive(append(2, 1, (2, 1), commit=2))
    with pytest.raises(TidelogError, match="index 2 is committed with term 1"):
        voter.receive(append(3, 3, (2, 2)))


def test_refusal_does_not_wait_for_a_write_of_entries() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1),)))
    voter.receive(append(2, 1, (9, 1)))
    assert voter.answer() == AppendResponse(1, 1, False, 1, 1, 9, 0)


def test_leader_describes_all_replicas() -> None:
    voter = TestedVoter()
    leader = voter.become_leader()
    voter.sync()
    voter.now_ms += 30
    voter.ack(2, 1)
    voter.now_ms += 20
    here, endpoints = Endpoint("h", 1), Endpoints.at("h", 1)
    everywhere = tuple(endpoints)
    assert leader.replicas(1, voter.now_ms, lambda _: endpoints) == (
        (
            QuorumReplica(1, 1, here, b"", 0, 0, everywhere),
            QuorumReplica(2, 1, here, b"", 20, 20, everywhere, 20),
            QuorumReplica(3, 0, here, b"", -1, -1, everywhere, 50),
        ),
        (),
    )


def test_replica_was_caught_up_when_it_had_what_the_leader_had_at_its_contact_before() -> None:
    voter = TestedVoter()
    leader = voter.become_leader()
    voter.ack(2, 1)
    for index in (2, 3):
        voter.now_ms += 10
        voter.step(Proposed(b"x", 1))
        voter.step(Tick())
        voter.ack(2, index - 1)
    assert leader.progress[2].caught_up_ms == 110, "at 120 ms it has index 2, which was the end at 110 ms"
