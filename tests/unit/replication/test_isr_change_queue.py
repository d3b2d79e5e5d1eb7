"""ISR proposals on their way to the controller, as scenarios of events and commands."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.broker.report import Report
from tidelog_node.replication.commands import ProposeIsr
from tidelog_node.replication.events import IsrChangeAccepted, IsrChangeRefused
from tidelog_node.replication.isr_changes import (
    Command,
    Event,
    InspectPartitions,
    IsrCallAnswered,
    IsrCallFailed,
    IsrChangeQueue,
    IsrChangeSettings,
    IsrProposed,
    IsrRefused,
    IsrStored,
    PartitionsInspected,
    SendProposals,
    SettleProposal,
    TimePassed,
)

STORED = IsrStored(LeaderEpoch(5), PartitionEpoch(9), (BrokerId(1), BrokerId(2)))
INELIGIBLE = IsrRefused(ErrorCode.INELIGIBLE_REPLICA, "broker 2 is fenced")
LOST = IsrCallFailed(error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered"))


def proposal(number: int = 1, epoch: int = 5) -> ProposeIsr:
    members = ((BrokerId(1), BrokerEpoch(3)), (BrokerId(2), BrokerEpoch(4)))
    return ProposeIsr(number, LeaderEpoch(epoch), PartitionEpoch(8), members)


def accepted(number: int = 1) -> IsrChangeAccepted:
    return IsrChangeAccepted(number, STORED.leader_epoch, STORED.partition_epoch, frozenset(STORED.isr))


class Queue:
    """The queue with its clock and the leader epochs of its partitions; reports are kept as text."""

    def __init__(self, **settings: int) -> None:
        self.core: IsrChangeQueue[str] = IsrChangeQueue(IsrChangeSettings(**settings))
        self.now_ms = 100
        self.epochs: dict[str, LeaderEpoch] = {}
        self.reports: list[str] = []

    def tell(self, event: Event[str]) -> list[Command[str]]:
        commands = self.core.step(event, self.now_ms)
        self.core.check_invariants()
        self.reports += [c.text % c.arguments for c in commands if isinstance(c, Report)]
        if len(commands) == 1 and isinstance(commands[0], InspectPartitions):
            return self.tell(
                PartitionsInspected({p: self.epochs.get(p, LeaderEpoch(5)) for p in commands[0].partitions})
            )
        return [c for c in commands if not isinstance(c, Report)]

    def propose(self, *partitions: str, number: int = 1) -> None:
        for partition in partitions:
            assert self.tell(IsrProposed(partition, proposal(number, self.epochs.get(partition, 5)))) == []

    def wait(self) -> list[Command[str]]:
        """Let time pass until the next deadline."""
        assert self.core.next_deadline_ms is not None
        self.now_ms = self.core.next_deadline_ms
        return self.tell(TimePassed())

    def sent(self) -> list[str]:
        """Return the partitions of the call that begins at the next deadline."""
        [command] = self.wait()
        assert isinstance(command, SendProposals)
        return list(command.proposals)


def test_proposals_of_one_moment_go_into_one_call() -> None:
    queue = Queue()
    assert queue.core.next_deadline_ms is None
    queue.propose("a", "b")
    assert queue.core.next_deadline_ms == queue.now_ms
    assert queue.sent() == ["a", "b"]
    assert queue.core.next_deadline_ms is None


def test_call_has_no_more_proposals_than_the_bound_and_the_rest_follows_it() -> None:
    queue = Queue(max_per_request=2)
    queue.propose("a", "b", "c")
    assert queue.sent() == ["a", "b"]
    assert queue.tell(TimePassed()) == [], "one call at a time"
    queue.tell(IsrCallAnswered({"a": STORED, "b": STORED}))
    assert queue.sent() == ["c"]


def test_proposal_takes_the_place_of_one_that_was_not_sent() -> None:
    queue = Queue()
    queue.propose("a")
    queue.propose("a", number=2)
    [command] = queue.wait()
    assert command == SendProposals({"a": proposal(2)})


def test_proposal_of_an_earlier_leadership_or_of_a_failed_log_is_not_sent() -> None:
    queue = Queue()
    queue.propose("old", "a", "failed")
    queue.epochs = {"old": LeaderEpoch(6), "failed": LeaderEpoch(-1)}
    assert queue.sent() == ["a"]


def test_queue_rests_when_no_proposal_of_a_turn_is_current() -> None:
    queue = Queue()
    queue.propose("old")
    queue.epochs = {"old": LeaderEpoch(6)}
    assert queue.wait() == []
    assert queue.core.next_deadline_ms is None


def test_accepted_proposals_are_settled_at_once() -> None:
    queue = Queue()
    queue.propose("a")
    queue.sent()
    assert queue.tell(IsrCallAnswered({"a": STORED})) == [SettleProposal("a", accepted())]
    assert queue.reports == ["The ISR of a is now [1, 2]"]


def test_refused_proposals_are_settled_after_a_backoff_and_the_others_before() -> None:
    queue = Queue()
    queue.propose("a", "b", "c")
    queue.sent()
    assert queue.tell(IsrCallAnswered({"a": INELIGIBLE, "b": STORED})) == [SettleProposal("b", accepted())]
    queue.propose("d")
    assert queue.core.next_deadline_ms == queue.now_ms + 50
    assert queue.tell(TimePassed()) == [], "nothing is sent before the backoff is over"
    assert queue.wait() == [
        SettleProposal("a", IsrChangeRefused(1, ErrorCode.INELIGIBLE_REPLICA)),
        SettleProposal("c", IsrChangeRefused(1, ErrorCode.UNKNOWN_SERVER_ERROR)),
    ]
    assert queue.sent() == ["d"]
    assert queue.reports[0] == "The controller rejected the ISR [1, 2] of a: broker 2 is fenced"


def test_change_that_elects_another_leader_is_no_refusal_to_wait_for() -> None:
    queue = Queue()
    queue.propose("a")
    queue.sent()
    elected = IsrRefused(ErrorCode.NEW_LEADER_ELECTED, "broker 2 leads")
    settled = SettleProposal("a", IsrChangeRefused(1, ErrorCode.NEW_LEADER_ELECTED))
    assert queue.tell(IsrCallAnswered({"a": elected})) == [settled]
    assert queue.core.next_deadline_ms is None


def test_call_that_failed_is_an_unknown_outcome_of_each_of_its_proposals() -> None:
    queue = Queue()
    queue.propose("a", "b")
    queue.sent()
    assert queue.tell(LOST) == []
    unknown = IsrChangeRefused(1, ErrorCode.REQUEST_TIMED_OUT)
    assert queue.wait() == [SettleProposal("a", unknown), SettleProposal("b", unknown)]
    assert "Changing the ISR of 2 partitions failed, retrying" in queue.reports[0]


def test_backoff_doubles_with_calls_in_a_row_that_fail_up_to_its_bound_and_ends_with_one_that_does_not() -> None:
    queue = Queue(first_backoff_ms=50, max_backoff_ms=150)
    backoffs = []
    for number in range(1, 5):
        queue.propose("a", number=number)
        queue.sent()
        queue.tell(LOST)
        assert queue.core.next_deadline_ms is not None
        backoffs.append(queue.core.next_deadline_ms - queue.now_ms)
        queue.wait()
    assert backoffs == [50, 100, 150, 150]
    queue.propose("a", number=5)
    queue.sent()
    queue.tell(IsrCallAnswered({"a": STORED}))
    queue.propose("a", number=6)
    queue.sent()
    queue.tell(LOST)
    assert queue.core.next_deadline_ms == queue.now_ms + 50


def test_refusal_is_not_told_to_a_later_leadership_whose_proposal_has_the_same_id() -> None:
    """It would take its own proposal for refused, which the controller may yet store."""
    queue = Queue()
    queue.propose("a")
    queue.sent()
    queue.tell(IsrCallAnswered({"a": INELIGIBLE}))
    queue.epochs = {"a": LeaderEpoch(7)}
    queue.propose("a")
    assert queue.wait() == []
    assert queue.sent() == ["a"]
